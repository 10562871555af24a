// What a change leaves behind besides the tables themselves: what the next incremental checkpoint
// must say, which slots nobody needs any more, and counts that are the same when taken anew.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "metadata/snapshot.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

constexpr VolumeId kLiving(1);
constexpr VolumeId kDeleted(2);

class WhatChanged : public ::testing::Test {
 protected:
  // Volume 1 has extents 0 and 1, volume 2 extents 2 and 3 and is being deleted.
  void SetUp() override {
    Do({VolumeCreated{kLiving, 1 << 20, "a"}, VolumeCreated{kDeleted, 1 << 20, "b"},
        ExtentAssigned{kLiving, 0, ExtentIndex(0)}, ExtentAssigned{kLiving, 1, ExtentIndex(1)},
        ExtentAssigned{kDeleted, 0, ExtentIndex(2)}, ExtentAssigned{kDeleted, 1, ExtentIndex(3)},
        VolumeDeleted{kDeleted}});
    TakeChanges();
  }
  // As a checkpoint does.
  void TakeChanges() { const Snapshot taken(state_, true, sequence_); }
  EntryHeader Next() {
    EntryHeader entry;
    entry.sequence = ++sequence_;
    entry.place = 10 * sequence_;
    return entry;
  }
  void Do(const EntryHeader& entry) {
    slots_ = {};
    state_.Apply(entry, slots_);
  }
  void Do(const std::vector<VolumeRecord>& volumes) {
    EntryHeader entry = Next();
    entry.volumes = volumes;
    Do(entry);
  }
  void Install(uint32_t stripe, const std::vector<RowChange>& changes) {
    EntryHeader entry = Next();
    entry.rows.push_back({StripeIndex(stripe), changes});
    Do(entry);
  }
  void Log(uint32_t stripe, uint32_t index, uint32_t slot) {
    EntryHeader entry = Next();
    entry.log_stripes.push_back(
        {{{g_.Chunk(StripeIndex(stripe), index), At(slot), 1}}, std::vector<uint32_t>(g_.m, 1)});
    Do(entry);
  }
  [[nodiscard]] static SlotWord At(uint32_t slot) { return SlotWord::At(SlotIndex(slot)); }
  static Geometry TwoParities() {
    Geometry g = test::SmallGeometry();
    g.n = 5;
    g.m = 2;
    return g;
  }

  const Geometry g_ = TwoParities();
  State state_{g_};
  SlotChanges slots_;
  uint64_t sequence_ = 0;
};

// An incremental checkpoint says all volumes or none: those of large arrays take room.
TEST_F(WhatChanged, VolumesAreChangedByWhatChangesOneOfThem) {
  struct Case {
    VolumeRecord record;
    bool volumes = false;
    uint64_t extents = 0;
  };
  const std::vector<Case> cases = {
      {VolumeCreated{VolumeId(3), 1, "c"}, true, 0},
      {VolumeResized{kLiving, 5}, true, 0},
      {VolumeRenamed{kLiving, "z"}, true, 0},
      {ExtentAssigned{kLiving, 7, ExtentIndex(9)}, false, 1},
      {ExtentsFreed{ExtentIndex(1), 1}, false, 1},
      {ExtentsFreed{ExtentIndex(12), 2}, false, 2},  // that nobody had
      {VolumeDeleted{kLiving}, true, 0},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Do({cases[i].record});
    EXPECT_EQ(state_.changes().volumes, cases[i].volumes) << i;
    EXPECT_EQ(state_.changes().extents.count(), cases[i].extents) << i;
    TakeChanges();
  }
}

TEST_F(WhatChanged, VolumesAreChangedWhenOneGoesWithItsLastExtent) {
  Do({ExtentsFreed{ExtentIndex(2), 2}});
  ASSERT_EQ(state_.volumes.Find(kDeleted), nullptr);
  EXPECT_TRUE(state_.changes().volumes) << "or it were there again after loading";
  TakeChanges();
  EXPECT_FALSE(state_.changes().volumes);
}

// Whatever else comes before the next checkpoint.
TEST_F(WhatChanged, WhatWasChangedStaysSoUntilACheckpointTakesIt) {
  Do({VolumeResized{kLiving, 5}});
  Do({ExtentAssigned{kLiving, 7, ExtentIndex(9)}});
  Do({ExtentsFreed{ExtentIndex(0), 1}});
  Install(7, {{0, At(1), 1, 0}});
  Install(7, {{0, SlotWord::Zero(), 0, 0}});
  EXPECT_TRUE(state_.changes().volumes);
  EXPECT_EQ(state_.changes().extents.count(), 2U);
  EXPECT_EQ(state_.changes().rows.count(), 1U) << "though it is what it was before";
}

// Its place is needed as before.
TEST_F(WhatChanged, ARowWordThatKeepsItsSlotFreesNothing) {
  for (const uint32_t index : {0U, g_.k()}) {
    Install(0, {{static_cast<uint8_t>(index), At(5), 1, 0}});
    TakeChanges();
    Install(0, {{static_cast<uint8_t>(index), At(5), 2, 0}});
    EXPECT_TRUE(slots_.freed.empty()) << "under another checksum it is the same slot";
    EXPECT_EQ(state_.rows.Get(StripeIndex(0), index).crc, 2U);
    EXPECT_EQ(state_.changes().rows.count(), 1U);
    Install(0, {{static_cast<uint8_t>(index), At(6), 2, 0}});
    const SsdSlot before{g_.SsdOf(StripeIndex(0), index), SlotIndex(5)};
    EXPECT_EQ(slots_.freed, std::vector{before});
  }
}

TEST_F(WhatChanged, CountsThatAreTakenAnewAreThoseThatWereKept) {
  Install(0, {{0, SlotWord::Absent(), 1, 0}, {3, At(1), 1, 0}});
  Install(1, {{4, SlotWord::Absent(), 1, 0}, {1, SlotWord::Absent(), 1, 0}});
  Log(0, 1, 10);
  Log(2, 0, 11);
  std::array<uint32_t, kMaxSsds> absent{};
  std::array<uint32_t, kMaxSsds> owed{};
  uint64_t all = 0;
  for (uint8_t ssd = 0; ssd < g_.n; ++ssd) {
    absent[ssd] = state_.absent(DeviceIndex(ssd));
    owed[ssd] = state_.owed(DeviceIndex(ssd));
    all += absent[ssd];
  }
  ASSERT_EQ(all, 3U);
  ASSERT_EQ(state_.pending_stripes(), 2U);
  for (int round = 0; round < 2; ++round) {
    state_.CountAnew();
    for (uint8_t ssd = 0; ssd < g_.n; ++ssd) {
      EXPECT_EQ(state_.absent(DeviceIndex(ssd)), absent[ssd]) << int{ssd};
      EXPECT_EQ(state_.owed(DeviceIndex(ssd)), owed[ssd]) << int{ssd};
    }
    EXPECT_EQ(state_.pending_stripes(), 2U);
    EXPECT_TRUE(state_.CountsAreRight());
  }
}

// Whether more is owed than was counted, or less.
TEST_F(WhatChanged, WhatIsOwedAndNotCountedIsFoundOut) {
  const uint32_t first = g_.k();
  for (const uint32_t there : {first, first + 1}) {
    const StripeIndex stripe(there);
    const RowWord place = {At(9), 1};
    Install(stripe.value, {{static_cast<uint8_t>(there), place.word, place.crc, 0}});
    Log(stripe.value, 0, 20 + there);
    ASSERT_TRUE(state_.CountsAreRight());
    state_.rows.Set(stripe, there, RowWord{});  // of two parities it has neither now
    EXPECT_FALSE(state_.CountsAreRight()) << there;
    state_.rows.Set(stripe, there, place);
    EXPECT_TRUE(state_.CountsAreRight()) << there;
  }
}

}  // namespace
}  // namespace eplog
