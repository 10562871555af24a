#include "host/bounded_call.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using Clock = std::chrono::steady_clock;

TEST(BoundedCall, ReturnsWhatTheCallReturns) {
  BoundedCall<std::unique_ptr<int>> call([] { return std::make_unique<int>(7); });
  const auto result = call.Wait(Clock::now() + std::chrono::minutes(5));
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(**result, 7);
}

// As a device that was opened too late is closed.
TEST(BoundedCall, WhatComesTooLateIsDestroyed) {
  struct Late {
    std::atomic<int>* destroyed;
    ~Late() { ++*destroyed; }
  };
  const auto destroyed = std::make_shared<std::atomic<int>>(0);
  const auto hanging = std::make_shared<std::promise<void>>();
  {
    BoundedCall<std::unique_ptr<Late>> call([destroyed, hanging] {
      hanging->get_future().wait();
      return std::unique_ptr<Late>(new Late{destroyed.get()});
    });
    EXPECT_FALSE(call.Wait(Clock::now() + std::chrono::milliseconds(20)).has_value());
  }
  EXPECT_EQ(*destroyed, 0);
  hanging->set_value();
  for (int i = 0; i < 60'000 && *destroyed == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(*destroyed, 1);
}

TEST(BoundedCall, WhatALookFindsIsReturnedAndWhoDoesNotAnswerIsNamed) {
  const auto found = Bounded<int>("/x", []() -> Result<int> { return 7; });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, 7);
  const auto refused =
      Bounded<int>("/x", []() -> Result<int> { return Fail(ErrorCode::kExists, "no"); });
  EXPECT_EQ(refused.error().message, "no");
  const Error late = DoesNotAnswer("/x/y").value();
  EXPECT_EQ(late.code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(late.message, "/x/y does not answer: nothing came within 10 s");
}

// They are for the serving process, which takes them its own way; a thread that is left behind must
// not be the one that dies of them.
TEST(BoundedCall, TakesNoSignals) {
  BoundedCall<bool> call([] {
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1;
  });
  EXPECT_EQ(call.Wait(Clock::now() + std::chrono::minutes(5)), true);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0) << "and the caller's are as they were";
}

void IsMadeHereWithoutAThread() {
  const ThreadLimit limit;
  BoundedCall<std::thread::id> call([] { return std::this_thread::get_id(); });
  EXPECT_EQ(call.Wait(Clock::now() + std::chrono::minutes(5)), std::this_thread::get_id());
}

TEST(BoundedCallDeathTest, IsMadeHereWithoutAThread) {
  EPLOG_IN_A_PROCESS(IsMadeHereWithoutAThread);
}

}  // namespace
}  // namespace eplog
