#include "replay/content.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/types.h"

namespace eplog {
namespace {

constexpr size_t kPeriod = 16;
using Pattern = std::array<std::byte, kPeriod>;

uint64_t Scramble(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return value ^ (value >> 32);
}

// Zeros for what was never written.
Pattern PatternOf(uint64_t page, uint32_t version) {
  Pattern pattern{};
  if (version != 0) {
    const uint64_t words[2] = {Scramble(page * 0xD1342543DE82EF95ULL + version) | 1,
                               (page << 32) | version};
    std::memcpy(pattern.data(), words, kPeriod);
  }
  return pattern;
}

void Repeat(const Pattern& pattern, std::span<std::byte> into) {
  std::memcpy(into.data(), pattern.data(), kPeriod);
  for (size_t done = kPeriod; done < into.size(); done *= 2) {
    std::memcpy(into.data() + done, into.data(), std::min(done, into.size() - done));
  }
}

bool Repeats(const Pattern& pattern, std::span<const std::byte> bytes) {
  return std::memcmp(bytes.data(), pattern.data(), kPeriod) == 0 &&
         std::memcmp(bytes.data(), bytes.data() + kPeriod, bytes.size() - kPeriod) == 0;
}

}  // namespace

Content::Content(uint64_t size_bytes)
    : size_bytes_(size_bytes), pages_(DivideUp(size_bytes, kBlockBytes)) {}

void Content::Mark(uint64_t offset_bytes, uint64_t length_bytes, Version version) {
  EPLOG_CHECK(offset_bytes % kSectorBytes == 0 && length_bytes % kSectorBytes == 0 &&
                  offset_bytes + length_bytes <= size_bytes_,
              "content of whole sectors inside the volume");
  const uint64_t end = offset_bytes + length_bytes;
  while (offset_bytes < end) {
    const uint64_t page = offset_bytes / kBlockBytes;
    const uint64_t stop = std::min(end, (page + 1) * kBlockBytes);
    const bool whole = stop - offset_bytes == kBlockBytes;
    Version& now = pages_[page];
    if (whole) {
      if (now == kMixed) {
        mixed_.erase(page);
      }
      now = version;
    } else {
      if (now != kMixed) {
        mixed_[page].fill(now);
        now = kMixed;
      }
      Sectors& sectors = mixed_[page];
      for (uint64_t at = offset_bytes; at < stop; at += kSectorBytes) {
        sectors[at / kSectorBytes % kSectors] = version;
      }
    }
    offset_bytes = stop;
  }
}

void Content::Write(uint64_t offset_bytes, std::span<std::byte> into) {
  ++writes_;
  EPLOG_CHECK(writes_ < kUnknown, "fewer than 4 billion writes");
  const auto version = static_cast<Version>(writes_);
  Mark(offset_bytes, into.size(), version);
  while (!into.empty()) {
    const uint64_t page = offset_bytes / kBlockBytes;
    const uint64_t length =
        std::min<uint64_t>(into.size(), (page + 1) * kBlockBytes - offset_bytes);
    Repeat(PatternOf(page, version), into.first(length));
    into = into.subspan(length);
    offset_bytes += length;
  }
}

void Content::Forget(uint64_t offset_bytes, uint64_t length_bytes) {
  Mark(offset_bytes, length_bytes, kUnknown);
}

Content::Version Content::VersionAt(uint64_t sector) const {
  const uint64_t page = sector / kSectors;
  const Version version = pages_[page];
  return version == kMixed ? mixed_.at(page)[sector % kSectors] : version;
}

std::string Content::Check(uint64_t offset_bytes, std::span<const std::byte> from) const {
  while (!from.empty()) {
    const uint64_t page = offset_bytes / kBlockBytes;
    const bool mixed = pages_[page] == kMixed;
    const uint64_t unit = mixed ? kSectorBytes : kBlockBytes;
    const uint64_t length =
        std::min<uint64_t>(from.size(), (offset_bytes / unit + 1) * unit - offset_bytes);
    const Version version = VersionAt(offset_bytes / kSectorBytes);
    if (version != kUnknown && !Repeats(PatternOf(page, version), from.first(length))) {
      return "wrong bytes at " + std::to_string(offset_bytes) +
             " of the volume: they should be of "
             "write " +
             std::to_string(version) + " of " + std::to_string(writes_) +
             "; this is a fault of the program, please report it with the command";
    }
    from = from.subspan(length);
    offset_bytes += length;
  }
  return "";
}

}  // namespace eplog
