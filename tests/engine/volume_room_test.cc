// The room of what was deleted or cut off: it counts as free at once, can be written again whatever
// crash came in between, and neither closing nor deleting takes long for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

class VolumeRoom : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{8} << 20;
    shape.log_delays = kLogDelays;
    return shape;
  }
  // Each has every second extent, so that its room comes back in many pieces.
  void FillBoth() {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    extent_ = superblock->geometry.extent_data_bytes();
    extents_ = superblock->geometry.extents();
    first_ = test_.CreateVolume("first", 2 * extents_ * extent_);
    second_ = test_.CreateVolume("second", 2 * extents_ * extent_);
    for (uint64_t i = 0; i < extents_; ++i) {
      ASSERT_TRUE(Put(i % 2 == 0 ? first_ : second_, i).ok()) << i;
    }
    EXPECT_EQ(test_.array->GetStatus().free_bytes, 0U);
    EXPECT_EQ(test_.array->GetStatus().allocated_bytes, extents_ * extent_);
    EXPECT_EQ(Put(second_, extents_).error().code, ErrorCode::kNoSpace);
  }
  Status Put(VolumeId id, uint64_t extent) {
    const std::vector<std::byte> data(kChunk, static_cast<std::byte>(extent % 250 + 1));
    return test_.Write(id, extent * extent_, data);
  }
  // Just so much can be written, and no more.
  void ExpectRoomFor(uint64_t extents) {
    EXPECT_EQ(test_.array->GetStatus().free_bytes, extents * extent_);
    for (uint64_t i = 0; i < extents; ++i) {
      const Status put = Put(second_, extents_ + i);
      ASSERT_TRUE(put.ok()) << i << ": " << put.error().ToString();
    }
    EXPECT_EQ(Put(second_, extents_ + extents).error().code, ErrorCode::kNoSpace);
    for (uint64_t i = 1; i < extents_; i += 2) {
      ASSERT_EQ(test_.Read(second_, i * extent_, 1).front(), static_cast<std::byte>(i % 250 + 1));
    }
  }
  uint64_t half() const { return (extents_ + 1) / 2; }
  void SlowLog() {
    DeviceDelays slow = kLogDelays;
    slow.write_us = 10'000;
    test_.delayed(4).set_delays(slow);
  }

  TestArray test_{Shape()};
  uint64_t extent_ = 0;
  uint64_t extents_ = 0;
  VolumeId first_;
  VolumeId second_;
};

TEST_F(VolumeRoom, OfADeletedOneIsWrittenAgainAtOnce) {
  FillBoth();
  SlowLog();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(first_)).ok());
  ExpectRoomFor(half());
}

TEST_F(VolumeRoom, OfOneThatWasReplacedIsWrittenAgainAtOnce) {
  FillBoth();
  SlowLog();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->RenameVolume(second_, "first", true)).ok());
  EXPECT_EQ(test_.array->Volumes().size(), 1U);
  ExpectRoomFor(half());
}

// Killed while its extents go back one by one: the next life goes on with it.
TEST_F(VolumeRoom, ComesBackOverAKill) {
  FillBoth();
  SlowLog();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(first_)).ok());
  test_.Sleep(500'000);
  test_.Kill();
  test_.Open(true);
  EXPECT_EQ(test_.array->GetStatus().free_bytes, half() * extent_) << "also to who only looks";
  EXPECT_EQ(test_.array->Volumes().size(), 1U);
  ASSERT_TRUE(test_.Close().ok());
  test_.delayed(4).set_delays(kLogDelays);
  test_.Open();
  ExpectRoomFor(half());
}

TEST_F(VolumeRoom, OfAHiddenOneComesBackInTheNextLife) {
  FillBoth();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->HideVolume(first_)).ok());
  EXPECT_EQ(test_.array->GetStatus().free_bytes, 0U) << "somebody may use it still";
  test_.Kill();
  test_.Open();
  test_.Sleep(60'000'000);
  ExpectRoomFor(half());
}

TEST_F(VolumeRoom, OfWhatWasCutOffComesBackOverAKill) {
  FillBoth();
  SlowLog();
  bool done = false;
  test_.loop.Spawn([](Array& array, VolumeId id, bool& ended) -> Task<void> {
    Task<Status> cutting = array.ResizeVolume(id, 1);
    static_cast<void>(co_await cutting);
    ended = true;
  }(*test_.array, first_, done));
  test_.Sleep(500'000);
  EXPECT_FALSE(done);
  EXPECT_EQ(test_.array->GetStatus().free_bytes, (half() - 1) * extent_);
  test_.Kill();
  test_.delayed(4).set_delays(kLogDelays);
  test_.Open();
  EXPECT_EQ(test_.array->GetVolume(first_)->size_bytes, 1U);
  ExpectRoomFor(half() - 1);
  EXPECT_EQ(test_.Read(first_, 0, 1).front(), std::byte{1});
}

// Who waits for room that is on its way back is told that the array closes, not that it is full;
// what has not come back yet does so in the next life.
TEST_F(VolumeRoom, IsNotWaitedForByWhoCloses) {
  FillBoth();
  SlowLog();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(first_)).ok());
  const std::vector<std::byte> data(kChunk, std::byte{1});
  std::vector<Status> written;
  for (uint64_t i = 0; i < 4; ++i) {
    test_.loop.Spawn([](Array& array, VolumeId id, uint64_t at, std::span<const std::byte> from,
                        std::vector<Status>& outcomes) -> Task<void> {
      Task<Status> writing = array.Write(id, at, from);
      outcomes.push_back(co_await writing);
    }(*test_.array, second_, (extents_ + i) * extent_, data, written));
  }
  test_.Sleep(1);
  const uint64_t begun_us = test_.loop.NowUs();
  ASSERT_TRUE(test_.Close().ok());
  EXPECT_LT(test_.loop.NowUs() - begun_us, 500'000U) << "one piece takes 10 ms, and all 4 s";
  ASSERT_EQ(written.size(), 4U);
  uint64_t taken = 0;
  for (const Status& status : written) {
    taken += status.ok() ? 1 : 0;
    EXPECT_TRUE(status.ok() || status.error().code == ErrorCode::kShutdown)
        << status.error().ToString();
  }
  EXPECT_LT(taken, 4U);
  test_.delayed(4).set_delays(kLogDelays);
  test_.Open();
  EXPECT_EQ(test_.array->GetStatus().free_bytes, (half() - taken) * extent_);
  uint64_t room = 0;
  while (Put(second_, extents_ + 4 + room).ok()) {
    ++room;
  }
  EXPECT_EQ(room, half() - taken);
}

// What lies side by side goes in a few entries, not one for each extent, in whichever order it was
// written.
class VolumeEntries : public ::testing::TestWithParam<bool> {};

TEST_P(VolumeEntries, ALargeVolumeGoesInAFew) {
  ArrayShape shape;
  shape.auto_commit = false;
  TestArray test(shape);
  const VolumeId id = test.CreateVolume("v", 48 << 20);
  const std::vector<std::byte> data(1 << 16, std::byte{1});
  constexpr uint64_t kPieces = (48 << 20) >> 16;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t at = (GetParam() ? kPieces - 1 - i : i) * data.size();
    ASSERT_TRUE(test.Write(id, at, data).ok());
  }
  const auto appends = [&] { return test.array->GetStatus().traffic.log_appends; };
  const uint64_t before = appends();
  ASSERT_TRUE(RunTask(test.loop, test.array->ResizeVolume(id, 32 << 20)).ok());
  const uint64_t cut = appends();
  EXPECT_LE(cut - before, 6U);
  ASSERT_TRUE(RunTask(test.loop, test.array->DeleteVolume(id)).ok());
  test.Sleep(1'000'000);
  EXPECT_LE(appends() - cut, 8U);
  EXPECT_EQ(test.array->GetStatus().allocated_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(Backwards, VolumeEntries, ::testing::Bool());

// The zeros behind the new end are in the log before the volume may grow again, also where writes
// lie in buffers: a crash leaves no old content there.
TEST(VolumeEnd, WhatWasCutOffIsZeroOverAKillAlsoWithBuffers) {
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{8} << 20;
  shape.log_bytes = uint64_t{8} << 20;
  shape.buffers = {.device_chunks = 64, .stripes = 64};
  for (const uint64_t end : {uint64_t{100}, 5 * kChunk - 1, 7 * kChunk, 13 * kChunk + 2048}) {
    SCOPED_TRACE(end);
    TestArray test(shape);
    const VolumeId id = test.CreateVolume("v", 40 * kChunk);
    std::vector<std::byte> model(40 * kChunk, std::byte{0x5A});
    ASSERT_TRUE(test.Write(id, 0, model).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->ResizeVolume(id, end)).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->ResizeVolume(id, 40 * kChunk)).ok());
    std::fill(model.begin() + static_cast<std::ptrdiff_t>(end), model.end(), std::byte{0});
    EXPECT_TRUE(test.Read(id, 0, model.size()) == model);
    test.Kill();
    test.Open();
    EXPECT_TRUE(test.Read(id, 0, model.size()) == model);
  }
}

}  // namespace
}  // namespace eplog
