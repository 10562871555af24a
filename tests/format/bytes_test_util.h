// Poking at encoded structures by the offsets of docs/format.md: deliberately written as numbers,
// so that these tests share no constant with the code under test.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "eplog/result.h"

namespace eplog::format_test {

inline void FixCrc(std::span<std::byte> bytes, size_t crc_offset) {
  StoreLe(bytes.data() + crc_offset, uint32_t{0});
  StoreLe(bytes.data() + crc_offset, Crc32c(bytes));
}

inline constexpr size_t kSuperblockVersionAt = 8;
inline constexpr size_t kSuperblockCrcAt = 12;
inline constexpr size_t kCrcAt = 4;  // of an entry header, ring block, page

// Replaces the used bytes' length and CRC of an entry header after a change.
inline void FixEntry(std::vector<std::byte>& entry) {
  StoreLe(entry.data() + 8, static_cast<uint16_t>(entry.size()));
  FixCrc(entry, kCrcAt);
}

template <typename T>
::testing::AssertionResult FailsWith(const Result<T>& result, ErrorCode code) {
  if (result.ok()) {
    return ::testing::AssertionFailure() << "was accepted";
  }
  if (result.error().code != code) {
    return ::testing::AssertionFailure()
           << "failed as " << ErrorCodeName(result.error().code) << ": " << result.error().message;
  }
  return ::testing::AssertionSuccess();
}

// Flips every single bit, then overwrites every byte with 00, FF and its complement: `decode` must
// refuse each.
template <typename Decode>
void ExpectEveryCorruptionRefused(std::vector<std::byte> bytes, Decode decode) {
  ASSERT_TRUE(decode(bytes).ok());
  for (size_t at = 0; at < bytes.size(); ++at) {
    const std::byte good = bytes[at];
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[at] = good ^ std::byte(1U << bit);
      ASSERT_FALSE(decode(bytes).ok()) << "bit " << bit << " of byte " << at;
    }
    for (const std::byte wrong : {std::byte{0}, std::byte{0xFF}, ~good}) {
      bytes[at] = wrong;
      ASSERT_EQ(decode(bytes).ok(), wrong == good) << "byte " << at;
    }
    bytes[at] = good;
  }
}

}  // namespace eplog::format_test
