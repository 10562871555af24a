// Lines, fields and numbers of text traces. Numbers are decimal and unsigned; anything else in them
// makes them wrong, and so does overflow.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "trace/decoder.h"

namespace eplog {

inline bool ParseNumber(std::string_view text, uint64_t& value) {
  if (text.empty() || text.size() > 20) {
    return false;
  }
  uint64_t sum = 0;
  for (const char c : text) {
    const auto digit = static_cast<unsigned>(c - '0');
    if (digit > 9 || sum > (UINT64_MAX - digit) / 10) {
      return false;
    }
    sum = sum * 10 + digit;
  }
  value = sum;
  return true;
}

// "12", "12.5", ".5" times `nanoseconds` in one, as microseconds, what is below them cut off.
bool ParseTime(std::string_view text, uint64_t nanoseconds, uint64_t& time_us);

// For messages: `text`, cut to `most` characters, without control characters.
std::string Shown(std::string_view text, size_t most = 40);

// Fields between single commas, spaces around them taken away; at most kMax.
class Fields {
 public:
  static constexpr size_t kMax = 24;
  void SplitCommas(std::string_view line);
  // Between any run of spaces, tabs, commas or semicolons.
  void SplitColumns(std::string_view line);
  [[nodiscard]] size_t size() const { return size_; }
  std::string_view operator[](size_t i) const { return fields_[i]; }

 private:
  std::array<std::string_view, kMax> fields_;
  size_t size_ = 0;
};

// A decoder of lines. Lines may end in CR LF; blank ones and those that begin with '#' are nothing.
class LineDecoder : public Decoder {
 public:
  Step Next(std::string_view bytes, bool last) final;

 protected:
  // What the line is; for a bad one sets reason_. `line` is not empty.
  virtual Kind Line(std::string_view line) = 0;
  Kind Bad(std::string reason) {
    reason_ = std::move(reason);
    return Kind::kBad;
  }
  // Sets request_.volume; kBad when there are too many.
  bool TakeVolume(std::string_view name);
  // Where one line stands for two requests, the second: given out before the next line is read.
  void Follow(const TraceRequest& request) {
    following_ = request;
    follows_ = true;
  }

 private:
  bool too_long_ = false;  // in the middle of a line that is too long
  bool follows_ = false;
  TraceRequest following_;
};

}  // namespace eplog
