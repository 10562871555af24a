#include "runtime/helper_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/runtime/await.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using namespace std::chrono_literals;

// Against hanging: what is waited for comes at once, or never.
constexpr auto kLimit = 20s;

class HelperThreads : public testing::Test {
 protected:
  void SetUp() override {
    auto made = IoUringLoop::Create();
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }
  void WaitToBeTold(bool& told) {
    std::unique_lock lock(mutex_);
    told = wake_.wait_for(lock, kLimit, [this] { return told_; });
  }
  void Tell() {
    const std::lock_guard lock(mutex_);
    told_ = true;
    wake_.notify_all();
  }
  // Counts what ran.
  static Task<void> Count(Task<Status> job, int* ran, int* running) {
    const Status status = co_await job;
    *ran += status.ok() ? 1 : 0;
    --*running;
  }

  // One that waits until the other tells it: two threads, at least.
  void RunTwoAtOnce(HelperThread& helper) {
    bool told = false;
    int ran = 0;
    int running = 2;
    loop_->Spawn(Count(helper.Run([&] { WaitToBeTold(told); }), &ran, &running));
    loop_->Spawn(Count(helper.Run([&] { Tell(); }), &ran, &running));
    ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
    EXPECT_TRUE(told) << "the second began only when the first had given up";
    EXPECT_EQ(ran, 2);
  }

  std::unique_ptr<IoUringLoop> loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
};

TEST_F(HelperThreads, OneThatWaitsDelaysNoOther) {
  HelperThread helper(*loop_, 2);
  RunTwoAtOnce(helper);
}

TEST_F(HelperThreads, OneThreadRunsOneAfterTheOther) {
  HelperThread helper(*loop_);
  std::string order;
  int ran = 0;
  int running = 20;
  for (char job = 'a'; job < 'a' + 20; ++job) {
    loop_->Spawn(Count(helper.Run([&order, job] { order += job; }), &ran, &running));
  }
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_EQ(order, "abcdefghijklmnopqrst");
  EXPECT_EQ(ran, 20);
}

TEST_F(HelperThreads, MoreJobsThanThreadsAllRun) {
  HelperThread helper(*loop_, 3);
  int sum = 0;
  int ran = 0;
  int running = 100;
  for (int i = 1; i <= 100; ++i) {
    loop_->Spawn(Count(helper.Run([this, &sum, i] {
      const std::lock_guard lock(mutex_);
      sum += i;
    }),
                       &ran, &running));
  }
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_EQ(sum, 5050);
  EXPECT_EQ(ran, 100);
}

// But those of io_uring, which come and go as the kernel likes.
size_t Threads() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name.starts_with("iou-") ? 0 : 1;
  }
  return count;
}

TEST_F(HelperThreads, JobsThatWaitForNoneNeedOneThread) {
  HelperThread helper(*loop_, 4);
  ASSERT_TRUE(helper.Start().ok());
  const size_t before = Threads();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(RunTask(*loop_, helper.Run([] {})).ok());
    EXPECT_EQ(loop_->in_flight(), 0U) << "nothing is listened for when nothing is to do";
  }
  EXPECT_TRUE(helper.Start().ok());
  EXPECT_EQ(Threads(), before);
}

// Others are started for jobs that have to wait for one, and not for one that is free.
TEST_F(HelperThreads, AreStartedOnlyWhereNoneIsFree) {
  HelperThread helper(*loop_, 4);
  RunTwoAtOnce(helper);
  const size_t before = Threads();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(RunTask(*loop_, helper.Run([] {})).ok());
  }
  EXPECT_EQ(Threads(), before) << "two are free";
  // Three that wait for each other: two are free, and one more is started.
  told_ = false;
  int ran = 0;
  int running = 3;
  bool first = false;
  bool second = false;
  loop_->Spawn(Count(helper.Run([&] { WaitToBeTold(first); }), &ran, &running));
  loop_->Spawn(Count(helper.Run([&] { WaitToBeTold(second); }), &ran, &running));
  loop_->Spawn(Count(helper.Run([&] { Tell(); }), &ran, &running));
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_TRUE(first && second);
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(Threads(), before + 1);
}

// Whoever ends waits for what was begun and for what was queued: both are somebody's memory.
TEST_F(HelperThreads, DoAllThatTheyWereGivenBeforeTheyGo) {
  std::string order;
  int ran = 0;
  int running = 5;
  {
    HelperThread helper(*loop_);
    for (char job = 'a'; job < 'f'; ++job) {
      loop_->Start(Count(helper.Run([&order, job] { order += job; }), &ran, &running));
    }
  }
  EXPECT_EQ(order, "abcde");
  loop_.reset();
}

TEST_F(HelperThreads, AreNoMoreThanMayBe) {
  HelperThread helper(*loop_, 2);
  std::set<std::thread::id> threads;
  std::array<bool, 2> told{};
  int ran = 0;
  int running = 12;
  const auto note = [this, &threads] {
    const std::lock_guard lock(mutex_);
    threads.insert(std::this_thread::get_id());
  };
  for (bool& each : told) {
    loop_->Spawn(Count(helper.Run([this, note, &each] {
      note();
      WaitToBeTold(each);
    }),
                       &ran, &running));
  }
  for (int i = 0; i < 10; ++i) {
    loop_->Spawn(Count(helper.Run(note), &ran, &running));
  }
  // When all of them wait, and both threads are there.
  loop_->Spawn([](auto* test, const std::set<std::thread::id>* seen) -> Task<void> {
    for (size_t count = 0; count < 2;) {
      co_await test->loop_->Sleep(1000);
      const std::lock_guard lock(test->mutex_);
      count = seen->size();
    }
    test->Tell();
  }(this, &threads));
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_TRUE(told[0] && told[1]);
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_EQ(ran, 12);
}

// Where no thread can be had: the one who asks is told, and the next one gets one if there is.
void JobsFailUntilThereIsAThread() {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  HelperThread helper(**loop);
  ThreadLimit limit;
  bool ran = false;
  for (int i = 0; i < 2; ++i) {
    const Status refused = RunTask(**loop, helper.Run([&] { ran = true; }));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(ran);
  }
  EXPECT_FALSE(helper.Start().ok());
  limit.Lift();
  EXPECT_TRUE(RunTask(**loop, helper.Run([&] { ran = true; })).ok());
  EXPECT_TRUE(ran);
}

TEST(HelperThreadDeathTest, JobsFailUntilThereIsAThread) {
  EPLOG_IN_A_PROCESS(JobsFailUntilThereIsAThread);
}

// What would have to be refused later, such as unmounting, is not begun.
void NothingIsRefusedOnceItHasStarted() {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  HelperThread helper(**loop, 2);
  EXPECT_TRUE(helper.Start().ok());
  const ThreadLimit limit;
  int ran = 0;
  EXPECT_TRUE(RunTask(**loop, helper.Run([&] { ++ran; })).ok());
  EXPECT_TRUE(RunTask(**loop, helper.Run([&] { ++ran; })).ok());
  EXPECT_EQ(ran, 2);
}

TEST(HelperThreadDeathTest, NothingIsRefusedOnceItHasStarted) {
  EPLOG_IN_A_PROCESS(NothingIsRefusedOnceItHasStarted);
}

// It could never tell that a job has ended.
void NoDescriptorIsLeft() {
  auto loop = IoUringLoop::Create();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 0;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const HelperThread helper(**loop);
}

TEST(HelperThreadDeathTest, WithoutADescriptorThereIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(NoDescriptorIsLeft(), "no descriptor left for an eventfd");
}

}  // namespace
}  // namespace eplog
