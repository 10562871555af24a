// Volumes that change beside those who use them: two who give the same extents back, a flush of
// what is deleted meanwhile, a write that waits for what is being cut off; and closing, which waits
// for nothing to become old.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

class VolumesBeside : public ::testing::Test {
 protected:
  static ArrayShape Shape(const BufferSizes& buffers = {}) {
    ArrayShape shape = SmallShape(4, 1);
    shape.buffers = buffers;
    return shape;
  }
  void Make(const ArrayShape& shape) {
    test_ = std::make_unique<SmallArray>(shape);
    const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    extent_ = superblock->geometry.extent_data_bytes();
    extents_ = superblock->geometry.extents();
  }
  void Start(Task<Status> task, std::optional<Status>& into) {
    test_->loop.Spawn([](Task<Status> inner, std::optional<Status>* out) -> Task<void> {
      *out = co_await inner;
    }(std::move(task), &into));
  }
  void SlowLog(uint64_t write_us) {
    DeviceDelays slow;
    slow.write_us = write_us;
    test_->delayed(4).set_delays(slow);
  }
  // One chunk of it, which tells the extents apart.
  Status Put(VolumeId id, uint64_t extent) {
    const std::vector<std::byte> data(kChunk, ByteOf(extent));
    return test_->Write(id, extent * extent_, data);
  }
  void ExpectPut(VolumeId id, uint64_t extent) {
    EXPECT_EQ(test_->Read(id, extent * extent_, 1).front(), ByteOf(extent)) << extent;
  }
  static std::byte ByteOf(uint64_t extent) { return static_cast<std::byte>(extent % 250 + 1); }
  void ExpectSound() {
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
  }
  uint64_t Allocated(VolumeId id) { return test_->array->GetVolume(id)->allocated_bytes / extent_; }

  std::unique_ptr<SmallArray> test_;
  uint64_t extent_ = 0;  // bytes
  uint64_t extents_ = 0;
};

// Two trims find the same extents wholly inside. By the turn of the second they are free, or of
// another volume that was written meanwhile: they are given back once, and what is another's stays.
TEST_F(VolumesBeside, ExtentsThatTwoGiveBackGoOnce) {
  constexpr uint64_t kStepUs = 200;
  for (uint64_t step = 0; step < 20 && !HasFailure(); ++step) {
    SCOPED_TRACE(step);
    ArrayShape shape = Shape();
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    Make(shape);
    const VolumeId id = test_->CreateVolume("v", 4 * extent_);
    const VolumeId other = test_->CreateVolume("w", 4 * extent_);
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(Put(id, i).ok());
    }
    ASSERT_TRUE(test_->Flush().ok());
    const std::vector<std::byte> data(kChunk, ByteOf(2));
    std::optional<Status> first;
    std::optional<Status> second;
    std::optional<Status> written;
    Start(test_->array->Trim(id, 0, 3 * extent_, TrimMode::kPunch), first);
    Start(test_->array->Trim(id, 0, 2 * extent_, TrimMode::kPunch), second);
    test_->Sleep(step * kStepUs);
    Start(test_->array->Write(other, 2 * extent_, data), written);
    test_->Sleep(10'000'000);
    for (const auto* ended : {&first, &second, &written}) {
      ASSERT_TRUE(*ended);
      EXPECT_TRUE((*ended)->ok()) << (*ended)->error().ToString();
    }
    EXPECT_EQ(Allocated(id), 1U);
    EXPECT_EQ(Allocated(other), 1U);
    ExpectPut(id, 3);
    ExpectPut(other, 2);
    ExpectSound();
    test_->Kill();
  }
}

// Its record and what lies in buffers are on their way at once. Nobody is told that something is
// durable which is gone.
TEST_F(VolumesBeside, AFlushOfWhatIsDeletedMeanwhileFindsNoVolume) {
  Make(Shape({.device_chunks = 16, .stripes = 16}));
  const VolumeId id = test_->CreateVolume("v", 4 * extent_);
  ASSERT_TRUE(Put(id, 0).ok());
  ASSERT_TRUE(test_->Flush().ok());
  const uint64_t free = test_->array->GetStatus().free_bytes + extent_;
  SlowLog(1'000'000);
  ASSERT_TRUE(Put(id, 0).ok()) << "in RAM";
  std::optional<Status> deleted;
  std::optional<Status> flushed;
  Start(test_->array->DeleteVolume(id), deleted);
  test_->Sleep(1000);
  Start(test_->array->Flush(id, 0, kChunk), flushed);
  test_->Sleep(1000);
  EXPECT_FALSE(deleted || flushed);
  test_->Sleep(60'000'000);
  ASSERT_TRUE(deleted && flushed);
  EXPECT_TRUE(deleted->ok());
  ASSERT_FALSE(flushed->ok());
  EXPECT_EQ(flushed->error().code, ErrorCode::kNotFound);
  EXPECT_EQ(test_->array->GetStatus().free_bytes, free);
  SlowLog(0);
  ExpectSound();
}

// The record that lets go of extents is applied before it is durable, and they count as free from
// then on: whoever needs one in between waits for it.
TEST_F(VolumesBeside, WhatARecordHasLetGoOfIsWaitedForBeforeThatIsDurable) {
  Make(Shape());
  const VolumeId gone = test_->CreateVolume("gone", extent_);
  const VolumeId grows = test_->CreateVolume("grows", 2 * extents_ * extent_);
  ASSERT_TRUE(Put(gone, 0).ok());
  for (uint64_t i = 1; i < extents_; ++i) {
    ASSERT_TRUE(Put(grows, i).ok()) << i;
  }
  ASSERT_TRUE(test_->Flush().ok());
  ASSERT_EQ(test_->array->GetStatus().free_bytes, 0U);
  DeviceDelays slow;
  slow.flush_us = 1'000'000;
  test_->delayed(4).set_delays(slow);
  std::optional<Status> deleted;
  Start(test_->array->DeleteVolume(gone), deleted);
  test_->Sleep(10'000);
  ASSERT_FALSE(deleted);
  ASSERT_EQ(test_->array->GetStatus().free_bytes, extent_) << "it is applied";
  const std::vector<std::byte> data(kChunk, ByteOf(0));
  std::optional<Status> written;
  Start(test_->array->Write(grows, 0, data), written);
  test_->Sleep(60'000'000);
  ASSERT_TRUE(deleted && written);
  EXPECT_TRUE(deleted->ok());
  EXPECT_TRUE(written->ok()) << written->error().ToString();
  ExpectPut(grows, 0);
  ExpectSound();
}

// On a full array room comes back piece by piece while a volume is cut off. Who writes meanwhile
// waits for it, and is told that there is none only when nothing more comes.
TEST_F(VolumesBeside, WhatIsBeingCutOffIsWaitedForToTheLast) {
  Make(Shape());
  const VolumeId cut = test_->CreateVolume("cut", 2 * extents_ * extent_);
  const VolumeId grows = test_->CreateVolume("grows", 2 * extents_ * extent_);
  for (uint64_t i = 0; i < extents_; ++i) {
    ASSERT_TRUE(Put(i % 2 == 0 ? cut : grows, i).ok()) << i;
  }
  ASSERT_EQ(Put(grows, extents_).error().code, ErrorCode::kNoSpace);
  SlowLog(10'000);
  std::optional<Status> ended;
  Start(test_->array->ResizeVolume(cut, 1), ended);
  test_->Sleep(100'000);
  ASSERT_FALSE(ended);
  const uint64_t room = (extents_ + 1) / 2 - 1;  // but for the first extent
  EXPECT_EQ(test_->array->GetStatus().free_bytes, room * extent_);
  const std::vector<std::byte> data(kChunk, std::byte{77});
  std::vector<std::optional<Status>> written(room + 1);
  for (uint64_t i = 0; i < written.size(); ++i) {
    Start(test_->array->Write(grows, (extents_ + i) * extent_, data), written[i]);
  }
  test_->Sleep(60'000'000);
  ASSERT_TRUE(ended && ended->ok());
  uint64_t refused = 0;
  for (uint64_t i = 0; i < written.size(); ++i) {
    ASSERT_TRUE(written[i]) << i;
    if (written[i]->ok()) {
      EXPECT_EQ(test_->Read(grows, (extents_ + i) * extent_, kChunk), data) << i;
    } else {
      EXPECT_EQ(written[i]->error().code, ErrorCode::kNoSpace);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1U);
  EXPECT_EQ(test_->array->GetStatus().free_bytes, 0U);
  ExpectPut(cut, 0);
  SlowLog(0);
}

// Whoever closes does not wait until what lies in buffers is old; it is in the log all the same.
TEST_F(VolumesBeside, ClosingTakesWhatIsYoungInBuffers) {
  Make(Shape({.device_chunks = 16, .stripes = 16}));
  const VolumeId id = test_->CreateVolume("v", 8 * extent_);
  ASSERT_TRUE(test_->Write(id, 0, std::vector<std::byte>(extent_, std::byte{9})).ok());
  ASSERT_TRUE(test_->Flush().ok());
  const uint64_t logged = test_->array->GetStatus().traffic.log_stripe_members;
  ASSERT_TRUE(Put(id, 0).ok());  // an update
  ASSERT_TRUE(Put(id, 5).ok());  // of what was never written
  test_->Sleep(1000);
  EXPECT_EQ(test_->array->GetStatus().traffic.log_stripe_members, logged) << "they are in RAM";
  const uint64_t begun_us = test_->loop.NowUs();
  ASSERT_TRUE(test_->Close().ok());
  EXPECT_LT(test_->loop.NowUs() - begun_us, 1'000'000U) << "the devices take no time";
  test_->Open();
  ExpectPut(id, 0);
  ExpectPut(id, 5);
}

}  // namespace
}  // namespace eplog
