// What goes over the control socket, as bytes: lines, and the request that one of them is. Knows no
// sockets and no verbs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "eplog/result.h"
#include "report/json.h"

namespace eplog {

inline constexpr size_t kMaxControlLineBytes = size_t{1} << 20;

// Bytes as they come in, lines out.
class ControlLines {
 public:
  void Add(std::string_view bytes) { waiting_ += bytes; }
  // The next whole line, without its end; nothing until there is one.
  std::optional<std::string> Next();
  // What waits for its end is longer than a line may be. Ask when Next gave nothing.
  [[nodiscard]] bool too_long() const { return waiting_.size() > kMaxControlLineBytes; }

 private:
  std::string waiting_;
  size_t searched_ = 0;  // of what waits: no end of a line in it
};

// An object with a string "verb", or kInvalidArgument.
[[nodiscard]] Result<Json> DecodeControlRequest(std::string_view line);

}  // namespace eplog
