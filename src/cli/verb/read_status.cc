#include "cli/verb/read_status.h"

#include "host/ask_or_open.h"
#include "host/session.h"
#include "report/report_json.h"
#include "report/status_json.h"

namespace eplog::cli {
namespace {

// A look is always allowed, whatever is missing.
OpenOptions ByForce() {
  OpenOptions open;
  open.force = true;
  return open;
}

}  // namespace

Result<Json> ReadStatus(std::string_view verb, const ArrayFile& file) {
  const auto look = [](Session& session) -> Result<Json> {
    ArrayStatus status = session.array().GetStatus();
    status.read_only = false;  // only how it was looked at
    return StatusToJson(status, ServingInfo{});
  };
  return AskOrLook(verb, file, {{"verb", "status"}}, look, ByForce());
}

Result<Json> ReadLost(std::string_view verb, const ArrayFile& file) {
  const auto look = [](Session& session) -> Result<Json> {
    const auto lost = session.Run(session.array().FindLost());
    if (!lost.ok()) {
      Error error = lost.error();
      return Fail(std::move(error));
    }
    return LossToJson(*lost);
  };
  return AskOrLook(verb, file, {{"verb", "lost"}}, look, ByForce());
}

}  // namespace eplog::cli
