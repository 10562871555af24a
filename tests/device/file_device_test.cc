#include "device/file_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/file_lock.h"
#include "runtime/task_group.h"
#include "tests/device/device_util.h"
#include "tests/device/real_files.h"

// Instead of those of the C library.
namespace {
int system_type = 0;  // what every file lies on; 0: what it does
int statx_calls = 0;
}  // namespace

extern "C" int fstatfs(int fd, struct statfs* system) {
  const auto result = static_cast<int>(::syscall(SYS_fstatfs, fd, system));
  if (system_type != 0) {
    system->f_type = system_type;
  }
  return result;
}

extern "C" int statx(int folder, const char* path, int flags, unsigned mask, struct statx* file) {
  ++statx_calls;
  return static_cast<int>(::syscall(SYS_statx, folder, path, flags, mask, file));
}

namespace eplog {
namespace {

using test::Await;
using test::Filled;
using test::Holds;
using test::Pool;

constexpr uint64_t kSize = uint64_t{1} << 20;

class FileDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = IoUringLoop::Create(64);
    if (!made.ok() && made.error().code == ErrorCode::kUnsupported) {
      GTEST_SKIP() << made.error().ToString();
    }
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }

  std::unique_ptr<FileDevice> Open(const std::string& path, FileDevice::Options options = {}) {
    auto opened = FileDevice::Open(*loop_, path, options);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().ToString());
    return opened.ok() ? std::move(*opened) : nullptr;
  }
  Error OpenFails(const std::string& path, FileDevice::Options options = {}) {
    auto opened = FileDevice::Open(*loop_, path, options);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? Error{} : opened.error();
  }

  std::unique_ptr<IoUringLoop> loop_;
  test::TempFolder folder_{::testing::TempDir()};
};

// What must hold on any file system, direct or not.
void WritesReadsFlushes(IoUringLoop& loop, FileDevice& device) {
  const uint32_t unit = device.capabilities().alignment_bytes;
  ASSERT_TRUE(test::Write(loop, device, unit, Filled(size_t{3} * unit, 1)).ok());
  ASSERT_TRUE(test::Write(loop, device, 65536, Filled(65536, 2)).ok());
  ASSERT_TRUE(Await(loop, device.Flush()).ok());
  EXPECT_TRUE(Holds(loop, device, unit, size_t{3} * unit, 1));
  EXPECT_TRUE(Holds(loop, device, 65536, 65536, 2));
  // Memory that has the alignment asked for and no better.
  const Buffer roomy = Pool().Get(65536 + size_t{2} * unit);
  const iovec part{roomy.data() + unit % 4096, 65536};
  const Status read = Await(loop, device.Read(65536, std::span(&part, 1)));
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(std::memcmp(part.iov_base, Filled(65536, 2).data(), 65536), 0);
}

TEST_F(FileDeviceTest, DirectOnARealFileSystem) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  ASSERT_NE(device, nullptr);
  if (!device->capabilities().direct) {
    GTEST_SKIP() << folder_.path() << " is on a file system without O_DIRECT";
  }
  EXPECT_NE(fcntl(device->fd(), F_GETFL) & O_DIRECT, 0);
  EXPECT_EQ(device->size_bytes(), kSize);
  EXPECT_FALSE(device->capabilities().discard);
  EXPECT_EQ(device->name(), folder_.File("member"));
  WritesReadsFlushes(*loop_, *device);
}

TEST_F(FileDeviceTest, OnTmpfs) {
  const test::TempFolder shm("/dev/shm");
  const auto device = Open(shm.MakeFile("member", kSize));
  ASSERT_NE(device, nullptr);  // direct or not, as the kernel's tmpfs has it
  WritesReadsFlushes(*loop_, *device);
}

TEST_F(FileDeviceTest, BufferedWhereTheFileSystemRefusesDirect) {
  const test::SmallFileSystem ramfs("ramfs", "");
  if (!ramfs.trouble().empty()) {
    GTEST_SKIP() << ramfs.trouble();
  }
  const auto device = Open(ramfs.folder().MakeFile("member", kSize));
  ASSERT_NE(device, nullptr);
  EXPECT_FALSE(device->capabilities().direct);
  EXPECT_EQ(device->capabilities().alignment_bytes, 512U);
  WritesReadsFlushes(*loop_, *device);
}

TEST_F(FileDeviceTest, UnalignedRequestsAreRefused) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  const Buffer buffer = Filled(8192, 1);
  const std::array<iovec, 2> bad{iovec{buffer.data(), 100}, iovec{buffer.data() + 1, 4096}};
  for (const iovec& part : bad) {
    const Status status = Await(*loop_, device->Write(0, std::span(&part, 1)));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  const Status read = test::Read(*loop_, *device, 4097, buffer);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.error().offset_bytes, 4097);
}

TEST_F(FileDeviceTest, PastTheEndIsAnErrorAndNeverExtendsTheFile) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  const Status written = test::Write(*loop_, *device, kSize - 4096, Filled(8192, 1));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_FALSE(test::Read(*loop_, *device, kSize, Filled(4096, 1)).ok());
  struct stat file {};
  ASSERT_EQ(stat(folder_.File("member").c_str(), &file), 0);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), kSize);
}

TEST_F(FileDeviceTest, OddSizesAreRoundedDown) {
  const auto device = Open(folder_.MakeFile("member", 10000));
  EXPECT_EQ(device->size_bytes(), 10000 / device->capabilities().alignment_bytes *
                                      device->capabilities().alignment_bytes);
  const auto empty = Open(folder_.MakeFile("empty", 0));
  EXPECT_EQ(empty->size_bytes(), 0U);
  EXPECT_FALSE(test::Read(*loop_, *empty, 0, Filled(4096, 1)).ok());
}

TEST_F(FileDeviceTest, AFileThatBecameShorterIsAnErrorWhereItEnds) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  ASSERT_EQ(truncate(folder_.File("member").c_str(), 65536), 0);
  const Status read = test::Read(*loop_, *device, 65536 - 8192, Filled(16384, 1));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(read.error().offset_bytes, 65536);
  EXPECT_NE(read.error().message.find(folder_.File("member")), std::string::npos);
  EXPECT_TRUE(test::Read(*loop_, *device, 0, Filled(65536, 1)).ok());
}

TEST_F(FileDeviceTest, AFileThatBecameShorterIsFoundByTheNextFlush) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  ASSERT_TRUE(Await(*loop_, device->Flush()).ok());
  ASSERT_EQ(truncate(folder_.File("member").c_str(), 65536), 0);
  ASSERT_TRUE(test::Write(*loop_, *device, 131072, Filled(65536, 1)).ok()) << "it grows again";
  for (int i = 0; i < 2; ++i) {
    const Status flush = Await(*loop_, device->Flush());
    ASSERT_FALSE(flush.ok());
    EXPECT_EQ(flush.error().code, ErrorCode::kDeviceFailed);
    EXPECT_NE(flush.error().message.find("shorter: 196608 bytes"), std::string::npos);
    ASSERT_EQ(truncate(folder_.File("member").c_str(), kSize), 0);  // too late
  }
}

// Its server is asked for the size, which may take as long as it likes: not on the loop's thread.
TEST_F(FileDeviceTest, AFileOverANetworkThatBecameShorterIsFoundThroughTheRing) {
  system_type = NFS_SUPER_MAGIC;
  const auto device = Open(folder_.MakeFile("member", kSize));
  system_type = 0;
  ASSERT_EQ(truncate(folder_.File("member").c_str(), 65536), 0);
  const int before = statx_calls;
  const Status flush = Await(*loop_, device->Flush());
  EXPECT_EQ(statx_calls, before);
  ASSERT_FALSE(flush.ok());
  EXPECT_NE(flush.error().message.find("shorter: 65536 bytes"), std::string::npos);
}

TEST_F(FileDeviceTest, MorePartsThanTheKernelTakesAtOnce) {
  const auto device = Open(folder_.MakeFile("member", 4 * kSize));
  const uint32_t unit = device->capabilities().alignment_bytes;
  const size_t count = 3000;
  if (count * unit > 4 * kSize) {
    GTEST_SKIP() << "sectors of 4096 bytes make it too large for a unit test";
  }
  const Buffer out = Filled(count * unit, 7);
  const Buffer in = Pool().GetZeroed(count * unit);
  std::vector<iovec> from;
  std::vector<iovec> into;
  for (size_t i = 0; i < count; ++i) {
    from.push_back({out.data() + i * unit, unit});
    into.push_back({in.data() + i * unit, unit});
  }
  ASSERT_TRUE(Await(*loop_, device->Write(unit, from)).ok());
  ASSERT_TRUE(Await(*loop_, device->Read(unit, into)).ok());
  EXPECT_TRUE(test::Same(in, out));
}

TEST_F(FileDeviceTest, MoreBytesThanTheKernelTakesAtOnce) {
  constexpr uint64_t kLarge = uint64_t{5} << 29;  // 2.5 GiB, a hole
  const auto device = Open(folder_.MakeFile("member", kLarge));
  const Buffer piece = Pool().Get(size_t{16} << 20);
  const std::vector<iovec> into(kLarge / piece.size(), test::PartOf(piece));
  EXPECT_TRUE(Await(*loop_, device->Read(0, into)).ok());
}

TEST_F(FileDeviceTest, EmptyRequestsSucceed) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  EXPECT_TRUE(Await(*loop_, device->Read(0, {})).ok());
  EXPECT_TRUE(Await(*loop_, device->Write(kSize, {})).ok());
  EXPECT_TRUE(Await(*loop_, device->Discard(0, 0)).ok());
}

Task<Status> WriteAllAtOnce(IoUringLoop& loop, Device& device, const std::vector<Buffer>& blocks) {
  TaskGroup group(loop);
  for (size_t i = 0; i < blocks.size(); ++i) {
    group.Start(test::WriteTask(device, i * 4096, blocks[i]));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

TEST_F(FileDeviceTest, ManyRequestsInFlight) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  std::vector<Buffer> blocks;
  for (uint64_t i = 0; i < 256; ++i) {
    blocks.push_back(Filled(4096, i));
  }
  ASSERT_TRUE(Await(*loop_, WriteAllAtOnce(*loop_, *device, blocks)).ok());
  for (uint64_t i = 0; i < 256; ++i) {
    EXPECT_TRUE(Holds(*loop_, *device, i * 4096, 4096, i));
  }
}

TEST_F(FileDeviceTest, WhatCannotBeOpenedIsNamed) {
  const Error missing = OpenFails(folder_.File("missing"));
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_NE(missing.message.find("missing"), std::string::npos);
  EXPECT_EQ(OpenFails(folder_.path()).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(OpenFails("/dev/null").code, ErrorCode::kInvalidArgument);
}

TEST_F(FileDeviceTest, ReadOnlyRefusesWrites) {
  const auto device = Open(folder_.MakeFile("member", kSize), {.read_only = true});
  const Status written = test::Write(*loop_, *device, 0, Filled(4096, 1));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kReadOnly);
  EXPECT_TRUE(test::Read(*loop_, *device, 0, Filled(4096, 1)).ok());
  EXPECT_TRUE(Await(*loop_, device->Flush()).ok());
}

TEST_F(FileDeviceTest, DiscardPunchesHolesOnlyIfAsked) {
  const std::string path = folder_.MakeFile("member", kSize);
  {
    const auto device = Open(path);
    ASSERT_TRUE(test::Write(*loop_, *device, 0, Filled(kSize, 1)).ok());
    ASSERT_TRUE(Await(*loop_, device->Discard(0, kSize / 2)).ok());
    EXPECT_TRUE(Holds(*loop_, *device, 0, kSize, 1));
  }
  const auto device = Open(path, {.discard = true});
  EXPECT_TRUE(device->capabilities().discard);
  const uint64_t before = test::OccupiedBytes(path);
  ASSERT_TRUE(Await(*loop_, device->Discard(0, kSize / 2)).ok());
  if (!device->capabilities().discard) {
    GTEST_SKIP() << "the file system cannot punch holes";
  }
  EXPECT_LE(test::OccupiedBytes(path), before - kSize / 2);
  EXPECT_EQ(device->size_bytes(), kSize);
}

TEST_F(FileDeviceTest, AFullFileSystemIsNoDeviceFailure) {
  const test::SmallFileSystem tmpfs("tmpfs", "size=1m");
  if (!tmpfs.trouble().empty()) {
    GTEST_SKIP() << tmpfs.trouble();
  }
  const auto device = Open(tmpfs.folder().MakeFile("member", 8 * kSize));
  Status status = OkStatus();
  uint64_t at = 0;
  for (; at < 4 * kSize && status.ok(); at += 65536) {
    status = test::Write(*loop_, *device, at, Filled(65536, 1));
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(status.error().errno_value, ENOSPC);
  EXPECT_GE(status.error().offset_bytes, static_cast<int64_t>(at - 65536));
  EXPECT_LT(status.error().offset_bytes, static_cast<int64_t>(at));
}

// A descriptor that cannot be synced stands in for a disk whose flush fails.
TEST_F(FileDeviceTest, AFailedFlushIsNeverForgotten) {
  const auto device = Open(folder_.MakeFile("member", kSize));
  const int file = dup(device->fd());
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_GE(dup2(ends[0], device->fd()), 0);
  const Status first = Await(*loop_, device->Flush());
  ASSERT_GE(dup2(file, device->fd()), 0);
  const Status second = Await(*loop_, device->Flush());
  for (const Status& status : {first, second}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDeviceFailed);
    EXPECT_EQ(status.error().offset_bytes, kNoOffset);
  }
  for (const int fd : {file, ends[0], ends[1]}) {
    close(fd);
  }
}

TEST_F(FileDeviceTest, ABlockDevice) {
  const test::LoopDevice block(folder_.MakeFile("backing", 16 * kSize));
  if (!block.trouble().empty()) {
    GTEST_SKIP() << block.trouble();
  }
  const auto device = Open(block.path());
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(device->block_device());
  EXPECT_EQ(device->size_bytes(), 16 * kSize);
  WritesReadsFlushes(*loop_, *device);
  if (device->capabilities().discard) {
    EXPECT_TRUE(Await(*loop_, device->Discard(65536, 65536)).ok());
  }
  const Error second = OpenFails(block.path());
  EXPECT_EQ(second.code, ErrorCode::kBusy);
  EXPECT_NE(second.message.find(std::to_string(getpid())), std::string::npos) << second.message;
}

// As a disk does that is resized below. Linux answers what is written behind its end as if there were
// no space, which is no failure of a device.
TEST_F(FileDeviceTest, ABlockDeviceThatHasBecomeShorterHasFailed) {
  const std::string file = folder_.MakeFile("backing", 16 * kSize);
  const test::LoopDevice block(file);
  if (!block.trouble().empty()) {
    GTEST_SKIP() << block.trouble();
  }
  const auto device = Open(block.path());
  ASSERT_NE(device, nullptr);
  const Buffer bytes = Filled(4096, 1);
  ASSERT_TRUE(test::Write(*loop_, *device, 12 * kSize, bytes).ok());
  ASSERT_TRUE(Await(*loop_, device->Flush()).ok());
  std::filesystem::resize_file(file, 8 * kSize);
  ASSERT_TRUE(block.FollowFile());
  const Status written = test::Write(*loop_, *device, 12 * kSize, bytes);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kDeviceFailed);
  EXPECT_NE(written.error().message.find("it has become shorter"), std::string::npos);
  EXPECT_TRUE(test::Write(*loop_, *device, 4 * kSize, bytes).ok());
  const Status flushed = Await(*loop_, device->Flush());
  ASSERT_FALSE(flushed.ok()) << "what was flushed to its end is gone";
  EXPECT_EQ(flushed.error().code, ErrorCode::kDeviceFailed);
  // Also once it is as large again: what lay there is not there any more.
  std::filesystem::resize_file(file, 16 * kSize);
  ASSERT_TRUE(block.FollowFile());
  EXPECT_FALSE(Await(*loop_, device->Flush()).ok());
}

// It may be looked at as before.
TEST_F(FileDeviceTest, AMountedBlockDeviceIsRefusedByItsMountPointAndCanBeLookedAt) {
  const test::LoopDevice block(folder_.MakeFile("backing", 16 * kSize));
  if (!block.trouble().empty()) {
    GTEST_SKIP() << block.trouble();
  }
  const std::string where = folder_.File("mounted");
  ASSERT_EQ(mkdir(where.c_str(), 0700), 0);
  const std::string make = "mkfs.ext2 -q -F " + block.path() + " >/dev/null 2>&1";
  if (std::system(make.c_str()) != 0 ||
      mount(block.path().c_str(), where.c_str(), "ext2", 0, nullptr) != 0) {
    GTEST_SKIP() << "cannot make and mount an ext2 file system";
  }
  const Error error = OpenFails(block.path());
  EXPECT_TRUE(FileDevice::Open(*loop_, block.path(), {.read_only = true}).ok());
  umount(where.c_str());
  EXPECT_EQ(error.code, ErrorCode::kBusy);
  EXPECT_EQ(error.message, block.path() + " is mounted on " + where);
}

// A lock is one of a node, and the device may have others.
TEST_F(FileDeviceTest, WhoLooksAtABlockDeviceWaitsForAWriterByAnotherName) {
  const test::LoopDevice block(folder_.MakeFile("backing", 16 * kSize));
  if (!block.trouble().empty()) {
    GTEST_SKIP() << block.trouble();
  }
  struct stat node {};
  ASSERT_EQ(stat(block.path().c_str(), &node), 0);
  const std::string other = folder_.File("other");
  ASSERT_EQ(mknod(other.c_str(), S_IFBLK | 0600, node.st_rdev), 0);
  const int looks = open(other.c_str(), O_RDONLY | O_CLOEXEC);
  if (looks < 0) {
    GTEST_SKIP() << "no devices where the temporary files are";
  }
  auto writer = Open(block.path());
  ASSERT_NE(writer, nullptr);
  const Status refused = CheckNotWritten(looks, other, 100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  std::atomic<bool> ended = false;
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ended = true;
    writer.reset();
  });
  const auto first = FileDevice::Open(*loop_, other, {.read_only = true});
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(ended);
  ends.join();
  // Those who look are not in each other's way.
  const auto second = FileDevice::Open(*loop_, block.path(), {.read_only = true});
  EXPECT_TRUE(second.ok());
  EXPECT_TRUE(CheckNotWritten(looks, other, 0).ok());
  close(looks);
}

// It has claimed the device, and needs the lock that those have who look.
TEST_F(FileDeviceTest, WhoWaitsForTheWriterOfABlockDeviceIsNotInItsWay) {
  const test::LoopDevice block(folder_.MakeFile("backing", 16 * kSize));
  if (!block.trouble().empty()) {
    GTEST_SKIP() << block.trouble();
  }
  const int looks = open(block.path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(looks, 0);
  ASSERT_TRUE(LockFile(looks, block.path(), true).ok());
  const int claims = open(block.path().c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
  ASSERT_GE(claims, 0);
  Status looked = OkStatus();
  std::thread waits([&] { looked = CheckNotWritten(looks, block.path(), 60'000); });
  EXPECT_TRUE(LockFile(claims, block.path(), false, 30'000).ok());
  waits.join();
  EXPECT_FALSE(looked.ok());  // by then it is a writer's
  close(claims);
  close(looks);
}

}  // namespace
}  // namespace eplog
