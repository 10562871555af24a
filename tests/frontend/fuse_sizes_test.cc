// Sizes of files: what is asked of the array for them and what is not, and that a change that fails,
// or came too late, takes nothing away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

using Op = FakeArray::Op;

// 0 or the errno of what just returned this.
int Errno(ssize_t result) {
  return result < 0 ? errno : 0;
}

off_t SizeOf(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_size;
}

// A volume of 20000 bytes, open.
class Sizes : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    FillPattern(content_, 1);
    MountSetup setup;
    setup.prepare = [this](FakeArray& array) {
      array.AddVolume("v", content_);
      array.AddVolume("empty", {});
    };
    mount_ = std::make_unique<ServedMount>(setup);
    file_ = std::make_unique<File>(*mount_ / "v", O_RDWR | O_DIRECT);
    ASSERT_EQ(SizeOf(fd()), 20000);
  }
  // By another front end, of which nobody is told.
  void SetSize(uint64_t size_bytes) {
    mount_->Do([&](FakeArray& array) { array.SetSize("v", size_bytes); });
  }
  void RefuseAll(Op op) {
    mount_->Do([op](FakeArray& array) {
      array.before = [op](const FakeArray::Call& call) -> Status {
        return call.op == op ? Status(Fail(ErrorCode::kNoSpace, "wanted")) : OkStatus();
      };
    });
  }
  size_t Asked() { return mount_->TakeCalls().size(); }
  [[nodiscard]] int fd() const { return file_->fd(); }

  std::vector<std::byte> content_ = std::vector<std::byte>(20000);
  std::unique_ptr<ServedMount> mount_;
  std::unique_ptr<File> file_;
};

TEST_F(Sizes, OfWhatIsSoAlreadyNothingIsAsked) {
  const File empty(*mount_ / "empty", O_RDWR);
  static_cast<void>(Asked());
  EXPECT_EQ(Errno(::ftruncate(fd(), 20000)), 0);
  EXPECT_EQ(Errno(::fallocate(fd(), 0, 0, 20000)), 0);
  EXPECT_EQ(Errno(::ftruncate(empty.fd(), 0)), 0);
  EXPECT_EQ(Errno(::fsync(empty.fd())), 0);
  EXPECT_EQ(Asked(), 0U);
}

// Reserving cuts nothing, whatever the size was believed to be.
TEST_F(Sizes, WhatGrewElsewhereIsNotCutByWhoReserves) {
  for (const int mode : {0, FALLOC_FL_ZERO_RANGE}) {
    SetSize(20000);
    ASSERT_EQ(::ftruncate(fd(), 20000), 0);  // that is what it is taken for
    SetSize(50000);
    EXPECT_EQ(Errno(::fallocate(fd(), mode, 10000, 20000)), 0);
    EXPECT_EQ(mount_->Content("v").size(), 50000U) << mode;
  }
  EXPECT_EQ(Errno(::ftruncate(fd(), 30000)), 0);
  EXPECT_EQ(mount_->Content("v").size(), 30000U) << "but by who cuts";
}

// Who reserves is promised that the file reaches so far, whatever the size was believed to be.
TEST_F(Sizes, WhatShrankElsewhereIsGrownByWhoReserves) {
  for (const int mode : {0, FALLOC_FL_ZERO_RANGE}) {
    SetSize(20000);
    ASSERT_EQ(::ftruncate(fd(), 20000), 0);  // that is what it is taken for
    SetSize(5000);
    EXPECT_EQ(Errno(::fallocate(fd(), mode, 10000, 8000)), 0);
    EXPECT_EQ(mount_->Content("v").size(), 18000U) << mode;
  }
}

// A write beyond the end that finds no room leaves the size as it was, but for what others did.
TEST_F(Sizes, WhatGrewElsewhereIsNotCutByAWriteThatFails) {
  std::atomic<bool> may = false;
  mount_->Do([&may](FakeArray& array) {
    array.hold = [&may](const FakeArray::Call& call) { return call.op == Op::kWrite && !may; };
  });
  auto writing = std::async(std::launch::async, [this] {
    const AlignedBytes bytes(8192, 3);
    return Errno(::pwrite(fd(), bytes.data(), 8192, 16384));
  });
  for (bool grown = false; !grown;) {
    mount_->Do([&grown](FakeArray& array) { grown = array.FindVolume("v")->size_bytes == 24576; });
  }
  mount_->Await([](FakeArray& array, FuseServer& server) {
    array.SetSize("v", 50000);
    return server.NotifyVolumeChanged(array.FindVolume("v")->id);
  });
  RefuseAll(Op::kWrite);
  may = true;
  EXPECT_EQ(writing.get(), ENOSPC);
  EXPECT_EQ(mount_->Content("v").size(), 50000U);
}

// Nor does it take away what another has written meanwhile in what it had grown by, in a file that
// the kernel takes for longer.
TEST_F(Sizes, WhatAnotherHasWrittenStaysWhenTheWriteThatMadeRoomForItFails) {
  SetSize(5000);
  std::atomic<bool> may = false;
  mount_->Do([&may](FakeArray& array) {
    const auto fails = [&array](const FakeArray::Call& call) {
      return call.op == Op::kWrite && call.length_bytes == 8192 &&
             array.FindVolume("v")->size_bytes == 16384;
    };
    array.hold = [&may, fails](const FakeArray::Call& call) { return fails(call) && !may; };
    array.before = [fails](const FakeArray::Call& call) -> Status {
      return fails(call) ? Status(Fail(ErrorCode::kNoSpace, "wanted")) : OkStatus();
    };
  });
  const auto write = [this](uint64_t size, off_t offset) {
    const AlignedBytes bytes(size, 3);
    return Errno(::pwrite(fd(), bytes.data(), size, offset));
  };
  auto fails = std::async(std::launch::async, [&] { return write(8192, 8192); });
  for (bool grown = false;
       !grown && fails.wait_for(std::chrono::seconds(0)) != std::future_status::ready;) {
    mount_->Do([&grown](FakeArray& array) { grown = array.FindVolume("v")->size_bytes == 16384; });
  }
  auto stays = std::async(std::launch::async, [&] { return write(4096, 12288); });
  const bool together = stays.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  may = true;
  EXPECT_EQ(fails.get(), ENOSPC);
  EXPECT_EQ(stays.get(), 0);
  if (!together) {
    GTEST_SKIP() << "this kernel lets no two direct writes into a file";
  }
  EXPECT_EQ(mount_->Content("v").size(), 16384U);
  EXPECT_EQ(mount_->Content("v")[12288], AlignedBytes(4096, 3).span()[0]);
}

TEST_F(Sizes, AWriteThatFailsIsNotCutShort) {
  RefuseAll(Op::kWrite);
  const AlignedBytes bytes(8192, 3);
  EXPECT_EQ(Errno(::pwrite(fd(), bytes.data(), 8192, 16384)), ENOSPC);
  EXPECT_EQ(SizeOf(fd()), 20000);
  EXPECT_EQ(mount_->Content("v"), content_);
}

// Nobody may take it for empty.
TEST_F(Sizes, WhoWantedItCutWhenItWasOpenedIsToldThatItIsNot) {
  mount_->Do([](FakeArray& array) {
    array.looked_up = [&array, made = false](std::string_view name) mutable {
      if (name == "new" && !std::exchange(made, true)) {
        array.AddVolume("new", std::vector<std::byte>(5000));
      }
    };
  });
  RefuseAll(Op::kResize);
  for (const char* name : {"new", "v"}) {  // one is made elsewhere meanwhile, the other known
    EXPECT_EQ(Errno(::open((*mount_ / name).c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)),
              ENOSPC)
        << name;
  }
  EXPECT_EQ(mount_->Content("new").size(), 5000U);
  EXPECT_EQ(mount_->Content("v"), content_);
}

TEST_F(Sizes, WhatCannotBeMadeIsNot) {
  RefuseAll(Op::kCreate);
  EXPECT_EQ(Errno(::open((*mount_ / "n").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)), ENOSPC);
  EXPECT_EQ(Errno(::mknod((*mount_ / "n").c_str(), S_IFREG | 0600, 0)), ENOSPC);
  EXPECT_EQ(Errno(::access((*mount_ / "n").c_str(), F_OK)), ENOENT);
}

}  // namespace
}  // namespace eplog
