// The first entry of an epoch takes a block of the log. Where it would eat of what is closed to the
// foreground a checkpoint of the cut takes its place: however often an array crashes, what is
// pending can still be committed (design, section 5).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/commit_cost.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 8192;
constexpr uint64_t kChunkBlocks = kChunk / kBlockBytes;
constexpr uint64_t kData = 3;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kStripes = 400;
constexpr uint64_t kZeros = 30;

class RecoveryRoom : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(4, 1);
    shape.chunk_bytes = kChunk;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.auto_commit = false;
    return shape;
  }
  // Zeros that are pending, and chunks, as many as the foreground may; no two in one stripe.
  void FillLog() {
    Write(0, kZeros * kStripe);
    ASSERT_TRUE(test_.Checkpoint().ok());
    for (uint64_t s = 0; s < kZeros; ++s) {
      ASSERT_TRUE(
          RunTask(test_.loop, test_.array->Trim(volume_, s * kStripe, kChunk, TrimMode::kZero))
              .ok());
      std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(s * kStripe), kChunk, std::byte{0});
    }
    uint64_t stripe = kZeros;
    // A chunk and its header, and an extent perhaps.
    while (Taken() + 2 * (1 + kChunkBlocks) <= LogBlocks()) {
      ASSERT_LT(stripe, kStripes);
      Write(stripe++ * kStripe, kChunk);
    }
    ASSERT_TRUE(test_.Flush().ok());
    EXPECT_EQ(Status().pending_chunks, stripe);
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    ASSERT_TRUE(test_.Write(volume_, offset, data).ok());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  ArrayStatus Status() { return test_.array->GetStatus(); }
  uint64_t LogBlocks() { return Status().log_size_bytes / kBlockBytes; }
  // What is used, zeros as if each were a chunk, and what is closed to the foreground.
  uint64_t Taken() {
    const ArrayStatus status = Status();
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    EXPECT_TRUE(superblock.ok());
    const CommitCost cost(superblock->geometry);
    return status.log_used_bytes / kBlockBytes + kZeros * kChunkBlocks +
           cost.ClosedBlocks(status.pending_chunks, status.pending_chunks);
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kStripes* kStripe);
  Random random_{13};
  std::vector<std::byte> model_ = std::vector<std::byte>(kStripes * kStripe);
};

TEST_F(RecoveryRoom, AFirstEntryIsMadeWhereItEatsNothingThatIsClosed) {
  ASSERT_NO_FATAL_FAILURE(FillLog());
  uint64_t entries = 0;
  uint64_t checkpoints = 0;
  for (int crash = 0; crash < 20; ++crash) {
    const bool room = Taken() <= LogBlocks();
    const uint64_t taken = Taken();
    const EngineHooks before = test_.hooks();
    test_.Kill();
    test_.Open();
    ASSERT_NE(test_.array, nullptr);
    const Traffic traffic = Status().traffic;
    EXPECT_EQ(test_.hooks().recovery_checkpoints - before.recovery_checkpoints, room ? 0U : 1U)
        << crash;
    EXPECT_EQ(traffic.log_appends, room ? 1U : 0U) << crash;
    EXPECT_LE(traffic.checkpoints, room ? 1U : 2U) << "one that was due, at most, besides";
    EXPECT_GE(traffic.checkpoints, room ? 0U : 1U);
    EXPECT_EQ(Taken(), taken + (room ? 1 : 0)) << crash;
    ++(room ? entries : checkpoints);
  }
  EXPECT_GT(entries, 0U);
  EXPECT_GT(checkpoints, 10U);
  EXPECT_TRUE(test_.Read(volume_, 0, model_.size()) == model_);
  ASSERT_TRUE(test_.Commit().ok()) << "there is room for all of it";
  EXPECT_EQ(Status().pending_chunks, 0U);
  EXPECT_TRUE(test_.Read(volume_, 0, model_.size()) == model_);
}

}  // namespace
}  // namespace eplog
