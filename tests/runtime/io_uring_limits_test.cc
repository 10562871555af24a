// Loops of any size, more requests than the kernel takes at once, what a request does to its file,
// and what is said where there is no io_uring.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/io_uring_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using test::Await;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class Rings : public testing::Test {
 protected:
  void SetUp() override { Make(64); }
  void TearDown() override {
    loop_.reset();
    for (const int fd : fds_) {
      ::close(fd);
    }
  }
  void Make(unsigned entries) {
    loop_.reset();
    auto made = IoUringLoop::Create(entries);
    if (!made.ok() && made.error().code == ErrorCode::kUnsupported && entries == 64) {
      GTEST_SKIP() << made.error().ToString();
    }
    ASSERT_TRUE(made.ok()) << entries;
    loop_ = std::move(*made);
  }
  int Keep(int fd) {
    EXPECT_GE(fd, 0);
    fds_.push_back(fd);
    return fd;
  }
  int TempFile() {
    std::string path = testing::TempDir() + "eplog-rings-XXXXXX";
    const int fd = Keep(::mkstemp(path.data()));
    ::unlink(path.c_str());
    return fd;
  }
  static off_t SizeOf(int fd) {
    struct stat info {};
    EXPECT_EQ(::fstat(fd, &info), 0);
    return info.st_size;
  }
  // What an eventfd has counted, once it has.
  static Task<void> Count(IoUringLoop& loop, int fd, uint64_t* sum, int* ended) {
    uint64_t count = 0;
    const int read = co_await loop.Read(fd, &count, sizeof(count));
    EXPECT_EQ(read, 8);
    *sum += count;
    ++*ended;
  }
  static Task<std::string> Next(IoUringLoop& loop, int fd, unsigned most) {
    std::string text(most, '\0');
    const int read = co_await loop.Read(fd, text.data(), most);
    text.resize(read < 0 ? 0 : static_cast<size_t>(read));
    co_return text;
  }
  static Task<int> Reserve(IoUringLoop& loop, int fd, int mode, uint64_t offset, uint64_t length) {
    const int result = co_await loop.Fallocate(fd, mode, offset, length);
    co_return result;
  }
  static Task<int> Sync(IoUringLoop& loop, int fd, bool data_only) {
    if (data_only) {
      const int result = co_await loop.Fdatasync(fd);
      co_return result;
    }
    const int result = co_await loop.Fsync(fd);
    co_return result;
  }

  std::unique_ptr<IoUringLoop> loop_;
  std::vector<int> fds_;
};

TEST_F(Rings, HaveOneDescriptorAndGiveItBack) {
  loop_.reset();
  const size_t before = OpenDescriptors();
  Make(64);
  EXPECT_EQ(OpenDescriptors(), before + 1);
  loop_.reset();
  EXPECT_EQ(OpenDescriptors(), before);
}

// None too small, none too large; and each takes all there is, in its turn.
TEST_F(Rings, OfAnySizeTakeAnyNumberOfRequests) {
  constexpr int kMany = 60;
  for (const unsigned entries : {0U, 1U, 3U, 64U, 1'000'000U}) {
    SCOPED_TRACE(entries);
    Make(entries);
    uint64_t sum = 0;
    int ended = 0;
    std::vector<int> events;
    for (int i = 0; i < kMany; ++i) {
      events.push_back(Keep(::eventfd(0, EFD_CLOEXEC)));
      loop_->Spawn(Count(*loop_, events.back(), &sum, &ended));
    }
    const int first = Keep(::eventfd(1, EFD_CLOEXEC));
    uint64_t first_sum = 0;
    int first_ended = 0;
    if (entries >= 64) {  // behind all of them in smaller ones
      loop_->Spawn(Count(*loop_, first, &first_sum, &first_ended));
      EXPECT_TRUE(loop_->RunUntil([&] { return first_ended == 1; }));
      EXPECT_EQ(loop_->in_flight(), size_t{kMany});
    }
    for (size_t i = 0; i < events.size(); ++i) {
      const uint64_t count = i + 1;
      ASSERT_EQ(::write(events[i], &count, sizeof(count)), 8);
    }
    EXPECT_TRUE(loop_->RunUntil([&] { return ended == kMany; }));
    EXPECT_EQ(sum, uint64_t{kMany} * (kMany + 1) / 2);
    EXPECT_EQ(loop_->in_flight(), 0U);
  }
}

TEST_F(Rings, TellTheTimeOfTheMachine) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000 +
           static_cast<uint64_t>(time.tv_nsec) / 1000;
  };
  // Between two looks at the clock, however long they are apart.
  const std::array<uint64_t, 3> in_order{now(), loop_->NowUs(), now()};
  EXPECT_TRUE(std::ranges::is_sorted(in_order));
}

TEST_F(Rings, ReadAStreamFromWhereItIs) {
  const int fd = TempFile();
  ASSERT_EQ(::write(fd, "one two ", 8), 8);
  ASSERT_EQ(::lseek(fd, 0, SEEK_SET), 0);
  EXPECT_EQ(Await(*loop_, Next(*loop_, fd, 4)), "one ");
  EXPECT_EQ(Await(*loop_, Next(*loop_, fd, 4)), "two ");
  EXPECT_EQ(Await(*loop_, Next(*loop_, fd, 4)), "");
}

TEST_F(Rings, ReserveTheRangeAndInTheWayThatIsAskedFor) {
  const int fd = TempFile();
  const int kept = Await(*loop_, Reserve(*loop_, fd, FALLOC_FL_KEEP_SIZE, 4096, 8192));
  if (kept == -EOPNOTSUPP) {
    GTEST_SKIP() << "the file system of " << testing::TempDir() << " has no fallocate";
  }
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(SizeOf(fd), 0);
  EXPECT_EQ(Await(*loop_, Reserve(*loop_, fd, 0, 4096, 8192)), 0);
  EXPECT_EQ(SizeOf(fd), 12288);
  ASSERT_EQ(::pwrite(fd, "0123456789", 10, 4096), 10);
  const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  EXPECT_EQ(Await(*loop_, Reserve(*loop_, fd, punch, 4098, 3)), 0);
  std::string text(10, '?');
  ASSERT_EQ(::pread(fd, text.data(), 10, 4096), 10);
  EXPECT_EQ(text, std::string("01\0\0\0"
                              "56789",
                              10));
}

TEST_F(Rings, SyncFilesAndRefuseWhatCannotBeSynced) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  Keep(pipe[0]);
  Keep(pipe[1]);
  for (const bool data_only : {false, true}) {
    EXPECT_EQ(Await(*loop_, Sync(*loop_, TempFile(), data_only)), 0);
    EXPECT_EQ(Await(*loop_, Sync(*loop_, pipe[1], data_only)), -EINVAL);
    EXPECT_EQ(Await(*loop_, Sync(*loop_, -1, data_only)), -EBADF);
  }
}

// ---- where there is none

// The kernel answers so, as an old one or a container does.
template <int kError>
void IsRefused() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | kError),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return;  // this cannot be shown here
  }
  const auto refused = IoUringLoop::Create(64);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().errno_value, kError);
  const std::string_view begin = kError == ENOSYS  ? "this kernel has no io_uring"
                                 : kError == EPERM ? "io_uring is forbidden here"
                                                   : "cannot set up io_uring";
  EXPECT_EQ(refused.error().message.substr(0, begin.size()), begin);
}

TEST(RingsDeathTest, WhatIsMissingIsSaid) {
  EPLOG_IN_A_PROCESS(IsRefused<ENOSYS>);
  EPLOG_IN_A_PROCESS(IsRefused<EPERM>);
  EPLOG_IN_A_PROCESS(IsRefused<ENOMEM>);
  EPLOG_IN_A_PROCESS(IsRefused<EINVAL>);  // whatever is asked for
}

}  // namespace
}  // namespace eplog
