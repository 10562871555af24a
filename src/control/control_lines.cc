#include "control/control_lines.h"

namespace eplog {

std::optional<std::string> ControlLines::Next() {
  const size_t end = waiting_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = waiting_.size();
    return std::nullopt;
  }
  std::string line = waiting_.substr(0, end);
  waiting_.erase(0, end + 1);
  searched_ = 0;
  return line;
}

Result<Json> DecodeControlRequest(std::string_view line) {
  Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool valid = request.is_object() && request.contains("verb") && request["verb"].is_string();
  if (!valid) {
    return Fail(ErrorCode::kInvalidArgument, "not a request: {\"verb\":...}");
  }
  return request;
}

}  // namespace eplog
