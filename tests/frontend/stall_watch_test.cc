// A thread that waits is told from one that works, and from one that gets no processor.
#include "frontend/stall_watch.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool KernelTells() {
  std::string call;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(::gettid()) + "/syscall"), call);
  return !call.empty();
}

TEST(Stall, ACallThatWaitsIsNamed) {
  if (!KernelTells()) {
    GTEST_SKIP() << "the kernel does not tell in which call a thread is";
  }
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  std::string line;
  {
    const StallWatch watch(milliseconds(100), [&](const std::string& text) {
      line = text;
      EXPECT_EQ(::write(pipe[1], "x", 1), 1);  // and sets it free
    });
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
  }
  EXPECT_NE(line.find("system call " + std::to_string(SYS_read) + " "), std::string::npos) << line;
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Stall, AWaitInPiecesIsOne) {
  if (!KernelTells()) {
    GTEST_SKIP() << "the kernel does not tell in which call a thread is";
  }
  std::atomic<bool> seen = false;
  const StallWatch watch(milliseconds(100), [&](const std::string&) { seen = true; });
  for (int i = 0; i < 6000 && !seen; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(seen);
}

TEST(Stall, WorkAndTheWaitOfTheLoopAreNone) {
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  std::atomic<int> stalls = 0;
  const StallWatch watch(milliseconds(100), [&](const std::string&) { ++stalls; });
  uint64_t work = 0;
  for (const auto until = steady_clock::now() + milliseconds(500); steady_clock::now() < until;) {
    ++work;
  }
  const Status slept = RunTask(**loop, [](EventLoop& on) -> Task<Status> {
    co_await on.Sleep(500'000);
    co_return OkStatus();
  }(**loop));
  EXPECT_TRUE(slept.ok());
  EXPECT_GT(work, 0U);
  EXPECT_EQ(stalls, 0);
}

void NobodyWatchesWithoutAThread() {
  const ThreadLimit limit;
  const StallWatch watch(milliseconds(100), [](const std::string&) {});
}

TEST(StallDeathTest, NobodyWatchesWithoutAThread) {
  EPLOG_IN_A_PROCESS(NobodyWatchesWithoutAThread);
}

}  // namespace
}  // namespace eplog
