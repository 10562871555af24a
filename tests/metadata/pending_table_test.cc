// What is pending, and how long what a log stripe needs is kept: its slots until its last member is
// superseded (I3), its log chunks until what did that is stable (I6).
#include "metadata/pending_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

std::vector<LogStripeMember> Zeros(uint64_t first, uint64_t count) {
  std::vector<LogStripeMember> members;
  for (uint64_t i = 0; i < count; ++i) {
    members.push_back({ChunkIndex(first + i), SlotWord::Zero(), 0});
  }
  return members;
}

class PendingTables : public ::testing::Test {
 protected:
  // A log stripe of these chunks, each in the slot of its own number.
  LogStripeId Add(uint64_t sequence, uint64_t place, const std::vector<uint64_t>& chunks) {
    std::vector<LogStripeMember> members;
    for (const uint64_t chunk : chunks) {
      members.push_back({ChunkIndex(chunk), WordOf(chunk), static_cast<uint32_t>(100 + chunk)});
    }
    return table_.Add(sequence, place, members, std::vector<uint32_t>(g_.m, 7));
  }
  bool Supersede(uint64_t chunk, uint64_t upto, uint64_t by, bool commit = false) {
    return table_.Supersede(ChunkIndex(chunk), upto, by, commit,
                            [this](const LogStripeMember& member) { died_.push_back(member); });
  }
  [[nodiscard]] static SlotWord WordOf(uint64_t chunk) {
    return SlotWord::At(SlotIndex(static_cast<uint32_t>(chunk)));
  }
  [[nodiscard]] bool Holds(uint64_t chunk) const {
    return table_.Holds(g_.SsdOf(ChunkIndex(chunk)), SlotIndex(static_cast<uint32_t>(chunk)));
  }
  [[nodiscard]] std::vector<uint64_t> LiveSequences(size_t most = SIZE_MAX) const {
    std::vector<uint64_t> sequences;
    table_.ForEachLive([&](LogStripeId id) {
      sequences.push_back(table_.SequenceOf(id));
      return sequences.size() < most;
    });
    return sequences;
  }

  const Geometry g_ = test::SmallGeometry();
  PendingTable table_{g_};
  std::vector<LogStripeMember> died_;
};

TEST_F(PendingTables, OfAnEmptyOneNothingIsFoundAndNothingTaken) {
  EXPECT_FALSE(table_.Find(ChunkIndex(0)));
  EXPECT_FALSE(table_.Find(ChunkIndex(g_.data_chunks() - 1)));
  EXPECT_FALSE(Supersede(0, UINT64_MAX, 1));
  EXPECT_EQ(table_.OldestPlace(), std::nullopt);
  EXPECT_EQ(table_.OldestLivePlace(), std::nullopt);
  EXPECT_EQ(table_.FirstLive(), kNone);
  EXPECT_TRUE(LiveSequences().empty());
  table_.Stable(UINT64_MAX);
  table_.ForgetSsd(DeviceIndex(0));
  EXPECT_EQ(table_.pending_chunks() + table_.live_members() + table_.charged_zeros(), 0U);
}

TEST_F(PendingTables, TheFirstAndTheLastChunkThatThereIs) {
  const uint64_t last = g_.data_chunks() - 1;
  const LogStripeMember member{ChunkIndex(last), SlotWord::At(SlotIndex(g_.slots - 1)), 3};
  Add(1, 0, {0});
  table_.Add(2, 2, std::vector{member}, std::vector<uint32_t>{7});
  ASSERT_TRUE(table_.Find(ChunkIndex(0)));
  const auto found = table_.Find(ChunkIndex(last));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->version, 2U);
  EXPECT_EQ(found->word, member.word);
  EXPECT_TRUE(table_.Holds(g_.SsdOf(ChunkIndex(last)), SlotIndex(g_.slots - 1)));
  EXPECT_FALSE(table_.Find(ChunkIndex(1)));
  EXPECT_FALSE(table_.Find(ChunkIndex(last - 1)));
}

// I5: a commit names the version that it covers; one that came meanwhile is newer.
TEST_F(PendingTables, WhatIsNewerThanNamedStaysPending) {
  Add(5, 0, {1});
  EXPECT_FALSE(Supersede(1, 4, 6, true));
  EXPECT_TRUE(table_.Find(ChunkIndex(1)));
  EXPECT_TRUE(Supersede(1, 5, 6, true));
  EXPECT_FALSE(table_.Find(ChunkIndex(1)));
  EXPECT_FALSE(Supersede(1, 5, 7, true)) << "once";
}

// I3: with the others of its log stripe a superseded version decodes what is still pending.
TEST_F(PendingTables, SlotsAreHeldUntilTheLastMemberIsSuperseded) {
  const LogStripeId id = Add(5, 10, {0, 1, 2});
  ASSERT_TRUE(Supersede(1, UINT64_MAX, 6));
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 7));
  EXPECT_TRUE(died_.empty());
  EXPECT_TRUE(Holds(0) && Holds(1) && Holds(2));
  EXPECT_EQ(table_.View(id).superseded, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(table_.live_members(), 3U);
  EXPECT_EQ(table_.pending_chunks(), 1U);
  ASSERT_TRUE(Supersede(2, UINT64_MAX, 8));
  ASSERT_EQ(died_.size(), 3U) << "all of them, also those that were superseded long ago";
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(died_[i].chunk, ChunkIndex(i));
    EXPECT_EQ(died_[i].word, WordOf(i));
    EXPECT_FALSE(Holds(i));
  }
  EXPECT_EQ(table_.live_members(), 0U);
}

// I6: until then recovery may lack what superseded it.
TEST_F(PendingTables, LogChunksAreKeptUntilWhatSupersededThemIsStable) {
  const LogStripeId id = Add(5, 10, {0});
  Add(6, 12, {3});
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 9));
  EXPECT_FALSE(table_.IsLive(id));
  EXPECT_EQ(table_.OldestLivePlace(), 12U);
  EXPECT_EQ(table_.OldestPlace(), 10U);
  table_.Stable(8);
  EXPECT_EQ(table_.OldestPlace(), 10U);
  table_.Stable(9);
  EXPECT_EQ(table_.OldestPlace(), 12U);
}

TEST_F(PendingTables, OneThatDiesAmongOthersLeavesTheirOrder) {
  Add(1, 10, {0});
  Add(2, 12, {1});
  Add(3, 14, {2});
  ASSERT_TRUE(Supersede(1, UINT64_MAX, 4));
  EXPECT_EQ(LiveSequences(), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(LiveSequences(1), (std::vector<uint64_t>{1})) << "who has seen enough stops";
  table_.Stable(4);
  EXPECT_EQ(LiveSequences(), (std::vector<uint64_t>{1, 3}));
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 5));
  EXPECT_EQ(table_.OldestPlace(), 10U);
  EXPECT_EQ(table_.OldestLivePlace(), 14U);
  ASSERT_TRUE(Supersede(2, UINT64_MAX, 5));
  table_.Stable(5);
  EXPECT_EQ(table_.OldestPlace(), std::nullopt);
}

// Its number may be given to another one by then.
TEST_F(PendingTables, OneThatIsGoneIsNotTakenForTheNextOfItsNumber) {
  const LogStripeId first = Add(1, 10, {0});
  ASSERT_TRUE(table_.IsLive(first, 1));
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 2));
  EXPECT_FALSE(table_.IsLive(first, 1));
  table_.Stable(2);
  const LogStripeId second = Add(3, 12, {1});
  EXPECT_EQ(first, second);
  EXPECT_FALSE(table_.IsLive(second, 1));
  EXPECT_TRUE(table_.IsLive(second, 3));
}

TEST_F(PendingTables, OnlyWhatNoCommitHelpedToDieDiedEarly) {
  Add(1, 10, {0, 1});
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 2, true));
  ASSERT_TRUE(Supersede(1, UINT64_MAX, 3));
  EXPECT_EQ(table_.early_deaths(), 0U);
  Add(4, 12, {0});
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 5));
  EXPECT_EQ(table_.early_deaths(), 1U);
  table_.Add(6, 14, Zeros(3, 1), {});
  ASSERT_TRUE(Supersede(3, UINT64_MAX, 7));
  EXPECT_EQ(table_.early_deaths(), 1U) << "of trimmed chunks nothing was logged";
}

TEST_F(PendingTables, LoadedMembersThatWereSupersededAreHeldAndNotPending) {
  const std::vector<bool> superseded = {true, false};
  const std::vector<LogStripeMember> members = {{ChunkIndex(0), WordOf(0), 1},
                                                {ChunkIndex(1), WordOf(1), 2}};
  const LogStripeId id = table_.Add(4, 10, members, std::vector<uint32_t>{7}, &superseded);
  EXPECT_FALSE(table_.Find(ChunkIndex(0)));
  EXPECT_TRUE(table_.Find(ChunkIndex(1)));
  EXPECT_TRUE(Holds(0));
  std::vector<ChunkIndex> pending;
  table_.PendingChunksOf(id, pending);
  EXPECT_EQ(pending, std::vector{ChunkIndex(1)});
  ASSERT_TRUE(Supersede(1, UINT64_MAX, 5));
  EXPECT_EQ(died_.size(), 2U);
}

TEST_F(PendingTables, OfAReplacedSsdNothingIsHeldAndTheRestStays) {
  const LogStripeId id = Add(1, 10, {0, 1, 2});
  const DeviceIndex ssd = g_.SsdOf(ChunkIndex(1));
  table_.ForgetSsd(ssd);
  EXPECT_TRUE(table_.Find(ChunkIndex(1))->word.is_absent());
  EXPECT_EQ(table_.View(id).members[1].crc, 101U) << "what is decoded is checked against it";
  EXPECT_FALSE(Holds(1));
  EXPECT_TRUE(Holds(0) && Holds(2));
  // The slot of that number is the new device's, and free.
  const std::vector<LogStripeMember> other = {{ChunkIndex(1), WordOf(1), 9}};
  ASSERT_TRUE(Supersede(1, UINT64_MAX, 2));
  table_.Add(2, 12, other, std::vector<uint32_t>{7});
  EXPECT_TRUE(Holds(1));
}

TEST_F(PendingTables, AsWideAsAnArrayCanBe) {
  Geometry wide = g_;
  wide.n = kMaxSsds;
  wide.m = kMaxParity;
  PendingTable table(wide);
  // Of different stripes, or parity would be on some of the SSDs.
  std::vector<LogStripeMember> members;
  uint64_t ssds = 0;
  for (uint64_t chunk = 0; members.size() < kMaxSsds; ++chunk) {
    const uint64_t bit = uint64_t{1} << wide.SsdOf(ChunkIndex(chunk)).value;
    if ((ssds & bit) == 0) {
      ssds |= bit;
      members.push_back({ChunkIndex(chunk), SlotWord::At(SlotIndex(1)), 0});
    }
  }
  const LogStripeId id = table.Add(1, 0, members, std::vector<uint32_t>{1, 2, 3, 4});
  EXPECT_EQ(table.View(id).members, members);
  EXPECT_EQ(table.View(id).log_crcs[3], 4U);
  size_t died = 0;
  for (const LogStripeMember& member : members) {
    ASSERT_EQ(died, 0U);
    ASSERT_TRUE(
        table.Supersede(member.chunk, 1, 2, false, [&died](const LogStripeMember&) { ++died; }));
  }
  EXPECT_EQ(died, members.size());
}

using PendingTableDeathTest = PendingTables;

TEST_F(PendingTableDeathTest, ASlotIsInOneLiveLogStripe) {
  Add(1, 10, {0});
  ASSERT_TRUE(Supersede(0, UINT64_MAX, 2));
  Add(2, 12, {0});
  const std::vector<LogStripeMember> twice = {{ChunkIndex(12), WordOf(0), 0}};
  ASSERT_EQ(g_.SsdOf(ChunkIndex(12)), g_.SsdOf(ChunkIndex(0)));
  EXPECT_DEATH(table_.Add(3, 14, twice, std::vector<uint32_t>{7}), "I3");
}

TEST_F(PendingTableDeathTest, OneInWhichNothingIsPendingIsNotLive) {
  const std::vector<bool> superseded = {true};
  const std::vector<LogStripeMember> members = {{ChunkIndex(0), WordOf(0), 1}};
  EXPECT_DEATH(table_.Add(1, 10, members, std::vector<uint32_t>{7}, &superseded), "I6");
}

// What recovery may bring back is charged until it cannot: else more may be pending after a crash
// than the metadata area is made for.
TEST(PendingTable, ZerosAreChargedUntilWhatSupersedesThemIsStable) {
  const Geometry g = test::SmallGeometry();
  PendingTable table(g);
  table.Add(1, 0, Zeros(0, 3), {});
  table.Add(2, 1, Zeros(3, 2), {});
  const auto died = [](const LogStripeMember&) {};
  ASSERT_TRUE(table.Supersede(ChunkIndex(0), UINT64_MAX, 3, false, died));
  ASSERT_TRUE(table.Supersede(ChunkIndex(1), UINT64_MAX, 3, false, died));
  EXPECT_EQ(table.zeros(), 5U);  // as long as one of a record is pending
  ASSERT_TRUE(table.Supersede(ChunkIndex(2), UINT64_MAX, 4, false, died));
  EXPECT_EQ(table.zeros(), 2U);
  EXPECT_EQ(table.charged_zeros(), 5U);
  table.Stable(3);
  EXPECT_EQ(table.charged_zeros(), 5U);
  table.Stable(4);
  EXPECT_EQ(table.charged_zeros(), 2U);
  EXPECT_EQ(table.zeros(), 2U);
}

}  // namespace
}  // namespace eplog
