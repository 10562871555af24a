#include "cli/read_status.h"

#include "cli/session.h"
#include "frontend/status_json.h"

namespace eplog::cli {

Result<Json> ReadStatus(std::string_view verb, const ArrayFile& file) {
  return AskOrLook(verb, file, {{"verb", "status"}}, [](Session& session) -> Result<Json> {
    ArrayStatus status = session.array().GetStatus();
    status.read_only = false;  // only how it was looked at
    return StatusToJson(status, ServingInfo{});
  });
}

}  // namespace eplog::cli
