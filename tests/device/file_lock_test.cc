#include "device/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/types.h"
#include "device/file_device.h"
#include "runtime/run_task.h"
#include "tests/device/real_files.h"

namespace eplog {
namespace {

using test::OtherProcess;

class FileLock : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = IoUringLoop::Create(8);
    if (!made.ok() && made.error().code == ErrorCode::kUnsupported) {
      GTEST_SKIP() << made.error().ToString();
    }
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }
  // The message if it is busy, empty if it opens.
  std::string BusyMessage(FileDevice::Options options = {}) {
    const auto opened = FileDevice::Open(*loop_, path_, options);
    if (opened.ok()) {
      return {};
    }
    EXPECT_EQ(opened.error().code, ErrorCode::kBusy);
    return opened.error().message;
  }
  void HoldByFlock(int how) const {
    const int fd = open(path_.c_str(), O_RDWR);  // stays open as long as the process
    static_cast<void>(flock(fd, how));
  }

  std::unique_ptr<IoUringLoop> loop_;
  test::TempFolder folder_{::testing::TempDir()};
  std::string path_ = folder_.MakeFile("member", 1 << 20);
};

TEST_F(FileLock, ASecondOpenerIsRefusedByTheNameOfTheFirst) {
  const OtherProcess other([&] { HoldByFlock(LOCK_EX); });
  const std::string message = BusyMessage();
  EXPECT_EQ(message.find(path_ + " is in use by process " + std::to_string(other.pid()) + " ("), 0U)
      << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_NE(BusyMessage({.read_only = true}), "");
}

TEST_F(FileLock, TheSameProcessIsNoException) {
  const auto first = FileDevice::Open(*loop_, path_);
  ASSERT_TRUE(first.ok());
  EXPECT_NE(BusyMessage().find(std::to_string(getpid())), std::string::npos);
}

TEST_F(FileLock, ReadersShareButExcludeAWriter) {
  const auto first = FileDevice::Open(*loop_, path_, {.read_only = true});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(BusyMessage({.read_only = true}), "");
  const int mine = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  const Status excluded = LockFile(mine, path_, false, 100);
  ASSERT_FALSE(excluded.ok());
  EXPECT_EQ(excluded.error().code, ErrorCode::kBusy);
  close(mine);
}

TEST_F(FileLock, ClosingGivesItUp) {
  { const auto first = FileDevice::Open(*loop_, path_); }
  EXPECT_EQ(BusyMessage(), "");
}

// A child that has not come to its exec stands for all that may have what was opened a moment
// longer than its owner: an answered request in the kernel as well.
TEST_F(FileLock, ClosingGivesItUpWhoeverStillHasItOpen) {
  auto first = FileDevice::Open(*loop_, path_);
  ASSERT_TRUE(first.ok());
  const OtherProcess child([] {});
  first->reset();
  EXPECT_EQ(BusyMessage(), "");
}

TEST_F(FileLock, AFileThatWasJustMadeOpens) {
  for (int i = 0; i < 100; ++i) {
    const std::string path = path_ + std::to_string(i);
    ASSERT_TRUE(RunTask(*loop_, CreateMemberFile(*loop_, path, kBlockBytes, {})).ok());
    const auto opened = FileDevice::Open(*loop_, path);
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  }
}

TEST_F(FileLock, NoLockIfNotAskedFor) {
  const auto first = FileDevice::Open(*loop_, path_);
  EXPECT_EQ(BusyMessage({.lock = false}), "");
}

TEST_F(FileLock, AfterAKillTheNextOwnerOpens) {
  OtherProcess other([&] { HoldByFlock(LOCK_EX); });
  other.Kill();
  EXPECT_EQ(BusyMessage(), "");
}

// A lock whose taker is dead while its descriptor lives on, as with requests left in the kernel.
int LockOfTheDead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    _exit(flock(fd, LOCK_EX | LOCK_NB));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return fd;
}

TEST_F(FileLock, RequestsOfADeadOwnerAreWaitedFor) {
  const int left_over = LockOfTheDead(path_);
  std::atomic<bool> ended = false;
  std::thread ends([left_over, &ended] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ended = true;
    close(left_over);
  });
  EXPECT_EQ(BusyMessage(), "");
  EXPECT_TRUE(ended);
  ends.join();
}

// Like `status` or a dry run, which look for a moment.
TEST_F(FileLock, ThoseWhoOnlyLookAreWaitedFor) {
  std::atomic<bool> ended = false;
  OtherProcess looks([&] { HoldByFlock(LOCK_SH); });
  std::thread ends([&looks, &ended] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ended = true;
    looks.Kill();
  });
  EXPECT_EQ(BusyMessage(), "");
  EXPECT_TRUE(ended);
  ends.join();
}

TEST_F(FileLock, ThoseWhoLookForLongAreNamed) {
  const OtherProcess looks([&] { HoldByFlock(LOCK_SH); });
  const int mine = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  const Status status = LockFile(mine, path_, false, 100);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(std::to_string(looks.pid())), std::string::npos);
  close(mine);
}

TEST_F(FileLock, ButNotForEver) {
  const int left_over = LockOfTheDead(path_);
  const int mine = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  const Status status = LockFile(mine, path_, false, 100);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBusy);
  EXPECT_NE(status.error().message.find(path_), std::string::npos);
  close(mine);
  close(left_over);
}

}  // namespace
}  // namespace eplog
