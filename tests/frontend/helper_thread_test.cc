#include "frontend/helper_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/io_uring_loop.h"
#include "tests/runtime/await.h"

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
  // Ends when it is told to. 0: it was.
  int WaitToBeTold() {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, kLimit, [this] { return told_; }) ? 0 : 1;
  }
  int Tell() {
    const std::lock_guard lock(mutex_);
    told_ = true;
    wake_.notify_all();
    return 0;
  }
  static Task<void> Store(Task<int> job, int* result, int* running) {
    *result = co_await job;
    --*running;
  }

  std::unique_ptr<IoUringLoop> loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
};

TEST_F(HelperThreads, OneThatWaitsDelaysNoOther) {
  HelperThread helper(*loop_, 2);
  int waited = -1;
  int told = -1;
  int running = 2;
  loop_->Spawn(Store(helper.Run([this] { return WaitToBeTold(); }), &waited, &running));
  loop_->Spawn(Store(helper.Run([this] { return Tell(); }), &told, &running));
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_EQ(waited, 0) << "the second began only when the first had given up";
  EXPECT_EQ(told, 0);
}

TEST_F(HelperThreads, OneThreadRunsOneAfterTheOther) {
  HelperThread helper(*loop_);
  std::string order;
  int result = 0;
  int running = 20;
  for (char job = 'a'; job < 'a' + 20; ++job) {
    loop_->Spawn(Store(helper.Run([&order, job] {
      order += job;
      return 0;
    }),
                       &result, &running));
  }
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_EQ(order, "abcdefghijklmnopqrst");
}

TEST_F(HelperThreads, MoreJobsThanThreadsAllRun) {
  HelperThread helper(*loop_, 3);
  int sum = 0;
  int result = 0;
  int running = 100;
  for (int i = 1; i <= 100; ++i) {
    loop_->Spawn(Store(helper.Run([this, &sum, i] {
      const std::lock_guard lock(mutex_);
      sum += i;
      return 0;
    }),
                       &result, &running));
  }
  ASSERT_TRUE(loop_->RunUntil([&] { return running == 0; }));
  EXPECT_EQ(sum, 5050);
}

}  // namespace
}  // namespace eplog
