#include "runtime/helper_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

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

  std::unique_ptr<IoUringLoop> loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
};

TEST_F(HelperThreads, OneThatWaitsDelaysNoOther) {
  HelperThread helper(*loop_, 2);
  bool told = false;
  int ran = 0;
  int running = 2;
  loop_->Spawn(Count(helper.Run([&] { WaitToBeTold(told); }), &ran, &running));
  loop_->Spawn(Count(helper.Run([&] { Tell(); }), &ran, &running));
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_TRUE(told) << "the second began only when the first had given up";
  EXPECT_EQ(ran, 2);
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

}  // namespace
}  // namespace eplog
