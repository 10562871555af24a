// Work that nobody waits for: one job after the other, no more than may wait, and an end that waits
// only as long as it may.
#include "runtime/side_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/no_threads.h"

namespace eplog {
namespace {

constexpr auto kPatience = std::chrono::minutes(2);

// A job that has begun and ends when it is told to.
class Stuck {
 public:
  explicit Stuck(SideThread& side) {
    auto began = std::make_shared<std::promise<void>>();
    EXPECT_TRUE(side.Post([began, may = may_.get_future().share(), ended = ended_] {
      began->set_value();
      may.wait();
      ended->set_value();
    }));
    began->get_future().wait();
  }
  void End() {
    may_.set_value();
    ended_->get_future().wait();
  }

 private:
  std::promise<void> may_;
  std::shared_ptr<std::promise<void>> ended_ = std::make_shared<std::promise<void>>();
};

TEST(Side, JobsAreDoneInTheirOrderAndTheEndWaitsForThem) {
  SideThread side(3);
  Stuck stuck(side);
  std::string order;
  for (const char job : {'a', 'b', 'c'}) {
    EXPECT_TRUE(side.Post([&order, job] { order += job; }));
  }
  EXPECT_FALSE(side.Post([&order] { order += 'd'; })) << "three may wait";
  EXPECT_EQ(order, "");
  stuck.End();
  EXPECT_TRUE(side.Finish(kPatience));
  EXPECT_EQ(order, "abc");
  EXPECT_FALSE(side.Post([&order] { order += 'e'; })) << "there is an end";
  EXPECT_TRUE(side.Finish(kPatience));
  EXPECT_EQ(order, "abc");
}

// Each is waited for by itself: a thread that has nothing to do waits for the next.
TEST(Side, OneAfterTheOtherIsTakenAsItComes) {
  SideThread side(1);
  for (int i = 0; i < 20; ++i) {
    std::promise<void> ran;
    ASSERT_TRUE(side.Post([&ran] { ran.set_value(); }));
    ran.get_future().wait();
  }
}

TEST(Side, WhatHasNotBegunAtTheEndIsForgotten) {
  auto ran = std::make_shared<std::atomic<int>>(0);
  SideThread side(2);
  Stuck stuck(side);
  EXPECT_TRUE(side.Post([ran] { ++*ran; }));
  EXPECT_TRUE(side.Post([ran] { ++*ran; }));
  EXPECT_FALSE(side.Finish(std::chrono::milliseconds(0))) << "one runs still";
  EXPECT_EQ(ran.use_count(), 1) << "and what the others held is let go";
  stuck.End();
  EXPECT_TRUE(side.Finish(kPatience));
  EXPECT_EQ(*ran, 0);
}

// It owns all that it touches: its thread outlives who posted it.
TEST(Side, WhoGoesLeavesBehindWhatRuns) {
  auto side = std::make_unique<SideThread>(1);
  Stuck stuck(*side);
  side.reset();
  stuck.End();
}

// Before it is said to be done: what it held may be a descriptor, or a lock.
TEST(Side, WhatAJobHeldIsLetGoWithIt) {
  auto held = std::make_shared<int>(7);
  SideThread side(1);
  ASSERT_TRUE(side.Post([held] { EXPECT_EQ(*held, 7); }));
  EXPECT_TRUE(side.Finish(kPatience));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Side, WithoutJobsThereIsNothingToEnd) {
  SideThread side(1);
  EXPECT_TRUE(side.Finish(std::chrono::milliseconds(0)));
  EXPECT_FALSE(side.Post([] {}));
}

TEST(Side, WhereNoneMayWaitNoneIsTaken) {
  SideThread side(0);
  EXPECT_FALSE(side.Post([] { ADD_FAILURE() << "it was refused"; }));
}

void JobsAreRefusedWithoutAThread() {
  SideThread side(2);
  ThreadLimit limit;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(side.Post([] { ADD_FAILURE() << "it was refused"; }));
  }
  limit.Lift();
  bool ran = false;
  EXPECT_TRUE(side.Post([&ran] { ran = true; })) << "nothing waits";
  EXPECT_TRUE(side.Finish(kPatience));
  EXPECT_TRUE(ran);
}

TEST(SideDeathTest, JobsAreRefusedWithoutAThread) {
  EPLOG_IN_A_PROCESS(JobsAreRefusedWithoutAThread);
}

}  // namespace
}  // namespace eplog
