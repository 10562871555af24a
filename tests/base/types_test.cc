#include "base/types.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>
#include <unordered_set>

namespace eplog {
namespace {

static_assert(!std::is_convertible_v<uint32_t, StripeIndex>, "only in so many words");
static_assert(!std::is_convertible_v<StripeIndex, uint32_t>);
static_assert(!std::is_constructible_v<SlotIndex, StripeIndex>, "indexes of two kinds do not mix");
static_assert(!std::is_assignable_v<SlotIndex&, StripeIndex>);
static_assert(!std::equality_comparable_with<SlotIndex, StripeIndex>);
static_assert(sizeof(StripeIndex) == 4 && sizeof(ChunkIndex) == 8 && sizeof(DeviceIndex) == 1);
static_assert(std::is_trivially_copyable_v<ChunkIndex>);

TEST(Index, ComparesAndCounts) {
  SlotIndex slot(6);
  EXPECT_EQ(++slot, SlotIndex(7));
  EXPECT_LT(slot, SlotIndex(8));
  EXPECT_NE(slot, SlotIndex());
  EXPECT_EQ(SlotIndex().value, 0U);
}

TEST(Index, IsAKeyOfBothKindsOfSet) {
  std::set<ChunkIndex> ordered;
  std::unordered_set<ChunkIndex> hashed;
  for (uint64_t i = 0; i < 1000; ++i) {
    ordered.insert(ChunkIndex(i * 3 % 1000));
    hashed.insert(ChunkIndex(i << 32));
  }
  EXPECT_EQ(ordered.size(), 1000U);
  EXPECT_EQ(hashed.size(), 1000U);
  EXPECT_TRUE(hashed.contains(ChunkIndex(uint64_t{5} << 32)));
  EXPECT_FALSE(hashed.contains(ChunkIndex(5)));
}

TEST(Uuid, AsTextInTheUsualGroups) {
  Uuid uuid{};
  EXPECT_EQ(UuidToString(uuid), "00000000-0000-0000-0000-000000000000");
  for (size_t i = 0; i < uuid.size(); ++i) {
    uuid[i] = static_cast<std::byte>(i * 0x11);
  }
  EXPECT_EQ(UuidToString(uuid), "00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Epoch, TheNumberDecidesAndThenTheRandomPart) {
  EXPECT_LT((Epoch{1, 9}), (Epoch{2, 0}));
  EXPECT_LT((Epoch{2, 0}), (Epoch{2, 1}));
  EXPECT_EQ((Epoch{2, 1}), (Epoch{2, 1}));
}

TEST(Rounding, ToMultiples) {
  EXPECT_EQ(DivideUp(0, 4), 0U);
  EXPECT_EQ(DivideUp(1, 4), 1U);
  EXPECT_EQ(DivideUp(8, 4), 2U);
  EXPECT_EQ(RoundUp(4097, kBlockBytes), 8192U);
  EXPECT_EQ(RoundUp(4096, kBlockBytes), 4096U);
  EXPECT_EQ(RoundDown(4097, kBlockBytes), 4096U);
  EXPECT_EQ(RoundDown(4095, kBlockBytes), 0U);
}

}  // namespace
}  // namespace eplog
