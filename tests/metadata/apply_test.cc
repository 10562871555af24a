// What each kind of record means, one at a time, and in which order those of one entry are applied
// (format/entry.h). Against a model, with any of them at once: state_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "metadata/state.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

class Apply : public ::testing::Test {
 protected:
  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return g_.Chunk(StripeIndex(stripe), index);
  }
  [[nodiscard]] static SlotWord At(uint32_t slot) { return SlotWord::At(SlotIndex(slot)); }
  [[nodiscard]] SsdSlot Slot(uint32_t stripe, uint32_t index, uint32_t slot) const {
    return {g_.SsdOf(StripeIndex(stripe), index), SlotIndex(slot)};
  }
  EntryHeader Next() {
    EntryHeader entry;
    entry.epoch = {epoch_, 1};
    entry.sequence = ++sequence_;
    entry.place = 10 * sequence_;
    return entry;
  }
  void Do(const EntryHeader& entry, const State::Dropped& dropped = {}) {
    changes_ = {};
    state_.Apply(entry, changes_, broken_, dropped);
    std::sort(changes_.freed.begin(), changes_.freed.end());
    EXPECT_TRUE(state_.CountsAreRight());
  }
  // A log stripe of one chunk.
  uint64_t Log(ChunkIndex chunk, SlotWord word, uint32_t crc = 1) {
    EntryHeader entry = Next();
    entry.log_stripes.push_back({{{chunk, word, crc}}, std::vector<uint32_t>(g_.m, 0)});
    Do(entry);
    return entry.sequence;
  }
  // All of a stripe at once, its chunks in the slots from `slot` on.
  void WriteStripe(uint32_t stripe, uint32_t slot) {
    EntryHeader entry = Next();
    RowRecord row;
    row.stripe = StripeIndex(stripe);
    for (uint32_t i = 0; i < g_.n; ++i) {
      row.changes.push_back(
          {static_cast<uint8_t>(i), At(slot + i), 1, i < g_.k() ? entry.sequence : 0});
    }
    entry.rows.push_back(row);
    Do(entry);
  }
  void Install(uint32_t stripe, const std::vector<RowChange>& changes) {
    EntryHeader entry = Next();
    entry.rows.push_back({StripeIndex(stripe), changes});
    Do(entry);
  }
  [[nodiscard]] SlotWord RowWordOf(uint32_t stripe, uint32_t index) const {
    return state_.rows.Get(StripeIndex(stripe), index).word;
  }

  const Geometry g_ = test::SmallGeometry();
  State state_{g_};
  SlotChanges changes_;
  State::Broken broken_;
  uint64_t epoch_ = 1;
  uint64_t sequence_ = 0;
};

TEST_F(Apply, AnEntryWithoutRecordsChangesNothing) {
  Do(Next());
  EXPECT_TRUE(changes_.freed.empty() && changes_.kept.empty());
  EXPECT_EQ(state_.changes().rows.count(), 0U);
  EXPECT_FALSE(state_.changes().volumes);
  EXPECT_EQ(state_.pending_stripes(), 0U);
}

TEST_F(Apply, AWholeStripeTakesThePlaceOfItsRowAndOfWhatWasPending) {
  WriteStripe(3, 10);
  EXPECT_TRUE(changes_.freed.empty());
  Log(Chunk(3, 1), At(20));
  EXPECT_TRUE(changes_.freed.empty()) << "parity covers the old version still";
  WriteStripe(3, 30);
  const std::vector<SsdSlot> freed = changes_.freed;
  EXPECT_EQ(freed.size(), 5U);
  EXPECT_TRUE(std::ranges::count(freed, Slot(3, 1, 20)) == 1) << "the pending version";
  for (uint32_t i = 0; i < g_.n; ++i) {
    EXPECT_EQ(std::ranges::count(freed, Slot(3, i, 10 + i)), 1) << i;
  }
  EXPECT_FALSE(state_.HasPending(StripeIndex(3)));
  EXPECT_EQ(state_.Latest(Chunk(3, 1)).word, At(31));
}

// The same slot is named by its log stripe and by the row: it is needed until both let go of it.
TEST_F(Apply, ASlotOfRowAndLogStripeIsFreedByWhoeverLetsGoLast) {
  EntryHeader both = Next();
  both.log_stripes.push_back(
      {{{Chunk(0, 0), At(1), 1}, {Chunk(0, 1), At(2), 1}}, std::vector<uint32_t>(g_.m, 0)});
  Do(both);
  Install(0, {{0, At(1), 1, both.sequence}, {3, At(9), 1, 0}});  // only the first of them
  EXPECT_TRUE(changes_.freed.empty());
  WriteStripe(0, 40);
  // Now the row has let go of slot 1, and the log stripe is dead.
  EXPECT_EQ(std::ranges::count(changes_.freed, Slot(0, 0, 1)), 1);
  EXPECT_EQ(std::ranges::count(changes_.freed, Slot(0, 1, 2)), 1);
  EXPECT_EQ(std::ranges::count(changes_.freed, Slot(0, 3, 9)), 1);
  EXPECT_EQ(changes_.freed.size(), 3U);
}

TEST_F(Apply, ACommitLeavesWhatIsNewerThanTheVersionItNames) {
  const uint64_t old = Log(Chunk(0, 0), At(1));
  const uint64_t newer = Log(Chunk(0, 0), At(2));
  EXPECT_EQ(changes_.freed, std::vector{Slot(0, 0, 1)}) << "it was nobody's any more";
  Install(0, {{0, At(1), 1, old}, {3, At(9), 1, 0}});
  EXPECT_EQ(changes_.kept, std::vector{Slot(0, 0, 1)}) << "and now it is the row's";
  EXPECT_EQ(RowWordOf(0, 0), At(1));
  EXPECT_EQ(state_.pending.Find(Chunk(0, 0))->version, newer);
  EXPECT_EQ(state_.Latest(Chunk(0, 0)).word, At(2));
}

TEST_F(Apply, ACommitKeepsNothingThatWasNotFreed) {
  const uint64_t version = Log(Chunk(0, 0), At(1));
  Install(0, {{0, At(1), 1, version}, {3, At(9), 1, 0}});
  EXPECT_TRUE(changes_.kept.empty());
  EXPECT_TRUE(changes_.freed.empty());
}

// What is rebuilt or healed.
TEST_F(Apply, ARowChangeWithoutAVersionIsANewPlaceOnly) {
  WriteStripe(0, 10);
  Log(Chunk(0, 0), At(1));
  Install(0, {{0, At(50), 1, 0}});
  EXPECT_EQ(changes_.freed, std::vector{Slot(0, 0, 10)});
  EXPECT_TRUE(changes_.kept.empty());
  EXPECT_TRUE(state_.pending.Find(Chunk(0, 0)));
}

TEST_F(Apply, ATrimmedChunkReadsAsZerosAndItsRowStays) {
  WriteStripe(0, 10);
  EntryHeader trim = Next();
  trim.trims.emplace_back(ChunksTrimmed{Chunk(0, 1), 2});
  Do(trim);
  EXPECT_TRUE(changes_.freed.empty()) << "parity covers the old content until a commit (I3)";
  EXPECT_TRUE(state_.Latest(Chunk(0, 1)).word.is_zero());
  EXPECT_TRUE(state_.Latest(Chunk(0, 2)).word.is_zero());
  EXPECT_EQ(state_.Latest(Chunk(0, 0)).word, At(10));
  EXPECT_EQ(RowWordOf(0, 1), At(11));
  EXPECT_EQ(state_.pending.Find(Chunk(0, 1))->version, trim.sequence);
  EXPECT_EQ(state_.pending.zeros(), 2U);
}

TEST_F(Apply, TrimmedStripesHaveNothingAnyMore) {
  for (const uint32_t stripe : {0U, 1U, 2U, g_.stripes - 1}) {
    WriteStripe(stripe, 10 * (stripe % 10));
  }
  Log(Chunk(1, 0), At(90));
  EntryHeader trim = Next();
  trim.trims.emplace_back(StripesTrimmed{StripeIndex(1), 1});
  trim.trims.emplace_back(StripesTrimmed{StripeIndex(g_.stripes - 1), 1});
  Do(trim);
  EXPECT_EQ(changes_.freed.size(), 2 * g_.n + 1);
  EXPECT_TRUE(state_.RowIsZero(StripeIndex(1)) && state_.LatestIsZero(StripeIndex(1)));
  EXPECT_TRUE(state_.RowIsZero(StripeIndex(g_.stripes - 1)));
  EXPECT_FALSE(state_.RowIsZero(StripeIndex(0)) || state_.RowIsZero(StripeIndex(2)));
  EXPECT_EQ(state_.pending_stripes(), 0U);
}

// Volumes, rows, trims, log stripes: what an extent is freed of is what was there before the entry.
TEST_F(Apply, RecordsOfAnEntryAreAppliedInTheOrderOfTheFormat) {
  state_.volumes.Create(VolumeId(1), "v", 0);
  state_.volumes.Assign(VolumeId(1), 0, ExtentIndex(0));
  WriteStripe(0, 10);
  EntryHeader entry = Next();
  entry.log_stripes.push_back({{{Chunk(1, 0), At(60), 1}}, std::vector<uint32_t>(g_.m, 0)});
  entry.rows.push_back({StripeIndex(0), {{0, At(50), 1, entry.sequence}}});
  entry.volumes.emplace_back(ExtentsFreed{ExtentIndex(0), 1});
  entry.volumes.emplace_back(ExtentAssigned{VolumeId(1), 5, ExtentIndex(0)});
  Do(entry);
  EXPECT_EQ(RowWordOf(0, 0), At(50));
  EXPECT_TRUE(RowWordOf(0, 1).is_zero());
  EXPECT_TRUE(state_.pending.Find(Chunk(1, 0)));
  EXPECT_EQ(state_.volumes.OwnerOf(ExtentIndex(0)).logical, 5U);
}

// They lie in the log all the same: those behind them are where they are.
TEST_F(Apply, DroppedRecordsMeanNothingAndTakeTheirPlace) {
  EntryHeader entry = Next();
  for (uint32_t i = 0; i < 3; ++i) {
    entry.log_stripes.push_back({{{Chunk(i, 0), At(i), 1}}, std::vector<uint32_t>(g_.m, 0)});
    entry.rows.push_back({StripeIndex(10 + i), {{0, At(20 + i), 1, entry.sequence}}});
  }
  State::Dropped dropped;
  dropped.rows = {true};  // and none behind it
  dropped.log_stripes = {false, true, false};
  Do(entry, dropped);
  EXPECT_TRUE(RowWordOf(10, 0).is_zero());
  EXPECT_EQ(RowWordOf(11, 0), At(21));
  EXPECT_EQ(RowWordOf(12, 0), At(22));
  EXPECT_FALSE(state_.pending.Find(Chunk(1, 0)));
  const auto last = state_.pending.Find(Chunk(2, 0));
  ASSERT_TRUE(last);
  EXPECT_EQ(state_.pending.PlaceOf(last->log_stripe), entry.place + 1 + 2 * g_.chunk_blocks());
}

TEST_F(Apply, WordsOfTheDeviceBeforeAReplacementAreAbsent) {
  const DeviceIndex ssd = g_.SsdOf(Chunk(0, 0));
  state_.SetJoined(ssd, 5);
  epoch_ = 4;
  const uint64_t before = Log(Chunk(0, 0), At(1));
  EXPECT_TRUE(state_.Latest(Chunk(0, 0)).word.is_absent());
  EXPECT_EQ(state_.newest_absent_member(ssd), before);
  EXPECT_FALSE(state_.pending.Holds(ssd, SlotIndex(1)));
  epoch_ = 5;
  Log(Chunk(0, 0), At(1));
  EXPECT_EQ(state_.Latest(Chunk(0, 0)).word, At(1));
  EXPECT_EQ(state_.newest_absent_member(ssd), before);
  EXPECT_TRUE(changes_.freed.empty()) << "no slot of the new device was freed by the old version";
}

// Section 5: what a commit takes and does not give back.
TEST_F(Apply, AStripeWithoutParityOwesSlotsFromItsFirstPendingChunkOn) {
  const DeviceIndex parity = g_.SsdOf(StripeIndex(0), g_.k());
  const uint64_t mask = uint64_t{1} << parity.value;
  EXPECT_EQ(state_.WouldOwe(StripeIndex(0)), mask);
  const uint64_t first = Log(Chunk(0, 0), At(1));
  const uint64_t second = Log(Chunk(0, 1), At(2));
  EXPECT_EQ(state_.owed(parity), 1U) << "once";
  EXPECT_EQ(state_.WouldOwe(StripeIndex(0)), 0U);
  EXPECT_EQ(state_.MayOwe(StripeIndex(0)), mask);
  Install(0, {{0, At(1), 1, first}, {3, At(9), 1, 0}});
  EXPECT_EQ(state_.owed(parity), 0U) << "though something is pending still";
  EXPECT_EQ(state_.MayOwe(StripeIndex(0)), 0U);
  Install(0, {{1, At(2), 1, second}});
  EXPECT_EQ(state_.pending_stripes(), 0U);
}

// The rules that tests break on purpose do break something.
TEST_F(Apply, BrokenRules) {
  const uint64_t old = Log(Chunk(0, 0), At(1));
  Log(Chunk(0, 0), At(2));
  broken_.ignore_versions = true;
  Install(0, {{0, At(1), 1, old}, {3, At(9), 1, 0}});
  EXPECT_FALSE(state_.pending.Find(Chunk(0, 0)));
  broken_ = {.ignore_versions = false, .trim_frees_slots = true};
  EntryHeader trim = Next();
  trim.trims.emplace_back(ChunksTrimmed{Chunk(0, 0), 1});
  Do(trim);
  EXPECT_TRUE(RowWordOf(0, 0).is_zero());
}

}  // namespace
}  // namespace eplog
