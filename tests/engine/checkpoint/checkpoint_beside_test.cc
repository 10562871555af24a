// What happens while a checkpoint is written: the array stops, devices change, a device fails. What
// does not count is not named, or gives nothing back (I9).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "device/io_kind.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class BesideCheckpoint : public CheckpointTest {
 protected:
  BesideCheckpoint() {
    parts_.WriteStripe(StripeIndex(0));
    parts_.WriteStripe(StripeIndex(1));
    parts_.MakeStable();  // so that no flush waits for what the checkpoint is to wait for itself
    before_ = Pointer();
    covered_ = checkpointer_.covered();
    tail_ = parts_.appender.log_tail();
  }
  CheckpointPointer Pointer() { return NewestOn(DeviceIndex(0)).checkpoint; }
  // Once, just before the first request of this kind from now on.
  void At(IoKind kind, std::function<void(DeviceIndex)> act) {
    parts_.core.members.set_before_io(
        [this, kind, act = std::move(act), done = false](DeviceIndex device, IoKind now) mutable {
          roots_ += now == IoKind::kCheckpointRoot ? 1 : 0;
          if (now == kind && !done) {
            done = true;
            act(device);
          }
        });
  }
  void Stop() {
    Error error;
    error.code = ErrorCode::kTooManyFailures;
    error.message = "as the test has it";
    parts_.core.Stop(error);
  }
  void EndChange() {
    parts_.states().EndChange();
    parts_.core.settled.NotifyAll();
    parts_.Settle();
  }
  // Each by another one, empty.
  void ReplaceAll(uint64_t ssds) {
    for (uint8_t i = 0; i < g().n; ++i) {
      if ((ssds >> i & 1) != 0) {
        parts_.Lose(DeviceIndex(i));
        parts_.Join(DeviceIndex(i));
      }
    }
  }
  void ExpectCountsNot() {
    EXPECT_EQ(checkpointer_.covered(), covered_);
    EXPECT_EQ(parts_.appender.log_tail(), tail_) << "the log before it is not free";
  }
  void ExpectCounts() {
    EXPECT_GT(checkpointer_.covered(), covered_);
    EXPECT_GT(parts_.appender.log_tail(), tail_);
  }

  CheckpointPointer before_;
  uint64_t covered_ = 0;
  uint64_t tail_ = 0;
  uint64_t roots_ = 0;  // that were written since At
};

// With more than m devices lost it may be nowhere as a whole.
TEST_F(BesideCheckpoint, OfAnArrayThatHasStoppedIsNotNamed) {
  At(IoKind::kCheckpointRoot, [this](DeviceIndex /*device*/) { Stop(); });
  const Status ended = Checkpoint(CheckpointKind::kFull);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kTooManyFailures) << ended.error().ToString();
  EXPECT_EQ(Pointer(), before_);
  ExpectCountsNot();
  EXPECT_FALSE(Checkpoint(CheckpointKind::kFull).ok()) << "and none is begun any more";
  EXPECT_EQ(Pointer(), before_);
}

// Its superblocks may be on too few devices: what it would give back stays taken.
TEST_F(BesideCheckpoint, OfAnArrayThatStopsWhileItIsNamedDoesNotCount) {
  At(IoKind::kSuperblock, [this](DeviceIndex /*device*/) { Stop(); });
  const Traffic traffic = parts_.core.traffic;
  const Status ended = Checkpoint(CheckpointKind::kFull);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kTooManyFailures) << ended.error().ToString();
  ExpectCountsNot();
  EXPECT_EQ(parts_.core.traffic.checkpoints, traffic.checkpoints);
}

TEST_F(BesideCheckpoint, WhoseSuperblocksFindNoSpaceStopsTheArray) {
  parts_.faulty(DeviceIndex(2))
      .Add({.kinds = MaskOf(RequestKind::kWrite),
            .code = ErrorCode::kNoSpace,
            .range_length_bytes = kSuperblockAreaBytes});
  const Status ended = Checkpoint(CheckpointKind::kFull);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kNoSpace);
  ASSERT_TRUE(parts_.core.stop_error);
  EXPECT_EQ(parts_.core.stop_error->code, ErrorCode::kNoSpace);
  ExpectCountsNot();
}

// I11: those that are left must have it in writing who is lost before they name what a lost one
// lacks.
TEST_F(BesideCheckpoint, IsNamedWhenAChangeOfDevicesIsOver) {
  At(IoKind::kCheckpointRoot, [this](DeviceIndex /*device*/) { parts_.states().BeginChange(); });
  std::optional<Status> ended;
  parts_.Start(checkpointer_.Checkpoint(CheckpointKind::kFull), ended);
  EXPECT_FALSE(ended);
  EXPECT_EQ(Pointer(), before_);
  ExpectCountsNot();
  EndChange();
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_EQ(Pointer().generation, before_.generation + 1);
  ExpectCounts();
  ExpectLoads();
}

TEST_F(BesideCheckpoint, CountsWhenAChangeOfDevicesIsOver) {
  At(IoKind::kSuperblock, [this](DeviceIndex /*device*/) { parts_.states().BeginChange(); });
  std::optional<Status> ended;
  parts_.Start(checkpointer_.Checkpoint(CheckpointKind::kFull), ended);
  EXPECT_FALSE(ended);
  EXPECT_EQ(Pointer().generation, before_.generation + 1);
  ExpectCountsNot();
  EndChange();
  ASSERT_TRUE(ended && ended->ok());
  ExpectCounts();
}

// What is written to a device that fails is not what was written.
TEST_F(BesideCheckpoint, OnAnSsdThatFailsIsNotCountedAsWritten) {
  DeviceIndex failed;
  At(IoKind::kCheckpointPage, [&](DeviceIndex device) {
    failed = device;
    parts_.faulty(device).Add({.kinds = MaskOf(RequestKind::kWrite)});
  });
  const Traffic before = parts_.core.traffic;
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  ASSERT_FALSE(parts_.core.members.live(failed));
  const auto root = parts_.Run(
      LoadRoot(parts_.core, NewestOn(DeviceIndex(failed.value == 0 ? 1 : 0)).checkpoint));
  ASSERT_TRUE(root.ok());
  ASSERT_EQ(root->runs[0].ssd_mask >> failed.value & 1, 1U);
  const uint64_t pages = (root->runs[0].blocks + 1) * g().m;
  EXPECT_EQ(parts_.core.traffic.ssd_metadata_bytes - before.ssd_metadata_bytes,
            pages * kBlockBytes + (g().n - 1) * kSuperblockCopyBytes);
  ExpectCounts();
}

// Those that took their places have none of it.
TEST_F(BesideCheckpoint, WhoseSsdsAreAllReplacedMeanwhileIsWrittenAnew) {
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  for (const uint32_t replaced : {g().m, g().m + 1}) {
    parts_.WriteStripe(StripeIndex(5 + replaced));
    parts_.MakeStable();
    const uint64_t next = superblocks_.current().checkpoint.generation + 1;
    uint64_t ssds = 0;  // of the next one, as many as are to be replaced
    for (uint32_t i = 0; i < replaced; ++i) {
      const uint64_t ssd = (next * (g().m + 1) + i) % g().n;
      ssds |= uint64_t{1} << ssd;
    }
    roots_ = 0;
    At(IoKind::kFlush, [this, ssds](DeviceIndex /*device*/) { ReplaceAll(ssds); });
    ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    const CheckpointPointer named = superblocks_.current().checkpoint;
    EXPECT_EQ(named.generation, next);
    EXPECT_EQ(named.ssd_mask & ssds, ssds) << "they were to be struck";
    EXPECT_EQ(roots_, (replaced == g().m ? 1U : 2U) * (g().m + 1)) << replaced;
    const auto root = parts_.Run(LoadRoot(parts_.core, named));
    ASSERT_TRUE(root.ok()) << root.error().ToString();
    State state(g());
    EXPECT_TRUE(parts_.Run(LoadRuns(parts_.core, *root, state)).ok());
  }
}

// Neither has one that is built upon what is gone.
TEST_F(BesideCheckpoint, WhoseOlderRunIsLostMeanwhileBuildsOnNothing) {
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  const uint64_t older = Root()->runs[0].ssd_mask;
  ASSERT_EQ(older & 1, 0U) << "superblocks are read from there";
  parts_.WriteStripe(StripeIndex(7));
  parts_.MakeStable();
  At(IoKind::kFlush, [this, older](DeviceIndex /*device*/) { ReplaceAll(older); });
  ASSERT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
  const auto root = Root();
  ASSERT_TRUE(root.ok()) << root.error().ToString();
  ASSERT_EQ(root->runs.size(), 1U);
  EXPECT_TRUE(root->runs[0].full);
  EXPECT_EQ(roots_, 2U * (g().m + 1));
  ExpectLoads();
}

}  // namespace
}  // namespace eplog
