#include "cli/verb/option_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "eplog/status.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog::cli {
namespace {

tl::unexpected<Error> Usage(std::string what) {
  return Fail(ErrorCode::kInvalidArgument, std::move(what));
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Prefixes the option to what a reader of text said of its value.
template <typename T>
Status Take(const Word& word, const Result<T>& read, T& into) {
  if (!read.ok()) {
    return Usage(fmt::format("{}: {}", word.option, read.error().message));
  }
  into = *read;
  return OkStatus();
}

bool IsOff(std::string_view text) {
  return text == "off" || text == "0";
}

Status NorOff(const Word& word, std::string_view what) {
  return Usage(fmt::format("{} {}: {}, or 'off'", word.option, word.text, what));
}

}  // namespace

Status ReadWord(const Word& word, Size& size) {
  return Take(word, ParseSize(word.text), size.bytes);
}

Status ReadWord(const Word& word, DurationOrOff& duration) {
  const Result<uint64_t> us = IsOff(word.text) ? Result<uint64_t>(0) : ParseDuration(word.text);
  if (!us.ok()) {
    return NorOff(word, us.error().message);
  }
  duration.us = *us;
  return OkStatus();
}

Status ReadWord(const Word& word, WritesOrOff& writes) {
  const auto count = ParseWhole(word.text);
  if (!IsOff(word.text) && count.value_or(0) == 0) {
    return NorOff(word, "needs a number of write requests, such as 10000");
  }
  writes.count = count.value_or(0);
  return OkStatus();
}

bool IsChunkSize(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes;
}

Status ReadWord(const Word& word, ChunkSize& chunk) {
  Size size;
  EPLOG_TRY(ReadWord(word, size));
  if (!IsChunkSize(size.bytes)) {
    return Usage(fmt::format("{} is a power of two from {} to {}, not {}", word.option,
                             TypedSize(kMinChunkBytes), TypedSize(kMaxChunkBytes), word.text));
  }
  chunk.bytes = static_cast<uint32_t>(size.bytes);
  return OkStatus();
}

Status ReadWord(const Word& word, Level& level) {
  const uint64_t value = ParseWhole(word.text).value_or(0);
  if (value < LevelOfParity(1) || value > LevelOfParity(kMaxParity)) {
    return Usage(fmt::format(
        "{} is 5 or 6, or 7 or 8 for parity that survives three or four failures, not {}",
        word.option, word.text));
  }
  level.value = static_cast<uint32_t>(value);
  return OkStatus();
}

Status ReadWord(const Word& word, JournalMode& mode) {
  for (const JournalMode each : {JournalMode::kFull, JournalMode::kLog}) {
    if (word.text == JournalModeName(each)) {
      mode = each;
      return OkStatus();
    }
  }
  return Usage(fmt::format("{} is full or log, not '{}'", word.option, word.text));
}

Status ReadPercent(const Word& word, uint32_t least, uint32_t most, uint32_t& percent) {
  uint32_t read = 0;
  EPLOG_TRY(Take(word, ParsePercent(word.text), read));
  if (read < least || read > most) {
    return Usage(fmt::format("{} is {}% to {}%, not {}", word.option, least, most, word.text));
  }
  percent = read;
  return OkStatus();
}

Status ReadMembers(const Word& word, uint32_t most, uint32_t& count,
                   std::vector<std::string>& paths) {
  uint32_t files = 0;
  std::vector<std::string> devices;
  if (IsDigits(word.text)) {
    const uint64_t number = ParseWhole(word.text).value_or(UINT64_MAX);
    if (number < 1 || number > most) {
      return Usage(fmt::format("{} is 1 to {}, not {}", word.option, most, word.text));
    }
    files = static_cast<uint32_t>(number);
  }
  for (std::string_view rest = word.text; files == 0 && !word.text.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view path = rest.substr(0, comma);
    if (path.empty() || !IsPlainText(path)) {
      return Usage(fmt::format("{}: '{}' has {} name in it", word.option, word.text,
                               path.empty() ? "an empty" : "an unreadable"));
    }
    devices.emplace_back(path);
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  if (devices.size() > most) {
    return Usage(
        fmt::format("{} lists {} devices; {} are allowed", word.option, devices.size(), most));
  }
  count = files;
  paths = std::move(devices);
  return OkStatus();
}

}  // namespace eplog::cli
