// What of the log is needed, how much of it others may have, and what an applied entry leaves behind
// in figures: which extents it wrote to, how old what is pending is, whom it wakes.
#include "engine/log/appender.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class Appending : public ::testing::Test {
 protected:
  explicit Appending(const PartsShape& shape = {}) : parts_(shape) {}

  Appender& appender() { return parts_.appender; }
  uint64_t PlaceOf(ChunkIndex chunk) {
    return parts_.core.state->pending.PlaceOf(parts_.core.state->pending.Find(chunk)->log_stripe);
  }
  // One that waits for what it needs; null in `ended` while it does.
  struct Mark {
    std::optional<Status> ended;
  };
  Mark& AppendMark() {
    marks_.push_back(std::make_unique<Mark>());
    parts_.Start(appender().AppendMark(), marks_.back()->ended);
    return *marks_.back();
  }
  // Nothing waits any more.
  void TearDown() override {
    parts_.core.Stop(Error{ErrorCode::kShutdown, "the end"});
    parts_.Settle();
  }
  void Sleep(uint64_t us) {
    const Status slept = parts_.Run([](EventLoop& loop, uint64_t time) -> Task<Status> {
      co_await loop.Sleep(time);
      co_return OkStatus();
    }(parts_.loop, us));
    EXPECT_TRUE(slept.ok());
  }

  std::vector<std::unique_ptr<Mark>> marks_;
  EngineParts parts_;
};

// ---- what is needed

TEST_F(Appending, TheTailIsTheOldestThatIsNeeded) {
  const ChunkIndex first = parts_.Chunk(0, 0);
  const ChunkIndex second = parts_.Chunk(1, 1);
  parts_.Log({first});
  const uint64_t first_place = PlaceOf(first);
  EXPECT_EQ(appender().log_tail(), 0U) << "the newest checkpoint is of before";
  EXPECT_EQ(appender().CheckpointGain(), first_place);
  EXPECT_EQ(appender().SinceCheckpoint(), 2U);
  appender().CheckpointCounts(appender().applied().place);
  EXPECT_EQ(appender().SinceCheckpoint(), 0U);
  EXPECT_EQ(appender().log_tail(), first_place);
  EXPECT_EQ(appender().CheckpointGain(), 0U) << "what is pending stays";
  parts_.Log({second});
  const uint64_t second_place = PlaceOf(second);
  // Nothing of it is the latest any more, but recovery may look at it until that is stable.
  parts_.Log({first});
  EXPECT_EQ(appender().log_tail(), first_place);
  EXPECT_EQ(appender().log_used(), appender().next_place() - first_place);
  EXPECT_EQ(appender().CheckpointGain(), second_place - first_place);
  parts_.MakeStable();
  EXPECT_EQ(appender().log_tail(), 2U) << "where the newest checkpoint ends";
  appender().CheckpointCounts(appender().applied().place);
  EXPECT_EQ(appender().log_tail(), second_place);
}

TEST_F(Appending, ACheckpointGivesAllBackWhereNothingIsPending) {
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.WriteStripe(StripeIndex(0));
  parts_.MakeStable();
  const uint64_t end = appender().applied().place;
  EXPECT_EQ(appender().log_used(), end);
  EXPECT_EQ(appender().CheckpointGain(), end);
  appender().CheckpointCounts(end);
  EXPECT_EQ(appender().log_used(), 0U);
  EXPECT_EQ(appender().CheckpointGain(), 0U);
}

// Who reads log chunks pins them: their space stays taken, and who waits hears when it is not.
TEST_F(Appending, WhatIsBeingReadIsNeeded) {
  parts_.Log({parts_.Chunk(0, 0)});
  const uint64_t place = PlaceOf(parts_.Chunk(0, 0));
  parts_.WriteStripe(StripeIndex(0));
  parts_.MakeStable();
  int woken = 0;
  parts_.loop.Spawn([](Event& event, int& count) -> Task<void> {
    co_await event.Wait();
    ++count;
  }(parts_.core.space_changed, woken));
  parts_.Settle();
  auto pin = std::make_unique<Appender::LogPin>(appender(), place);
  const auto other = std::make_unique<Appender::LogPin>(appender(), place + 1);
  appender().CheckpointCounts(appender().applied().place);
  EXPECT_EQ(appender().log_tail(), place);
  parts_.Settle();
  EXPECT_EQ(woken, 0);
  pin.reset();
  EXPECT_EQ(appender().log_tail(), place + 1);
  parts_.Settle();
  EXPECT_EQ(woken, 1);
}

// ---- what others may have

// Of an array as large as this an eighth is closed at first; the more is pending the more commits
// will take, and what is promised counts as if it were, a chunk for every two blocks.
TEST_F(Appending, WhatIsPromisedIsChargedAsItWillBePending) {
  const CommitCost& cost = parts_.core.commit_cost;
  EXPECT_EQ(appender().ClosedBlocks(0), parts_.g().log_blocks / 8);
  for (const uint64_t chunks : {uint64_t{300}, uint64_t{1000}}) {
    EXPECT_EQ(appender().ClosedBlocks(2 * chunks), cost.ClosedBlocks(chunks, chunks));
    EXPECT_EQ(appender().ClosedBlocks(2 * chunks + 1), cost.ClosedBlocks(chunks, chunks));
    EXPECT_EQ(appender().ClosedBlocks(2 * chunks, true), cost.NeededBlocks(chunks, chunks));
  }
  // Two chunks of one stripe.
  parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1)});
  EXPECT_EQ(appender().ClosedBlocks(600), cost.ClosedBlocks(301, 302));
  EXPECT_EQ(appender().ClosedBlocks(600, true), cost.NeededBlocks(301, 302));
}

TEST_F(Appending, APromiseIsOneOfWhatIsNeitherUsedNorClosed) {
  parts_.Log({parts_.Chunk(0, 0)});
  uint64_t most = 0;
  while (appender().CanPromise(most + 1, false)) {
    ++most;
  }
  EXPECT_EQ(most, parts_.g().log_blocks - 2 - appender().ClosedBlocks(most));
  appender().Promise(10);
  EXPECT_TRUE(appender().CanPromise(most - 10, false));
  EXPECT_FALSE(appender().CanPromise(most - 9, false));
  EXPECT_TRUE(appender().CanPromise(most - 9, true));
  appender().TakeBack(10);
}

TEST_F(Appending, UrgentEntriesMayHaveAllButWhatRecoveryNeeds) {
  const uint64_t all = parts_.g().log_blocks - 2;
  EXPECT_EQ(appender().UrgentRoom(), all);
  parts_.Log({parts_.Chunk(0, 0)});
  EXPECT_EQ(appender().UrgentRoom(), all - 2);
  appender().Promise(5);
  EXPECT_EQ(appender().UrgentRoom(), all - 7) << "what is promised will come";
  appender().Promise(all);
  EXPECT_EQ(appender().UrgentRoom(), 0U);
  appender().TakeBack(all);
  ASSERT_TRUE(parts_
                  .Run([](Appender& of) -> Task<Status> {
                    Task<void> pause = of.Pause();
                    co_await pause;
                    co_return OkStatus();
                  }(appender()))
                  .ok());
  const Mark& waits = AppendMark();
  EXPECT_FALSE(waits.ended);
  EXPECT_EQ(appender().UrgentRoom(), all - 8) << "and what waits";
  appender().Unpause();
  parts_.Settle();
  EXPECT_TRUE(waits.ended && waits.ended->ok());
  EXPECT_EQ(appender().UrgentRoom(), all - 8);
  appender().TakeBack(5);
}

TEST_F(Appending, AnUrgentEntryWaitsForTheBlockThatItTakes) {
  appender().Promise(parts_.g().log_blocks - 3);
  EXPECT_EQ(appender().UrgentRoom(), 1U);
  EXPECT_TRUE(AppendMark().ended);
  EXPECT_FALSE(appender().blocked());
  const Mark& waits = AppendMark();
  EXPECT_FALSE(waits.ended);
  EXPECT_TRUE(appender().blocked());
  appender().TakeBack(1);
  parts_.Settle();
  EXPECT_TRUE(waits.ended && waits.ended->ok());
  EXPECT_FALSE(appender().blocked());
  appender().TakeBack(parts_.g().log_blocks - 4);
}

// Even if each header gets a block of its own: then a flush never waits for ring room.
TEST_F(Appending, NoMoreHeadersThanTheRingsHaveBlocksFor) {
  for (uint8_t i = 0; i < parts_.g().n; ++i) {
    parts_.core.rings.NoteBlock(DeviceIndex(i), 1, 1, true);
    parts_.core.rings.NoteBlock(DeviceIndex(i), parts_.g().ring_blocks - 3, 1, true);
  }
  const uint64_t room = parts_.core.rings.Room(JournalRings::kReserveBlocks);
  ASSERT_GE(room, 3U);
  for (uint64_t i = 0; i < room; ++i) {
    EXPECT_FALSE(appender().RingShort()) << i;
    EXPECT_TRUE(AppendMark().ended) << i;
  }
  EXPECT_TRUE(appender().RingShort());
  const Mark& waits = AppendMark();
  EXPECT_FALSE(waits.ended);
  EXPECT_TRUE(appender().blocked());
  parts_.core.rings.set_max_headers(1);
  const Status flushed = parts_.Run(parts_.flusher.TryFlushAll());
  EXPECT_TRUE(flushed.ok()) << flushed.error().ToString();
  EXPECT_EQ(parts_.flusher.stable(), room);
  EXPECT_FALSE(waits.ended) << "there is no block for it";
  parts_.core.rings.CheckpointCounts(UINT64_MAX);
  parts_.core.append.NotifyAll();
  parts_.Settle();
  EXPECT_TRUE(waits.ended);
}

// An entry's record may be promised more than the block that it takes (trims): the rest is held
// until it is applied, and no longer.
TEST_F(Appending, WhatARecordWasPromisedBeyondItsEntryEndsWithIt) {
  RecordWrite record;
  record.trim = ChunksTrimmed{parts_.Chunk(0, 0), 1};
  record.promised = 6;
  appender().Promise(6);
  const uint64_t room = appender().UrgentRoom();
  appender().Submit(record, false);
  parts_.Settle();
  EXPECT_TRUE(record.completion.status().ok());
  EXPECT_EQ(record.completion.sequence(), 1U);
  EXPECT_EQ(appender().UrgentRoom(), room + 5);
}

// ---- what an entry leaves behind

// Who waits for room wakes him who makes some.
TEST_F(Appending, WhoIsBlockedWakesTheKeeper) {
  appender().Promise(parts_.g().log_blocks - 2);
  bool woken = false;
  parts_.loop.Spawn([](Event& kick, bool& out) -> Task<void> {
    co_await kick.Wait();
    out = true;
  }(parts_.core.kick, woken));
  EXPECT_FALSE(AppendMark().ended);
  EXPECT_TRUE(woken);
  appender().TakeBack(parts_.g().log_blocks - 2);
}

// By extent: what a flush of a volume has to wait for. Commits bring nothing new.
TEST_F(Appending, EachExtentKnowsWhichEntryWroteToItLast) {
  const uint32_t stripes = parts_.g().extent_stripes;
  const auto in_extent = [&](uint32_t extent) { return StripeIndex(extent * stripes); };
  const auto last = [&](uint32_t extent) { return appender().LastWrite(ExtentIndex(extent)); };
  ASSERT_GE(parts_.g().extents(), 6U);
  const uint64_t logged = parts_.Log({parts_.g().Chunk(in_extent(1), 0)});
  const uint64_t written = parts_.WriteStripe(in_extent(2));
  const uint64_t trimmed = parts_.Trim(parts_.g().Chunk(in_extent(3), 1), 2);
  RecordWrite record;
  record.trim = StripesTrimmed{in_extent(4), 1};
  appender().Promise(1);
  appender().Submit(record, false);
  parts_.Settle();
  EXPECT_EQ(last(0), 0U);
  EXPECT_EQ(last(1), logged);
  EXPECT_EQ(last(2), written);
  EXPECT_EQ(last(3), trimmed);
  EXPECT_EQ(last(4), record.completion.sequence());
  EXPECT_EQ(last(5), 0U);
  // The row of a commit names what was written before.
  const auto pending = parts_.core.state->pending.Find(parts_.g().Chunk(in_extent(1), 0));
  RecordWrite commit;
  commit.row.emplace();
  commit.row->stripe = in_extent(1);
  commit.row->changes.push_back({0, pending->word, pending->crc, pending->version});
  appender().Submit(commit, true);
  parts_.Settle();
  EXPECT_TRUE(commit.completion.status().ok());
  EXPECT_EQ(last(1), logged);
}

TEST_F(Appending, TheAgeOfWhatIsPendingIsThatOfTheOldest) {
  EXPECT_FALSE(appender().OldestPendingUs());
  std::vector<uint64_t> at_us;
  for (uint32_t stripe = 0; stripe < 2; ++stripe) {
    Sleep(1'000'000);
    parts_.Log({parts_.Chunk(stripe, 0)});
    at_us.push_back(parts_.loop.NowUs());
  }
  EXPECT_EQ(appender().OldestPendingUs(), at_us[0]);
  EXPECT_EQ(appender().SequenceAt(at_us[1] - 1), 1U);
  EXPECT_EQ(appender().SequenceAt(at_us[1]), 2U);
  parts_.WriteStripe(StripeIndex(0));
  EXPECT_EQ(appender().OldestPendingUs(), at_us[1]);
  parts_.WriteStripe(StripeIndex(1));
  EXPECT_FALSE(appender().OldestPendingUs());
}

TEST_F(Appending, EntriesAreCountedWithWhatTheyCarry) {
  parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1), parts_.Chunk(0, 2)});
  parts_.Log({parts_.Chunk(1, 0)});
  parts_.WriteStripe(StripeIndex(2));
  ASSERT_TRUE(AppendMark().ended);
  const Traffic& traffic = parts_.core.traffic;
  const uint64_t chunk = parts_.g().chunk_bytes;
  EXPECT_EQ(traffic.log_appends, 4U);
  EXPECT_EQ(traffic.log_stripes, 2U);
  EXPECT_EQ(traffic.log_stripe_members, 4U);
  EXPECT_EQ(traffic.ssd_data_bytes, (4 + parts_.g().k()) * chunk);
  EXPECT_EQ(traffic.ssd_parity_bytes, parts_.g().m * chunk);
  EXPECT_EQ(parts_.core.log_bytes.headers, 4 * parts_.g().m * kBlockBytes);
  EXPECT_EQ(parts_.core.log_bytes.chunks, 2 * parts_.g().m * chunk);
}

TEST_F(Appending, LapsOfTheLogAreCounted) {
  for (uint64_t i = 1; i <= 3 * parts_.g().log_blocks; ++i) {
    ASSERT_TRUE(AppendMark().ended);
    if (i % 20 == 0) {
      ASSERT_TRUE(parts_.Run(parts_.flusher.FlushAll()).ok());
      parts_.core.rings.CheckpointCounts(UINT64_MAX);
      appender().CheckpointCounts(appender().applied().place);
    }
    ASSERT_EQ(parts_.hooks.log_wraps, appender().next_place() / parts_.g().log_blocks);
  }
  EXPECT_EQ(parts_.hooks.log_wraps, 3U);
}

// The clocks of who commits, flushes and makes checkpoints start with what they wait for, whatever
// else there is already.
TEST_F(Appending, TheFirstOfWhatIsWaitedForWakesTheKeeper) {
  int kicks = 0;
  parts_.loop.Spawn([](Event& kick, int& count) -> Task<void> {
    while (true) {
      co_await kick.Wait();
      ++count;
    }
  }(parts_.core.kick, kicks));
  parts_.Settle();
  ASSERT_TRUE(AppendMark().ended);
  const auto kicked = [&] {
    parts_.Settle();
    return std::exchange(kicks, 0) != 0;
  };
  EXPECT_TRUE(kicked()) << "something is unstable";
  parts_.Log({parts_.Chunk(0, 0)});
  EXPECT_TRUE(kicked()) << "something is pending";
  appender().CheckpointCounts(appender().applied().place);
  static_cast<void>(kicked());
  parts_.Log({parts_.Chunk(1, 0)});
  EXPECT_TRUE(kicked()) << "something is not in the checkpoint";
  ASSERT_TRUE(parts_.Run(parts_.flusher.FlushAll()).ok());
  EXPECT_TRUE(kicked()) << "something is stable";
  parts_.Log({parts_.Chunk(2, 0)});
  EXPECT_TRUE(kicked()) << "something is unstable again";
}

// ---- pauses and changes

class SlowAppending : public Appending {
 protected:
  static PartsShape Shape() {
    PartsShape shape;
    shape.delays.write_us = 100;
    return shape;
  }
  SlowAppending() : Appending(Shape()) {}
};

TEST_F(SlowAppending, APauseLetsWhatIsOnItsWayArriveAndNothingElseBegin) {
  RecordWrite before;
  appender().Submit(before, true);
  std::optional<size_t> in_flight;
  Sleep(10);
  ASSERT_EQ(appender().in_flight(), 1U);
  parts_.loop.Spawn([](Appender& of, std::optional<size_t>& out) -> Task<void> {
    Task<void> pause = of.Pause();
    co_await pause;
    out = of.in_flight();
  }(appender(), in_flight));
  Sleep(10);
  EXPECT_FALSE(in_flight);
  RecordWrite after;
  appender().Submit(after, true);
  parts_.Settle();
  EXPECT_EQ(in_flight, 0U);
  EXPECT_EQ(before.completion.sequence(), 1U);
  EXPECT_EQ(after.completion.sequence(), 0U);
  appender().Unpause();
  parts_.Settle();
  EXPECT_EQ(after.completion.sequence(), 2U);
}

// I11: what a device has lost meanwhile is in writing before anybody hears of what was on its way.
TEST_F(SlowAppending, NothingIsAppliedBeforeAChangeIsOver) {
  RecordWrite before;
  appender().Submit(before, true);
  Sleep(10);
  parts_.states().BeginChange();
  RecordWrite after;
  appender().Submit(after, true);
  std::optional<uint64_t> applied;
  parts_.loop.Spawn([](Appender& of, std::optional<uint64_t>& out) -> Task<void> {
    Task<void> written = of.InFlightWritten();
    co_await written;
    out = of.applied().sequence;
  }(appender(), applied));
  Sleep(10);
  EXPECT_FALSE(applied) << "it is not written yet";
  parts_.Settle();
  EXPECT_EQ(applied, 0U);
  EXPECT_EQ(before.completion.sequence(), 0U);
  EXPECT_EQ(appender().newest_sequence(), 1U);
  parts_.states().EndChange();
  appender().Resume();
  parts_.Settle();
  EXPECT_EQ(before.completion.sequence(), 1U);
  EXPECT_EQ(after.completion.sequence(), 2U);
}

}  // namespace
}  // namespace eplog
