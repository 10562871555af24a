// FindLost names just what cannot be read, also where a log device is there and lacks what was
// logged before it joined.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "eplog/report.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 3 * kChunk;
constexpr uint64_t kSize = 100 * kStripe;
constexpr uint32_t kLog = 4;  // of 3+1

ArrayShape Shape() {
  ArrayShape shape = SmallShape(4, 1);
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  return shape;
}

class FindLost : public ::testing::Test {
 protected:
  explicit FindLost(const ArrayShape& shape) : test_(shape) {}
  void ExpectJustWhatCannotBeReadIsNamed(Array& array) {
    std::vector<uint64_t> unreadable;
    const Buffer chunk = test_.pool.Get(kChunk);
    for (uint64_t at = 0; at < kSize; at += kChunk) {
      if (!RunTask(test_.loop, array.Read(volume_, at, chunk.span())).ok()) {
        unreadable.push_back(at);
      }
    }
    EXPECT_GT(unreadable.size(), 3U);
    const auto report = RunTask(test_.loop, array.FindLost());
    ASSERT_TRUE(report.ok());
    std::vector<uint64_t> named;
    for (const LostRange& range : report->ranges) {
      for (uint64_t at = 0; at < range.length_bytes; at += kChunk) {
        named.push_back(range.offset_bytes + at);
      }
    }
    EXPECT_EQ(named, unreadable);
  }

  // All devices but one.
  Result<std::unique_ptr<Array>> OpenByForceWithout(uint32_t device) {
    std::vector<Device*> devices = test_.Devices();
    devices.erase(devices.begin() + device);
    OpenOptions options;
    options.read_only = options.force = true;
    return RunTask(test_.loop, Array::Open(test_.loop, devices, options));
  }

  SmallArray test_;
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{5};
};

// Flushed chunks are pending, and the log device has been replaced by a blank one.
class LogThatJoined : public FindLost {
 protected:
  LogThatJoined() : FindLost(Shape()) {}
  void SetUp() override {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kSize)).ok());
    ASSERT_TRUE(test_.Commit().ok());
    Pend();
    ASSERT_TRUE(test_.Flush().ok());
    ASSERT_TRUE(test_.Checkpoint().ok());
    ASSERT_TRUE(test_.Fail(kLog).ok());
    ASSERT_TRUE(test_.ReplaceByItselfBlank(kLog).ok());
    ASSERT_EQ(test_.State(kLog), DeviceState::kRebuilding);
  }
  virtual void Pend() { Update(0, 60); }
  void Update(uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      const uint64_t at = i * kStripe + i % 3 * kChunk;
      ASSERT_TRUE(test_.Write(volume_, at, RandomBytes(random_, kChunk)).ok());
    }
  }
};

TEST_F(LogThatJoined, AnSsdIsLostWhileTheArrayRuns) {
  Update(60, 70);  // of these the new log device has its part
  ASSERT_TRUE(test_.Flush().ok());
  Fault dead;
  dead.kinds =
      MaskOf(RequestKind::kRead) | MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  dead.from_then_on = true;
  test_.faulty(0).Add(dead);
  static_cast<void>(test_.Write(volume_, 90 * kStripe, RandomBytes(random_, kStripe)));
  ASSERT_EQ(test_.array->GetStatus().state, ArrayState::kFailed);
  ExpectJustWhatCannotBeReadIsNamed(*test_.array);
  test_.Kill();
}

TEST_F(LogThatJoined, AnSsdIsAwayWhenItIsOpenedByForce) {
  test_.Kill();
  auto opened = OpenByForceWithout(0);
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  ExpectJustWhatCannotBeReadIsNamed(**opened);
  EXPECT_TRUE(RunTask(test_.loop, (*opened)->Close()).ok());
}

// Umounting does not wait until it has looked through all.
TEST_F(LogThatJoined, LookingForWhatIsLostEndsWhenTheArrayCloses) {
  test_.Kill();
  auto opened = OpenByForceWithout(0);
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  const uint64_t before = test_.counter(kLog).counters().reads;
  std::optional<Result<LossReport>> report;
  test_.loop.Spawn([](Array& array, auto& found) -> Task<void> {
    Task<Result<LossReport>> finding = array.FindLost();
    found.emplace(co_await finding);
  }(**opened, report));
  EXPECT_TRUE(RunTask(test_.loop, (*opened)->Close()).ok());
  ASSERT_TRUE(report);
  ASSERT_FALSE(report->ok());
  EXPECT_EQ(report->error().code, ErrorCode::kShutdown);
  EXPECT_LE(test_.counter(kLog).counters().reads, before + 1);
}

// Of each log stripe that is pending two chunks are lost.
class PairsLost : public LogThatJoined {
 protected:
  void Pend() override {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    const Geometry& g = superblock->geometry;
    for (uint64_t chunk = 0; chunk + 1 < kSize / kChunk; ++chunk) {
      const bool in_one_stripe = chunk % g.k() + 1 < g.k();
      if (in_one_stripe && g.SsdOf(ChunkIndex(chunk)).value >= 2 &&
          g.SsdOf(ChunkIndex(chunk + 1)).value >= 2) {
        ASSERT_TRUE(test_.Write(volume_, chunk * kChunk, RandomBytes(random_, 2 * kChunk)).ok());
        ++log_stripes_;
      }
    }
  }
  uint64_t log_stripes_ = 0;
};

TEST_F(PairsLost, ALogChunkIsReadOnceForAllThatItBelongsTo) {
  ASSERT_GT(log_stripes_, 10U);
  test_.Kill();
  auto devices = test_.Devices();
  devices.erase(devices.begin() + 2, devices.begin() + 4);
  OpenOptions options;
  options.read_only = options.force = true;
  auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  const uint64_t before = test_.counter(kLog).counters().reads;
  const auto report = RunTask(test_.loop, (*opened)->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_GE(report->lost_bytes, 2 * log_stripes_ * kChunk);
  const uint64_t reads = test_.counter(kLog).counters().reads - before;
  EXPECT_GT(reads, 0U);
  EXPECT_LE(reads, log_stripes_);
  EXPECT_TRUE(RunTask(test_.loop, (*opened)->Close()).ok());
}

// What was on its way to an SSD when it was lost the log has, and the tables name it. By force that
// SSD is read where it helps; what it lacks is named.
class SsdThatFailed : public FindLost {
 protected:
  SsdThatFailed() : FindLost(BufferedShape()) {}
  static ArrayShape BufferedShape() {
    ArrayShape shape = Shape();
    shape.buffers.device_chunks = 64;
    shape.auto_commit = false;
    return shape;
  }
};

TEST_F(SsdThatFailed, WhatItLacksIsNamed) {
  Fault dead;
  dead.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  dead.from_then_on = true;
  test_.faulty(1).Add(dead);
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t at = random_.Below(kSize / kChunk) * kChunk;
    ASSERT_TRUE(test_.Write(volume_, at, RandomBytes(random_, kChunk)).ok());
  }
  ASSERT_TRUE(test_.Flush().ok());
  ASSERT_EQ(test_.State(1), DeviceState::kFailed);
  ASSERT_TRUE(test_.Close().ok());
  test_.faulty(1).Clear();
  auto opened = OpenByForceWithout(2);
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  ExpectJustWhatCannotBeReadIsNamed(**opened);
  EXPECT_EQ(RunTask(test_.loop, (*opened)->FindLost())->unsure, "ssd1");
  EXPECT_TRUE(RunTask(test_.loop, (*opened)->Close()).ok());
}

// One that was away and is back, and has lost meanwhile what it had, before anybody has looked.
class SsdThatReturned : public SsdThatFailed {
 protected:
  void SetUp() override {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kSize)).ok());
    ASSERT_TRUE(test_.Commit().ok());
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t at = random_.Below(kSize / kChunk) * kChunk;
      pending_.insert(at);
      ASSERT_TRUE(test_.Write(volume_, at, RandomBytes(random_, kChunk)).ok());
    }
    ASSERT_TRUE(test_.Flush().ok());
    test_.Kill();
    Open({test_.Devices()[0], test_.Devices()[2], test_.Devices()[3], test_.Devices()[kLog]});
    test_.Kill();
    const auto slots = test_.memory(1).bytes().subspan(test_.SlotsOffsetBytes());
    std::ranges::fill(slots, std::byte{0x5A});
    Open(test_.Devices());
    ASSERT_EQ(test_.State(1), DeviceState::kRebuilding);
  }
  void Open(const std::vector<Device*>& devices) {
    OpenOptions options;
    options.entropy = 50 + devices.size();
    options.auto_commit = false;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  std::set<uint64_t> pending_;
};

TEST_F(SsdThatReturned, WhatItLacksOfTheNewestIsNamedWhenAnotherFails) {
  test_.faulty(0).FailDevice();
  static_cast<void>(test_.Write(volume_, 0, RandomBytes(random_, kChunk)));
  ASSERT_EQ(test_.array->GetStatus().state, ArrayState::kFailed);
  const auto report = RunTask(test_.loop, test_.array->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->unsure, "ssd1");
  std::set<uint64_t> named;
  for (const LostRange& range : report->ranges) {
    for (uint64_t at = 0; at < range.length_bytes; at += kChunk) {
      named.insert(range.offset_bytes + at);
    }
  }
  EXPECT_GT(named.size(), 3U);
  const Buffer chunk = test_.pool.Get(kChunk);
  for (uint64_t at = kStripe; at < kSize; at += kChunk) {
    const bool read = RunTask(test_.loop, test_.array->Read(volume_, at, chunk.span())).ok();
    EXPECT_EQ(named.contains(at), !read && pending_.contains(at)) << at;
  }
  test_.Kill();
}

// However little is pending, the array stops with one loss more than parity can replace; nobody is
// promised another.
TEST(FurtherLosses, AreThoseAfterWhichTheArrayGoesOn) {
  for (uint32_t log = 0; log < 2; ++log) {
    SmallArray test(Shape());
    const VolumeId volume = test.CreateVolume("v", kSize);
    Random random(5);
    ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, kSize)).ok());
    ASSERT_TRUE(test.Commit().ok());
    EXPECT_EQ(test.array->GetStatus().further_log_losses_survived, 1U);
    ASSERT_TRUE(test.Fail(log == 0 ? 0 : kLog).ok());
    EXPECT_EQ(test.array->GetStatus().further_ssd_losses_survived, 0U);
    EXPECT_EQ(test.array->GetStatus().further_log_losses_survived, 0U);
    EXPECT_FALSE(test.Fail(log == 0 ? kLog : 0).ok());
  }
}

}  // namespace
}  // namespace eplog
