#include "eplog/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"

namespace eplog {
namespace {

using test::Await;

Task<int> Immediate(int value) {
  co_return value;
}

Task<uint64_t> SumOfImmediates(int count) {
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const int value = co_await Immediate(1);
    sum += static_cast<uint64_t>(value);
  }
  co_return sum;
}

TEST(Task, AMillionTasksThatEndAtOnceDoNotGrowTheStack) {
  VirtualLoop loop;
  EXPECT_EQ(Await(loop, SumOfImmediates(1000000)), 1000000U);
}

Task<int> EndsAtOnceOrYields(EventLoop& loop, int i) {
  if (i % 3 == 0) {
    co_await loop.Yield();
  }
  co_return i % 2;
}

Task<uint64_t> SumOfMixed(EventLoop& loop, int count) {
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    Task<int> child = EndsAtOnceOrYields(loop, i);
    const int value = co_await child;
    sum += static_cast<uint64_t>(value);
  }
  co_return sum;
}

TEST(Task, LoopsThatSuspendNowAndThenDoNotGrowTheStack) {
  VirtualLoop loop;
  EXPECT_EQ(Await(loop, SumOfMixed(loop, 1000000)), 500000U);
}

Task<int> Nested(EventLoop& loop, int depth) {
  if (depth == 0) {
    co_await loop.Yield();
    co_return 0;
  }
  Task<int> below = Nested(loop, depth - 1);
  const int value = co_await below;
  co_return value + 1;
}

TEST(Task, DeepChainThatSuspendsAtItsEndReturnsThroughAllLevels) {
  VirtualLoop loop;
  EXPECT_EQ(Await(loop, Nested(loop, 1000)), 1000);
}

constexpr char kLongText[] = "a string that is too long to live inside its object";

Task<std::unique_ptr<std::string>> MoveOnly() {
  co_return std::make_unique<std::string>(kLongText);
}

TEST(Task, CarriesMoveOnlyResults) {
  VirtualLoop loop;
  EXPECT_EQ(*Await(loop, MoveOnly()), kLongText);
}

Task<Status> FailsWith(ErrorCode code) {
  co_return Fail(code, "as asked");
}

Task<Status> PassesOn(ErrorCode code, bool* reached) {
  Task<Status> child = FailsWith(code);
  Status status = co_await child;
  EPLOG_CO_TRY(status);
  *reached = true;
  co_return OkStatus();
}

TEST(Task, CoTryLeavesWithTheError) {
  VirtualLoop loop;
  bool reached = false;
  const Status status = Await(loop, PassesOn(ErrorCode::kBusy, &reached));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBusy);
  EXPECT_FALSE(reached);
}

struct Counted {
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  Counted(const Counted& other) : alive_(other.alive_) { ++*alive_; }
  Counted(Counted&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  Counted& operator=(const Counted&) = delete;
  Counted& operator=(Counted&&) = delete;
  ~Counted() { --*alive_; }
  int* alive_;
};

Task<void> HoldsLocals(Counted argument, EventLoop& loop) {
  const Counted local(argument.alive_);
  co_await loop.Yield();
  const Counted later(argument.alive_);
  co_await loop.Yield();
}

TEST(Task, ArgumentsAndLocalsAreDestroyedOnce) {
  VirtualLoop loop;
  int alive = 0;
  Await(loop, HoldsLocals(Counted(&alive), loop));
  EXPECT_EQ(alive, 0);
}

TEST(Task, OneThatIsNeverAwaitedDestroysItsArguments) {
  VirtualLoop loop;
  int alive = 0;
  {
    const Task<void> unused = HoldsLocals(Counted(&alive), loop);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

Task<Status> SetsFlag(bool* started) {
  *started = true;
  co_return OkStatus();
}

TEST(Task, StartsWhenAwaitedAndNotBefore) {
  VirtualLoop loop;
  bool started = false;
  Task<Status> task = SetsFlag(&started);
  test::RunDry(loop);
  EXPECT_FALSE(started);
  Task<Status> moved = std::move(task);
  EXPECT_TRUE(Await(loop, std::move(moved)).ok());
  EXPECT_TRUE(started);
}

}  // namespace
}  // namespace eplog
