#include "device/wrappers.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "device/memory_device.h"
#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"
#include "tests/device/device_util.h"

namespace eplog {
namespace {

using test::Await;
using test::Filled;
using test::Holds;
using test::Pool;

constexpr uint64_t kSize = uint64_t{1} << 20;

TEST(CountingDevice, CountsRequestsAndBytes) {
  VirtualLoop loop;
  CountingDevice device(std::make_unique<MemoryDevice>("memory", kSize));
  EXPECT_EQ(device.name(), "memory");
  EXPECT_EQ(device.size_bytes(), kSize);
  ASSERT_TRUE(test::Write(loop, device, 0, Filled(4096, 1)).ok());
  ASSERT_TRUE(test::Write(loop, device, 8192, Filled(12288, 2)).ok());
  ASSERT_TRUE(test::Read(loop, device, 0, Filled(512, 1)).ok());
  ASSERT_TRUE(Await(loop, device.Flush()).ok());
  ASSERT_TRUE(Await(loop, device.Discard(4096, 8192)).ok());
  const DeviceCounters& counters = device.counters();
  EXPECT_EQ(counters.writes, 2U);
  EXPECT_EQ(counters.bytes_written, 16384U);
  EXPECT_EQ(counters.MeanWriteBytes(), 8192.0);
  EXPECT_EQ(counters.writes_by_size[12], 1U);
  EXPECT_EQ(counters.writes_by_size[13], 1U);
  EXPECT_EQ(counters.reads, 1U);
  EXPECT_EQ(counters.bytes_read, 512U);
  EXPECT_EQ(counters.flushes, 1U);
  EXPECT_EQ(counters.discards, 1U);
  EXPECT_EQ(counters.bytes_discarded, 8192U);
  device.Reset();
  EXPECT_EQ(device.counters().writes, 0U);
  EXPECT_EQ(device.counters().MeanWriteBytes(), 0.0);
}

class FaultDeviceTest : public ::testing::Test {
 protected:
  VirtualLoop loop_;
  MemoryDevice memory_{"memory", kSize};
  FaultDevice device_{memory_};
};

TEST_F(FaultDeviceTest, WithoutFaultsItForwards) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 1));
  EXPECT_EQ(device_.requests(), 2U);
  EXPECT_EQ(device_.fired(), 0U);
}

TEST_F(FaultDeviceTest, TheNthRequestOfAKindFailsOnce) {
  device_.Add({.kinds = MaskOf(RequestKind::kWrite), .nth = 3});
  for (uint64_t i = 1; i <= 5; ++i) {
    const Status status = test::Write(loop_, device_, i * 4096, Filled(4096, i));
    EXPECT_TRUE(test::Read(loop_, device_, 0, Filled(4096, 9)).ok());
    ASSERT_EQ(status.ok(), i != 3) << i;
    if (i == 3) {
      EXPECT_EQ(status.error().code, ErrorCode::kIo);
      EXPECT_EQ(status.error().errno_value, EIO);
      EXPECT_EQ(status.error().offset_bytes, 3 * 4096);
      EXPECT_NE(status.error().message.find("memory"), std::string::npos);
    }
  }
  EXPECT_EQ(device_.fired(), 1U);
  EXPECT_FALSE(Holds(loop_, device_, 3 * 4096, 4096, 3)) << "it failed and wrote nothing";
  EXPECT_TRUE(Holds(loop_, device_, 4 * 4096, 4096, 4));
}

TEST_F(FaultDeviceTest, FromThenOn) {
  device_.Add({.kinds = RequestKind::kWrite | RequestKind::kFlush,
               .nth = 2,
               .from_then_on = true,
               .code = ErrorCode::kNoSpace,
               .errno_value = ENOSPC});
  EXPECT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  for (int i = 0; i < 3; ++i) {
    const Status flushed = Await(loop_, device_.Flush());
    ASSERT_FALSE(flushed.ok());
    EXPECT_EQ(flushed.error().code, ErrorCode::kNoSpace);
    EXPECT_EQ(flushed.error().offset_bytes, kNoOffset);
  }
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 1));
  device_.Clear();
  EXPECT_TRUE(Await(loop_, device_.Flush()).ok());
}

TEST_F(FaultDeviceTest, EveryNUntilARunMeetsNone) {
  uint64_t n = 0;
  bool met = true;
  while (met) {
    FaultDevice device(memory_);
    device.Add({.nth = ++n});
    const bool written = test::Write(loop_, device, 0, Filled(4096, 1)).ok();
    const bool flushed = written && Await(loop_, device.Flush()).ok();
    met = device.fired() != 0;
    EXPECT_EQ(flushed, !met) << n;
  }
  EXPECT_EQ(n, 3U);
}

TEST_F(FaultDeviceTest, OnlyWithinItsRange) {
  device_.Add({.kinds = MaskOf(RequestKind::kRead),
               .from_then_on = true,
               .range_offset_bytes = 8192,
               .range_length_bytes = 4096});
  const Buffer one = Filled(4096, 1);
  EXPECT_TRUE(test::Read(loop_, device_, 4096, one).ok());
  EXPECT_TRUE(test::Read(loop_, device_, 12288, one).ok());
  EXPECT_FALSE(test::Read(loop_, device_, 8192, one).ok());
  EXPECT_FALSE(test::Read(loop_, device_, 4096, Filled(8192, 1)).ok());
}

TEST_F(FaultDeviceTest, CorruptReadsAndWritesSucceedWithOneBitWrong) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  device_.Add({.kinds = MaskOf(RequestKind::kRead), .action = Fault::Action::kCorrupt});
  EXPECT_FALSE(Holds(loop_, device_, 0, 4096, 1));
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 1)) << "what is stored is whole";
  device_.Add({.kinds = MaskOf(RequestKind::kWrite), .action = Fault::Action::kCorrupt});
  const Buffer mine = Filled(4096, 2);
  EXPECT_TRUE(test::Write(loop_, device_, 0, mine).ok());
  EXPECT_TRUE(test::Same(mine, Filled(4096, 2))) << "the caller's memory is left alone";
  EXPECT_FALSE(Holds(loop_, device_, 0, 4096, 2));
}

TEST_F(FaultDeviceTest, FailPartlyFailAfterAndDrop) {
  device_.Add({.kinds = MaskOf(RequestKind::kWrite), .action = Fault::Action::kFailPartly});
  EXPECT_FALSE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  const Buffer got = Pool().Get(4096);
  const Buffer sent = Filled(4096, 1);
  ASSERT_TRUE(test::Read(loop_, device_, 0, got).ok());
  EXPECT_EQ(std::memcmp(got.data(), sent.data(), 2048), 0);
  EXPECT_NE(std::memcmp(got.data() + 2048, sent.data() + 2048, 2048), 0);

  device_.Add({.kinds = MaskOf(RequestKind::kWrite), .action = Fault::Action::kFailAfter});
  EXPECT_FALSE(test::Write(loop_, device_, 0, Filled(4096, 2)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 2));

  device_.Add({.kinds = MaskOf(RequestKind::kWrite), .action = Fault::Action::kDrop});
  EXPECT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 3)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 2)) << "it was dropped";
}

TEST_F(FaultDeviceTest, DroppedFlushIsNotForwarded) {
  CountingDevice below(memory_);
  FaultDevice device(below);
  device.Add({.kinds = MaskOf(RequestKind::kFlush), .action = Fault::Action::kDrop});
  EXPECT_TRUE(Await(loop_, device.Flush()).ok());
  EXPECT_EQ(device.fired(), 1U);
  EXPECT_EQ(below.counters().flushes, 0U);
}

TEST_F(FaultDeviceTest, AFailedDeviceFailsEverythingUntilCleared) {
  device_.FailDevice();
  EXPECT_FALSE(test::Read(loop_, device_, 0, Filled(4096, 1)).ok());
  EXPECT_FALSE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  EXPECT_FALSE(Await(loop_, device_.Discard(0, 4096)).ok());
  const Status flushed = Await(loop_, device_.Flush());
  ASSERT_FALSE(flushed.ok());
  EXPECT_EQ(flushed.error().code, ErrorCode::kDeviceFailed);
  device_.Clear();
  EXPECT_TRUE(Await(loop_, device_.Flush()).ok());
}

Task<Status> TwoReadsAtOnce(EventLoop& loop, Device& device, const Buffer& a, const Buffer& b) {
  TaskGroup group(loop);
  group.Start(test::ReadTask(device, 0, a));
  group.Start(test::ReadTask(device, 0, b));
  Task<Status> all = group.Wait();
  co_return co_await all;
}

TEST(DelayDevice, EachKindWaitsItsTimeAndRequestsOverlap) {
  VirtualLoop loop;
  MemoryDevice memory("memory", kSize);
  DelayDevice device(loop, memory, {.read_us = 10, .write_us = 20, .flush_us = 300});
  ASSERT_TRUE(test::Write(loop, device, 0, Filled(4096, 1)).ok());
  EXPECT_EQ(loop.NowUs(), 21U);
  ASSERT_TRUE(Await(loop, TwoReadsAtOnce(loop, device, Filled(4096, 2), Filled(4096, 3))).ok());
  EXPECT_EQ(loop.NowUs(), 31U);
  ASSERT_TRUE(Await(loop, device.Flush()).ok());
  EXPECT_EQ(loop.NowUs(), 331U);
  ASSERT_TRUE(Await(loop, device.Discard(0, 4096)).ok());
  EXPECT_EQ(loop.NowUs(), 331U);
  device.set_delays({});
  ASSERT_TRUE(test::Write(loop, device, 0, Filled(4096, 1)).ok());
  EXPECT_EQ(loop.NowUs(), 331U);
}

}  // namespace
}  // namespace eplog
