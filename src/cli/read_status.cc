#include "cli/read_status.h"

#include <memory>
#include <utility>

#include "cli/session.h"
#include "frontend/report_json.h"
#include "frontend/status_json.h"

namespace eplog::cli {
namespace {

// From the process that serves the array or, unmounted, of the array opened here. A look is always
// allowed, whatever is missing.
Result<Json> AskOrLook(std::string_view verb, const ArrayFile& file, const char* question,
                       const std::function<Result<Json>(Session&)>& look) {
  auto served = AskServer(file, {{"verb", question}});
  if (served.ok() || served.error().code != ErrorCode::kNotFound) {
    return served;
  }
  MemberOptions options;
  options.read_only = true;
  OpenOptions open;
  open.force = true;
  auto session = Session::Open(verb, file, options, open);
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  return look(**session);
}

}  // namespace

Result<Json> ReadStatus(std::string_view verb, const ArrayFile& file) {
  return AskOrLook(verb, file, "status", [](Session& session) -> Result<Json> {
    ArrayStatus status = session.array().GetStatus();
    status.read_only = false;  // only how it was looked at
    return StatusToJson(status, ServingInfo{});
  });
}

Result<Json> ReadLost(std::string_view verb, const ArrayFile& file) {
  return AskOrLook(verb, file, "lost", [](Session& session) -> Result<Json> {
    const auto lost = session.Run(session.array().FindLost());
    if (!lost.ok()) {
      Error error = lost.error();
      return Fail(std::move(error));
    }
    return LossToJson(*lost);
  });
}

}  // namespace eplog::cli
