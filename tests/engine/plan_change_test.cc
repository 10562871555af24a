// Plans of changes: what they foretell is what then happens, and telling changes nothing.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 40 * kStripe;

class PlanChange : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    Write(0, 20 * kStripe);
    for (uint64_t i = 0; i < 5; ++i) {
      Write(i * kStripe, kChunk);  // pending
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  void Write(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_->Write(volume_, offset, RandomBytes(random_, length)).ok());
  }
  Result<ChangePlan> Plan(Change change) {
    return RunTask(test_->loop, test_->array->Plan(std::move(change)));
  }
  Result<ChangePlan> PlanFail(uint32_t device) {
    Change change;
    change.kind = Change::Kind::kFailDevice;
    change.device = device;
    return Plan(change);
  }
  Result<ChangePlan> PlanReplace(uint32_t device, const Device& by) {
    Change change;
    change.kind = Change::Kind::kReplaceDevice;
    change.device = device;
    change.replacement = by.name();
    change.replacement_identity = by.identity();
    change.replacement_bytes = by.size_bytes();
    return Plan(change);
  }
  Result<ChangePlan> PlanDelete(VolumeId volume) {
    Change change;
    change.kind = Change::Kind::kDeleteVolume;
    change.volume = volume;
    return Plan(change);
  }
  void ExpectScrubReadsWhatIsPlanned(bool heal) {
    const auto plan = Plan(Change());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto read_from_ssds = [this] {
      uint64_t bytes = 0;
      for (const DeviceStatus& device : test_->array->GetStatus().devices) {
        bytes += device.role == DeviceRole::kSsd ? device.bytes_read : 0;
      }
      return bytes;
    };
    const uint64_t before = read_from_ssds();
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    ASSERT_TRUE(report.ok());
    const ArrayStatus status = test_->array->GetStatus();
    const uint64_t log_bytes =
        report->log_stripes_checked * status.parity_chunks * status.chunk_bytes;
    const uint64_t read = read_from_ssds() - before + log_bytes;
    EXPECT_GE(read, plan->read_bytes);
    EXPECT_LE(read, plan->read_bytes + (report->metadata_blocks_checked + 1) * kBlockBytes);
  }
  // The array stands as the plan said.
  void ExpectStands(const Standing& foretold) {
    const ArrayStatus status = test_->array->GetStatus();
    EXPECT_EQ(status.state, foretold.state);
    EXPECT_EQ(status.further_ssd_losses_survived, foretold.further_ssd_losses_survived);
    EXPECT_EQ(status.further_log_losses_survived, foretold.further_log_losses_survived);
    EXPECT_EQ(status.pending_chunks, foretold.pending_chunks);
    EXPECT_EQ(status.live_log_stripes, foretold.log_stripes);
    EXPECT_EQ(status.allocated_bytes, foretold.allocated_bytes);
    EXPECT_EQ(status.free_bytes, foretold.free_bytes);
  }
  uint64_t WrittenBytes() {
    uint64_t sum = 0;
    for (const DeviceStatus& device : test_->array->GetStatus().devices) {
      sum += device.bytes_written;
    }
    return sum;
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
};

TEST_F(PlanChange, FailingAnSsd) {
  const uint64_t written = WrittenBytes();
  const auto plan = PlanFail(3);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->before.further_ssd_losses_survived, 2U);
  EXPECT_EQ(plan->after.further_ssd_losses_survived, 1U);
  EXPECT_EQ(plan->after.state, ArrayState::kDegraded);
  EXPECT_EQ(plan->before.pending_chunks, 5U);
  // 20 whole stripes have a chunk on each SSD, and of the five updates some lie on this one.
  EXPECT_GE(plan->chunks_losing_copy, 20U);
  EXPECT_LE(plan->chunks_losing_copy, 25U);
  EXPECT_EQ(WrittenBytes(), written);
  ExpectStands(plan->before);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(3, "by hand")).ok());
  ExpectStands(plan->after);
}

TEST_F(PlanChange, AllSsdsTogetherHoldAllChunks) {
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    chunks += PlanFail(i)->chunks_losing_copy;
  }
  EXPECT_EQ(chunks, 20U * kSsdCount + 5);
}

TEST_F(PlanChange, FailingALogDeviceCommitsWhatItProtects) {
  const auto plan = PlanFail(kSsdCount);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->commit_chunks, 5U);
  EXPECT_EQ(plan->chunks_losing_copy, plan->before.log_stripes);
  EXPECT_EQ(plan->after.pending_chunks, 0U);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount, "by hand")).ok());
  test_->Sleep(10'000'000);
  ExpectStands(plan->after);
}

TEST_F(PlanChange, RefusedAsTheChangeIs) {
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(0, "by hand")).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "by hand")).ok());
  for (const uint32_t device : {0U, 2U, 99U}) {
    const auto plan = PlanFail(device);
    const Status failed = RunTask(test_->loop, test_->array->FailDevice(device, "by hand"));
    ASSERT_FALSE(plan.ok());
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(plan.error().message, failed.error().message);
    EXPECT_EQ(plan.error().code, failed.error().code);
  }
  MemoryDevice small("small", uint64_t{4} << 20);
  MemoryDevice right("right", uint64_t{8} << 20);
  const auto refused = [&](uint32_t device, Device& by) {
    const auto plan = PlanReplace(device, by);
    const Status replaced = RunTask(test_->loop, test_->array->ReplaceDevice(device, by));
    ASSERT_FALSE(plan.ok());
    ASSERT_FALSE(replaced.ok());
    EXPECT_EQ(plan.error().message, replaced.error().message);
  };
  refused(0, small);
  refused(2, right);
  refused(0, *test_->Devices()[4]);
  EXPECT_TRUE(PlanReplace(0, right).ok());
}

TEST_F(PlanChange, ReplacingAnSsdRebuildsSoMuch) {
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(2, "by hand")).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Commit(Progress())).ok());
  MemoryDevice fresh("fresh", uint64_t{8} << 20);
  const auto plan = PlanReplace(2, fresh);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->rebuild_bytes, 20 * kChunk);
  EXPECT_EQ(plan->before.further_ssd_losses_survived, 1U);
  EXPECT_EQ(plan->after.further_ssd_losses_survived, 2U);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(2, fresh)).ok());
  EXPECT_EQ(test_->array->GetStatus().rebuild_total_bytes, plan->rebuild_bytes);
  for (int i = 0; i < 100 && test_->array->GetStatus().state == ArrayState::kRebuilding; ++i) {
    test_->Sleep(200'000);
  }
  ExpectStands(plan->after);
  ASSERT_TRUE(test_->Close().ok());
}

TEST_F(PlanChange, DeletingAVolume) {
  const VolumeId other = test_->CreateVolume("other", kSize);
  ASSERT_TRUE(test_->Write(other, 0, RandomBytes(random_, kChunk)).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  const auto plan = PlanDelete(volume_);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->freed_bytes, test_->array->GetVolume(volume_)->allocated_bytes);
  EXPECT_EQ(plan->before.pending_chunks, 6U);
  EXPECT_EQ(plan->after.pending_chunks, 1U);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->DeleteVolume(volume_)).ok());
  test_->Sleep(10'000'000);
  const ArrayStatus status = test_->array->GetStatus();
  EXPECT_EQ(status.free_bytes, plan->after.free_bytes);
  EXPECT_EQ(status.pending_chunks, plan->after.pending_chunks);
  const auto again = PlanDelete(volume_);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kNotFound);
}

// Metadata is read besides: a few blocks for each device.
TEST_F(PlanChange, ScrubReadsSoMuch) {
  ExpectScrubReadsWhatIsPlanned(true);
}

// What lay on it is not read any more, rows and pending chunks.
TEST_F(PlanChange, ScrubReadsLessWithoutAnSsd) {
  const uint64_t before = Plan(Change())->read_bytes;
  uint32_t gone = 0;
  while (PlanFail(gone)->chunks_losing_copy == 20) {
    ++gone;  // nothing pending there
    ASSERT_LT(gone, kSsdCount);
  }
  const uint64_t lost = PlanFail(gone)->chunks_losing_copy;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(gone, "by hand")).ok());
  ASSERT_EQ(test_->array->GetStatus().pending_chunks, 5U);
  EXPECT_EQ(Plan(Change())->read_bytes, before - lost * kChunk);
  ExpectScrubReadsWhatIsPlanned(false);
}

TEST_F(PlanChange, ReadOnlyOpeningTellsTheSame) {
  const auto running = PlanFail(1);
  ASSERT_TRUE(running.ok());
  ASSERT_TRUE(test_->Close().ok());
  test_->Open(true);
  const auto looking = PlanFail(1);
  ASSERT_TRUE(looking.ok()) << looking.error().message;
  EXPECT_EQ(looking->chunks_losing_copy, running->chunks_losing_copy);
  EXPECT_EQ(looking->after.further_ssd_losses_survived, 1U);
  const Status failed = RunTask(test_->loop, test_->array->FailDevice(1, "by hand"));
  EXPECT_FALSE(failed.ok());
}

}  // namespace
}  // namespace eplog
