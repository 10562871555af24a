// How a checkpoint is read: each page once, pieces from one SSD after the other; and what only its
// root knows.
#include <gtest/gtest.h>

#include <memory>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class CheckpointReading : public CheckpointTest {
 protected:
  // One of two pieces: its run goes round the end of the area.
  void MakeOneThatGoesRound() {
    for (uint32_t s = 0; s < g().stripes && !GoesRound(); ++s) {
      parts_.WriteStripe(StripeIndex(s));
      parts_.MakeStable();
      ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    }
    ASSERT_TRUE(GoesRound());
  }
  [[nodiscard]] uint64_t CorruptOn(DeviceIndex ssd) const {
    return parts_.core.members.counters(ssd).corrupt_chunks;
  }
  bool GoesRound() {
    const auto root = Root();
    return root.ok() && root->runs.size() == 1 &&
           root->runs[0].first_block + root->runs[0].blocks > g().metadata_blocks;
  }
};

TEST_F(CheckpointReading, EachPageIsReadOnceAndPiecesFromDifferentSsds) {
  ASSERT_NO_FATAL_FAILURE(MakeOneThatGoesRound());
  const auto root = Root();
  ASSERT_TRUE(root.ok());
  parts_.ResetCounters();
  State state(g());
  ASSERT_TRUE(parts_.Run(LoadRuns(parts_.core, *root, state)).ok());
  uint64_t bytes = 0;
  for (uint8_t i = 0; i < g().n; ++i) {
    const DeviceCounters& counted = parts_.counted(DeviceIndex(i));
    EXPECT_LE(counted.reads, root->runs[0].ssd_mask >> i & 1) << int{i};
    bytes += counted.bytes_read;
  }
  EXPECT_EQ(parts_.ReadsOfSsds(), 2U) << "two pieces";
  EXPECT_EQ(bytes, root->runs[0].blocks * kBlockBytes);
}

// Whichever page it is, on whichever SSD: the others are not read again for it.
TEST_F(CheckpointReading, OnlyAPageThatIsWrongIsReadElsewhere) {
  ASSERT_NO_FATAL_FAILURE(MakeOneThatGoesRound());
  const auto root = Root();
  ASSERT_TRUE(root.ok());
  const RunDescriptor run = root->runs[0];
  for (uint64_t i = 0; i < run.blocks; ++i) {
    const uint64_t block = (run.first_block + i) % g().metadata_blocks;
    uint64_t again = 0;
    for (uint8_t ssd = 0; ssd < g().n; ++ssd) {
      if ((run.ssd_mask >> ssd & 1) == 0) {
        continue;
      }
      std::byte& byte = parts_.memory(DeviceIndex(ssd)).bytes()[g().MetadataOffset(block) + 70];
      byte ^= std::byte{1};
      parts_.ResetCounters();
      const uint64_t corrupt = CorruptOn(DeviceIndex(ssd));
      State state(g());
      EXPECT_TRUE(parts_.Run(LoadRuns(parts_.core, *root, state)).ok());
      byte ^= std::byte{1};
      const uint64_t reads = parts_.ReadsOfSsds() - 2;
      EXPECT_EQ(CorruptOn(DeviceIndex(ssd)) - corrupt, reads == 0 ? 0U : 1U);
      again += reads;
    }
    EXPECT_EQ(again, 2U) << i << ": one copy is read, once more from there and then from another";
  }
}

// The number of a volume that is gone is not given again, though no table names it any more.
TEST_F(CheckpointReading, TheRootKnowsWhichNumbersWereGiven) {
  RecordWrite created;
  created.volumes = {VolumeCreated{VolumeId(1), 4096, "v"}, VolumeCreated{VolumeId(2), 4096, "w"},
                     VolumeCreated{VolumeId(3), 4096, "x"}};
  parts_.appender.Promise(1);
  parts_.appender.Submit(created, false);
  parts_.Settle();
  RecordWrite deleted;
  deleted.volumes = {VolumeDeleted{VolumeId(3)}, VolumeDeleted{VolumeId(2)}};
  parts_.appender.Promise(1);
  parts_.appender.Submit(deleted, false);
  parts_.Settle();
  ASSERT_EQ(parts_.core.state->volumes.all().size(), 1U);
  for (const CheckpointKind kind : {CheckpointKind::kFull, CheckpointKind::kIncremental}) {
    ASSERT_TRUE(Checkpoint(kind).ok());
    EXPECT_EQ(Root()->next_volume_id, 4U);
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok());
    EXPECT_EQ((*loaded)->volumes.next_id(), 4U);
  }
}

}  // namespace
}  // namespace eplog
