// What the kernel may answer to whoever enters it: some errors pass, and are tried again; others
// end the program, which would wait for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/io_uring_loop.h"
#include "runtime/task_group.h"
#include "tests/runtime/await.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using test::Await;

// Answers calls of io_uring_enter in the kernel's place, one after the other; after that, and every
// second time, the kernel does. For the thread that began it and those it starts, for good.
class EnterFails {
 public:
  static const EnterFails& With(std::vector<int> errors) {
    return *new EnterFails(std::move(errors));  // to the end of this process
  }
  [[nodiscard]] bool ok() const { return fd_ >= 0; }
  [[nodiscard]] size_t answered() const { return answered_; }

 private:
  explicit EnterFails(std::vector<int> errors) : errors_(std::move(errors)) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {4, filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
      fd_ = static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                       SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    }
    if (fd_ >= 0) {
      std::thread([this] { Answer(); }).detach();
    }
  }

  void Answer() {
    for (unsigned call = 0;; ++call) {
      seccomp_notif asked{};
      if (::ioctl(fd_, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
        continue;
      }
      seccomp_notif_resp answer{};
      answer.id = asked.id;
      if (call % 2 == 0 && answered_ < errors_.size()) {
        answer.error = -errors_[answered_];
        ++answered_;
      } else {
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      }
      ::ioctl(fd_, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }

  int fd_ = -1;
  std::vector<int> errors_;
  std::atomic<size_t> answered_ = 0;
};

int TempFile() {
  std::string path = testing::TempDir() + "eplog-enter-XXXXXX";
  const int fd = ::mkstemp(path.data());
  ::unlink(path.c_str());
  return fd;
}

Task<void> Write(IoUringLoop& loop, int fd, char byte, uint64_t at, int* written) {
  const iovec part{&byte, 1};
  const int result = co_await loop.Writev(fd, &part, 1, at);
  *written += result;
}

Task<void> Poll(IoUringLoop& loop, int fd, int* events) {
  *events = co_await loop.PollAdd(fd, POLLIN);
}

// More requests than there is room for, so that some go without waiting; then one by one.
std::string WriteLetters(IoUringLoop& loop) {
  const int fd = TempFile();
  int written = 0;
  std::string letters = "abcdefghijklmnopqrstuvwxyz";
  for (size_t i = 0; i < letters.size(); ++i) {
    loop.Spawn(Write(loop, fd, letters[i], i, &written));
  }
  EXPECT_TRUE(loop.RunUntil([&] { return written == 26; }));
  for (size_t i = 0; i < letters.size(); ++i) {
    Await(loop, Write(loop, fd, letters[i], letters.size() + i, &written));
  }
  EXPECT_EQ(written, 52);
  std::string text(100, '?');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  ::close(fd);
  return text;
}

constexpr std::array<int, 5> kPassing = {ETIME, EINTR, EAGAIN, EBUSY, ENOMEM};

void ErrorsThatPassAreTriedAgain() {
  auto loop = IoUringLoop::Create(4);
  ASSERT_TRUE(loop.ok());
  std::vector<int> errors;
  for (int i = 0; i < 50; ++i) {
    errors.push_back(kPassing[static_cast<size_t>(i) % kPassing.size()]);
  }
  const EnterFails& fails = EnterFails::With(errors);
  if (!fails.ok()) {
    return;  // this cannot be shown here
  }
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  while (fails.answered() < errors.size()) {
    ASSERT_EQ(WriteLetters(**loop), letters + letters);
  }
  EXPECT_EQ(WriteLetters(**loop), letters + letters);
}

// Requests that the kernel has by the end of this, and does not answer.
bool PollTenTimes(IoUringLoop& loop, int fd, int* events) {
  for (int i = 0; i < 10; ++i) {
    loop.Spawn(Poll(loop, fd, events));
  }
  bool slept = false;
  loop.Spawn([](IoUringLoop& on, bool* over) -> Task<void> {
    co_await on.Sleep(1000);
    *over = true;
  }(loop, &slept));
  return loop.RunUntil([&] { return slept; });
}

// To the end: what is cancelled then, is cancelled.
void ErrorsThatPassDoNotKeepALoopFromEnding() {
  auto loop = IoUringLoop::Create(4);
  ASSERT_TRUE(loop.ok());
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  int events = 0;
  EXPECT_TRUE(PollTenTimes(**loop, pipe[0], &events));
  EXPECT_EQ((*loop)->in_flight(), 10U);
  const EnterFails& fails = EnterFails::With({kPassing.begin(), kPassing.end()});
  EXPECT_TRUE((*loop)->EndRequests(UINT64_MAX));
  EXPECT_EQ((*loop)->in_flight(), 0U);
  if (fails.ok()) {
    EXPECT_GT(fails.answered(), 0U);
  }
}

TEST(EnteringDeathTest, ErrorsThatPassAreTriedAgain) {
  if (!IoUringLoop::Create(4).ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  EPLOG_IN_A_PROCESS(ErrorsThatPassAreTriedAgain);
  EPLOG_IN_A_PROCESS(ErrorsThatPassDoNotKeepALoopFromEnding);
}

Task<void> YieldUntil(IoUringLoop& loop, const int* over) {
  for (bool waits = true; waits; waits = *over == 0) {
    co_await loop.Yield();
  }
}

// Whether it would have waited for completions or not.
void EndsWith(int error, bool waiting) {
  auto loop = IoUringLoop::Create(4);
  const EnterFails& fails = EnterFails::With({error, error, error});
  if (!fails.ok()) {
    std::fprintf(stderr, "io_uring_enter fails, or so it would");
    std::abort();
  }
  int written = 0;
  (*loop)->Spawn(Write(**loop, TempFile(), 'x', 0, &written));
  if (waiting) {
    static_cast<void>((*loop)->RunUntil([&] { return written != 0; }));
  }
  (*loop)->Spawn(YieldUntil(**loop, &written));
  static_cast<void>((*loop)->RunUntil([&] { return written != 0; }));
}

TEST(EnteringDeathTest, ErrorsThatDoNotPassEndTheProgram) {
  if (!IoUringLoop::Create(4).ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int error : {EBADF, EINVAL, EPERM, EFAULT, ENXIO, EOVERFLOW}) {
    EXPECT_DEATH(EndsWith(error, true), "io_uring_enter fails") << error;
    EXPECT_DEATH(EndsWith(error, false), "io_uring_enter fails") << error;
  }
}

// What is to be cancelled at the end is told the kernel, too.
void EndingFails() {
  auto loop = IoUringLoop::Create(4);
  std::array<int, 2> pipe{};
  int events = 0;
  if (::pipe2(pipe.data(), O_CLOEXEC) == 0) {
    static_cast<void>(PollTenTimes(**loop, pipe[0], &events));
  }
  if (!EnterFails::With({EINVAL}).ok()) {
    std::fprintf(stderr, "io_uring_enter fails, or so it would");
    std::abort();
  }
  static_cast<void>((*loop)->EndRequests(UINT64_MAX));
}

TEST(EnteringDeathTest, ErrorsAtTheEndThatDoNotPassEndTheProgram) {
  if (!IoUringLoop::Create(4).ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(EndingFails(), "io_uring_enter fails");
}

// Who only gives way to others asks the kernel for nothing.
TEST(Entering, WhereThereIsNothingToAskForNobodyEnters) {
  auto loop = IoUringLoop::Create(4);
  if (!loop.ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  int events = 0;
  (*loop)->Spawn(Poll(**loop, pipe[0], &events));
  const auto yield = [](IoUringLoop& on) -> Task<void> {
    for (int i = 0; i < 200'000; ++i) {  // many turns
      co_await on.Yield();
    }
  };
  Await(**loop, yield(**loop));
  EXPECT_EQ((*loop)->in_flight(), 1U);
  EXPECT_LT((*loop)->enters(), 20U);
  EXPECT_GE((*loop)->enters(), 1U) << "the one that there is was handed over";
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  EXPECT_TRUE((*loop)->RunUntil([&] { return events != 0; }));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// Of somebody else in the process, while nothing happens that the loop waits for.
TEST(Entering, SignalsDoNotEndAWait) {
  auto loop = IoUringLoop::Create(4);
  if (!loop.ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  struct sigaction noted {};
  struct sigaction before {};
  noted.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &noted, &before), 0);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  int events = 0;
  (*loop)->Spawn(Poll(**loop, pipe[0], &events));
  const pthread_t here = ::pthread_self();
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      ::pthread_kill(here, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(::write(pipe[1], "x", 1), 1);
  });
  EXPECT_TRUE((*loop)->RunUntil([&] { return events != 0; }));
  other.join();
  EXPECT_EQ(events, POLLIN);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

}  // namespace
}  // namespace eplog
