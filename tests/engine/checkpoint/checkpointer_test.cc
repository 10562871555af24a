// A checkpoint that counts is the state of one moment, has m + 1 copies and gives the log before it
// back (I9); one that does not count changes nothing.
#include "engine/checkpoint/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class Checkpoints : public CheckpointTest {
 protected:
  // Rows, pending chunks of which some are superseded, zeros, volumes.
  void SomeOfEverything() {
    RecordWrite volumes;
    volumes.volumes = {VolumeCreated{VolumeId(1), 4096, "v"},
                       ExtentAssigned{VolumeId(1), 3, ExtentIndex(0)}};
    parts_.appender.Promise(1);
    parts_.appender.Submit(volumes, false);
    parts_.Settle();
    parts_.WriteStripe(StripeIndex(0));
    parts_.WriteStripe(StripeIndex(g().stripes - 1));
    parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1), parts_.Chunk(1, 2)});
    parts_.Log({parts_.Chunk(0, 1)});
    parts_.Trim(parts_.Chunk(2, 0), 2);
  }
};

TEST_F(Checkpoints, TheFirstOneIsOfAnEmptyArray) {
  ExpectLoads();
  const auto root = Root();
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->sequence, 0U);
  EXPECT_EQ(root->runs.size(), 1U);
  EXPECT_TRUE(root->runs[0].full);
}

// An area that is full, and a root that names as many runs as it can, make it a full one all the
// same.
TEST_F(Checkpoints, EachKindIsCountedAndWhatItWrote) {
  constexpr size_t kMostRuns = 32;
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  const EngineHooks before = parts_.hooks;
  uint64_t full = 0;
  uint64_t incremental = 0;
  uint64_t no_room = 0;
  size_t runs = 1;
  for (uint32_t i = 0; i < 100; ++i) {
    parts_.Log({parts_.Chunk(i % 5, 0)});
    ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
    const auto root = Root();
    ASSERT_TRUE(root.ok());
    ASSERT_LE(root->runs.size(), kMostRuns);
    ++(root->runs.size() == 1 ? full : incremental);
    no_room += root->runs.size() == 1 && runs < kMostRuns ? 1 : 0;
    runs = root->runs.size();
    EXPECT_EQ(
        checkpointer_.written_blocks(),
        (root->runs[0].blocks + 1) * static_cast<uint64_t>(std::popcount(root->runs[0].ssd_mask)));
  }
  EXPECT_GT(full, 0U);
  EXPECT_GT(incremental, full);
  EXPECT_EQ(parts_.hooks.full_checkpoints_written - before.full_checkpoints_written, full);
  EXPECT_EQ(parts_.hooks.incremental_checkpoints_written - before.incremental_checkpoints_written,
            incremental);
  EXPECT_EQ(parts_.hooks.metadata_full - before.metadata_full, no_room);
  ExpectLoads();
}

TEST_F(Checkpoints, OneLoadsAsTheStateWas) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  ExpectLoads();
  const auto root = Root();
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->sequence, parts_.appender.applied().sequence);
  EXPECT_EQ(root->place, parts_.appender.applied().place);
  EXPECT_EQ(checkpointer_.covered(), root->sequence);
  EXPECT_EQ(parts_.flusher.stable(), root->sequence) << "what it holds is stable";
}

TEST_F(Checkpoints, OfWhatChangedSinceBuildsOnTheOneBefore) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  for (uint32_t i = 1; i <= 3; ++i) {
    parts_.WriteStripe(StripeIndex(10 * i));
    parts_.Log({parts_.Chunk(0, i - 1)});
    ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
    const auto root = Root();
    ASSERT_TRUE(root.ok());
    EXPECT_EQ(root->runs.size(), i + 1);
    EXPECT_FALSE(root->runs.front().full);
    EXPECT_TRUE(root->runs.back().full);
    ExpectLoads();
  }
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  EXPECT_EQ(Root()->runs.size(), 1U);
  ExpectLoads();
}

TEST_F(Checkpoints, WithoutAnEntrySinceOnlyWhereOneIsAskedFor) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint().ok());
  const CheckpointPointer pointer = NewestOn(DeviceIndex(0)).checkpoint;
  ASSERT_TRUE(Checkpoint().ok());
  EXPECT_EQ(NewestOn(DeviceIndex(0)).checkpoint, pointer);
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  EXPECT_EQ(NewestOn(DeviceIndex(0)).checkpoint.generation, pointer.generation + 1);
  ExpectLoads();
}

TEST_F(Checkpoints, GiveTheLogBackUpToWhatIsPending) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.WriteStripe(StripeIndex(1));
  const uint64_t place = parts_.appender.applied().place;
  const uint64_t room = parts_.core.rings.Room(0);
  EXPECT_EQ(parts_.appender.log_tail(), 0U);
  ASSERT_TRUE(Checkpoint().ok());
  EXPECT_EQ(parts_.appender.log_tail(), place);
  EXPECT_GE(parts_.core.rings.Room(0), room);
  parts_.Log({parts_.Chunk(5, 0)});
  const auto pending = parts_.core.state->pending.Find(parts_.Chunk(5, 0));
  parts_.WriteStripe(StripeIndex(2));
  ASSERT_TRUE(Checkpoint().ok());
  EXPECT_EQ(parts_.appender.log_tail(), parts_.core.state->pending.PlaceOf(pending->log_stripe));
}

// P4: whichever m devices are lost, it is there.
TEST_F(Checkpoints, AsManyCopiesAsDevicesMayBeLostAndOne) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint().ok());
  const uint64_t mask = NewestOn(DeviceIndex(0)).checkpoint.ssd_mask;
  ASSERT_EQ(std::popcount(mask), static_cast<int>(g().m) + 1);
  std::vector<DeviceIndex> copies;
  for (uint8_t i = 0; i < g().n; ++i) {
    if ((mask >> i & 1) != 0) {
      copies.emplace_back(i);
    }
  }
  RotPages(copies[0]);
  ExpectLoads();
  parts_.faulty(copies[1]).Add({.kinds = MaskOf(RequestKind::kRead),
                                .from_then_on = true,
                                .range_offset_bytes = g().metadata_offset_bytes,
                                .range_length_bytes = g().metadata_blocks * kBlockBytes});
  ExpectLoads();
  EXPECT_NE(parts_.core.members.counters(copies[0]).corrupt_chunks, 0U);
  RotPages(copies[2]);
  const auto gone = Load();
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::kCorrupt);
}

// Of each page any copy, not all pages of one.
TEST_F(Checkpoints, PagesThatAreDamagedOnEveryCopyButNotTheSame) {
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  const CheckpointPointer pointer = NewestOn(DeviceIndex(0)).checkpoint;
  const auto root = Root();
  ASSERT_TRUE(root.ok());
  const auto page = [&](uint8_t ssd, uint64_t block) -> std::byte& {
    return parts_.memory(DeviceIndex(ssd)).bytes()[g().MetadataOffset(block) + 70];
  };
  const auto first = static_cast<uint8_t>(std::countr_zero(pointer.ssd_mask));
  const auto last = static_cast<uint8_t>(std::bit_width(pointer.ssd_mask) - 1);
  page(first, pointer.root_block) ^= std::byte{1};
  page(last, root->runs[0].first_block) ^= std::byte{1};
  ExpectLoads();
}

TEST_F(Checkpoints, ARootThatIsNotTheOneNamedIsRefused) {
  CheckpointPointer pointer = NewestOn(DeviceIndex(0)).checkpoint;
  pointer.root_crc ^= 1;
  EXPECT_EQ(parts_.Run(LoadRoot(parts_.core, pointer)).error().code, ErrorCode::kCorrupt);
  pointer.root_crc ^= 1;
  for (const auto change : {&CheckpointPointer::generation, &CheckpointPointer::random,
                            &CheckpointPointer::root_block}) {
    CheckpointPointer other = pointer;
    ++(other.*change);
    EXPECT_EQ(parts_.Run(LoadRoot(parts_.core, other)).error().code, ErrorCode::kCorrupt);
  }
  pointer.root_block = g().metadata_blocks;
  EXPECT_EQ(parts_.Run(LoadRoot(parts_.core, pointer)).error().code, ErrorCode::kCorrupt);
  pointer.root_block = 0;
  pointer.ssd_mask = 0;
  EXPECT_EQ(parts_.Run(LoadRoot(parts_.core, pointer)).error().code, ErrorCode::kCorrupt);
}

// The area is a ring, with room for one while the one before it counts. Until one has gone over its
// end, and until a root came to lie at its beginning.
TEST_F(Checkpoints, RoundAndRoundTheAreaEachLoads) {
  constexpr uint32_t kMost = 3000;
  uint64_t laps = 0;
  uint64_t before = 0;
  bool root_first = false;
  uint32_t i = 0;
  for (; (laps < 2 || !root_first) && i < kMost; ++i) {
    parts_.WriteStripe(StripeIndex(i * 37 % g().stripes));
    ASSERT_TRUE(Checkpoint(i % 3 == 0 ? CheckpointKind::kFull : CheckpointKind::kAuto).ok());
    parts_.MakeStable();
    const uint64_t block = NewestOn(DeviceIndex(0)).checkpoint.root_block;
    ASSERT_LT(block, g().metadata_blocks);
    laps += block < before ? 1 : 0;
    root_first = root_first || block == 0;
    before = block;
    if (i % 7 == 0 || block == 0) {
      ASSERT_TRUE(Checkpoint().ok());
      ExpectLoads();
    }
    ASSERT_FALSE(HasFailure()) << i;
  }
  EXPECT_LT(i, kMost);
}

TEST_F(Checkpoints, LostSsdsGetNone) {
  parts_.Lose(DeviceIndex(1));
  parts_.Lose(DeviceIndex(3));
  SomeOfEverything();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    const uint64_t mask = NewestOn(DeviceIndex(0)).checkpoint.ssd_mask;
    EXPECT_EQ(mask & 0b01010U, 0U);
    EXPECT_EQ(std::popcount(mask), 3);
  }
  ExpectLoads();
}

// A replacement joined: words in older runs may be of the device before it.
TEST_F(Checkpoints, AFullOneIsMadeOnceADeviceJoined) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  const uint64_t sequence = parts_.appender.applied().sequence;
  EXPECT_TRUE(checkpointer_.FullCounts(1, sequence));
  EXPECT_FALSE(checkpointer_.FullCounts(2, sequence));
  checkpointer_.WantFullSince(2);
  parts_.appender.BeginEpoch({2, 5});
  const uint64_t later = parts_.WriteStripe(StripeIndex(3));
  ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
  EXPECT_EQ(Root()->runs.size(), 1U);
  EXPECT_TRUE(checkpointer_.FullCounts(2, later));
  EXPECT_FALSE(checkpointer_.FullCounts(2, later + 1));
}

TEST_F(Checkpoints, OneThatDoesNotCountTakesNothingFromTheNext) {
  SomeOfEverything();
  parts_.hooks.incremental_checkpoints = true;
  ASSERT_TRUE(Checkpoint().ok());
  parts_.WriteStripe(StripeIndex(7));
  parts_.MakeStable();
  for (uint8_t i = 0; i < g().n; ++i) {
    parts_.faulty(DeviceIndex(i))
        .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  }
  EXPECT_FALSE(parts_.Run(checkpointer_.WriteAlone(parts_.appender.applied())).ok());
  for (uint8_t i = 0; i < g().n; ++i) {
    parts_.faulty(DeviceIndex(i)).Clear();
  }
  parts_.WriteStripe(StripeIndex(6));
  ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
  ExpectLoads();
  // And the one after it builds on it.
  parts_.WriteStripe(StripeIndex(5));
  ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
  EXPECT_EQ(Root()->runs.size(), 2U);
  ExpectLoads();
}

TEST_F(Checkpoints, OneThatCannotBeWrittenDoesNotCount) {
  SomeOfEverything();
  ASSERT_TRUE(Checkpoint().ok());
  const CheckpointPointer pointer = NewestOn(DeviceIndex(0)).checkpoint;
  const uint64_t tail = parts_.appender.log_tail();
  const uint64_t covered = checkpointer_.covered();
  parts_.WriteStripe(StripeIndex(7));
  for (uint8_t i = 0; i < g().n; ++i) {
    parts_.faulty(DeviceIndex(i))
        .Add({.kinds = MaskOf(RequestKind::kWrite),
              .from_then_on = true,
              .code = ErrorCode::kNoSpace});
  }
  EXPECT_FALSE(Checkpoint().ok());
  EXPECT_TRUE(parts_.core.stop_error);
  EXPECT_EQ(NewestOn(DeviceIndex(0)).checkpoint, pointer);
  EXPECT_EQ(checkpointer_.covered(), covered);
  EXPECT_EQ(parts_.appender.log_tail(), tail);
  EXPECT_TRUE(Load().ok());
}

}  // namespace
}  // namespace eplog
