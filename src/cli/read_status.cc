#include "cli/read_status.h"

#include <memory>
#include <utility>

#include "cli/session.h"
#include "frontend/status_json.h"

namespace eplog::cli {

Result<Json> ReadStatus(std::string_view verb, const ArrayFile& file) {
  auto served = AskServer(file, {{"verb", "status"}});
  if (served.ok() || served.error().code != ErrorCode::kNotFound) {
    return served;
  }
  MemberOptions options;
  options.read_only = true;
  auto session = Session::Open(verb, file, options);
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  ArrayStatus status = (*session)->array().GetStatus();
  status.read_only = false;  // only how it was looked at
  return StatusToJson(status, ServingInfo{});
}

}  // namespace eplog::cli
