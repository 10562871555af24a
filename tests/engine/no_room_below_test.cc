// A device finds no space for what it should keep: that is no loss of the device. The array stops,
// and until it does nobody is told that what it should keep is kept.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kFull = 1;  // the SSD without space
constexpr uint64_t kSlowUs = 1'000'000;
constexpr uint64_t kStripe = (kSsdCount - 1) * 4096;

class NoRoomBelow : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, 1);
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  static ArrayShape Buffering(uint32_t chunks_an_ssd) {
    ArrayShape shape = Shape();
    shape.buffers.device_chunks = chunks_an_ssd;
    return shape;
  }
  VolumeId WrittenVolume(SmallArray& test, uint64_t size) {
    const VolumeId volume = test.CreateVolume("v", size);
    EXPECT_TRUE(test.Write(volume, 0, RandomBytes(random_, size)).ok());
    EXPECT_TRUE(test.Flush().ok());
    return volume;
  }
  // `out` outlives the array.
  static void Start(SmallArray& test, Task<Status> task, std::optional<Status>& out) {
    test.loop.Spawn([](Task<Status> running, std::optional<Status>* into) -> Task<void> {
      *into = co_await running;
    }(std::move(task), &out));
  }
  void SetDelaysOfOthers(const DeviceDelays& delays) {
    for (uint32_t i = 0; i <= kSsdCount; ++i) {
      if (i != kFull) {
        test_.delayed(i).set_delays(delays);
      }
    }
  }

  std::optional<Status> checkpointed_;  // before the array, in which it is written
  SmallArray test_{Shape()};
  Random random_{1};
};

// A checkpoint's flushes are on their way: one has found no space, and one that takes long keeps the
// array from stopping. Who flushes meanwhile may need just the former.
TEST_F(NoRoomBelow, AFlushBesideOneThatFailedIsNotAcknowledged) {
  constexpr uint64_t kChunks = 16;
  DeviceDelays slow = kSsdDelays;
  slow.flush_us = kSlowUs;
  int beside = 0;
  for (uint64_t round = 0; round < kSsdCount * kChunks; ++round) {
    const auto late = static_cast<uint32_t>(round / kChunks);
    if (late == kFull) {
      continue;
    }
    std::optional<Status> checkpointed;
    SmallArray test(Shape());
    const VolumeId volume = WrittenVolume(test, kChunks * 4096);
    test.delayed(late).set_delays(slow);
    test.faulty(kFull).Add({.kinds = MaskOf(RequestKind::kFlush), .code = ErrorCode::kNoSpace});
    Start(test, test.array->Checkpoint(CheckpointKind::kFull), checkpointed);
    for (int i = 0; i < 100'000 && test.array->GetStatus().devices[kFull].write_errors == 0; ++i) {
      test.Sleep(10);
    }
    ASSERT_EQ(test.array->GetStatus().devices[kFull].write_errors, 1U);
    if (checkpointed) {
      test.Kill();
      continue;  // it did not need the slow one
    }
    const uint64_t before = test.array->GetStatus().devices[kFull].bytes_written;
    const Status written = test.Write(volume, round % kChunks * 4096, RandomBytes(random_, 4096));
    const bool there = test.array->GetStatus().devices[kFull].bytes_written != before;
    const bool flushed = written.ok() && test.Flush().ok();
    beside += there && !checkpointed ? 1 : 0;
    // What lies elsewhere may well be stable.
    EXPECT_FALSE(there && flushed) << "ssd" << late << " is slow, chunk " << round % kChunks;
    test.Sleep(2 * kSlowUs);
    ASSERT_TRUE(checkpointed);
    EXPECT_FALSE(checkpointed->ok());
    const ArrayStatus status = test.array->GetStatus();
    EXPECT_EQ(status.state, ArrayState::kFailed);
    EXPECT_EQ(status.devices[kFull].state, DeviceState::kOk);
    test.Kill();
  }
  EXPECT_GT(beside, 0) << "all waited for the slow one";
}

// A write over what lay in a buffer was applied, and what came behind it in the log found no space:
// the array stops before who wrote hears of it.
TEST_F(NoRoomBelow, WhatWasOverwrittenIsNotReadFromABuffer) {
  std::optional<Status> written;
  SmallArray test(Buffering(8));
  const VolumeId volume = WrittenVolume(test, 4 * kStripe);
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random_, 4096)).ok());
  const std::vector<std::byte> newest = RandomBytes(random_, kStripe);
  DeviceDelays slow = kSsdDelays;
  slow.write_us = kSlowUs;
  const auto set_delays = [&](const DeviceDelays& delays) {
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      test.delayed(i).set_delays(delays);
    }
  };
  set_delays(slow);
  Start(test, test.array->Write(volume, 0, newest), written);
  test.Sleep(kSlowUs / 10);
  set_delays(kSsdDelays);
  test.faulty(kSsdCount).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  EXPECT_FALSE(RunTask(test.loop, test.array->CreateVolume("w", 4096)).ok());
  ASSERT_TRUE(written.has_value());
  EXPECT_TRUE(written->ok());
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  EXPECT_TRUE(test.Read(volume, 0, kStripe) == newest);
  test.Kill();
}

// Buffers are full, and a write has just got an extent when the array stops: nothing is drained any
// more, and nobody would wake who waits for room in them.
TEST_F(NoRoomBelow, WhoComesToFullBuffersOfAnArrayThatStoppedIsRefused) {
  std::optional<Status> first;   // to an extent of its own
  std::optional<Status> second;  // an entry behind it, which fails
  // As many as there is room for, with those that are on their way to the log.
  std::vector<std::optional<Status>> buffered(kSsdCount + 4 * kSsdCount);
  SmallArray test(Buffering(1));
  const VolumeId volume = WrittenVolume(test, 12 * kStripe);
  const VolumeId other = test.CreateVolume("w", 4 * kStripe);
  ASSERT_TRUE(test.Flush().ok());
  const std::vector<std::byte> chunk = RandomBytes(random_, 4096);
  DeviceDelays slow = kLogDelays;
  slow.write_us = kSlowUs;
  test.delayed(kSsdCount).set_delays(slow);
  Start(test, test.array->Write(other, 0, chunk), first);
  test.Sleep(kSlowUs / 10);
  test.delayed(kSsdCount).set_delays(kLogDelays);
  test.faulty(kSsdCount).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  Start(
      test,
      [](Array* array) -> Task<Status> {
        Task<Result<VolumeId>> creating = array->CreateVolume("x", 4096);
        const Result<VolumeId> created = co_await creating;
        co_return created.ok() ? OkStatus() : Status(eplog::Fail(created.error()));
      }(test.array.get()),
      second);
  test.Sleep(1000);
  for (uint64_t i = 0; i < buffered.size(); ++i) {
    Start(test, test.array->Write(volume, i * 4096, chunk), buffered[i]);
  }
  test.Sleep(1000);
  EXPECT_TRUE(buffered.back().has_value());
  ASSERT_FALSE(first.has_value());
  test.Sleep(10 * kSlowUs);
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->ok());
  ASSERT_TRUE(first.has_value()) << "it waits for ever";
  EXPECT_FALSE(first->ok());
  test.Kill();
}

// It was written over half: until it is whole the other copy alone says what the device is.
TEST_F(NoRoomBelow, ASuperblockThatAScrubCannotMendStopsTheArray) {
  ASSERT_TRUE(test_.Flush().ok());
  const auto copy = [this](size_t which) {
    return test_.memory(kFull).bytes().subspan(kSuperblockCopyOffset[which], kSuperblockCopyBytes);
  };
  const auto generation = [&](size_t which) {
    const auto superblock = DecodeSuperblock(copy(which));
    return superblock.ok() ? superblock->generation : 0;
  };
  const size_t older = generation(0) < generation(1) ? 0 : 1;
  const uint64_t newest = generation(1 - older);
  copy(older)[200] ^= std::byte{1};
  test_.faulty(kFull).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  EXPECT_FALSE(RunTask(test_.loop, test_.array->Scrub(true, Progress())).ok());
  EXPECT_EQ(test_.array->GetStatus().state, ArrayState::kFailed);
  const Status after = RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull));
  EXPECT_FALSE(after.ok());
  EXPECT_EQ(generation(1 - older), newest);
  test_.Kill();
  test_.Open();
  EXPECT_NE(test_.array->GetStatus().state, ArrayState::kDegraded);
}

// A device has all that it lacked, and that is being written down when the array stops: it never
// will be, and in the next life it is not ok. Whichever request finds no space.
TEST_F(NoRoomBelow, WhoWasAboutToBeOkIsNotCalledThat) {
  uint64_t met = 0;
  ArrayShape shape = Shape();
  shape.journal = JournalMode::kLog;  // the rings are filled before
  for (const uint32_t replaced : {0U, kSsdCount}) {
    for (const RequestMask kinds : {MaskOf(RequestKind::kWrite), MaskOf(RequestKind::kFlush)}) {
      for (uint64_t nth = 1;; ++nth) {
        SmallArray test(shape);
        WrittenVolume(test, 4 * kStripe);
        ASSERT_TRUE(test.Fail(replaced).ok());
        test.faulty(kFull).Add({.kinds = kinds, .nth = nth, .code = ErrorCode::kNoSpace});
        static_cast<void>(test.ReplaceByItselfBlank(replaced));
        test.Sleep(60'000'000);
        const bool ok = test.State(replaced) == DeviceState::kOk;
        const bool struck = test.faulty(kFull).fired() != 0;
        EXPECT_TRUE(ok || struck);
        test.Kill();
        if (!struck) {
          break;
        }
        ++met;
        auto opened = test.TryOpen();  // refused if it is nobody yet
        const bool counts =
            opened.ok() && (*opened)->GetStatus().devices[replaced].state == DeviceState::kOk;
        EXPECT_TRUE(!ok || counts) << replaced << ", kinds " << kinds << ", request " << nth;
        test.loop.Abort();
      }
    }
  }
  EXPECT_GT(met, 20U);
}

}  // namespace
}  // namespace eplog
