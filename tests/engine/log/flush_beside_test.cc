// What goes on beside a flush: whom it wakes, who shares it, which headers go to the rings before
// anybody asks, and a checkpoint that counts or waits meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "engine/log/flusher.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Upto = Flusher::Upto;

class BesideAFlush : public ::testing::Test {
 protected:
  explicit BesideAFlush(const PartsShape& shape = {}) : parts_(shape) {}

  // How often somebody who waits for it is woken from now on.
  int& Wakes(Event& event) {
    int& count = wakes_.emplace_back(0);
    parts_.loop.Spawn([](Event& of, int& out) -> Task<void> {
      while (true) {
        co_await of.Wait();
        ++out;
      }
    }(event, count));
    parts_.Settle();
    return count;
  }
  void Sleep(uint64_t us) {
    const Status slept = parts_.Run([](EventLoop& loop, uint64_t time) -> Task<Status> {
      co_await loop.Sleep(time);
      co_return OkStatus();
    }(parts_.loop, us));
    EXPECT_TRUE(slept.ok());
  }
  // Begins, and ends when the test lets time pass.
  std::optional<Status>& Begin(Task<Status> task) {
    std::optional<Status>& ended = ended_.emplace_back();
    parts_.loop.Spawn([](Task<Status> inner, std::optional<Status>* out) -> Task<void> {
      *out = co_await inner;
    }(std::move(task), &ended));
    return ended;
  }
  // Until a checkpoint counts: as when a device was lost after the entries had been made.
  void FillRings() {
    for (uint8_t i = 0; i < parts_.g().n; ++i) {
      for (const uint64_t number : {uint64_t{1}, parts_.g().ring_blocks}) {
        parts_.core.rings.NoteBlock(DeviceIndex(i), number, number, true);
      }
    }
    parts_.states().BecomesOk(DeviceIndex(0));  // others than before
  }
  void TearDown() override {
    parts_.core.Stop(Error{ErrorCode::kShutdown, "the end"});
    parts_.Settle();
  }

  std::deque<int> wakes_;
  std::deque<std::optional<Status>> ended_;
  EngineParts parts_;
};

// ---- who is woken

// The engine's own flush is due a while after the first, and at once when half of what may be
// unstable is: the keeper has to look then.
TEST_F(BesideAFlush, TheKeeperIsWokenByTheFirstThatIsUnstableAndWhenItBecomesMuch) {
  constexpr uint64_t kPlace = 100;
  constexpr uint64_t kMuch = Appender::kMaxUnstableBytes / 2 / kBlockBytes;
  parts_.flusher.Open(0, kPlace);
  EXPECT_FALSE(parts_.flusher.has_much_unstable());
  int& kicks = Wakes(parts_.core.kick);
  struct Step {
    uint64_t end_place;
    bool much;
    int kicks;
  };
  uint64_t sequence = 0;
  for (const Step& step : {Step{kPlace + 1, false, 1}, Step{kPlace + kMuch - 1, false, 0},
                           Step{kPlace + kMuch, true, 1}, Step{kPlace + kMuch + 1, true, 0}}) {
    kicks = 0;
    parts_.flusher.Applied({++sequence, 0, step.end_place, 0});
    parts_.Settle();
    EXPECT_EQ(parts_.flusher.has_much_unstable(), step.much) << sequence;
    EXPECT_EQ(kicks, step.kicks) << sequence;
  }
}

// Slots and log room are free, marks can go on, and what waited for stability is made.
TEST_F(BesideAFlush, WhatBecomesStableWakesAllWhoMayWaitForThat) {
  parts_.Log({parts_.Chunk(0, 0)});
  int& space = Wakes(parts_.core.space_changed);
  int& kick = Wakes(parts_.core.kick);
  int& append = Wakes(parts_.core.append);
  space = kick = append = 0;
  ASSERT_TRUE(parts_.Run(parts_.flusher.FlushAll()).ok());
  parts_.Settle();
  EXPECT_EQ(space, 1);
  EXPECT_EQ(kick, 1);
  EXPECT_EQ(append, 1);
}

TEST_F(BesideAFlush, WhoFindsNoRingRoomWakesTheKeeperAndWaits) {
  const uint64_t sequence = parts_.Log({parts_.Chunk(0, 0)});
  FillRings();
  int& kicks = Wakes(parts_.core.kick);
  kicks = 0;
  const std::optional<Status>& ended = Begin(parts_.flusher.FlushTo(sequence, Upto::kStable));
  parts_.Settle();
  EXPECT_FALSE(ended);
  EXPECT_EQ(kicks, 1) << "only a checkpoint makes room";
}

// It would wait for the room that only it makes.
TEST_F(BesideAFlush, ACheckpointsFlushDoesNotShareTheWantOfRings) {
  const uint64_t sequence = parts_.Log({parts_.Chunk(0, 0)});
  FillRings();
  const std::optional<Status>& checkpoint = Begin(parts_.flusher.FlushForCheckpoint(sequence));
  const std::optional<Status>& user = Begin(parts_.flusher.FlushTo(sequence, Upto::kStable));
  parts_.Settle();
  ASSERT_TRUE(checkpoint);
  EXPECT_TRUE(checkpoint->ok());
  EXPECT_EQ(parts_.hooks.flushes_beside_full_rings, 1U);
  EXPECT_FALSE(user) << "the checkpoint does not count yet";
  parts_.flusher.CheckpointCounts(sequence);
  parts_.Settle();
  EXPECT_TRUE(user && user->ok());
}

// ---- what goes to the rings

TEST_F(BesideAFlush, AFullBlockOfHeadersIsWrittenBeforeAnybodyAsks) {
  parts_.core.rings.set_max_headers(2);
  parts_.Log({parts_.Chunk(0, 0)});
  EXPECT_EQ(parts_.core.rings.packed(), 0U);
  const uint64_t second = parts_.Log({parts_.Chunk(0, 1)});
  EXPECT_EQ(parts_.core.rings.packed(), second);
  EXPECT_EQ(parts_.core.rings.queued(), 0U);
  EXPECT_EQ(parts_.flusher.stable(), 0U) << "nothing was flushed";
  parts_.Log({parts_.Chunk(0, 2)});
  EXPECT_EQ(parts_.core.rings.packed(), second);
}

// A block that is not full would be one more write, for headers that share one a moment later.
TEST_F(BesideAFlush, WhatDoesNotFillABlockWaitsForCompany) {
  const std::vector<std::byte> header(100);
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    parts_.core.rings.Enqueue(sequence, header);
  }
  parts_.core.rings.set_max_headers(2);
  parts_.flusher.Applied({5, 0, 5, 0});
  EXPECT_EQ(parts_.core.rings.packed(), 4U);
  EXPECT_EQ(parts_.core.rings.queued(), 1U);
  parts_.Settle();
}

class BesideAFlushInModeLog : public BesideAFlush {
 protected:
  BesideAFlushInModeLog() : BesideAFlush({.journal = JournalMode::kLog}) {}
};

// One flush does for all who wait, and is as much as the most exacting of them needs; the next one
// is not for it.
TEST_F(BesideAFlushInModeLog, TheRingsAreWrittenWhereOneOfThoseWhoShareNeedsThat) {
  const uint64_t first = parts_.Log({parts_.Chunk(0, 0)});
  parts_.ResetCounters();
  const auto& exacting = Begin(parts_.flusher.FlushTo(first, Upto::kStable));
  const auto& content = Begin(parts_.flusher.FlushTo(first, Upto::kAcknowledgeable));
  parts_.Settle();
  EXPECT_TRUE(exacting && exacting->ok() && content && content->ok());
  EXPECT_EQ(parts_.flusher.stable(), first);
  EXPECT_EQ(parts_.counted(parts_.g().LogDevice(0)).flushes, 1U);
  const uint64_t second = parts_.Log({parts_.Chunk(0, 1)});
  ASSERT_TRUE(parts_.Run(parts_.flusher.FlushTo(second, Upto::kAcknowledgeable)).ok());
  EXPECT_EQ(parts_.core.rings.packed(), first);
  EXPECT_EQ(parts_.flusher.stable(), first);
}

TEST_F(BesideAFlushInModeLog, OneFlushGoesAsFarAsTheFurthestOfThoseWhoShare) {
  const uint64_t first = parts_.Log({parts_.Chunk(0, 0)});
  const uint64_t second = parts_.Log({parts_.Chunk(0, 1)});
  parts_.ResetCounters();
  const auto& far = Begin(parts_.flusher.FlushTo(second, Upto::kAcknowledgeable));
  const auto& near = Begin(parts_.flusher.FlushTo(first, Upto::kAcknowledgeable));
  parts_.Settle();
  EXPECT_TRUE(far && far->ok() && near && near->ok());
  EXPECT_EQ(parts_.counted(parts_.g().LogDevice(0)).flushes, 1U);
  // An older one that is asked for again takes nothing back.
  ASSERT_TRUE(parts_.Run(parts_.flusher.FlushTo(first, Upto::kStable)).ok());
  parts_.ResetCounters();
  ASSERT_TRUE(parts_.Run(parts_.flusher.FlushTo(second, Upto::kAcknowledgeable)).ok());
  EXPECT_EQ(parts_.Flushed(), 0U);
}

// ---- checkpoints

class BesideASlowFlush : public BesideAFlush {
 protected:
  BesideASlowFlush() : BesideAFlush({.delays = {.flush_us = 1000}}) {}
};

TEST_F(BesideASlowFlush, WhatACheckpointMadeStableMeanwhileStaysSo) {
  const uint64_t first = parts_.Log({parts_.Chunk(0, 0)});
  const uint64_t second = parts_.Log({parts_.Chunk(0, 1)});
  const auto& ended = Begin(parts_.flusher.FlushTo(first, Upto::kStable));
  Sleep(10);
  parts_.flusher.CheckpointCounts(second);
  EXPECT_EQ(parts_.flusher.stable(), second);
  EXPECT_EQ(parts_.flusher.stable_place(), parts_.appender.applied().place);
  EXPECT_FALSE(parts_.flusher.has_unstable());
  parts_.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_EQ(parts_.flusher.stable(), second);
}

class BesideASlowWrite : public BesideAFlush {
 protected:
  BesideASlowWrite() : BesideAFlush({.delays = {.write_us = 1000}}) {}
  // Two entries are applied: the header of the first is on its way to a ring, for that of the second
  // there is no room.
  void OneOnItsWayAndOneWithoutRoom() {
    parts_.core.rings.set_max_headers(1);
    parts_.appender.Submit(records_[0], true);
    Sleep(10);
    parts_.appender.Submit(records_[1], true);
    Sleep(995);
    ASSERT_EQ(parts_.core.rings.packed(), 1U);
    FillRings();
    Sleep(10);
    ASSERT_EQ(parts_.appender.applied().sequence, 2U);
    ASSERT_EQ(parts_.core.rings.packed(), 1U);
  }
  [[nodiscard]] uint64_t WritesOnTheirWay() {
    uint64_t count = 0;
    for (uint8_t i = 0; i < parts_.g().n; ++i) {
      count += parts_.delayed(DeviceIndex(i)).in_flight();
    }
    return count;
  }

  std::array<RecordWrite, 2> records_;
};

// Their places may be used again once it counts.
TEST_F(BesideASlowWrite, ForACheckpointRingBlocksOnTheirWayHaveLanded) {
  OneOnItsWayAndOneWithoutRoom();
  ASSERT_EQ(WritesOnTheirWay(), 1U);
  const auto& ended = Begin(parts_.flusher.FlushForCheckpoint(2));
  Sleep(10);
  EXPECT_FALSE(ended);
  EXPECT_EQ(WritesOnTheirWay(), 1U);
  parts_.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_EQ(WritesOnTheirWay(), 0U);
  EXPECT_EQ(parts_.flusher.stable(), 0U) << "the checkpoint does that";
}

TEST_F(BesideASlowWrite, ACheckpointFailsWithTheRingBlockThatWasOnItsWay) {
  parts_.faulty(DeviceIndex(0))
      .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  OneOnItsWayAndOneWithoutRoom();
  const auto& ended = Begin(parts_.flusher.FlushForCheckpoint(2));
  parts_.Settle();
  ASSERT_TRUE(ended && !ended->ok());
  EXPECT_EQ(ended->error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(parts_.core.stop_error) << "or it would be tried again for ever";
}

}  // namespace
}  // namespace eplog
