// Which stripes a commit takes and which versions of their chunks, what it leaves, and what it does
// about stripes that cannot be read (I5).
#include "engine/commit/committer.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/engine/commit/commit_fixture.h"

namespace eplog {
namespace {

using Stripes = std::vector<StripeIndex>;

Stripes Of(const std::vector<uint32_t>& numbers) {
  Stripes stripes;
  for (const uint32_t number : numbers) {
    stripes.emplace_back(number);
  }
  return stripes;
}

class Commits : public CommitTest {
 protected:
  Status Commit(const std::vector<uint32_t>& numbers) {
    const Stripes stripes = Of(numbers);
    return parts_.Run(committer_.Commit(stripes));
  }
  // More of a stripe than parity replaces is wrong, of what is pending too.
  void Ruin(uint32_t stripe) {
    parts_.WriteStripe(StripeIndex(stripe));
    parts_.Log({parts_.Chunk(stripe, 0)});
    for (uint32_t i = 1; i < g().n; ++i) {
      parts_.RotRow(StripeIndex(stripe), i);
    }
  }
};

// ---- which

TEST_F(Commits, TakeTheStripesOfTheOldestLogStripesFirst) {
  parts_.Log({parts_.Chunk(7, 0)});
  parts_.Log({parts_.Chunk(3, 0), parts_.Chunk(5, 1)});
  const uint64_t third = parts_.Log({parts_.Chunk(7, 1)});
  parts_.Log({parts_.Chunk(1, 0)});
  EXPECT_TRUE(committer_.OldestStripes(10).empty()) << "nothing of it is stable";
  parts_.MakeStable();
  Stripes all = committer_.OldestStripes(10);
  ASSERT_EQ(all.size(), 4U) << "each once";
  EXPECT_EQ(all.front(), StripeIndex(7));
  EXPECT_EQ(all.back(), StripeIndex(1));
  EXPECT_EQ(committer_.OldestStripes(1), Of({7}));
  EXPECT_EQ(committer_.OldestStripes(10, 1), Of({7}));
  EXPECT_EQ(committer_.OldestStripes(10, third).size(), 3U);
  EXPECT_TRUE(committer_.OldestStripes(0).empty());
}

TEST_F(Commits, OfNothingMakeNoEntry) {
  EXPECT_TRUE(Commit({}).ok());
  EXPECT_TRUE(Commit({0, 5}).ok());
  EXPECT_EQ(parts_.appender.newest_sequence(), 0U);
  EXPECT_EQ(parts_.core.traffic.committed_stripes, 0U);
}

// ---- what

TEST_F(Commits, MakeRowsCoverWhatIsPending) {
  parts_.Log({parts_.Chunk(0, 0)});  // of a stripe that was never written
  parts_.WriteStripe(StripeIndex(1));
  parts_.Log({parts_.Chunk(1, 2)});
  parts_.WriteStripe(StripeIndex(2));
  parts_.Log({parts_.Chunk(2, 0), parts_.Chunk(2, 1), parts_.Chunk(2, 2)});
  parts_.MakeStable();
  const SlotWord old = Word(1, 3).word;
  ASSERT_TRUE(Commit({2, 0, 1}).ok());
  for (uint32_t s = 0; s < 3; ++s) {
    ExpectCommitted(s);
  }
  EXPECT_NE(Word(1, 3).word, old) << "parity is written out of place";
  EXPECT_EQ(parts_.core.traffic.committed_stripes, 3U);
  EXPECT_EQ(parts_.core.state->pending.pending_chunks(), 0U);
}

TEST_F(Commits, LeaveWhatIsNotStable) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.MakeStable();
  const auto taken = parts_.core.state->Latest(parts_.Chunk(0, 0));
  parts_.Log({parts_.Chunk(0, 1)});  // another chunk, not stable
  ASSERT_TRUE(Commit({0}).ok());
  EXPECT_EQ(Word(0, 0), taken);
  EXPECT_FALSE(parts_.core.state->pending.Find(parts_.Chunk(0, 0)));
  EXPECT_TRUE(parts_.core.state->pending.Find(parts_.Chunk(0, 1)));
  // The parity is that of what the row names.
  parts_.MakeStable();
  ASSERT_TRUE(Commit({0}).ok());
  ExpectCommitted(0);
}

TEST_F(Commits, OfTrimmedStripesWriteNoParityAndGiveAllBack) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Trim(parts_.Chunk(0, 0), g().k());
  parts_.MakeStable();
  const uint64_t before = parts_.core.traffic.ssd_parity_bytes;
  ASSERT_TRUE(Commit({0}).ok());
  EXPECT_TRUE(parts_.core.state->RowIsZero(StripeIndex(0)));
  EXPECT_EQ(parts_.core.traffic.ssd_parity_bytes, before);
  parts_.MakeStable();
  for (uint8_t i = 0; i < g().n; ++i) {
    EXPECT_EQ(parts_.core.space.free(DeviceIndex(i)), g().slots);
  }
}

TEST_F(Commits, OfAPartOfAStripeThatWasTrimmed) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Trim(parts_.Chunk(0, 1), 1);
  parts_.MakeStable();
  ASSERT_TRUE(Commit({0}).ok());
  EXPECT_TRUE(Word(0, 1).word.is_zero());
  ExpectCommitted(0);
}

TEST_F(Commits, OnALostSsdNameWhatIsNotThereAbsent) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.MakeStable();
  const DeviceIndex data = g().SsdOf(StripeIndex(0), 0);
  const DeviceIndex parity = g().SsdOf(StripeIndex(0), 3);
  parts_.Lose(data);
  parts_.Lose(parity);
  ASSERT_TRUE(Commit({0}).ok());
  EXPECT_TRUE(Word(0, 0).word.is_absent());
  EXPECT_TRUE(Word(0, 3).word.is_absent());
  ExpectCommitted(0);
}

// ---- room

TEST_F(Commits, OfMoreStripesThanHaveSlotsAtOnceGoInBatches) {
  const uint32_t count = g().commit_width() + 3;
  std::vector<uint32_t> numbers;
  for (uint32_t s = 0; s < count; ++s) {
    parts_.WriteStripe(StripeIndex(s));
    parts_.Log({parts_.Chunk(s, 0)});
    numbers.push_back(s);
  }
  parts_.MakeStable();
  // What each batch takes must have come back from the one before it.
  for (uint8_t i = 0; i < g().n; ++i) {
    while (parts_.core.space.free(DeviceIndex(i)) > 2) {
      static_cast<void>(parts_.core.space.Claim(DeviceIndex(i)));
    }
  }
  ASSERT_TRUE(Commit(numbers).ok());
  for (const uint32_t s : numbers) {
    ExpectCommitted(s);
  }
}

TEST_F(Commits, TakeTheLastSlotThereIs) {
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.MakeStable();
  for (uint8_t i = 0; i < g().n; ++i) {
    while (parts_.core.space.free(DeviceIndex(i)) > 1) {
      static_cast<void>(parts_.core.space.Claim(DeviceIndex(i)));
    }
  }
  ASSERT_TRUE(Commit({0}).ok());
  ExpectCommitted(0);
  EXPECT_EQ(parts_.core.space.free_min(), 0U);
}

TEST_F(Commits, WithoutLogRoomAreRefusedAndNotWaitedFor) {
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.MakeStable();
  parts_.appender.Promise(parts_.appender.UrgentRoom());
  EXPECT_FALSE(committer_.HasLogRoom());
  const Status busy = Commit({0});
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(0)));
  EXPECT_TRUE(committer_.failed().empty()) << "its turn comes again";
}

// ---- what cannot be read

TEST_F(Commits, OneThatFailsKeepsNoOtherFromBeingCommitted) {
  parts_.WriteStripe(StripeIndex(2));
  parts_.Log({parts_.Chunk(2, 1)});
  for (const uint32_t stripe : {4U, 1U}) {
    Ruin(stripe);
  }
  parts_.MakeStable();
  const Status failed = Commit({4, 2, 1});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kTooManyFailures);
  ExpectCommitted(2);
  EXPECT_EQ(committer_.failed().size(), 2U);
  EXPECT_TRUE(committer_.failed().at(4).message.find("stripe 4") != std::string::npos);
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(4)));
  EXPECT_TRUE(committer_.OldestStripes(10).empty()) << "they are left out";
  EXPECT_EQ(committer_.TakeFailures(), Of({1, 4}));
  EXPECT_TRUE(committer_.failed().empty());
  EXPECT_EQ(committer_.OldestStripes(10).size(), 2U);
}

TEST_F(Commits, WhatFailedAndWasWrittenAnewIsNoFailureAnyMore) {
  Ruin(1);
  parts_.MakeStable();
  ASSERT_FALSE(Commit({1}).ok());
  parts_.WriteStripe(StripeIndex(1));
  EXPECT_TRUE(Commit({1}).ok());
  EXPECT_TRUE(committer_.TakeFailures().empty());
}

// It looks newer than it is, and waits for a flush; it is as lost as it was.
TEST_F(Commits, WhatFailedAndWasMovedOnInTheLogIsAFailureStill) {
  Ruin(1);
  parts_.MakeStable();
  const Status first = Commit({1});
  ASSERT_FALSE(first.ok());
  parts_.Log({parts_.Chunk(1, 0)});
  for (const bool stable : {false, true}) {
    if (stable) {
      parts_.MakeStable();
    }
    const Status again = Commit({1});
    ASSERT_FALSE(again.ok()) << stable;
    EXPECT_EQ(again.error().code, first.error().code);
    EXPECT_EQ(again.error().message, first.error().message);
  }
  EXPECT_EQ(committer_.TakeFailures(), Of({1}));
}

TEST_F(Commits, OfAnArrayThatHasStoppedAreNone) {
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.MakeStable();
  parts_.core.Stop(Error{ErrorCode::kNoSpace, "full below"});
  EXPECT_FALSE(Commit({0}).ok());
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(0)));
}

// I11: what was taken under other device states is dropped and taken anew.
TEST(CommitsMeanwhile, OneTakenBeforeADeviceWasLostGivesItsSlotsBack) {
  EngineParts parts({.delays = {.read_us = 100, .write_us = 1000}});
  ChunkReader reader(parts.core, &parts.appender);
  BufferedChunks buffered(parts.core);
  Writer writer(parts.core, parts.appender, parts.admission, reader, buffered);
  Committer committer(parts.core, parts.appender, parts.flusher, reader, writer);
  parts.WriteStripe(StripeIndex(0));
  parts.Log({parts.Chunk(0, 0)});
  parts.MakeStable();
  const DeviceIndex parity = parts.g().SsdOf(StripeIndex(0), 4);
  const uint32_t free = parts.core.space.free(parity);
  std::optional<Status> ended;
  const Stripes stripes = Of({0});
  parts.loop.Spawn([](Task<Status> commit, std::optional<Status>* out) -> Task<void> {
    *out = co_await commit;
  }(committer.Commit(stripes), &ended));
  // Its parity is on its way.
  static_cast<void>(parts.loop.RunUntil([&] { return parts.core.space.free(parity) != free; }));
  ASSERT_FALSE(ended);
  parts.Lose(parts.g().SsdOf(StripeIndex(0), 1));
  parts.Settle();
  ASSERT_TRUE(ended);
  EXPECT_TRUE(parts.core.state->HasPending(StripeIndex(0)));
  EXPECT_EQ(parts.core.space.free(parity), free);
  EXPECT_TRUE(committer.failed().empty());
}

}  // namespace
}  // namespace eplog
