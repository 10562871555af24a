#include "device/memory_device.h"

#include <gtest/gtest.h>

#include <array>

#include "runtime/virtual_loop.h"
#include "tests/device/device_util.h"

namespace eplog {
namespace {

using test::Filled;
using test::Holds;
using test::Pool;

constexpr uint64_t kSize = uint64_t{1} << 20;

class MemoryDeviceTest : public ::testing::Test {
 protected:
  VirtualLoop loop_;
  MemoryDevice device_{"memory", kSize};
};

TEST_F(MemoryDeviceTest, ReadsBackWhatWasWrittenAndZerosElsewhere) {
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(8192, 1)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 4096, 8192, 1));
  const Buffer rest = Filled(4096, 2);
  ASSERT_TRUE(test::Read(loop_, device_, 0, rest).ok());
  EXPECT_TRUE(test::Same(rest, Pool().GetZeroed(4096)));
}

Task<Status> ScatterGather(Device& device, std::span<const iovec> out, std::span<const iovec> in) {
  Task<Status> write = device.Write(512, out);
  Status written = co_await write;
  EPLOG_CO_TRY(written);
  Task<Status> read = device.Read(512, in);
  co_return co_await read;
}

TEST_F(MemoryDeviceTest, PartsFollowEachOther) {
  const Buffer whole = Filled(4096, 3);
  const Buffer back = Pool().GetZeroed(4096);
  const std::array<iovec, 3> out{iovec{whole.data(), 512}, iovec{whole.data() + 512, 3072},
                                 iovec{whole.data() + 3584, 512}};
  const std::array<iovec, 2> in{iovec{back.data(), 2048}, iovec{back.data() + 2048, 2048}};
  ASSERT_TRUE(test::Await(loop_, ScatterGather(device_, out, in)).ok());
  EXPECT_TRUE(test::Same(whole, back));
}

TEST_F(MemoryDeviceTest, PastTheEndIsAnErrorWithItsOffset) {
  const Buffer buffer = Filled(8192, 1);
  for (const uint64_t offset : {kSize - 4096, kSize, kSize + 4096, UINT64_MAX - 4095}) {
    const Status read = test::Read(loop_, device_, offset, buffer);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kIo);
    EXPECT_EQ(read.error().offset_bytes, static_cast<int64_t>(offset));
    EXPECT_NE(read.error().message.find("memory"), std::string::npos);
    EXPECT_FALSE(test::Write(loop_, device_, offset, buffer).ok());
    EXPECT_FALSE(test::Await(loop_, device_.Discard(offset, 8192)).ok());
  }
  EXPECT_TRUE(test::Write(loop_, device_, kSize - 8192, buffer).ok());
}

TEST_F(MemoryDeviceTest, UnalignedRequestsAreRefused) {
  const Buffer buffer = Filled(4096, 1);
  const std::array<iovec, 3> bad{iovec{buffer.data(), 100}, iovec{buffer.data() + 8, 512},
                                 iovec{buffer.data() + 512, 513}};
  for (const iovec& part : bad) {
    const Status status = test::Await(loop_, device_.Write(0, std::span(&part, 1)));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  const iovec good{buffer.data(), 512};
  EXPECT_FALSE(test::Await(loop_, device_.Write(100, std::span(&good, 1))).ok());
  EXPECT_TRUE(test::Await(loop_, device_.Write(512, std::span(&good, 1))).ok());
}

TEST_F(MemoryDeviceTest, DiscardKeepsWhatLiesAround) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(65536, 5)).ok());
  ASSERT_TRUE(test::Await(loop_, device_.Discard(8192 + 512, 16384)).ok());
  const Buffer got = Pool().Get(65536);
  ASSERT_TRUE(test::Read(loop_, device_, 0, got).ok());
  const Buffer was = Filled(65536, 5);
  EXPECT_EQ(std::memcmp(got.data(), was.data(), 8192 + 512), 0);
  EXPECT_EQ(std::memcmp(got.data() + 8192 + 512 + 16384, was.data() + 8192 + 512 + 16384,
                        65536 - 8192 - 512 - 16384),
            0);
}

Task<void> WriteAndMark(Device& device, const Buffer& buffer, bool* done) {
  Task<Status> write = test::WriteTask(device, 0, buffer);
  const Status status = co_await write;
  EXPECT_TRUE(status.ok());
  *done = true;
}

TEST(MemoryDevice, CompletesAtOnceUnlessToldToYield) {
  VirtualLoop loop;
  const Buffer buffer = Filled(4096, 1);
  MemoryDevice quick("quick", kSize);
  bool done = false;
  loop.Start(WriteAndMark(quick, buffer, &done));
  EXPECT_TRUE(done);
  MemoryDevice polite("polite", kSize, &loop);
  done = false;
  loop.Start(WriteAndMark(polite, buffer, &done));
  EXPECT_FALSE(done);
  test::RunDry(loop);
  EXPECT_TRUE(done);
}

TEST(MemoryDevice, TakesNoMemoryBeforeItIsWritten) {
  const MemoryDevice large("large", uint64_t{1} << 40);
  EXPECT_EQ(large.size_bytes(), uint64_t{1} << 40);
}

TEST(MemoryDevice, CoarserAlignment) {
  VirtualLoop loop;
  MemoryDevice device("coarse", kSize, nullptr, 4096);
  EXPECT_EQ(device.capabilities().alignment_bytes, 4096U);
  EXPECT_FALSE(test::Write(loop, device, 512, Filled(4096, 1)).ok());
  EXPECT_TRUE(test::Write(loop, device, 4096, Filled(4096, 1)).ok());
}

}  // namespace
}  // namespace eplog
