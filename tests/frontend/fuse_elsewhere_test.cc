// What another front end changed and nobody told the mount of is found out, or refused; and what a
// mount refuses by itself.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

using Op = FakeArray::Op;

constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

std::vector<std::byte> Pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  FillPattern(bytes, seed);
  return bytes;
}

struct stat StatOf(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0) << std::strerror(errno);
  return info;
}

std::vector<FakeArray::Call> Calls(ServedMount& mount, Op op) {
  std::vector<FakeArray::Call> calls = mount.TakeCalls();
  std::erase_if(calls, [op](const FakeArray::Call& call) { return call.op != op; });
  return calls;
}

void ForgetCalls(ServedMount& mount) {
  mount.Do([](FakeArray& array) { array.calls.clear(); });
}

// 0 or the errno of what just returned this.
int Errno(ssize_t result) {
  return result < 0 ? errno : 0;
}

// A volume of 20000 bytes, which is looked at and then changed behind the mount's back.
class ChangedElsewhere : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    MountSetup setup;
    setup.prepare = [this](FakeArray& array) { array.AddVolume("v", content_); };
    mount_ = std::make_unique<ServedMount>(setup);
    file_ = std::make_unique<File>(*mount_ / "v", O_RDWR | O_DIRECT);
    ASSERT_EQ(StatOf(file_->fd()).st_size, 20000);
  }
  void SetSize(uint64_t size_bytes) {
    mount_->Do([&](FakeArray& array) { array.SetSize("v", size_bytes); });
  }
  [[nodiscard]] int fd() const { return file_->fd(); }

  const std::vector<std::byte> content_ = Pattern(20000, 1);
  std::unique_ptr<ServedMount> mount_;
  std::unique_ptr<File> file_;
};

TEST_F(ChangedElsewhere, AReadEndsWhereTheVolumeEndsNow) {
  SetSize(5000);
  AlignedBytes into(20480, 2);
  EXPECT_EQ(::pread(fd(), into.data(), 20480, 0), 5000);
  EXPECT_EQ(std::memcmp(into.data(), content_.data(), 5000), 0);
  EXPECT_EQ(::pread(fd(), into.data(), 4096, 8192), 0);
}

TEST_F(ChangedElsewhere, AWriteGrowsTheVolumeAgain) {
  SetSize(5000);
  const AlignedBytes bytes(8192, 3);
  EXPECT_EQ(::pwrite(fd(), bytes.data(), 8192, 0), 8192);
  const std::vector<std::byte> now = mount_->Content("v");
  ASSERT_EQ(now.size(), 8192U);
  EXPECT_EQ(std::memcmp(now.data(), bytes.data(), 8192), 0);
}

TEST_F(ChangedElsewhere, AWritePastAnOldEndDoesNotCutWhatGrew) {
  SetSize(50000);
  const AlignedBytes bytes(8192, 3);
  EXPECT_EQ(::pwrite(fd(), bytes.data(), 8192, 16384), 8192) << "past the end, as it was known";
  EXPECT_EQ(mount_->Content("v").size(), 50000U);
  EXPECT_EQ(StatOf(fd()).st_size, 50000);
}

TEST_F(ChangedElsewhere, AFlushOfMoreThanIsThereIsNoError) {
  SetSize(5000);
  ForgetCalls(*mount_);
  EXPECT_EQ(::fsync(fd()), 0) << std::strerror(errno);
  const std::vector<FakeArray::Call> flushes = Calls(*mount_, Op::kFlush);
  ASSERT_EQ(flushes.size(), 1U);
  EXPECT_EQ(flushes.back().offset_bytes, 0U);
  EXPECT_GE(flushes.back().length_bytes, 5000U);
}

TEST_F(ChangedElsewhere, AHoleEndsWhereTheVolumeEndsNow) {
  for (const int mode : {kPunch, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE}) {
    SetSize(20000);
    ASSERT_EQ(::ftruncate(fd(), 20000), 0);  // that is what it is taken for
    SetSize(5000);
    ForgetCalls(*mount_);
    EXPECT_EQ(::fallocate(fd(), mode, 1000, 15000), 0) << std::strerror(errno);
    const std::vector<FakeArray::Call> trims = Calls(*mount_, Op::kTrim);
    ASSERT_FALSE(trims.empty());
    EXPECT_EQ(trims.back().offset_bytes, 1000U);
    EXPECT_EQ(trims.back().length_bytes, 4000U);
  }
}

TEST_F(ChangedElsewhere, ASizeThatItHadIsGivenToItAgain) {
  SetSize(5000);
  EXPECT_EQ(::ftruncate(fd(), 20000), 0);
  EXPECT_EQ(mount_->Content("v").size(), 20000U);
}

TEST_F(ChangedElsewhere, WhatIsGoneIsNotFound) {
  mount_->Do([](FakeArray& array) { array.Drop("v"); });
  AlignedBytes bytes(4096, 3);
  EXPECT_EQ(Errno(::pread(fd(), bytes.data(), 4096, 0)), ENOENT);
  EXPECT_EQ(Errno(::pwrite(fd(), bytes.data(), 4096, 0)), ENOENT);
  EXPECT_EQ(Errno(::pwrite(fd(), bytes.data(), 4096, 1 << 20)), ENOENT);
  EXPECT_EQ(Errno(::ftruncate(fd(), 100)), ENOENT);
  EXPECT_EQ(Errno(::fallocate(fd(), 0, 0, 1 << 20)), ENOENT);
  EXPECT_EQ(Errno(::fallocate(fd(), kPunch, 0, 4096)), ENOENT);
  EXPECT_EQ(Errno(::fsync(fd())), ENOENT);
}

// An array that refuses a range for a reason of its own is asked again once, not for ever.
TEST_F(ChangedElsewhere, WhatIsRefusedStillIsRefused) {
  mount_->Do([](FakeArray& array) {
    array.before = [](const FakeArray::Call& call) -> Status {
      return call.op == Op::kResize ? OkStatus()
                                    : Status(Fail(ErrorCode::kInvalidArgument, "wanted"));
    };
  });
  AlignedBytes bytes(4096, 3);
  EXPECT_EQ(Errno(::pread(fd(), bytes.data(), 4096, 0)), EINVAL);
  EXPECT_EQ(Errno(::pwrite(fd(), bytes.data(), 4096, 0)), EINVAL);
  EXPECT_EQ(Errno(::fallocate(fd(), kPunch, 0, 4096)), EINVAL);
  EXPECT_EQ(Errno(::fsync(fd())), EINVAL);
  mount_->Do([](FakeArray& array) { array.before = nullptr; });
}

TEST_F(ChangedElsewhere, ChangesShowInItsTimes) {
  const timespec old[2] = {{1000, 0}, {2000, 0}};
  const auto changed = [&] { return StatOf(fd()).st_mtim.tv_sec > 1000000; };
  ASSERT_EQ(::futimens(fd(), old), 0);
  ASSERT_FALSE(changed());
  const AlignedBytes bytes(4096, 3);
  ASSERT_EQ(::pwrite(fd(), bytes.data(), 4096, 0), 4096);
  EXPECT_TRUE(changed()) << "written";
  ASSERT_EQ(::futimens(fd(), old), 0);
  ASSERT_EQ(::ftruncate(fd(), 10000), 0);
  EXPECT_TRUE(changed()) << "cut";
  ASSERT_EQ(::futimens(fd(), old), 0);
  ASSERT_FALSE(changed());
  mount_->Await([](FakeArray& array, FuseServer& server) {
    return server.NotifyVolumeChanged(array.FindVolume("v")->id);
  });
  EXPECT_TRUE(changed()) << "changed elsewhere";
}

// ---- a volume that comes into being while somebody makes one of its name

class MadeElsewhere : public testing::Test {
 protected:
  void SetUp() override { EPLOG_NEEDS_FUSE(); }
  // After the kernel was told that there is none.
  void MakeWhenLookedUp(ServedMount& mount) {
    mount.Do([](FakeArray& array) {
      array.looked_up = [&array, made = false](std::string_view name) mutable {
        if (name == "v" && !std::exchange(made, true)) {
          array.AddVolume("v", Pattern(5000, 1));
        }
      };
    });
  }
};

TEST_F(MadeElsewhere, IsOpened) {
  ServedMount mount;
  MakeWhenLookedUp(mount);
  const File file(mount / "v", O_CREAT | O_RDWR, 0640);
  EXPECT_EQ(StatOf(file.fd()).st_size, 5000);
  EXPECT_EQ(StatOf(file.fd()).st_mode, S_IFREG | 0600U) << "it is as it was made";
  std::vector<std::byte> read(5000);
  EXPECT_EQ(::pread(file.fd(), read.data(), read.size(), 0), 5000);
  EXPECT_EQ(read, Pattern(5000, 1));
}

TEST_F(MadeElsewhere, IsCutIfThatWasAskedFor) {
  ServedMount mount;
  MakeWhenLookedUp(mount);
  const File file(mount / "v", O_CREAT | O_TRUNC | O_RDWR);
  EXPECT_EQ(StatOf(file.fd()).st_size, 0);
  EXPECT_TRUE(mount.Content("v").empty());
}

TEST_F(MadeElsewhere, IsInTheWayOfWhoWantsANewOne) {
  for (const bool node : {false, true}) {
    ServedMount mount;
    MakeWhenLookedUp(mount);
    const std::string path = mount / "v";
    EXPECT_EQ(Errno(node ? ::mknod(path.c_str(), S_IFREG | 0600, 0)
                         : ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)),
              EEXIST);
    EXPECT_EQ(mount.Content("v"), Pattern(5000, 1));
  }
}

// ---- ranges

TEST(FuseRanges, HolesAndZerosAreAskedForAsSuch) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), 20000), 0);
  struct Asked {
    int mode;
    off_t offset;
    off_t length;
    TrimMode as;
    uint64_t length_bytes;
    off_t size;
  };
  const Asked all[] = {
      {kPunch, 100, 5000, TrimMode::kPunch, 5000, 20000},
      {kPunch, 0, 20000, TrimMode::kPunch, 20000, 20000},
      {kPunch, 19999, 1, TrimMode::kPunch, 1, 20000},
      {kPunch, 15000, 10000, TrimMode::kPunch, 5000, 20000},
      {FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 15000, 10000, TrimMode::kZero, 5000, 20000},
      {FALLOC_FL_ZERO_RANGE, 15000, 10000, TrimMode::kZero, 10000, 25000},
  };
  for (const Asked& asked : all) {
    ForgetCalls(mount);
    ASSERT_EQ(::fallocate(file.fd(), asked.mode, asked.offset, asked.length), 0);
    const std::vector<FakeArray::Call> trims = Calls(mount, Op::kTrim);
    ASSERT_EQ(trims.size(), 1U);
    EXPECT_EQ(trims[0].mode, asked.as);
    EXPECT_EQ(trims[0].offset_bytes, static_cast<uint64_t>(asked.offset));
    EXPECT_EQ(trims[0].length_bytes, asked.length_bytes);
    EXPECT_EQ(StatOf(file.fd()).st_size, asked.size);
  }
  ForgetCalls(mount);
  EXPECT_EQ(::fallocate(file.fd(), kPunch, 25000, 10), 0) << "where it ends there is nothing";
  EXPECT_TRUE(Calls(mount, Op::kTrim).empty());
  const auto most = static_cast<off_t>(kMaxVolumeBytes);
  EXPECT_EQ(Errno(::fallocate(file.fd(), FALLOC_FL_ZERO_RANGE, most, 1)), EFBIG);
  EXPECT_EQ(::fallocate(file.fd(), kPunch, most - 1, 1), 0);
  EXPECT_EQ(::fallocate(file.fd(), 0, most - 1, 1), 0);
  EXPECT_EQ(StatOf(file.fd()).st_size, most);
}

TEST(FuseRanges, StatisticsAreInBlocks) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.capacity_bytes = 64 * 4096;
  setup.prepare = [](FakeArray& array) { array.AddVolume("v", Pattern(4096, 1)); };
  ServedMount mount(setup);
  struct statvfs info {};
  ASSERT_EQ(::statvfs(mount.directory().c_str(), &info), 0);
  EXPECT_EQ(info.f_frsize, 4096U);
  EXPECT_EQ(info.f_blocks, 64U);
  EXPECT_EQ(info.f_bfree, 63U);
  EXPECT_EQ(info.f_bavail, 63U);
}

// ---- a read-only mount that somebody made writable for the kernel

TEST(FuseReadOnly, IsSoWhateverTheKernelLetsThrough) {
  EPLOG_NEEDS_FUSE();
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root mounts";
  }
  MountSetup setup;
  setup.read_only = true;
  setup.prepare = [](FakeArray& array) { array.AddVolume("v", Pattern(5000, 1)); };
  ServedMount mount(setup);
  ASSERT_EQ(::mount(nullptr, mount.directory().c_str(), nullptr, MS_REMOUNT, ""), 0);
  const std::string path = mount / "v";
  const std::string other = mount / "w";
  EXPECT_EQ(Errno(::open(path.c_str(), O_RDWR | O_CLOEXEC)), EROFS);
  EXPECT_EQ(Errno(::open(path.c_str(), O_WRONLY | O_CLOEXEC)), EROFS);
  EXPECT_EQ(Errno(::open(other.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), EROFS);
  EXPECT_EQ(Errno(::mknod(other.c_str(), S_IFREG | 0600, 0)), EROFS);
  EXPECT_EQ(Errno(::truncate(path.c_str(), 1)), EROFS);
  EXPECT_EQ(Errno(::chmod(path.c_str(), 0644)), EROFS);
  EXPECT_EQ(Errno(::unlink(path.c_str())), EROFS);
  EXPECT_EQ(Errno(::rename(path.c_str(), other.c_str())), EROFS);
  const File file(path, O_RDONLY);
  EXPECT_EQ(::fsync(file.fd()), 0) << "there is nothing to be done";
  EXPECT_EQ(StatOf(file.fd()).st_mode, S_IFREG | 0600U);
  EXPECT_TRUE(mount.TakeCalls().empty()) << "nothing was asked of the array";
  EXPECT_EQ(mount.Content("v"), Pattern(5000, 1));
}

}  // namespace
}  // namespace eplog
