// What a flush waits for and whom it flushes (I4), who shares one, what a mark covers (I1), and what
// becomes of one that fails (I7) or finds no room on the rings.
#include "engine/log/flusher.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Upto = Flusher::Upto;

// Until a checkpoint counts: as when a device was lost after the entries had been made.
void FillRings(EngineParts& parts) {
  for (uint8_t i = 0; i < parts.g().n; ++i) {
    for (const uint64_t number : {uint64_t{1}, parts.g().ring_blocks}) {
      parts.core.rings.NoteBlock(DeviceIndex(i), number, number, true);
    }
  }
  parts.states().BecomesOk(DeviceIndex(0));  // others than before
}

TEST(Flush, OfNothingAsksNobody) {
  EngineParts parts;
  EXPECT_TRUE(parts.Run(parts.flusher.FlushTo(0, Upto::kStable)).ok());
  EXPECT_TRUE(parts.Run(parts.flusher.FlushAll()).ok());
  EXPECT_TRUE(parts.Run(parts.flusher.FlushAndMark()).ok());
  EXPECT_EQ(parts.Flushed(), 0U);
  EXPECT_FALSE(parts.flusher.has_unstable());
  EXPECT_EQ(parts.appender.newest_sequence(), 0U) << "and makes no entry";
}

TEST(Flush, OfTheSsdsWrittenToThoseOfTheRingsAndAllLogDevices) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 1), parts.Chunk(0, 2)});
  const uint64_t written = EngineParts::MaskOf(parts.g().SsdOf(parts.Chunk(0, 1))) |
                           EngineParts::MaskOf(parts.g().SsdOf(parts.Chunk(0, 2)));
  EXPECT_TRUE(parts.flusher.has_unstable());
  parts.ResetCounters();
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable)).ok());
  EXPECT_EQ(parts.flusher.stable(), sequence);
  EXPECT_FALSE(parts.flusher.has_unstable());
  const auto rings = parts.core.rings.packed();
  EXPECT_EQ(rings, sequence);
  // The first block of headers is on the first SSD.
  EXPECT_EQ(parts.Flushed(), written | 1U | parts.LogMask());
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable)).ok());
  EXPECT_EQ(parts.Flushed(), 0U) << "it is stable already";
}

// I4: not only of what is asked for: of the prefix.
TEST(Flush, MakesAPrefixStableAndNoMore) {
  EngineParts parts;
  std::vector<uint64_t> sequences;
  const std::vector<ChunkIndex> chunks = {parts.Chunk(0, 1), parts.Chunk(0, 2), parts.Chunk(1, 2)};
  for (const ChunkIndex chunk : chunks) {
    sequences.push_back(parts.Log({chunk}));
  }
  parts.ResetCounters();
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequences[1], Upto::kStable)).ok());
  EXPECT_EQ(parts.flusher.stable(), sequences[1]);
  // Their headers are on the first SSD.
  EXPECT_EQ(parts.Flushed(), EngineParts::MaskOf(parts.g().SsdOf(chunks[0])) |
                                 EngineParts::MaskOf(parts.g().SsdOf(chunks[1])) | 1U |
                                 parts.LogMask());
  EXPECT_TRUE(parts.flusher.has_unstable());
  EXPECT_EQ(parts.core.rings.packed(), sequences[1]);
}

TEST(Flush, WhoWaitsMeanwhileSharesTheNextOne) {
  EngineParts parts;
  parts.Log({parts.Chunk(0, 0)});
  parts.Log({parts.Chunk(0, 1)});
  const uint64_t newest = parts.Log({parts.Chunk(0, 2)});
  parts.ResetCounters();
  std::vector<std::optional<Status>> ended(6);
  for (size_t i = 0; i < ended.size(); ++i) {
    parts.loop.Spawn([](Task<Status> flush, std::optional<Status>* out) -> Task<void> {
      *out = co_await flush;
    }(parts.flusher.FlushTo(1 + i % newest, Upto::kStable), &ended[i]));
  }
  parts.Settle();
  for (const auto& status : ended) {
    EXPECT_TRUE(status && status->ok());
  }
  EXPECT_EQ(parts.flusher.stable(), newest);
  EXPECT_EQ(parts.counted(parts.g().LogDevice(0)).flushes, 1U);
}

// ---- journal mode log

TEST(Flush, InModeLogAUserWaitsForNoRing) {
  EngineParts parts({.journal = JournalMode::kLog});
  const uint64_t sequence = parts.Log({parts.Chunk(0, 1)});
  parts.ResetCounters();
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kAcknowledgeable)).ok());
  EXPECT_EQ(parts.Flushed(),
            EngineParts::MaskOf(parts.g().SsdOf(parts.Chunk(0, 1))) | parts.LogMask());
  EXPECT_EQ(parts.core.rings.packed(), 0U);
  EXPECT_EQ(parts.flusher.stable(), 0U) << "the loss of all log devices would take it";
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kAcknowledgeable)).ok());
  EXPECT_EQ(parts.Flushed(), 0U);
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable)).ok());
  EXPECT_EQ(parts.flusher.stable(), sequence);
  EXPECT_EQ(parts.core.rings.packed(), sequence);
}

TEST(Flush, InModeLogWithoutALogDeviceAUserWaitsForTheRings) {
  EngineParts parts({.journal = JournalMode::kLog});
  parts.Lose(parts.g().LogDevice(1));
  const uint64_t sequence = parts.Log({parts.Chunk(0, 1)});
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kAcknowledgeable)).ok());
  EXPECT_EQ(parts.flusher.stable(), sequence);
  EXPECT_EQ(parts.core.rings.packed(), sequence);
}

// ---- marks

// I1: entry F frees, F is stable, an entry whose mark covers F is stable.
TEST(Flush, WhatAnEntryFreedIsFreeWhenAMarkThatCoversItIsStable) {
  EngineParts parts;
  const DeviceIndex ssd = parts.g().SsdOf(parts.Chunk(0, 0));
  parts.Log({parts.Chunk(0, 0)});
  const uint32_t free = parts.core.space.free(ssd);
  const uint64_t frees = parts.Log({parts.Chunk(0, 0)});
  ASSERT_EQ(parts.core.space.free(ssd), free - 1);
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAll()).ok());
  EXPECT_EQ(parts.flusher.stable(), frees);
  EXPECT_LT(parts.flusher.covered(), frees);
  EXPECT_EQ(parts.core.space.free(ssd), free - 1) << "recovery may look at it still";
  parts.Log({parts.Chunk(0, 1)});
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAll()).ok());
  EXPECT_EQ(parts.flusher.covered(), frees);
  EXPECT_EQ(parts.core.space.free(ssd), free);
}

TEST(Flush, AndMarkFreesAllThatWaitsAndMarksOnlyWhereSomethingDoes) {
  EngineParts parts;
  const DeviceIndex ssd = parts.g().SsdOf(parts.Chunk(0, 0));
  parts.Log({parts.Chunk(0, 0)});
  const uint32_t free = parts.core.space.free(ssd);
  const uint64_t frees = parts.Log({parts.Chunk(0, 0)});
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAndMark()).ok());
  EXPECT_EQ(parts.core.space.free(ssd), free);
  EXPECT_EQ(parts.appender.newest_sequence(), frees + 1);
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAndMark()).ok());
  EXPECT_EQ(parts.appender.newest_sequence(), frees + 1);
}

// ---- failures

// I7: it is not tried again, and nothing that needed it is acknowledged.
TEST(Flush, ThatFailsForLackOfSpaceBelowStopsTheArray) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  parts.faulty(parts.g().LogDevice(0))
      .Add({.kinds = MaskOf(RequestKind::kFlush), .code = ErrorCode::kNoSpace});
  const Status failed = parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable));
  ASSERT_FALSE(failed.ok());
  EXPECT_TRUE(parts.core.stop_error);
  EXPECT_EQ(parts.flusher.stable(), 0U);
  parts.ResetCounters();
  EXPECT_FALSE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable)).ok());
  EXPECT_FALSE(parts.Run(parts.flusher.TryFlushAll()).ok());
  EXPECT_EQ(parts.Flushed(), 0U);
}

TEST(Flush, ThatLosesADeviceIsGoodWithoutIt) {
  EngineParts parts;
  const DeviceIndex log = parts.g().LogDevice(0);
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  parts.faulty(log).Add({.kinds = MaskOf(RequestKind::kFlush)});
  ASSERT_TRUE(parts.Run(parts.flusher.FlushTo(sequence, Upto::kStable)).ok());
  EXPECT_FALSE(parts.core.members.live(log));
  EXPECT_EQ(parts.flusher.stable(), sequence);
}

// I11: what is lost must be in writing before anything becomes stable.
TEST(Flush, IsNotAnsweredWhileDeviceStatesChange) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  parts.states().BeginChange();
  std::optional<Status> ended;
  parts.Start(parts.flusher.FlushTo(sequence, Upto::kStable), ended);
  EXPECT_FALSE(ended);
  EXPECT_EQ(parts.flusher.stable(), 0U);
  parts.states().EndChange();
  parts.core.settled.NotifyAll();
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_EQ(parts.flusher.stable(), sequence);
}

TEST(Flush, ThatWaitsWhenTheArrayStopsFails) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  parts.states().BeginChange();
  std::optional<Status> ended;
  parts.Start(parts.flusher.FlushTo(sequence, Upto::kStable), ended);
  parts.core.Stop(Error{ErrorCode::kNoSpace, "full below"});
  parts.Settle();
  ASSERT_TRUE(ended);
  EXPECT_FALSE(ended->ok());
  EXPECT_EQ(parts.flusher.stable(), 0U);
}

// ---- no room on the rings

TEST(Flush, WithoutRingRoomIsBusyForThoseWhoMakeSome) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  FillRings(parts);
  const Status busy = parts.Run(parts.flusher.TryFlushTo(sequence, Upto::kStable));
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  EXPECT_FALSE(parts.core.stop_error);
  // A checkpoint does without: it makes the state stable itself, when it counts.
  ASSERT_TRUE(parts.Run(parts.flusher.FlushForCheckpoint(sequence)).ok());
  EXPECT_EQ(parts.flusher.stable(), 0U);
  parts.flusher.CheckpointCounts(sequence);
  EXPECT_EQ(parts.flusher.stable(), sequence);
  EXPECT_EQ(parts.core.rings.queued(), 0U) << "no ring needs that header any more";
}

TEST(Flush, WithoutRingRoomWaitsForACheckpoint) {
  EngineParts parts;
  const uint64_t sequence = parts.Log({parts.Chunk(0, 0)});
  FillRings(parts);
  std::optional<Status> ended;
  parts.Start(parts.flusher.FlushTo(sequence, Upto::kStable), ended);
  EXPECT_FALSE(ended);
  parts.core.rings.CheckpointCounts(UINT64_MAX);
  parts.core.append.NotifyAll();
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_EQ(parts.core.rings.packed(), sequence);
}

TEST(Flush, AnOlderCheckpointTakesNothingBack) {
  EngineParts parts;
  parts.Log({parts.Chunk(0, 0)});
  const uint64_t sequence = parts.Log({parts.Chunk(0, 1)});
  parts.MakeStable();
  parts.flusher.CheckpointCounts(1);
  EXPECT_EQ(parts.flusher.stable(), sequence);
}

TEST(FlushDeathTest, OfWhatIsNotAppliedIsNone) {
  EngineParts parts;
  EXPECT_DEATH(static_cast<void>(parts.Run(parts.flusher.FlushTo(1, Upto::kStable))), "I4");
}

}  // namespace
}  // namespace eplog
