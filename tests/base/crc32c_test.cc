#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/random.h"

namespace eplog {
namespace {

// The polynomial bit by bit.
uint32_t SlowCrc32c(std::span<const std::byte> bytes) {
  uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~state;
}

uint32_t CrcOf(std::string_view text) {
  return Crc32c(std::as_bytes(std::span(text)));
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(CrcOf("123456789"), 0xE3069283U);
  EXPECT_EQ(CrcOf(""), 0U);
  EXPECT_EQ(CrcOf("a"), 0xC1D04330U);
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::vector(32, std::byte{0x00})), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(std::vector(32, std::byte{0xFF})), 0x62A8AB43U);
  std::vector<std::byte> ascending(32);
  for (size_t i = 0; i < ascending.size(); ++i) {
    ascending[i] = static_cast<std::byte>(i);
  }
  EXPECT_EQ(Crc32c(ascending), 0x46DD794EU);
  const std::vector<std::byte> descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(Crc32c(descending), 0x113FDB5CU);
}

TEST(Crc32c, EveryLengthAndAlignmentAgreesWithTheSlowOne) {
  Random random(3);
  std::vector<std::byte> bytes(5000);
  for (auto& byte : bytes) {
    byte = static_cast<std::byte>(random.Next());
  }
  for (size_t start = 0; start < 17; ++start) {
    for (size_t length = 0; length < 300; ++length) {
      const auto part = std::span(bytes).subspan(start, length);
      ASSERT_EQ(Crc32c(part), SlowCrc32c(part)) << start << ", " << length;
    }
  }
  for (const size_t length : {1023UL, 1024UL, 1025UL, 4095UL, 4096UL, 4097UL, 5000UL}) {
    const auto part = std::span(bytes).first(length);
    EXPECT_EQ(Crc32c(part), SlowCrc32c(part)) << length;
  }
}

TEST(Crc32c, ChainedOverPartsItIsTheSame) {
  Random random(4);
  std::vector<std::byte> bytes(4096);
  for (auto& byte : bytes) {
    byte = static_cast<std::byte>(random.Next());
  }
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 97) {
    const auto all = std::span<const std::byte>(bytes);
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), whole) << cut;
  }
  EXPECT_EQ(Crc32c({}, whole), whole);
}

TEST(Crc32c, EveryFlippedBitOfABlockIsSeen) {
  std::vector<std::byte> bytes(4096, std::byte{0});
  const uint32_t good = Crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 13) {
    const auto mask = static_cast<std::byte>(1U << bit % 8);
    bytes[bit / 8] ^= mask;
    ASSERT_NE(Crc32c(bytes), good) << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace eplog
