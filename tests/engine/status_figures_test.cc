// The figures of status against what is counted beside it: the layout, what was written, and what
// the devices were asked for. With chunks of two blocks, so that a chunk is no block.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 8192;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 60 * kStripe;
constexpr uint64_t kUpdateLogBytes = kBlockBytes + kChunk;  // a header and one log chunk

class StatusFigures : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.chunk_bytes = kChunk;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.auto_commit = false;
    return shape;
  }
  void Write(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_.Write(volume_, offset, RandomBytes(random_, length)).ok());
  }
  void Flush() { ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok()); }
  ArrayStatus Status() { return test_.array->GetStatus(); }
  Superblock Read() {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    EXPECT_TRUE(superblock.ok());
    return *superblock;
  }
  void OpenWithout(uint32_t device) {
    std::vector<Device*> devices = test_.Devices();
    devices.erase(devices.begin() + device);
    OpenOptions options;
    options.entropy = 50;
    options.auto_commit = false;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }

  TestArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{7};
};

TEST_F(StatusFigures, OfTheLayoutAreThoseOfTheSuperblock) {
  const Superblock superblock = Read();
  const Geometry& g = superblock.geometry;
  Flush();
  const ArrayStatus status = Status();
  EXPECT_EQ(status.uuid, UuidToString(superblock.array_uuid));
  EXPECT_EQ(status.name, superblock.name);
  EXPECT_EQ(status.level, 6U);
  EXPECT_EQ(status.data_chunks, kSsdCount - kParity);
  EXPECT_EQ(status.parity_chunks, kParity);
  EXPECT_EQ(status.chunk_bytes, kChunk);
  EXPECT_EQ(status.journal, JournalMode::kFull);
  EXPECT_FALSE(status.read_only);
  EXPECT_EQ(status.stopped_because, "");
  EXPECT_EQ(status.state, ArrayState::kClean);
  EXPECT_EQ(status.capacity_bytes, uint64_t{g.stripes} * kStripe);
  EXPECT_EQ(status.free_bytes, status.capacity_bytes);
  EXPECT_EQ(status.allocated_bytes, 0U);
  EXPECT_EQ(status.slots, uint64_t{g.slots} * kSsdCount);
  EXPECT_EQ(status.slots_reserved, g.slots - g.stripes);
  EXPECT_EQ(status.slots_free_min, g.slots);
  EXPECT_EQ(status.slots_used, 0U);
  EXPECT_EQ(status.log_size_bytes, g.log_blocks * kBlockBytes);
  EXPECT_GT(status.metadata_bytes, 0U);
  EXPECT_EQ(status.further_ssd_losses_survived, kParity);
  EXPECT_EQ(status.further_log_losses_survived, kParity);
  ASSERT_EQ(status.devices.size(), kSsdCount + kParity);
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    const DeviceStatus& device = status.devices[i];
    const bool log = i >= kSsdCount;
    EXPECT_EQ(device.name, g.DeviceName(DeviceIndex(static_cast<uint8_t>(i))));
    EXPECT_EQ(device.path, test_.memory(i).name());
    EXPECT_EQ(device.role, log ? DeviceRole::kLog : DeviceRole::kSsd);
    EXPECT_EQ(device.state, DeviceState::kOk);
    EXPECT_EQ(device.size_bytes, test_.memory(i).size_bytes());
    EXPECT_EQ(device.direct, test_.memory(i).capabilities().direct);
    EXPECT_EQ(device.failed_because, "");
  }
}

TEST_F(StatusFigures, OfWhatIsPendingGoUpWithEachUpdateAndToNothingWithACommit) {
  constexpr uint64_t kRows = 6;
  constexpr uint64_t kUpdates = 4;
  const uint64_t slots = Status().slots_free_min;
  Write(0, kRows * kStripe);
  Flush();
  EXPECT_EQ(Status().slots_used, kRows * kSsdCount);
  EXPECT_EQ(Status().slots_free_min, slots - kRows);
  EXPECT_EQ(Status().pending_chunks, 0U);
  EXPECT_EQ(Status().oldest_pending_seconds, 0);
  EXPECT_EQ(Status().state, ArrayState::kClean);
  EXPECT_EQ(Status().allocated_bytes, test_.array->GetVolume(volume_)->allocated_bytes);
  EXPECT_EQ(Status().free_bytes, Status().capacity_bytes - Status().allocated_bytes);
  const uint64_t log_used = Status().log_used_bytes;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    Write(0 + i * kStripe, kChunk);
    const ArrayStatus status = Status();
    EXPECT_EQ(status.pending_chunks, i + 1);
    EXPECT_EQ(status.pending_bytes, (i + 1) * kChunk);
    EXPECT_EQ(status.pending_entries, i + 1);
    EXPECT_EQ(status.live_log_stripes, i + 1);
    EXPECT_EQ(status.slots_used, kRows * kSsdCount + i + 1);
    EXPECT_EQ(status.log_used_bytes, log_used + (i + 1) * kUpdateLogBytes);
    EXPECT_EQ(status.unstable_bytes, (i + 1) * kUpdateLogBytes);
    EXPECT_EQ(status.state, ArrayState::kActive);
  }
  Flush();
  EXPECT_EQ(Status().unstable_bytes, 0U);
  EXPECT_EQ(Status().state, ArrayState::kActive) << "what is pending is exposed, stable or not";
  const double before = Status().oldest_pending_seconds;
  test_.Sleep(3'000'000);
  EXPECT_NEAR(Status().oldest_pending_seconds, before + 3, 0.01);
  EXPECT_LT(before, 0.1);

  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit(Progress())).ok());
  test_.Sleep(20'000'000);  // until nobody may need what was replaced
  const ArrayStatus status = Status();
  EXPECT_EQ(status.pending_chunks, 0U);
  EXPECT_EQ(status.pending_bytes, 0U);
  EXPECT_EQ(status.pending_entries, 0U);
  EXPECT_EQ(status.live_log_stripes, 0U);
  EXPECT_EQ(status.oldest_pending_seconds, 0);
  EXPECT_EQ(status.unstable_bytes, 0U);
  EXPECT_EQ(status.slots_used, kRows * kSsdCount);
  EXPECT_EQ(status.slots_free_min, slots - kRows);
  EXPECT_EQ(status.state, ArrayState::kClean);
}

TEST_F(StatusFigures, OfWhatIsUnstableHaveWhatLiesInBuffers) {
  ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = 16, .stripes = 0}).ok());
  Write(0, 2 * kStripe);
  Flush();
  ASSERT_EQ(Status().unstable_bytes, 0U);
  for (uint64_t i = 0; i < 3; ++i) {
    Write(i % 2 * kStripe + i * kChunk, kChunk);
    EXPECT_EQ(Status().unstable_bytes, (i + 1) * kChunk);
  }
  Flush();
  EXPECT_EQ(Status().unstable_bytes, 0U);
}

// Extents that are on their way back belong to nobody any more.
TEST_F(StatusFigures, OfFreeSpaceHaveWhatADeletionGivesBackAtOnce) {
  Write(0, kSize);
  Flush();
  const ArrayStatus before = Status();
  EXPECT_GE(before.allocated_bytes, kSize);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(volume_)).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Status().free_bytes, Status().capacity_bytes);
    EXPECT_EQ(Status().allocated_bytes, 0U);
    test_.Sleep(10'000'000);
  }
  EXPECT_EQ(Status().slots_used, 0U);
}

// Requests of all kinds, told apart by device.
TEST_F(StatusFigures, OfDevicesAreWhatTheyWereAskedFor) {
  Write(0, 10 * kStripe);
  Flush();
  const ArrayStatus before = Status();
  std::vector<DeviceCounters> counted;
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    counted.push_back(test_.counter(i).counters());
    // Each in its own bucket.
    const uint64_t us = uint64_t{1000} << i;
    test_.delayed(i).set_delays({.read_us = us, .write_us = us, .flush_us = 1});
  }
  for (uint64_t i = 0; i < 20; ++i) {
    Write(i * kChunk, kChunk);
    static_cast<void>(test_.Read(volume_, i * kChunk, kChunk));
  }
  Flush();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit(Progress())).ok());
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Scrub(false, Progress())).ok());
  test_.Sleep(30'000'000);  // nothing is on its way any more
  const ArrayStatus after = Status();
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    SCOPED_TRACE(after.devices[i].name);
    const DeviceCounters& now = test_.counter(i).counters();
    const DeviceStatus& was = before.devices[i];
    const DeviceStatus& is = after.devices[i];
    EXPECT_EQ(is.reads - was.reads, now.reads - counted[i].reads);
    EXPECT_EQ(is.writes - was.writes, now.writes - counted[i].writes);
    EXPECT_EQ(is.flushes - was.flushes, now.flushes - counted[i].flushes);
    EXPECT_EQ(is.bytes_read - was.bytes_read, now.bytes_read - counted[i].bytes_read);
    EXPECT_EQ(is.bytes_written - was.bytes_written, now.bytes_written - counted[i].bytes_written);
    EXPECT_GT(is.reads, was.reads);
    EXPECT_GT(is.writes, was.writes);
    EXPECT_GT(is.flushes, was.flushes);
    EXPECT_EQ(is.read_errors + is.write_errors + is.corrupt_chunks, 0U);
    const double expected = std::exp2(i) * 1000;
    EXPECT_GE(static_cast<double>(is.latency_us_p99), expected);
    EXPECT_LE(static_cast<double>(is.latency_us_p99), expected * 1.3);
  }
}

TEST_F(StatusFigures, OfErrorsBlameTheDeviceThatMadeThem) {
  Write(0, 10 * kStripe);
  Flush();
  Fault unreadable;
  unreadable.kinds = MaskOf(RequestKind::kRead);
  unreadable.nth = 1;
  test_.faulty(2).Add(unreadable);
  Fault wrong = unreadable;
  wrong.action = Fault::Action::kCorrupt;
  test_.faulty(3).Add(wrong);
  static_cast<void>(test_.Read(volume_, 0, 10 * kStripe));
  ASSERT_EQ(test_.faulty(2).fired() + test_.faulty(3).fired(), 2U);
  Fault unwritable;
  unwritable.kinds = MaskOf(RequestKind::kWrite);
  test_.faulty(4).Add(unwritable);
  Write(0, 10 * kStripe);
  const ArrayStatus status = Status();
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    EXPECT_EQ(status.devices[i].read_errors, i == 2 ? 1U : 0U) << i;
    EXPECT_EQ(status.devices[i].corrupt_chunks, i == 3 ? 1U : 0U) << i;
    EXPECT_EQ(status.devices[i].write_errors, i == 4 ? 1U : 0U) << i;
    EXPECT_EQ(status.devices[i].state, i == 4 ? DeviceState::kFailed : DeviceState::kOk) << i;
  }
}

// From one loss to the next, to a replacement, and to one too many.
TEST_F(StatusFigures, OfStatesFollowTheDevices) {
  Write(0, 10 * kStripe);
  Flush();
  const auto expect = [this](ArrayState state, uint32_t further) {
    EXPECT_EQ(ArrayStateName(Status().state), std::string(ArrayStateName(state)));
    EXPECT_EQ(Status().further_ssd_losses_survived, further);
    EXPECT_EQ(Status().further_log_losses_survived, further);
  };
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(1, "pulled out")).ok());
  expect(ArrayState::kDegraded, 1);
  EXPECT_EQ(Status().devices[1].state, DeviceState::kFailed);
  EXPECT_NE(Status().devices[1].failed_because.find("pulled out"), std::string::npos);
  MemoryDevice fresh("fresh", uint64_t{9} << 20);
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ReplaceDevice(1, fresh)).ok());
  expect(ArrayState::kRebuilding, 1);
  EXPECT_EQ(Status().devices[1].state, DeviceState::kRebuilding);
  EXPECT_EQ(Status().devices[1].failed_because, "");
  EXPECT_EQ(Status().devices[1].path, "fresh");
  EXPECT_EQ(Status().devices[1].size_bytes, uint64_t{9} << 20);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(kSsdCount, "pulled out")).ok());
  expect(ArrayState::kDegraded, 0);
  EXPECT_EQ(Status().devices[kSsdCount].state, DeviceState::kFailed);
  EXPECT_EQ(Status().devices[1].state, DeviceState::kRebuilding);
  EXPECT_EQ(Status().stopped_because, "");
  test_.faulty(2).FailDevice();
  static_cast<void>(test_.Write(volume_, 0, RandomBytes(random_, 4 * kStripe)));
  expect(ArrayState::kFailed, 0);
  EXPECT_NE(Status().stopped_because, "");
  EXPECT_EQ(Status().devices[2].state, DeviceState::kFailed);
  test_.Kill();
}

TEST_F(StatusFigures, OfADeviceThatIsAwayHaveNoPath) {
  Write(0, 10 * kStripe);
  Flush();
  ASSERT_TRUE(test_.Close().ok());
  OpenWithout(3);
  EXPECT_EQ(Status().devices[3].state, DeviceState::kMissing);
  EXPECT_EQ(Status().devices[3].path, "");
  EXPECT_EQ(Status().devices[3].size_bytes, 0U);
  EXPECT_EQ(Status().devices[4].state, DeviceState::kOk);
  EXPECT_EQ(Status().devices[4].path, "ssd4");
  EXPECT_EQ(Status().state, ArrayState::kDegraded);
}

// The clock of the opening, and the entries since the checkpoint.
TEST_F(StatusFigures, OfRecoveryAreThoseOfTheLogSinceTheCheckpoint) {
  Write(0, 10 * kStripe);
  ASSERT_TRUE(test_.Close().ok());
  test_.Open();
  EXPECT_EQ(Status().recovery_entries_replayed, 0U);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull)).ok());
  for (uint64_t i = 0; i < 7; ++i) {
    Write(i * kStripe, kChunk);
  }
  Flush();
  test_.Kill();
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    test_.delayed(i).set_delays({.read_us = 100'000, .write_us = 100'000, .flush_us = 100'000});
  }
  const uint64_t begun = test_.loop.NowUs();
  test_.Open();
  const double took = static_cast<double>(test_.loop.NowUs() - begun) / 1e6;
  EXPECT_EQ(Status().recovery_entries_replayed, 7U);
  EXPECT_GT(Status().recovery_seconds, 0.2 * took);
  EXPECT_LE(Status().recovery_seconds, took);
  test_.Kill();
  test_.Open(true);
  EXPECT_TRUE(Status().read_only);
}

// Nothing is left of one rebuild when the next begins.
TEST_F(StatusFigures, OfARebuildBeginAnewWithEach) {
  constexpr uint64_t kRows = 50;
  Write(0, kRows * kStripe);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit(Progress())).ok());
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    const auto expect_none = [this] {
      const ArrayStatus status = Status();
      EXPECT_EQ(status.rebuild_total_bytes, 0U);
      EXPECT_EQ(status.rebuild_left_bytes, 0U);
      EXPECT_EQ(status.rebuild_lost_bytes, 0U);
      EXPECT_EQ(status.rebuild_bytes_per_second, 0U);
      EXPECT_EQ(status.rebuild_eta_seconds, 0U);
    };
    expect_none();
    ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(1, "by hand")).ok());
    expect_none();
    test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 4 * kChunk});
    ASSERT_TRUE(RunTask(test_.loop, test_.array->ReplaceDevice(1, *test_.Devices()[1])).ok());
    EXPECT_EQ(Status().rebuild_total_bytes, kRows * kChunk);
    uint64_t left = Status().rebuild_left_bytes;
    uint64_t looks = 0;
    for (; Status().devices[1].state == DeviceState::kRebuilding && looks < 100; ++looks) {
      const ArrayStatus status = Status();
      EXPECT_EQ(status.rebuild_total_bytes, kRows * kChunk);
      EXPECT_LE(status.rebuild_left_bytes, left);
      EXPECT_EQ(status.rebuild_lost_bytes, 0U);
      left = status.rebuild_left_bytes;
      test_.Sleep(1'000'000);
    }
    EXPECT_GT(looks, 5U);
    EXPECT_LT(looks, 60U);
    expect_none();
  }
}

}  // namespace
}  // namespace eplog
