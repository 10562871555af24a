#include "runtime/io_uring_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/task_group.h"
#include "tests/runtime/await.h"

namespace eplog {
namespace {

using test::Await;
using test::RunDry;

class IoUring : public ::testing::Test {
 protected:
  void SetUp() override { MakeLoop(64); }
  void MakeLoop(unsigned entries) {
    loop_.reset();
    auto made = IoUringLoop::Create(entries);
    if (!made.ok() && made.error().code == ErrorCode::kUnsupported) {
      GTEST_SKIP() << made.error().ToString();
    }
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }
  void TearDown() override {
    loop_.reset();
    for (const int fd : fds_) {
      close(fd);
    }
  }

  int Keep(int fd) {
    EXPECT_GE(fd, 0);
    fds_.push_back(fd);
    return fd;
  }
  int TempFile() {
    std::string path = ::testing::TempDir() + "eplog-loop-XXXXXX";
    const int fd = Keep(mkstemp(path.data()));
    unlink(path.c_str());
    return fd;
  }
  std::array<int, 2> Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    Keep(ends[0]);
    Keep(ends[1]);
    return ends;
  }

  std::unique_ptr<IoUringLoop> loop_;
  std::vector<int> fds_;
};

Task<int> WriteElsewhereThenAsk(IoUringLoop& loop, int fd, std::string text, std::string* back,
                                struct statx* file) {
  const iovec from{text.data(), text.size()};
  const int written = co_await loop.Writev(fd, &from, 1, 3, IoUringLoop::Try::kElsewhere);
  EXPECT_EQ(written, static_cast<int>(text.size()));
  back->resize(text.size() + 10);
  const iovec into{back->data(), back->size()};
  const int got = co_await loop.Readv(fd, &into, 1, 3, IoUringLoop::Try::kElsewhere);
  back->resize(static_cast<size_t>(std::max(got, 0)));
  const int asked = co_await loop.Statx(fd, STATX_SIZE, file);
  co_return asked;
}

TEST_F(IoUring, TransfersThatAreTriedElsewhereAndTheSizeAfterwards) {
  std::string back;
  struct statx file {};
  EXPECT_EQ(Await(*loop_, WriteElsewhereThenAsk(*loop_, TempFile(), "some text", &back, &file)), 0);
  EXPECT_EQ(back, "some text");
  EXPECT_EQ(file.stx_size, 12U);
  EXPECT_EQ(Await(*loop_, WriteElsewhereThenAsk(*loop_, TempFile(), "x", &back, &file)), 0);
  EXPECT_EQ(file.stx_size, 4U);
}

Task<int> WriteThenRead(IoUringLoop& loop, int fd, std::string text, std::string* back) {
  std::string tail = " and more";
  const std::array<iovec, 2> out{iovec{text.data(), text.size()}, iovec{tail.data(), tail.size()}};
  const int written = co_await loop.Writev(fd, out.data(), 2, 5);
  if (written < 0) {
    co_return written;
  }
  const int synced = co_await loop.Fdatasync(fd);
  if (synced < 0) {
    co_return synced;
  }
  back->resize(100);
  const iovec in{back->data(), back->size()};
  const int read = co_await loop.Readv(fd, &in, 1, 5);
  co_return read;
}

TEST_F(IoUring, WritesReadsAndSyncsAFile) {
  std::string back;
  EXPECT_EQ(Await(*loop_, WriteThenRead(*loop_, TempFile(), "some text", &back)), 18);
  EXPECT_EQ(back.substr(0, 18), "some text and more");
  EXPECT_EQ(loop_->in_flight(), 0U);
}

TEST_F(IoUring, ErrorsAreNegativeErrno) {
  std::string back;
  const int closed = Keep(dup(0));
  fds_.pop_back();
  close(closed);
  EXPECT_EQ(Await(*loop_, WriteThenRead(*loop_, closed, "x", &back)), -EBADF);
}

Task<int> Reserve(IoUringLoop& loop, int fd) {
  const int result = co_await loop.Fallocate(fd, FALLOC_FL_KEEP_SIZE, 4096, 8192);
  co_return result;
}

TEST_F(IoUring, Fallocate) {
  const int result = Await(*loop_, Reserve(*loop_, TempFile()));
  if (result == -EOPNOTSUPP) {
    GTEST_SKIP() << "the file system of " << ::testing::TempDir() << " has no fallocate";
  }
  EXPECT_EQ(result, 0);
}

Task<void> PollAndLog(IoUringLoop& loop, int fd, int* events) {
  *events = co_await loop.PollAdd(fd, POLLIN);
}

TEST_F(IoUring, PollTellsWhenAPipeCanBeRead) {
  const auto ends = Pipe();
  int events = 0;
  loop_->Spawn(PollAndLog(*loop_, ends[0], &events));
  uint64_t slept = loop_->NowUs() + 2000;
  const auto nothing = [&] { return loop_->NowUs() >= slept; };
  loop_->Spawn([](IoUringLoop& loop) -> Task<void> { co_await loop.Sleep(3000); }(*loop_));
  static_cast<void>(loop_->RunUntil(nothing));
  EXPECT_EQ(events, 0);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(loop_->RunUntil([&] { return events != 0; }));
  EXPECT_NE(events & POLLIN, 0);
}

Task<int> ReadFrom(IoUringLoop& loop, int fd, void* memory, unsigned length) {
  const int result = co_await loop.Read(fd, memory, length);
  co_return result;
}

TEST_F(IoUring, SignalsComeThroughASignalfd) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &set, &old);
  const int fd = Keep(signalfd(-1, &set, SFD_CLOEXEC));
  int events = 0;
  loop_->Spawn(PollAndLog(*loop_, fd, &events));
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_TRUE(loop_->RunUntil([&] { return events != 0; }));
  signalfd_siginfo info{};
  EXPECT_EQ(Await(*loop_, ReadFrom(*loop_, fd, &info, sizeof(info))),
            static_cast<int>(sizeof(info)));
  EXPECT_EQ(info.ssi_signo, static_cast<uint32_t>(SIGUSR1));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Task<void> SleepAndLog(IoUringLoop& loop, uint64_t us, int id, std::vector<int>* log) {
  co_await loop.Sleep(us);
  log->push_back(id);
}

TEST_F(IoUring, TimersAreServedInOrderAndNotEarly) {
  std::vector<int> log;
  const uint64_t start = loop_->NowUs();
  loop_->Spawn(SleepAndLog(*loop_, 6000, 2, &log));
  loop_->Spawn(SleepAndLog(*loop_, 2000, 1, &log));
  EXPECT_FALSE(loop_->RunUntil([] { return false; })) << "nothing is left to happen";
  EXPECT_EQ(log, std::vector<int>({1, 2}));
  EXPECT_GE(loop_->NowUs() - start, 6000U);
}

TEST_F(IoUring, PollReturnsFalseOnlyWithNothingInFlight) {
  const auto ends = Pipe();
  int events = 0;
  EXPECT_FALSE(loop_->RunUntil([] { return false; }));
  loop_->Spawn(PollAndLog(*loop_, ends[0], &events));
  std::vector<int> log;
  loop_->Spawn(SleepAndLog(*loop_, 1000, 1, &log));
  EXPECT_TRUE(loop_->RunUntil([&] { return !log.empty(); }));
  EXPECT_EQ(loop_->in_flight(), 1U);
}

Task<Status> WriteByte(IoUringLoop& loop, int fd, uint64_t at) {
  char byte = static_cast<char>(at);
  const iovec part{&byte, 1};
  const int result = co_await loop.Writev(fd, &part, 1, at);
  if (result != 1) {
    co_return FailErrno(-result, "write");
  }
  co_return OkStatus();
}

Task<Status> WriteMany(IoUringLoop& loop, int fd, uint64_t count) {
  TaskGroup group(loop);
  for (uint64_t i = 0; i < count; ++i) {
    group.Start(WriteByte(loop, fd, i));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// Of requests that nothing completes meanwhile, so that no enter is for that.
TEST_F(IoUring, OneEnterForAllThatATurnAsksFor) {
  const auto ends = Pipe();
  std::array<int, 50> events{};
  for (int& event : events) {
    loop_->Spawn(PollAndLog(*loop_, ends[0], &event));
  }
  const uint64_t before = loop_->enters();
  std::vector<int> log;
  loop_->Spawn(SleepAndLog(*loop_, 1000, 1, &log));
  EXPECT_TRUE(loop_->RunUntil([&] { return !log.empty(); }));
  EXPECT_EQ(loop_->in_flight(), 50U);
  EXPECT_LE(loop_->enters() - before, 5U);  // one submits them all, the others wait for the timer
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(loop_->RunUntil(
      [&] { return std::all_of(events.begin(), events.end(), [](int e) { return e != 0; }); }));
}

TEST_F(IoUring, MoreRequestsThanTheQueueHolds) {
  MakeLoop(4);
  const int fd = TempFile();
  ASSERT_TRUE(Await(*loop_, WriteMany(*loop_, fd, 1000)).ok());
  EXPECT_EQ(loop_->in_flight(), 0U);
  std::vector<char> back(1000);
  ASSERT_EQ(pread(fd, back.data(), back.size(), 0), 1000);
  for (size_t i = 0; i < back.size(); ++i) {
    ASSERT_EQ(back[i], static_cast<char>(i)) << i;
  }
}

// Polls that never end must not keep the requests behind them from the kernel.
TEST_F(IoUring, ABacklogGoesOnWhileNothingCompletes) {
  MakeLoop(4);
  const auto ends = Pipe();
  int events = 0;
  for (int i = 0; i < 20; ++i) {
    loop_->Spawn(PollAndLog(*loop_, ends[0], &events));
  }
  EXPECT_TRUE(Await(*loop_, WriteMany(*loop_, TempFile(), 1)).ok());
  EXPECT_EQ(loop_->in_flight(), 20U);
}

Task<void> ReadIntoFrame(IoUringLoop& loop, int fd, int* destroyed) {
  struct Mark {
    int* count;
    ~Mark() { ++*count; }
  };
  const Mark mark{destroyed};
  std::array<char, 4096> in_the_frame{};
  const int result = co_await loop.Read(fd, in_the_frame.data(), in_the_frame.size());
  ADD_FAILURE() << "resumed after the loop's end with " << result << mark.count;
}

TEST_F(IoUring, DestructionWithRequestsInFlightCancelsThemFirst) {
  MakeLoop(4);
  const auto ends = Pipe();
  int destroyed = 0;
  int events = 0;
  for (int i = 0; i < 10; ++i) {  // more than the queue holds: some are only in the backlog
    loop_->Spawn(ReadIntoFrame(*loop_, ends[0], &destroyed));
    loop_->Spawn(PollAndLog(*loop_, ends[0], &events));
  }
  std::vector<int> log;
  loop_->Spawn(SleepAndLog(*loop_, 500, 1, &log));
  EXPECT_TRUE(loop_->RunUntil([&] { return !log.empty(); }));
  EXPECT_EQ(loop_->in_flight(), 20U);
  loop_.reset();
  EXPECT_EQ(destroyed, 10);
  EXPECT_EQ(write(ends[1], "x", 1), 1);  // reaches nobody
}

TEST_F(IoUring, AbortLeavesALoopThatWorks) {
  const auto ends = Pipe();
  int destroyed = 0;
  loop_->Spawn(ReadIntoFrame(*loop_, ends[0], &destroyed));
  loop_->Spawn([](IoUringLoop& loop, int fd) -> Task<void> {
    Task<Status> writes = WriteMany(loop, fd, 20);
    static_cast<void>(co_await writes);
  }(*loop_, TempFile()));
  std::vector<int> log;
  loop_->Spawn(SleepAndLog(*loop_, 0, 1, &log));
  EXPECT_TRUE(loop_->RunUntil([&] { return !log.empty(); }));
  loop_->Abort();
  EXPECT_EQ(loop_->in_flight(), 0U);
  std::string back;
  EXPECT_EQ(Await(*loop_, WriteThenRead(*loop_, TempFile(), "some text", &back)), 18);
}

TEST_F(IoUring, RequestsThatCanBeCancelledEndBeforeTheDeadline) {
  const auto ends = Pipe();
  int destroyed = 0;
  loop_->Spawn(ReadIntoFrame(*loop_, ends[0], &destroyed));
  std::vector<int> log;
  loop_->Spawn(SleepAndLog(*loop_, 0, 1, &log));
  EXPECT_TRUE(loop_->RunUntil([&] { return !log.empty(); }));
  EXPECT_EQ(loop_->in_flight(), 1U);
  EXPECT_TRUE(loop_->EndRequests(loop_->NowUs() + 60'000'000));
  EXPECT_EQ(loop_->in_flight(), 0U);
  EXPECT_EQ(destroyed, 0) << "nobody runs meanwhile";
  loop_.reset();
  EXPECT_EQ(destroyed, 1);
}

Task<void> YieldUntil(IoUringLoop& loop, const int* events, uint64_t* turns) {
  while (*events == 0 && *turns < 100000000) {
    ++*turns;
    co_await loop.Yield();
  }
}

TEST_F(IoUring, TasksThatYieldInCirclesDoNotStarveCompletions) {
  const int fd = Keep(eventfd(1, EFD_CLOEXEC));
  int events = 0;
  uint64_t turns = 0;
  loop_->Spawn(YieldUntil(*loop_, &events, &turns));
  loop_->Spawn(PollAndLog(*loop_, fd, &events));
  EXPECT_TRUE(loop_->RunUntil([&] { return events != 0; }));
  EXPECT_LT(turns, 100000000U);
}

// As the lock of an array, whose devices a killed process may still write to.
TEST_F(IoUring, WhatIsKeptOpenIsLockedUntilTheLoopIsGone) {
  std::string path = ::testing::TempDir() + "eplog-kept-XXXXXX";
  const auto lock = [&] {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(flock(fd, LOCK_EX), 0);
    return fd;
  };
  Keep(mkstemp(path.data()));
  const int other = Keep(open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(loop_->KeepOpen(-1));
  for (const bool other_in_its_place : {true, false}) {
    const int kept = lock();
    ASSERT_TRUE(loop_->KeepOpen(kept));
    close(kept);
    EXPECT_NE(flock(other, LOCK_EX | LOCK_NB), 0) << "the close gave it up";
    EXPECT_TRUE(loop_->KeepOpen(other_in_its_place ? TempFile() : -1));
    EXPECT_EQ(flock(other, LOCK_EX), 0);  // waits: the kernel lets go in its own time
    EXPECT_EQ(flock(other, LOCK_UN), 0);
  }
  const int kept = lock();
  ASSERT_TRUE(loop_->KeepOpen(kept));
  close(kept);
  loop_.reset();
  EXPECT_EQ(flock(other, LOCK_EX), 0);
  unlink(path.c_str());
}

}  // namespace
}  // namespace eplog
