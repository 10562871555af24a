// Where a transfer is made, and when its end is heard of.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/io_uring_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using Try = IoUringLoop::Try;

// The kernel's own threads of this process.
size_t KernelWorkers() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name.starts_with("iou-wrk") ? 1 : 0;
  }
  return count;
}

// Before 5.12 they belonged to nobody.
bool KernelWorkersAreSeen() {
  utsname system{};
  int major = 0;
  int minor = 0;
  return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 12));
}

Task<int> ReadByte(IoUringLoop& loop, int fd, Try first) {
  char byte = 0;
  const iovec part{&byte, 1};
  const int read = co_await loop.Readv(fd, &part, 1, 0, first);
  co_return read;
}

Task<int> WriteByteTo(IoUringLoop& loop, int fd, Try first) {
  char byte = 'x';
  const iovec part{&byte, 1};
  const int written = co_await loop.Writev(fd, &part, 1, 0, first);
  co_return written;
}

// Between sockets that have data and room, so that nothing waits.
template <bool kWrites>
void IsMadeWhereItIsAskedFor() {
  auto loop = IoUringLoop::Create(4);
  ASSERT_TRUE(loop.ok());
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  ASSERT_EQ(::send(ends[1], "ab", 2, 0), 2);
  const auto transfer = [&](Try first) {
    return test::Await(
        **loop, kWrites ? WriteByteTo(**loop, ends[0], first) : ReadByte(**loop, ends[0], first));
  };
  EXPECT_EQ(transfer(Try::kHere), 1);
  EXPECT_EQ(KernelWorkers(), 0U);
  EXPECT_EQ(transfer(Try::kElsewhere), 1);
  EXPECT_GE(KernelWorkers(), 1U);
}

TEST(PlacesDeathTest, OfTransfersAreThoseThatAreAskedFor) {
  if (!IoUringLoop::Create(4).ok() || !KernelWorkersAreSeen()) {
    GTEST_SKIP() << "needs io_uring, with threads that can be seen";
  }
  EPLOG_IN_A_PROCESS(IsMadeWhereItIsAskedFor<false>);
  EPLOG_IN_A_PROCESS(IsMadeWhereItIsAskedFor<true>);
}

Task<void> HearOf(IoUringLoop& loop, int fd, int* events) {
  *events = co_await loop.PollAdd(fd, POLLIN);
}

// Gives way in circles, and after a while makes happen what the other waits for.
Task<int> YieldInCircles(IoUringLoop& loop, int fd, const int* events) {
  constexpr int kBefore = 50'000;  // many turns: the request is with the kernel by then
  constexpr int kMost = 20'000'000;
  int turns = 0;
  for (; turns < kMost && *events == 0; ++turns) {
    if (turns == kBefore) {
      EXPECT_EQ(::write(fd, "x", 1), 1);
    }
    co_await loop.Yield();
  }
  co_return turns;
}

// A loop that always has something to do never waits, and hears of what the kernel has all the
// same.
TEST(Places, WhatHappensLaterIsHeardOfByALoopThatNeverWaits) {
  auto loop = IoUringLoop::Create(4);
  if (!loop.ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  int events = 0;
  (*loop)->Spawn(HearOf(**loop, pipe[0], &events));
  EXPECT_LT(test::Await(**loop, YieldInCircles(**loop, pipe[1], &events)), 20'000'000);
  EXPECT_EQ(events, POLLIN);
  loop->reset();
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace eplog
