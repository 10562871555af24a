// PatternStore against a plain array, and what it costs.
#include "sim/pattern_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/random.h"

namespace eplog::sim {
namespace {

constexpr uint64_t kSize = 256 * uint64_t{kBlockBytes};

// Bytes of each kind that the store tells apart.
std::vector<std::byte> Content(Random& random, uint64_t length) {
  std::vector<std::byte> bytes(length);
  const uint64_t period = std::array<uint64_t, 5>{16, 512, length + 1, 0, 1}[random.Below(5)];
  std::array<std::byte, 16> pattern{};
  for (uint64_t i = 0; i < length; ++i) {
    if (period == 0 || (period == 1 && i % kBlockBytes >= 256)) {
      continue;  // zeros, or a header with zeros behind it
    }
    // Sectors that each repeat, or one pattern for all, or none.
    if (period > length || period == 1 || i == 0 || (period == 512 && i % 512 == 0)) {
      for (auto& byte : pattern) {
        byte = static_cast<std::byte>(random.Next());
      }
    }
    bytes[i] = pattern[i % 16];
  }
  return bytes;
}

TEST(PatternStore, HoldsWhatAPlainArrayHolds) {
  Random random(1);
  PatternStore store(kSize);
  std::vector<std::byte> plain(kSize);
  std::vector<std::byte> got;
  for (int step = 0; step < 20000; ++step) {
    const bool whole = random.OneIn(2);
    const uint64_t unit = whole ? kBlockBytes : (random.OneIn(2) ? kSectorBytes : 1);
    const uint64_t length = random.Between(1, 2 * uint64_t{kBlockBytes} / unit) * unit;
    const uint64_t offset = random.Below((kSize - length) / unit + 1) * unit;
    const auto at = plain.begin() + static_cast<int64_t>(offset);
    const auto end = at + static_cast<int64_t>(length);
    switch (random.Below(4)) {
      case 0:
        store.Drop(offset, length);
        std::fill(at, end, std::byte{0});
        break;
      case 1:
        got.assign(length, std::byte{0xEE});
        store.Read(offset, got);
        ASSERT_TRUE(std::equal(at, end, got.begin())) << "step " << step;
        break;
      default:
        const auto bytes = Content(random, length);
        store.Write(offset, bytes);
        std::copy(bytes.begin(), bytes.end(), at);
    }
  }
  got.assign(kSize, std::byte{0xEE});
  store.Read(0, got);
  EXPECT_EQ(got, plain);
}

// 4 KiB of which byte i is what `content` says.
template <typename F>
std::vector<std::byte> Block(const F& content) {
  std::vector<std::byte> bytes(kBlockBytes);
  for (size_t i = 0; i < kBlockBytes; ++i) {
    bytes[i] = static_cast<std::byte>(content(i));
  }
  return bytes;
}

TEST(PatternStore, TakesTheLeastThatHoldsABlock) {
  PatternStore store(kSize);
  const auto zeros = Block([](size_t) { return 0; });
  const auto same = Block([](size_t i) { return i % 16 + 1; });
  const auto sectors = Block([](size_t i) { return i % 16 + i / 512; });
  const auto whole = Block([](size_t i) { return i / 16; });
  store.Write(0, zeros);
  EXPECT_EQ(store.usage().content_bytes, 0U);
  store.Write(4096, same);
  store.Write(8192, sectors);
  store.Write(12288, whole);
  EXPECT_EQ(store.usage().blocks_of_16, 1U);
  EXPECT_EQ(store.usage().blocks_of_128, 1U);
  EXPECT_EQ(store.usage().whole_blocks, 1U);
  EXPECT_EQ(store.usage().content_bytes, 16U + 128U + 4096U);
  const auto header = Block([](size_t i) { return i < 256 ? i + 1 : 0; });
  const auto longer = Block([](size_t i) { return i < 257 ? i + 1 : 0; });
  store.Write(16384, header);
  EXPECT_EQ(store.usage().blocks_of_256, 1U);
  EXPECT_EQ(store.usage().content_bytes, 16U + 128U + 4096U + 256U);
  store.Write(16384, longer);
  EXPECT_EQ(store.usage().whole_blocks, 2U);
  store.Write(16384, zeros);
  store.Write(12288, same);
  EXPECT_EQ(store.usage().content_bytes, 16U + 128U + 16U);
  store.Drop(4096, 2 * uint64_t{kBlockBytes});
  store.Write(12288, zeros);
  EXPECT_EQ(store.usage().content_bytes, 0U);
}

// The last byte of a period must count, too.
TEST(PatternStore, OneOtherByteIsNotLost) {
  PatternStore store(kSize);
  for (const size_t odd : {0U, 15U, 16U, 511U, 512U, 2048U, 4095U}) {
    auto bytes = Block([](size_t i) { return i % 16 + 1; });
    bytes[odd] = std::byte{0xFF};
    store.Write(0, bytes);
    std::vector<std::byte> got(kBlockBytes);
    store.Read(0, got);
    EXPECT_EQ(got, bytes) << odd;
  }
}

TEST(PatternStore, MemoryDoesNotGrowUnderRewriting) {
  PatternStore store(kSize);
  Random random(2);
  const auto rewrite = [&](int times) {
    for (int i = 0; i < times; ++i) {
      store.Write(random.Below(256) * kBlockBytes, Content(random, kBlockBytes));
    }
  };
  rewrite(3000);
  const uint64_t before = store.usage().memory_bytes;
  rewrite(15000);
  // The most of each kind at once is still a matter of chance: a segment more at most.
  EXPECT_LE(store.usage().memory_bytes, before + (uint64_t{256} << 10));
  // All blocks whole, and a segment of each kind.
  EXPECT_LE(before, kSize + 4 * (uint64_t{256} << 10));
}

TEST(PatternStore, UnwrittenTakesNoMemory) {
  PatternStore store(uint64_t{1} << 40);
  std::vector<std::byte> got(kBlockBytes, std::byte{1});
  store.Read((uint64_t{1} << 40) - kBlockBytes, got);
  EXPECT_EQ(got, std::vector<std::byte>(kBlockBytes));
  EXPECT_LT(store.usage().memory_bytes, uint64_t{3} << 20);
}

}  // namespace
}  // namespace eplog::sim
