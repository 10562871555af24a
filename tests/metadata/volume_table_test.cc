// Volumes, their names and their extents, one promise at a time; and that counts which are wrong are
// found out.
#include "metadata/volume_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metadata/state.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

constexpr VolumeId kA(1);
constexpr VolumeId kB(2);

class Table : public testing::Test {
 protected:
  void SetUp() override {
    table_.Create(kA, "a", 100);
    table_.Create(kB, "b", 200);
  }
  [[nodiscard]] uint32_t Lowest() const { return table_.LowestFree()->value; }

  const Geometry g_ = test::SmallGeometry();
  VolumeTable table_{g_};
};

TEST_F(Table, NoNumberComesAgainAtTheEnd) {
  for (const uint32_t last : {UINT32_MAX, UINT32_MAX - 1}) {
    VolumeTable table(g_);
    table.Create(VolumeId(last), "last", 1);
    EXPECT_EQ(table.next_id(), kNoMoreVolumeIds);
    table.Delete(VolumeId(last));
    EXPECT_EQ(table.next_id(), kNoMoreVolumeIds);
  }
  table_.Create(VolumeId(UINT32_MAX - 1), "last", 1);
  table_.Create(VolumeId(7), "c", 1);
  EXPECT_EQ(table_.next_id(), kNoMoreVolumeIds);
}

// Whoever wants it next does not get it, and it is free again if nothing came of it.
TEST_F(Table, ReservedExtentsAreNobodysUntilTheyAreAssigned) {
  ASSERT_EQ(Lowest(), 0U);
  table_.Reserve(ExtentIndex(0));
  EXPECT_EQ(Lowest(), 1U);
  EXPECT_EQ(table_.free_extents(), g_.extents() - 1);
  table_.Unreserve(ExtentIndex(0));
  EXPECT_EQ(Lowest(), 0U);
  EXPECT_EQ(table_.free_extents(), g_.extents());
  table_.Reserve(ExtentIndex(0));
  table_.Assign(kA, 3, ExtentIndex(0));
  table_.Unreserve(ExtentIndex(0));
  EXPECT_EQ(Lowest(), 1U) << "it has an owner by now";
  EXPECT_EQ(table_.OwnerOf(ExtentIndex(0)).logical, 3U);
}

TEST_F(Table, WhenAllIsTakenThereIsNoneFree) {
  for (uint32_t e = 0; e < g_.extents(); ++e) {
    ASSERT_EQ(Lowest(), e);
    table_.Assign(kA, e, ExtentIndex(e));
  }
  EXPECT_EQ(table_.LowestFree(), std::nullopt);
  EXPECT_EQ(table_.free_extents(), 0U);
  table_.Free(ExtentIndex(5));
  EXPECT_EQ(Lowest(), 5U);
}

TEST_F(Table, WhatIsFreeIsFreedWithoutEffect) {
  table_.Assign(kA, 0, ExtentIndex(2));
  table_.Free(ExtentIndex(1));
  EXPECT_EQ(table_.free_extents(), g_.extents() - 1);
  EXPECT_EQ(table_.Find(kA)->extents.count(), 1U);
}

TEST_F(Table, ASizeOfNoVolumeIsNone) {
  table_.Resize(VolumeId(9), 7);
  table_.Resize(kB, 7);
  EXPECT_EQ(table_.Find(VolumeId(9)), nullptr);
  EXPECT_EQ(table_.Find(kA)->size_bytes, 100U);
  EXPECT_EQ(table_.Find(kB)->size_bytes, 7U);
}

// Numbers are never given twice, in whatever order they come.
TEST_F(Table, TheNextNumberIsBehindTheHighest) {
  EXPECT_EQ(table_.next_id(), 3U);
  table_.Create(VolumeId(7), "c", 1);
  EXPECT_EQ(table_.next_id(), 8U);
  table_.Create(VolumeId(5), "d", 1);
  EXPECT_EQ(table_.next_id(), 8U);
  table_.Delete(VolumeId(7));
  EXPECT_EQ(table_.next_id(), 8U);
}

TEST_F(Table, ADeletedVolumeGoesWithItsLastExtent) {
  table_.Assign(kA, 0, ExtentIndex(2));
  table_.Assign(kA, 1, ExtentIndex(3));
  table_.Delete(kA);
  EXPECT_EQ(table_.FindByName("a"), nullptr);
  ASSERT_NE(table_.Find(kA), nullptr);
  EXPECT_EQ(table_.Find(kA)->name, "/1") << "which no volume can have";
  table_.Create(VolumeId(3), "a", 1);
  table_.Free(ExtentIndex(3));
  ASSERT_NE(table_.Find(kA), nullptr);
  table_.Free(ExtentIndex(2));
  EXPECT_EQ(table_.Find(kA), nullptr);
  EXPECT_EQ(table_.FindByName("a")->id, VolumeId(3));
  table_.Delete(kB);
  EXPECT_EQ(table_.Find(kB), nullptr) << "it had none";
}

using TableDeathTest = Table;

TEST_F(TableDeathTest, WhatWasNotCheckedEndsTheProgram) {
  table_.Assign(kA, 0, ExtentIndex(2));
  EXPECT_DEATH(table_.Create(kA, "new", 1), "used twice");
  EXPECT_DEATH(table_.Create(VolumeId(3), "a", 1), "used twice");
  EXPECT_DEATH(table_.Rename(VolumeId(3), "new"), "rename");
  EXPECT_DEATH(table_.Rename(kA, "b"), "rename");
  EXPECT_DEATH(table_.Delete(VolumeId(3)), "delete");
  EXPECT_DEATH(table_.Assign(VolumeId(3), 0, ExtentIndex(3)), "one owner");
  EXPECT_DEATH(table_.Assign(kB, 0, ExtentIndex(2)), "one owner");
  EXPECT_DEATH(table_.Assign(kA, 0, ExtentIndex(3)), "one owner");
  table_.Delete(kA);
  EXPECT_DEATH(table_.Delete(kA), "delete");
}

// ---- counts

// Tables that are changed and not the counts of them: who looks sees it.
TEST(Counts, ThatAreWrongAreFoundOut) {
  Geometry g = test::SmallGeometry();
  g.n = 5;
  g.m = 2;
  const StripeIndex stripe(3);
  const RowWord place = {SlotWord::At(SlotIndex(9)), 1};
  const auto log = [&](State& state, uint64_t sequence, uint32_t index) {
    EntryHeader entry;
    entry.sequence = sequence;
    entry.place = 10 * sequence;
    entry.log_stripes = {{{{g.Chunk(stripe, index), SlotWord::At(SlotIndex(index)), 1}}, {1, 1}}};
    SlotChanges changes;
    state.Apply(entry, changes);
  };
  const std::vector<std::function<void(State&)>> wrong = {
      // A chunk that is pending, and one that is not any more.
      [&](State& state) {
        const std::vector<LogStripeMember> members = {
            {g.Chunk(stripe, 2), SlotWord::At(SlotIndex(20)), 1}};
        state.pending.Add(9, 90, members, std::vector<uint32_t>{1, 1});
      },
      [&](State& state) {
        state.pending.Supersede(g.Chunk(stripe, 0), 9, 9, false, [](const LogStripeMember&) {});
      },
      // Parity that is there, on either SSD or both, and the other one of two.
      [&](State& state) { state.rows.Set(stripe, g.k(), place); },
      [&](State& state) { state.rows.Set(stripe, g.k() + 1, place); },
      [&](State& state) {
        state.rows.Set(stripe, g.k(), place);
        state.rows.Set(stripe, g.k() + 1, place);
      },
      [&](State& state) {
        for (uint32_t i = g.k(); i < g.n; ++i) {
          state.rows.Set(StripeIndex(g.stripes - 1), i, place);  // of a stripe without pending ones
        }
      },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    State state(g);
    log(state, 1, 0);
    log(state, 2, 1);
    ASSERT_TRUE(state.CountsAreRight());
    wrong[i](state);
    EXPECT_FALSE(state.CountsAreRight()) << i;
    state.CountAnew();
    EXPECT_TRUE(state.CountsAreRight()) << i;
  }
}

}  // namespace
}  // namespace eplog
