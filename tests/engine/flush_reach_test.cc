// How far a flush of a range reaches: to everything in it, and to nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 3 * kChunk;

class FlushReach : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{64} << 20;
    shape.auto_commit = false;
    return shape;
  }
  void SetUp() override {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    extent_ = superblock->geometry.extent_data_bytes();
    ASSERT_GE(extent_, 2 * kStripe);
    // Backwards, so that no place in the volume is where it lies on the array.
    for (uint64_t i = kExtents; i-- > 0;) {
      ASSERT_TRUE(
          test_.Write(volume_, i * extent_, std::vector<std::byte>(extent_, std::byte{1})).ok());
    }
    FlushAll();
  }
  void FlushAll() { ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok()); }
  void Flush(uint64_t offset, uint64_t length) {
    const Status flushed = RunTask(test_.loop, test_.array->Flush(volume_, offset, length));
    ASSERT_TRUE(flushed.ok()) << flushed.error().ToString();
  }
  bool ReachesDevices(uint64_t offset, uint64_t length) {
    const uint64_t before = test_.counter(4).counters().flushes;
    Flush(offset, length);
    return test_.counter(4).counters().flushes != before;
  }
  void Put(uint64_t chunk) {
    const std::vector<std::byte> data(kChunk, static_cast<std::byte>(chunk));
    ASSERT_TRUE(test_.Write(volume_, chunk * kChunk, data).ok());
  }
  uint64_t Logged() { return test_.array->GetStatus().traffic.log_stripe_members; }

  static constexpr uint64_t kExtents = 8;
  TestArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", uint64_t{1} << 20);
  uint64_t extent_ = 0;
};

// Extents remember what was written to them last: where all of that is durable, no device is asked.
TEST_F(FlushReach, OfWhatIsDurableAsksNoDevice) {
  for (uint64_t dirty = 0; dirty < kExtents; ++dirty) {
    SCOPED_TRACE(dirty);
    Put(dirty * extent_ / kChunk + 1);
    const uint64_t begin = dirty * extent_;
    const uint64_t end = begin + extent_;
    EXPECT_FALSE(ReachesDevices(0, begin));
    EXPECT_FALSE(ReachesDevices(end, kExtents * extent_ - end));
    EXPECT_FALSE(ReachesDevices(end, UINT64_MAX));
    EXPECT_FALSE(ReachesDevices(end, extent_));
    EXPECT_FALSE(dirty != 0 && ReachesDevices(begin - 1, 1));
    EXPECT_TRUE(ReachesDevices(end - 1, 1));
    EXPECT_FALSE(ReachesDevices(0, UINT64_MAX)) << "it is durable now";
    Put(dirty * extent_ / kChunk);
    EXPECT_TRUE(ReachesDevices(begin, 1));
    Put(dirty * extent_ / kChunk);
    EXPECT_TRUE(ReachesDevices(begin == 0 ? 0 : begin - 1, 2));
    Put(dirty * extent_ / kChunk);
    EXPECT_TRUE(ReachesDevices(0, UINT64_MAX));
  }
}

// An extent that is gone says nothing of when it went, so the volume does, wherever the range lies.
TEST_F(FlushReach, OfAVolumeOfWhichExtentsWentReachesDevices) {
  const auto punch = [this](uint64_t offset, uint64_t length) {
    ASSERT_TRUE(
        RunTask(test_.loop, test_.array->Trim(volume_, offset, length, TrimMode::kPunch)).ok());
  };
  const VolumeId other = test_.CreateVolume("other", extent_);
  ASSERT_TRUE(test_.Write(other, 0, std::vector<std::byte>(kChunk, std::byte{1})).ok());
  FlushAll();
  punch(2 * extent_, extent_);
  const uint64_t before = test_.counter(4).counters().flushes;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Flush(other, 0, UINT64_MAX)).ok());
  EXPECT_EQ(test_.counter(4).counters().flushes, before) << "another volume's";
  EXPECT_TRUE(ReachesDevices(2 * extent_, extent_));
  EXPECT_FALSE(ReachesDevices(0, UINT64_MAX)) << "it is durable now";
  punch(4 * extent_, 2 * extent_);
  Put(0);
  EXPECT_TRUE(ReachesDevices(extent_, extent_));
  punch(0, kExtents * extent_);
  EXPECT_TRUE(ReachesDevices(0, UINT64_MAX));
  EXPECT_FALSE(ReachesDevices(0, UINT64_MAX));
}

// A range may go beyond the volume's end, or begin there: what is inside counts.
TEST_F(FlushReach, EndsWhereTheVolumeEnds) {
  const uint64_t size = test_.array->GetVolume(volume_)->size_bytes;
  const uint64_t last = size / kChunk - 1;
  Put(last);
  EXPECT_FALSE(ReachesDevices(size, 1));
  EXPECT_FALSE(ReachesDevices(size + 12345, UINT64_MAX));
  EXPECT_FALSE(ReachesDevices(UINT64_MAX, UINT64_MAX));
  EXPECT_TRUE(ReachesDevices(size - 1, UINT64_MAX));
  Put(last);
  EXPECT_TRUE(ReachesDevices(size - 1, 1));
}

// To the byte: chunks of which the range has any go to the log, their neighbours go on absorbing.
TEST_F(FlushReach, TakesJustItsChunksOutOfTheBuffers) {
  ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = 256, .stripes = 0}).ok());
  const std::set<uint64_t> places = {0,
                                     1,
                                     kChunk - 1,
                                     kChunk,
                                     2 * kChunk,
                                     kStripe - 1,
                                     kStripe,
                                     kStripe + 1,
                                     extent_ - kChunk,
                                     extent_ - 1,
                                     extent_,
                                     extent_ + kChunk,
                                     2 * extent_ - 1,
                                     2 * extent_,
                                     2 * extent_ + kStripe + 5};
  const uint64_t chunks = 3 * extent_ / kChunk;
  for (const uint64_t from : places) {
    for (const uint64_t to : places) {
      if (from >= to) {
        continue;
      }
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      uint64_t inside = 0;
      uint64_t all = 0;
      for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
        if (chunk % 3 != 2) {  // never all of a stripe
          Put(chunk);
          ++all;
          inside += chunk * kChunk < to && (chunk + 1) * kChunk > from ? 1 : 0;
        }
      }
      const uint64_t before = Logged();
      Flush(from, to - from);
      EXPECT_EQ(Logged() - before, inside);
      FlushAll();
      EXPECT_EQ(Logged() - before, all);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Killed right after it.
TEST_F(FlushReach, WhatItCoveredSurvives) {
  for (const uint32_t buffered : {0U, 64U}) {
    for (uint64_t extent = 0; extent < kExtents; ++extent) {
      ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = buffered, .stripes = 0}).ok());
      const uint64_t chunk = extent * extent_ / kChunk + extent % (extent_ / kChunk);
      const std::vector<std::byte> data(kChunk, static_cast<std::byte>(0x80 + extent + buffered));
      ASSERT_TRUE(test_.Write(volume_, chunk * kChunk, data).ok());
      Flush(chunk * kChunk + kChunk / 2, 1);
      test_.Kill();
      test_.Open();
      EXPECT_TRUE(test_.Read(volume_, chunk * kChunk, kChunk) == data) << chunk;
    }
  }
}

}  // namespace
}  // namespace eplog
