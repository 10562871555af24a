// What SlotSpace counts, and runs of slots: against plain lists.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "space/slot_space.h"
#include "tests/space/ssds.h"

namespace eplog {
namespace {

constexpr DeviceIndex kFirst{0};
constexpr DeviceIndex kSecond{1};

class SlotRuns : public ::testing::TestWithParam<uint64_t> {};

// As an opening marks them: side by side, of any length, up to the last slot.
TEST_P(SlotRuns, AreInUseFromTheFirstToTheLastAndNotTwice) {
  Random random(GetParam());
  const auto slots = static_cast<uint32_t>(random.Between(20, 400));
  const Geometry g = Ssds(2, slots);
  SlotSpace space(g);
  if (random.OneIn(2)) {
    space.NoteFreed();
  }
  std::vector<bool> used(slots);
  for (int step = 0; step < 60; ++step) {
    const auto first = static_cast<uint32_t>(random.Below(slots));
    const auto count = static_cast<uint32_t>(
        random.Between(1, random.OneIn(3) ? slots - first : std::min(slots - first, 9U)));
    const auto begin = used.begin() + first;
    const bool taken = std::find(begin, begin + count, true) != begin + count;
    if (taken) {
      // What is refused may be marked in part: it is not gone on with.
      continue;
    }
    ASSERT_TRUE(space.TryMarkUsed(kFirst, SlotIndex(first), count));
    std::fill(begin, begin + count, true);
    uint32_t free = 0;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      ASSERT_EQ(space.IsUsed(kFirst, SlotIndex(slot)), used[slot]) << slot;
      free += used[slot] ? 0 : 1;
    }
    ASSERT_EQ(space.free(kFirst), free);
    ASSERT_EQ(space.free(kSecond), slots);
  }
  // Any run with one of them in it is refused.
  const auto at = std::find(used.begin(), used.end(), true);
  const auto slot = static_cast<uint32_t>(at - used.begin());
  for (uint32_t before = 0; before <= std::min(slot, 70U); ++before) {
    SlotSpace other(g);
    ASSERT_TRUE(other.TryMarkUsed(kFirst, SlotIndex(slot), 1));
    ASSERT_FALSE(other.TryMarkUsed(kFirst, SlotIndex(slot - before), before + 1));
    ASSERT_FALSE(other.TryMarkUsed(kFirst, SlotIndex(slot), slots - slot));
  }
  // All others are handed out, each once.
  for (uint32_t left = space.free(kFirst); left != 0; --left) {
    const SlotIndex claimed = space.Claim(kFirst);
    ASSERT_LT(claimed.value, slots);
    ASSERT_FALSE(used[claimed.value]) << claimed.value;
    used[claimed.value] = true;
  }
  EXPECT_EQ(space.free_min(), 0U);
}

TEST_P(SlotRuns, AreLentAsTheFirstThatIsLongEnough) {
  Random random(GetParam());
  const auto slots = static_cast<uint32_t>(random.Between(20, 300));
  const Geometry geometry = Ssds(2, slots);
  SlotSpace space(geometry);
  space.NoteFreed();
  // 0: in use, 1: free, 2: free for a while, 3: free for long.
  std::vector<int> is(slots, 1);
  const auto eligible = [&](uint32_t slot, SlotSpace::Which which) {
    return which == SlotSpace::Which::kFree ? is[slot] != 0 : is[slot] == 3;
  };
  for (int step = 0; step < 400; ++step) {
    const auto any = static_cast<uint32_t>(random.Below(slots));
    if (random.OneIn(20)) {
      space.AgeFreed();
      std::replace(is.begin(), is.end(), 2, 3);
    } else if (random.OneIn(2)) {
      // A good part of them in use, then given up again, side by side.
      for (uint32_t slot = any; slot < std::min(slots, any + 8); ++slot) {
        if (is[slot] != 0) {
          space.MarkUsed(kFirst, SlotIndex(slot));
          is[slot] = 0;
        } else {
          space.Unclaim(kFirst, SlotIndex(slot));
          is[slot] = 2;
        }
      }
    }
    const auto which = random.OneIn(2) ? SlotSpace::Which::kFree : SlotSpace::Which::kLongFree;
    const auto least = static_cast<uint32_t>(random.Between(1, 9));
    const auto most = static_cast<uint32_t>(random.Between(least, 20));
    std::optional<std::pair<uint32_t, uint32_t>> wanted;
    for (uint32_t slot = any; slot < slots && !wanted; ++slot) {
      uint32_t length = 0;
      while (slot + length < slots && length < most && eligible(slot + length, which)) {
        ++length;
      }
      if (length >= least) {
        wanted = {slot, length};
      } else {
        slot += length;
      }
    }
    const uint32_t free = space.free(kFirst);
    const auto run = space.Borrow(kFirst, SlotIndex(any), least, most, which);
    ASSERT_EQ(run.has_value(), wanted.has_value()) << "step " << step;
    if (run) {
      ASSERT_EQ(std::pair(run->first.value, run->count), *wanted) << "step " << step;
      ASSERT_EQ(space.free(kFirst), free - run->count);
      for (uint32_t slot = run->first.value; slot < run->first.value + run->count; ++slot) {
        ASSERT_TRUE(space.IsUsed(kFirst, SlotIndex(slot)));
        is[slot] = 1;  // the SSD knows: they are told no more
      }
      space.Return(kFirst, *run);
    }
    ASSERT_EQ(space.free(kFirst), free);
    ASSERT_EQ(space.any_freed(), std::any_of(is.begin(), is.end(), [](int i) { return i > 1; }))
        << "step " << step;
  }
  // Another SSD in its place has been told of nothing, and has nothing to be told of.
  space.Reset(kFirst);
  EXPECT_FALSE(space.any_freed());
  space.AgeFreed();
  EXPECT_FALSE(space.Borrow(kFirst, SlotIndex(0), 1, slots, SlotSpace::Which::kLongFree));
  EXPECT_EQ(space.Borrow(kFirst, SlotIndex(0), 1, slots, SlotSpace::Which::kFree)->count, slots);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SlotRuns, ::testing::Range(uint64_t{1}, uint64_t{31}));

// Nobody is told of slots if nobody asked to have them noted.
TEST(SlotCounts, WithoutNotesNothingIsLongFree) {
  const Geometry geometry = Ssds(2, 100);
  SlotSpace space(geometry);
  space.Unclaim(kFirst, space.Claim(kFirst));
  space.AgeFreed();
  EXPECT_FALSE(space.any_freed());
  EXPECT_FALSE(space.Borrow(kFirst, SlotIndex(0), 1, 1, SlotSpace::Which::kLongFree));
  EXPECT_TRUE(space.Borrow(kFirst, SlotIndex(0), 1, 1, SlotSpace::Which::kFree));
}

TEST(SlotCounts, OfWhatWaitsAreKeptForEachSsd) {
  const Geometry geometry = Ssds(3, 100);
  SlotSpace space(geometry);
  const DeviceIndex third(2);
  const auto claim = [&](DeviceIndex ssd, int count) {
    std::vector<Freed> slots;
    for (int i = 0; i < count; ++i) {
      slots.push_back({ssd, space.Claim(ssd)});
    }
    return slots;
  };
  EXPECT_EQ(space.newest_waiting(), std::nullopt);
  EXPECT_EQ(space.waiting_max(), 0U);
  const auto first = claim(kFirst, 5);
  const auto second = claim(kSecond, 7);
  const auto last = claim(third, 2);
  space.FreedBy(10, first);
  space.FreedBy(11, second);
  space.FreedBy(15, last);
  EXPECT_EQ(space.waiting(kFirst), 5U);
  EXPECT_EQ(space.waiting(kSecond), 7U);
  EXPECT_EQ(space.waiting(third), 2U);
  EXPECT_EQ(space.waiting_max(), 7U);
  EXPECT_EQ(space.newest_waiting(), 15U);
  EXPECT_EQ(space.free_min(), 93U);
  space.Covered(9);
  EXPECT_EQ(space.free_min(), 93U);
  EXPECT_EQ(space.waiting(kFirst), 5U);
  space.Covered(11);
  space.Covered(14);
  EXPECT_EQ(space.waiting(kFirst), 0U);
  EXPECT_EQ(space.waiting(kSecond), 0U);
  EXPECT_EQ(space.waiting_max(), 2U);
  EXPECT_EQ(space.free(kFirst), 100U);
  EXPECT_EQ(space.free_min(), 98U);
  // One that is needed again waits no more, and is nobody's to take.
  const auto pin = space.Pin(third, last[0].slot);
  space.KeepAfterAll(third, last[0].slot);
  EXPECT_EQ(space.waiting(third), 1U);
  space.Covered(15);
  space.Unpin(pin);
  EXPECT_EQ(space.free(third), 99U);
  EXPECT_TRUE(space.IsUsed(third, last[0].slot));
  EXPECT_FALSE(space.IsUsed(third, last[1].slot));
  EXPECT_EQ(space.waiting_max(), 0U);
  EXPECT_EQ(space.newest_waiting(), std::nullopt);
}

// With a replacement what waited on the one before is gone, on the others it waits still.
TEST(SlotCounts, OfAReplacementBeginAnew) {
  const Geometry geometry = Ssds(2, 70);
  SlotSpace space(geometry);
  std::vector<Freed> freed;
  for (int i = 0; i < 10; ++i) {
    freed.push_back({kFirst, space.Claim(kFirst)});
    freed.push_back({kSecond, space.Claim(kSecond)});
  }
  space.FreedBy(3, freed);
  space.Reset(kFirst);
  EXPECT_EQ(space.waiting(kFirst), 0U);
  EXPECT_EQ(space.waiting(kSecond), 10U);
  EXPECT_EQ(space.free(kFirst), 70U);
  EXPECT_EQ(space.free(kSecond), 60U);
  for (uint32_t i = 0; i < 70; ++i) {
    EXPECT_EQ(space.Claim(kFirst).value, i);
  }
  space.Covered(3);
  EXPECT_EQ(space.free(kSecond), 70U);
  EXPECT_EQ(space.free_min(), 0U);
}

// A slot counts as taken again once the last one has been handed out, and not before.
TEST(SlotCounts, OfSlotsTakenAgainBeginAfterTheLast) {
  for (const uint32_t slots : {64U, 100U, 128U}) {
    const Geometry geometry = Ssds(2, slots);
    SlotSpace space(geometry);
    for (uint32_t i = 0; i < slots; ++i) {
      EXPECT_EQ(space.reuses(), 0U) << i;
      static_cast<void>(space.Claim(kFirst));
      space.Unclaim(kFirst, SlotIndex(i));
    }
    EXPECT_EQ(space.reuses(), 0U);
    EXPECT_EQ(space.Claim(kFirst).value, 0U) << "round the end";
    EXPECT_EQ(space.reuses(), 1U);
  }
  // Or at once, for who tests what then happens.
  const Geometry geometry = Ssds(2, 100);
  SlotSpace space(geometry);
  space.set_lowest_first(true);
  space.Unclaim(kFirst, space.Claim(kFirst));
  EXPECT_EQ(space.Claim(kFirst).value, 0U);
  EXPECT_GE(space.reuses(), 1U);
}

// Whatever the rest of the SSD is taken for.
TEST(SlotCounts, OfSlotsTakenAgainBeginWhereASearchComesRoundTheEnd) {
  const Geometry geometry = Ssds(2, 150);
  SlotSpace space(geometry);
  space.MarkUsed(kFirst, SlotIndex(50), 100);
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(space.Claim(kFirst).value, i);
  }
  space.Unclaim(kFirst, SlotIndex(10));
  space.Unclaim(kFirst, SlotIndex(70));
  EXPECT_EQ(space.Claim(kFirst).value, 70U) << "the next one behind the last";
  EXPECT_EQ(space.reuses(), 0U);
  EXPECT_EQ(space.Claim(kFirst).value, 10U);
  EXPECT_EQ(space.reuses(), 1U);
  // On another SSD in its place nothing was taken before.
  space.Reset(kFirst);
  for (uint32_t i = 0; i < 149; ++i) {
    EXPECT_EQ(space.Claim(kFirst).value, i);
  }
  EXPECT_EQ(space.reuses(), 1U);
}

// Of a large array: a bit a slot, and what waits.
TEST(SlotCounts, OfMemoryAreWhatTheAllocationMapTakes) {
  const Geometry geometry = Ssds(4, 6400);
  SlotSpace space(geometry);
  EXPECT_EQ(space.memory_bytes(), 4 * 6400 / 8U);
  space.FreedBy(1, std::vector<Freed>{{kFirst, space.Claim(kFirst)}});
  EXPECT_GT(space.memory_bytes(), 4 * 6400 / 8U);
}

}  // namespace
}  // namespace eplog
