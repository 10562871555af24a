// Whatever state an array is in: what a plan foretells of a change is what then happens, figure by
// figure.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kRows = 20;
constexpr uint64_t kUpdates = 5;

enum class Before : uint8_t { kClean, kPending, kSsdLost, kLogLost, kSsdJoining, kLogJoining };

class PlanFigures : public ::testing::Test {
 protected:
  void Make(Before before) {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 40 * kStripe);
    other_ = test_->CreateVolume("other", 40 * kStripe);
    Write(volume_, 0, kRows * kStripe);
    Write(other_, 0, kStripe);
    const uint32_t gone = GoneIn(before);
    if (gone != kDevices) {
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(gone, "by hand")).ok());
      test_->Sleep(10'000'000);
    }
    if (before == Before::kSsdJoining || before == Before::kLogJoining) {
      // It comes no further than this.
      test_->array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
      if (before == Before::kLogJoining) {
        DeviceDelays never;
        never.read_us = 3'600'000'000;
        Pend();
        Flush();
        for (uint32_t i = 0; i < kSsdCount; ++i) {
          test_->delayed(i).set_delays(never);
        }
      }
      ASSERT_TRUE(
          RunTask(test_->loop, test_->array->ReplaceDevice(gone, *test_->Devices()[gone])).ok());
    }
    if (before != Before::kClean && before != Before::kLogJoining) {
      Pend();
      Flush();
    }
  }
  static uint32_t GoneIn(Before before) {
    switch (before) {
      case Before::kSsdLost:
      case Before::kSsdJoining:
        return 2;
      case Before::kLogLost:
      case Before::kLogJoining:
        return kSsdCount;
      default:
        return kDevices;
    }
  }
  void Pend() {
    for (uint64_t i = 0; i < kUpdates; ++i) {
      Write(volume_, i * (kStripe + kChunk), kChunk);
    }
    Write(other_, kChunk, kChunk);
  }
  void Flush() { ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok()); }
  void Write(VolumeId volume, uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_->Write(volume, offset, RandomBytes(random_, length)).ok());
  }
  ChangePlan Plan(Change change) {
    const auto plan = RunTask(test_->loop, test_->array->Plan(std::move(change)));
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan.ok() ? *plan : ChangePlan();
  }
  static Change Fail(uint32_t device) {
    Change change;
    change.kind = Change::Kind::kFailDevice;
    change.device = device;
    return change;
  }
  static Change Replace(uint32_t device, const Device& by) {
    Change change;
    change.kind = Change::Kind::kReplaceDevice;
    change.device = device;
    change.replacement = by.name();
    change.replacement_identity = by.identity();
    change.replacement_bytes = by.size_bytes();
    return change;
  }
  void ExpectStands(const Standing& foretold) {
    const ArrayStatus status = test_->array->GetStatus();
    EXPECT_EQ(std::string(ArrayStateName(status.state)), ArrayStateName(foretold.state));
    const auto not_ok = std::ranges::count_if(status.devices, [](const DeviceStatus& device) {
      return device.state != DeviceState::kOk;
    });
    EXPECT_EQ(static_cast<uint32_t>(not_ok), foretold.devices_not_ok);
    EXPECT_EQ(status.further_ssd_losses_survived, foretold.further_ssd_losses_survived);
    EXPECT_EQ(status.further_log_losses_survived, foretold.further_log_losses_survived);
    EXPECT_EQ(status.pending_chunks, foretold.pending_chunks);
    EXPECT_EQ(status.live_log_stripes, foretold.log_stripes);
    EXPECT_EQ(status.allocated_bytes, foretold.allocated_bytes);
    EXPECT_EQ(status.free_bytes, foretold.free_bytes);
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  VolumeId other_;
};

constexpr Before kAll[] = {Before::kClean,   Before::kPending,    Before::kSsdLost,
                           Before::kLogLost, Before::kSsdJoining, Before::kLogJoining};

// Nothing but the change: what goes on in the background of a slow rebuild is not over.
TEST_F(PlanFigures, OfTheFailureOfAnSsd) {
  for (const Before before : kAll) {
    SCOPED_TRACE(static_cast<int>(before));
    Make(before);
    const ChangePlan plan = Plan(Fail(1));
    ExpectStands(plan.before);
    EXPECT_EQ(plan.freed_bytes + plan.rebuild_bytes + plan.read_bytes + plan.commit_chunks, 0U);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "by hand")).ok());
    ExpectStands(plan.after);
    test_->Kill();
  }
}

TEST_F(PlanFigures, OfTheFailureOfALogDevice) {
  for (const Before before :
       {Before::kClean, Before::kPending, Before::kSsdLost, Before::kLogLost}) {
    SCOPED_TRACE(static_cast<int>(before));
    Make(before);
    const uint64_t pending = test_->array->GetStatus().pending_chunks;
    const uint64_t log_stripes = test_->array->GetStatus().live_log_stripes;
    const ChangePlan plan = Plan(Fail(kSsdCount + 1));
    ExpectStands(plan.before);
    EXPECT_EQ(plan.commit_chunks, pending);
    EXPECT_EQ(plan.chunks_losing_copy, log_stripes);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount + 1, "by hand")).ok());
    test_->Sleep(30'000'000);
    ExpectStands(plan.after);
    test_->Kill();
  }
}

// One that is not whole yet counts as lost already.
TEST_F(PlanFigures, OfTheFailureOfAReplacement) {
  for (const Before before : {Before::kSsdJoining, Before::kLogJoining}) {
    SCOPED_TRACE(static_cast<int>(before));
    Make(before);
    const uint32_t device = GoneIn(before);
    const ChangePlan plan = Plan(Fail(device));
    ExpectStands(plan.before);
    EXPECT_EQ(plan.after.devices_not_ok, plan.before.devices_not_ok);
    EXPECT_EQ(plan.after.further_ssd_losses_survived, 1U);
    EXPECT_EQ(plan.after.state, ArrayState::kDegraded);
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      test_->delayed(i).set_delays({});
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(device, "by hand")).ok());
    test_->Sleep(4'000'000'000);  // until what was read so slowly has come
    if (before == Before::kLogJoining) {
      EXPECT_EQ(test_->array->GetStatus().pending_chunks, 0U);
    }
    EXPECT_EQ(test_->array->GetStatus().state, plan.after.state);
    EXPECT_EQ(test_->array->GetStatus().further_log_losses_survived,
              plan.after.further_log_losses_survived);
    test_->Kill();
  }
}

TEST_F(PlanFigures, OfAReplacement) {
  for (const Before before : {Before::kSsdLost, Before::kLogLost}) {
    for (const bool another : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(before)) + (another ? " and another" : ""));
      Make(before);
      const uint32_t device = GoneIn(before);
      if (another) {
        ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(4, "by hand")).ok());
      }
      const uint64_t pending = test_->array->GetStatus().pending_chunks;
      const ChangePlan plan = Plan(Replace(device, *test_->Devices()[device]));
      ExpectStands(plan.before);
      EXPECT_EQ(plan.commit_chunks, pending);
      // Each row has a chunk there.
      EXPECT_EQ(plan.rebuild_bytes,
                before == Before::kSsdLost ? (kRows + 1) * kChunk : uint64_t{0});
      EXPECT_EQ(plan.chunks_losing_copy + plan.freed_bytes + plan.read_bytes, 0U);
      const uint64_t rebuilt = test_->hooks().rebuilt_chunks;
      ASSERT_TRUE(
          RunTask(test_->loop, test_->array->ReplaceDevice(device, *test_->Devices()[device]))
              .ok());
      test_->Sleep(30'000'000);
      ExpectStands(plan.after);
      EXPECT_LE((test_->hooks().rebuilt_chunks - rebuilt) * kChunk, plan.rebuild_bytes);
      test_->Kill();
    }
  }
}

TEST_F(PlanFigures, OfADeletion) {
  for (const Before before :
       {Before::kClean, Before::kPending, Before::kSsdLost, Before::kSsdJoining}) {
    SCOPED_TRACE(static_cast<int>(before));
    Make(before);
    Change change;
    change.kind = Change::Kind::kDeleteVolume;
    change.volume = volume_;
    const ChangePlan plan = Plan(change);
    ExpectStands(plan.before);
    EXPECT_EQ(plan.freed_bytes, test_->array->GetVolume(volume_)->allocated_bytes);
    EXPECT_EQ(plan.after.free_bytes, plan.before.free_bytes + plan.freed_bytes);
    EXPECT_EQ(plan.after.allocated_bytes, plan.before.allocated_bytes - plan.freed_bytes);
    EXPECT_EQ(plan.chunks_losing_copy + plan.rebuild_bytes + plan.read_bytes + plan.commit_chunks,
              0U);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->DeleteVolume(volume_)).ok());
    test_->Sleep(20'000'000);
    const ArrayStatus status = test_->array->GetStatus();
    EXPECT_EQ(status.free_bytes, plan.after.free_bytes);
    EXPECT_EQ(status.allocated_bytes, plan.after.allocated_bytes);
    if (before != Before::kSsdJoining) {  // which commits meanwhile
      EXPECT_EQ(status.pending_chunks, plan.after.pending_chunks);
      EXPECT_EQ(std::string(ArrayStateName(status.state)), ArrayStateName(plan.after.state));
    }
    test_->Kill();
  }
}

// Rows, members and log chunks that are there, each once.
TEST_F(PlanFigures, OfAScrub) {
  constexpr uint64_t kMembers = kUpdates + 1;
  for (const Before before :
       {Before::kClean, Before::kPending, Before::kSsdLost, Before::kLogLost}) {
    SCOPED_TRACE(static_cast<int>(before));
    Make(before);
    const bool ssd_lost = before == Before::kSsdLost;
    const uint64_t logs = before == Before::kLogLost ? kParity - 1 : kParity;
    const ChangePlan plan = Plan(Change());
    ExpectStands(plan.before);
    ExpectStands(plan.after);
    const auto report = RunTask(test_->loop, test_->array->Scrub(false, Progress()));
    ASSERT_TRUE(report.ok());
    const uint64_t log_stripes = before == Before::kClean ? 0 : kMembers;
    EXPECT_EQ(report->log_stripes_checked, log_stripes);
    // Of what is pending it does not ask which are on a device that is gone.
    const uint64_t read = (report->chunks_checked + log_stripes * logs) * kChunk;
    EXPECT_GE(plan.read_bytes, read);
    EXPECT_LE(plan.read_bytes, read + (ssd_lost ? log_stripes * kChunk : 0));
    EXPECT_EQ(report->rows_checked, kRows + 1);
    EXPECT_LE(report->chunks_checked, (kRows + 1) * (kSsdCount - (ssd_lost ? 1 : 0)) + log_stripes);
    EXPECT_EQ(plan.chunks_losing_copy + plan.rebuild_bytes + plan.freed_bytes + plan.commit_chunks,
              0U);
    test_->Kill();
  }
}

// A trimmed chunk is pending and lies nowhere.
TEST_F(PlanFigures, OfAScrubLeaveOutWhatIsZeros) {
  Make(Before::kClean);
  const uint64_t before = Plan(Change()).read_bytes;
  ASSERT_TRUE(
      RunTask(test_->loop, test_->array->Trim(volume_, kStripe, kChunk, TrimMode::kZero)).ok());
  ASSERT_EQ(test_->array->GetStatus().pending_chunks, 1U);
  const uint64_t after = Plan(Change()).read_bytes;
  EXPECT_LE(after, before + kParity * kChunk) << "and no data";
}

TEST_F(PlanFigures, OfNothingThatIsNotThere) {
  Make(Before::kClean);
  for (const Change::Kind kind : {Change::Kind::kFailDevice, Change::Kind::kReplaceDevice}) {
    Change change;
    change.kind = kind;
    change.device = kDevices;
    const auto plan = RunTask(test_->loop, test_->array->Plan(change));
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  }
  Change change;
  change.kind = Change::Kind::kDeleteVolume;
  change.volume = VolumeId(999);
  const auto plan = RunTask(test_->loop, test_->array->Plan(change));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace eplog
