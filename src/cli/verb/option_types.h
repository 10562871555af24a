// What the words behind options become. Each type is read in one place, while the command line is
// read, and what does not fit it is refused with one line that names the option, the word and what
// to write instead.
//
// A new type, here or in a verb's own wing: a struct, and a ReadWord for it in this namespace;
// Parser::Add then takes it. The library could read numbers and enumerations by itself, but takes
// the numbers behind an enumeration's names for values too, and says its complaints in its own way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/options.h"
#include "eplog/result.h"
#include "eplog/types.h"

namespace eplog::cli {

// As both were typed.
struct Word {
  std::string_view option;
  std::string_view text;
};

// "64K"
struct Size {
  uint64_t bytes = 0;
};

// "30s" or "off"
struct DurationOrOff {
  uint64_t us = 0;  // 0: off
};

// Of write requests: "10000" or "off".
struct WritesOrOff {
  uint64_t count = 0;  // 0: off
};

// "10%" or "10"
template <uint32_t kLeast, uint32_t kMost>
struct Percent {
  uint32_t value = kLeast;
};

// "4K"
struct ChunkSize {
  uint32_t bytes = kMinChunkBytes;
};

// What RAID calls it, 5 or 6; by the same count, 7 and 8.
struct Level {
  uint32_t value = 6;
  [[nodiscard]] uint32_t parity() const { return ParityOfLevel(value); }
};

// "8": so many member files to be made; "/dev/a,/dev/b": these devices; "": neither, as if the
// option was not given.
template <uint32_t kMost>
struct MemberList {
  uint32_t count = 0;
  std::vector<std::string> paths;
  [[nodiscard]] bool given() const { return count != 0 || !paths.empty(); }
};

// kInvalidArgument, with the whole line; then the value is as it was.
Status ReadWord(const Word& word, Size& size);
Status ReadWord(const Word& word, DurationOrOff& duration);
Status ReadWord(const Word& word, WritesOrOff& writes);
Status ReadWord(const Word& word, ChunkSize& chunk);
Status ReadWord(const Word& word, Level& level);
Status ReadWord(const Word& word, JournalMode& mode);

Status ReadPercent(const Word& word, uint32_t least, uint32_t most, uint32_t& percent);
template <uint32_t kLeast, uint32_t kMost>
Status ReadWord(const Word& word, Percent<kLeast, kMost>& percent) {
  return ReadPercent(word, kLeast, kMost, percent.value);
}

Status ReadMembers(const Word& word, uint32_t most, uint32_t& count,
                   std::vector<std::string>& paths);
template <uint32_t kMost>
Status ReadWord(const Word& word, MemberList<kMost>& list) {
  return ReadMembers(word, kMost, list.count, list.paths);
}

// Whether a chunk may have this size.
[[nodiscard]] bool IsChunkSize(uint64_t bytes);

}  // namespace eplog::cli
