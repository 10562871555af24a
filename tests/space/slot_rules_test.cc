// SlotSpace where its bookkeeping ends: the last word of the allocation map, the end of an SSD, the
// same slot of another SSD; and what cannot be, which ends the program before two own one slot.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "space/slot_space.h"
#include "tests/space/ssds.h"

namespace eplog {
namespace {

constexpr DeviceIndex kLeft{0};
constexpr DeviceIndex kRight{1};

// From the first slot to the last, and none behind it.
void ExpectAllFree(SlotSpace& space, uint32_t slots) {
  EXPECT_EQ(space.free(kLeft), slots);
  const auto all = space.Borrow(kLeft, SlotIndex(0), 1, 2 * slots, SlotSpace::Which::kFree);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->first.value, 0U);
  ASSERT_EQ(all->count, slots);
  EXPECT_FALSE(space.Borrow(kLeft, SlotIndex(0), 1, 1, SlotSpace::Which::kFree));
  space.Return(kLeft, *all);
  space.MarkUsed(kLeft, SlotIndex(slots - 1));
  for (uint32_t slot = 0; slot + 1 < slots; ++slot) {
    ASSERT_EQ(space.Claim(kLeft).value, slot);
  }
  space.Unclaim(kLeft, SlotIndex(0));
  EXPECT_EQ(space.Claim(kLeft).value, 0U) << "there is none behind the last one";
  EXPECT_EQ(space.free(kLeft), 0U);
}

// However many there are in the last word of the map, and on another SSD in its place too.
TEST(SlotRules, AnSsdHasTheSlotsThatItHas) {
  for (const uint32_t slots : {2U, 63U, 64U, 65U, 126U, 127U, 128U, 129U, 130U, 192U, 195U}) {
    SCOPED_TRACE(slots);
    const Geometry geometry = TwoSsds(slots);
    SlotSpace space(geometry);
    ASSERT_NO_FATAL_FAILURE(ExpectAllFree(space, slots));
    space.Reset(kLeft);
    ASSERT_NO_FATAL_FAILURE(ExpectAllFree(space, slots));
    EXPECT_EQ(space.free(kRight), slots);
  }
}

// I5: what a commit installs is kept on its SSD; who waits with the same number elsewhere waits on.
TEST(SlotRules, WhatIsKeptAfterAllIsTheSlotOfThatSsd) {
  const Geometry geometry = TwoSsds(100);
  SlotSpace space(geometry);
  const SlotIndex slot(7);
  const SlotIndex other(8);
  for (const DeviceIndex ssd : {kLeft, kRight}) {
    space.MarkUsed(ssd, slot, 2);
  }
  space.FreedBy(1, std::vector<Freed>{{kLeft, slot}, {kRight, other}});
  space.FreedBy(2, std::vector<Freed>{{kRight, slot}, {kLeft, other}});
  const SlotSpace::PinKey pin = space.Pin(kRight, slot);
  space.KeepAfterAll(kRight, slot);
  EXPECT_EQ(space.waiting(kLeft), 2U);
  EXPECT_EQ(space.waiting(kRight), 1U);
  space.Covered(2);
  space.Unpin(pin);
  EXPECT_TRUE(space.IsUsed(kRight, slot));
  EXPECT_FALSE(space.IsUsed(kRight, other));
  EXPECT_FALSE(space.IsUsed(kLeft, slot));
  EXPECT_FALSE(space.IsUsed(kLeft, other));
  EXPECT_EQ(space.newest_waiting(), std::nullopt);
}

// Also one that was free already but for the pin.
TEST(SlotRules, WhatWaitsForItsLastPinOnlyIsKeptToo) {
  const Geometry geometry = TwoSsds(100);
  SlotSpace space(geometry);
  const SlotIndex slot = space.Claim(kLeft);
  const SlotSpace::PinKey pin = space.Pin(kLeft, slot);
  static_cast<void>(space.Pin(kLeft, slot));
  space.FreedBy(1, std::vector<Freed>{{kLeft, slot}});
  space.Covered(1);
  EXPECT_TRUE(space.IsUsed(kLeft, slot)) << "somebody reads it";
  space.Unpin(pin);
  EXPECT_TRUE(space.IsUsed(kLeft, slot)) << "and somebody else";
  space.KeepAfterAll(kLeft, slot);
  space.Unpin(pin);
  EXPECT_TRUE(space.IsUsed(kLeft, slot));
  // It may be freed again, as any other.
  space.FreedBy(2, std::vector<Freed>{{kLeft, slot}});
  space.Covered(2);
  EXPECT_FALSE(space.IsUsed(kLeft, slot));
  EXPECT_EQ(space.free(kLeft), 100U);
}

TEST(SlotRulesDeathTest, ASlotHasOneOwner) {
  const Geometry geometry = TwoSsds(100);
  SlotSpace space(geometry);
  const SlotIndex slot = space.Claim(kLeft);
  EXPECT_DEATH(space.MarkUsed(kLeft, slot), "I1: a slot is referenced twice");
  space.Unclaim(kLeft, slot);
  EXPECT_DEATH(space.Unclaim(kLeft, slot), "I1: a free slot is freed");
  const auto run = space.Borrow(kLeft, SlotIndex(20), 1, 10, SlotSpace::Which::kFree);
  ASSERT_TRUE(run.has_value());
  space.Return(kLeft, *run);
  EXPECT_DEATH(space.Return(kLeft, *run), "a borrowed slot was given back already");
  space.MarkUsed(kLeft, SlotIndex(0), 100);
  EXPECT_DEATH(space.Claim(kLeft), "a claim without a free slot");
}

TEST(SlotRulesDeathTest, WhatIsKeptIsPinnedAndHasASlot) {
  const Geometry geometry = TwoSsds(100);
  SlotSpace space(geometry);
  const SlotIndex slot = space.Claim(kLeft);
  const SlotIndex other = space.Claim(kLeft);
  const SlotSpace::PinKey pin = space.Pin(kLeft, slot);
  EXPECT_DEATH(space.KeepAfterAll(kLeft, slot), "I1: an installed version has no slot");
  space.FreedBy(1, std::vector<Freed>{{kLeft, other}});
  EXPECT_DEATH(space.KeepAfterAll(kLeft, slot), "I1: an installed version has no slot");
  EXPECT_DEATH(space.KeepAfterAll(kLeft, other), "I1: an installed version is not pinned");
  space.Unpin(pin);
  EXPECT_DEATH(space.Unpin(pin), "an unpin without a pin");
}

}  // namespace
}  // namespace eplog
