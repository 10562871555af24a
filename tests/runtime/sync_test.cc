#include "runtime/sync.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"

namespace eplog {
namespace {

using test::Await;
using test::RunDry;

Task<void> WaitAndLog(Event& event, int id, std::vector<int>* log) {
  co_await event.Wait();
  log->push_back(id);
}

TEST(Event, WakesInTheOrderOfWaiting) {
  VirtualLoop loop;
  Event event(loop);
  std::vector<int> log;
  for (int i = 0; i < 5; ++i) {
    loop.Spawn(WaitAndLog(event, i, &log));
  }
  RunDry(loop);
  EXPECT_TRUE(log.empty());
  EXPECT_TRUE(event.has_waiters());
  event.NotifyOne();
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({0}));
  event.NotifyAll();
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({0, 1, 2, 3, 4}));
  EXPECT_FALSE(event.has_waiters());
}

TEST(Event, ANotificationWithoutWaitersIsForgotten) {
  VirtualLoop loop;
  Event event(loop);
  std::vector<int> log;
  event.NotifyAll();
  loop.Spawn(WaitAndLog(event, 1, &log));
  RunDry(loop);
  EXPECT_TRUE(log.empty());
  loop.Abort();
}

Task<void> WaitUntilAndCount(EventLoop& loop, Event& event, uint64_t us, int* woken) {
  co_await event.WaitUntil(loop.NowUs() + us);
  ++*woken;
  // Should it be resumed a second time, it happens here and is counted.
  co_await loop.Sleep(1000000);
  ++*woken;
}

Task<void> NotifyAfter(EventLoop& loop, Event& event, uint64_t us) {
  co_await loop.Sleep(us);
  event.NotifyAll();
}

TEST(TimedWait, NotificationFirst) {
  VirtualLoop loop;
  Event event(loop);
  int woken = 0;
  loop.Spawn(WaitUntilAndCount(loop, event, 100, &woken));
  loop.Spawn(NotifyAfter(loop, event, 50));
  static_cast<void>(loop.RunUntil([&] { return loop.NowUs() >= 200 || woken == 1; }));
  EXPECT_EQ(woken, 1);
  EXPECT_LT(loop.NowUs(), 100U);
  RunDry(loop);
  EXPECT_EQ(woken, 2);
}

TEST(TimedWait, DeadlineFirst) {
  VirtualLoop loop;
  Event event(loop);
  int woken = 0;
  loop.Spawn(WaitUntilAndCount(loop, event, 50, &woken));
  loop.Spawn(NotifyAfter(loop, event, 100));
  static_cast<void>(loop.RunUntil([&] { return woken == 1; }));
  EXPECT_EQ(loop.NowUs(), 51U);
  EXPECT_FALSE(event.has_waiters());
  RunDry(loop);
  EXPECT_EQ(woken, 2);
}

// Both in one turn, whichever the loop serves first, and with the ready list in any order.
TEST(TimedWait, NotificationAndDeadlineAtOnceResumeOnlyOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    VirtualLoop loop(seed);
    Event event(loop);
    int woken = 0;
    if (seed % 2 == 0) {
      loop.Spawn(NotifyAfter(loop, event, 50));
    }
    loop.Spawn(WaitUntilAndCount(loop, event, 50, &woken));
    if (seed % 2 == 1) {
      loop.Spawn(NotifyAfter(loop, event, 50));
    }
    static_cast<void>(loop.RunUntil([&] { return loop.NowUs() > 500000; }));
    RunDry(loop);
    EXPECT_EQ(woken, 2) << seed;
    EXPECT_GE(loop.NowUs(), 1000000U) << "the sleep was cut short by a second resumption";
  }
}

TEST(TimedWait, ADeadlineInThePastEndsAtOnce) {
  VirtualLoop loop;
  Event event(loop);
  int woken = 0;
  loop.Spawn(WaitUntilAndCount(loop, event, 0, &woken));
  static_cast<void>(loop.RunUntil([&] { return woken == 1; }));
  EXPECT_EQ(loop.NowUs(), 1U);
  loop.Abort();
}

Task<void> SleepThenDone(EventLoop& loop, WaitGroup& group, uint64_t us) {
  co_await loop.Sleep(us);
  group.Done();
}

TEST(WaitGroup, WaitsForAll) {
  VirtualLoop loop;
  WaitGroup group(loop);
  for (const uint64_t us : {300U, 100U, 200U}) {
    group.Add();
    loop.Spawn(SleepThenDone(loop, group, us));
  }
  Await(loop, group.Wait());
  EXPECT_EQ(loop.NowUs(), 301U);
  EXPECT_EQ(group.count(), 0U);
  Await(loop, group.Wait());  // of nothing: at once
  EXPECT_EQ(loop.NowUs(), 301U);
}

struct Inside {
  int now = 0;
  int most = 0;
  std::vector<int> order;
};

Task<void> Critical(EventLoop& loop, AsyncMutex& mutex, int id, Inside* inside) {
  Task<AsyncMutex::Guard> lock = mutex.Lock();
  const AsyncMutex::Guard guard = co_await lock;
  inside->order.push_back(id);
  inside->most = std::max(inside->most, ++inside->now);
  co_await loop.Sleep(10);
  --inside->now;
}

TEST(AsyncMutex, OneAtATimeFirstComeFirstServed) {
  VirtualLoop loop;
  AsyncMutex mutex(loop);
  Inside inside;
  for (int i = 0; i < 6; ++i) {
    loop.Spawn(Critical(loop, mutex, i, &inside));
  }
  RunDry(loop);
  EXPECT_EQ(inside.most, 1);
  EXPECT_EQ(inside.order, std::vector<int>({0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(mutex.locked());
}

Task<void> LockInCircles(EventLoop& loop, AsyncMutex& mutex, int id, Inside* inside) {
  for (int i = 0; i < 4; ++i) {
    Task<void> once = Critical(loop, mutex, id, inside);
    co_await once;  // asks again in the very step in which it let go
  }
}

TEST(AsyncMutex, NobodyOvertakesAWaiter) {
  VirtualLoop loop;
  AsyncMutex mutex(loop);
  Inside inside;
  loop.Spawn(LockInCircles(loop, mutex, 1, &inside));
  loop.Spawn(LockInCircles(loop, mutex, 2, &inside));
  RunDry(loop);
  EXPECT_EQ(inside.order, std::vector<int>({1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(inside.most, 1);
}

TEST(AsyncMutex, IsFreeAfterAnAbortInAnyState) {
  for (int steps = 0; steps < 8; ++steps) {
    VirtualLoop loop;
    AsyncMutex mutex(loop);
    Inside inside;
    for (int i = 0; i < 3; ++i) {
      loop.Spawn(LockInCircles(loop, mutex, i, &inside));
    }
    static_cast<void>(
        loop.RunUntil([&] { return inside.order.size() > static_cast<size_t>(steps); }));
    loop.Abort();
    EXPECT_FALSE(mutex.locked()) << steps;
    inside = {};
    Await(loop, Critical(loop, mutex, 9, &inside));
    EXPECT_EQ(inside.order, std::vector<int>({9}));
  }
}

Task<Status> EndAfter(EventLoop& loop, uint64_t us, std::optional<ErrorCode> code) {
  if (us != 0) {
    co_await loop.Sleep(us);
  }
  if (code) {
    co_return Fail(*code, "as asked");
  }
  co_return OkStatus();
}

Task<Status> RunGroup(EventLoop& loop) {
  TaskGroup group(loop);
  group.Start(EndAfter(loop, 30, ErrorCode::kBusy));
  group.Start(EndAfter(loop, 20, ErrorCode::kExists));
  group.Start(EndAfter(loop, 0, std::nullopt));
  group.Start(EndAfter(loop, 50, std::nullopt));
  Task<Status> all = group.Wait();
  Status status = co_await all;
  co_return status;
}

TEST(TaskGroup, WaitsForAllAndKeepsTheFirstError) {
  VirtualLoop loop;
  const Status status = Await(loop, RunGroup(loop));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kExists);
  EXPECT_EQ(loop.NowUs(), 51U);
}

Task<size_t> MostAtOnce(EventLoop& loop, size_t limit) {
  TaskGroup group(loop);
  size_t most = 0;
  for (int i = 0; i < 20; ++i) {
    Task<void> room = group.WaitBelow(limit);
    co_await room;
    group.Start(EndAfter(loop, 10, std::nullopt));
    most = std::max(most, group.running());
  }
  Task<Status> all = group.Wait();
  const Status status = co_await all;
  EXPECT_TRUE(status.ok());
  co_return most;
}

TEST(TaskGroup, WaitBelowBoundsWhatRuns) {
  VirtualLoop loop;
  EXPECT_EQ(Await(loop, MostAtOnce(loop, 4)), 4U);
  EXPECT_EQ(loop.NowUs(), 51U);
}

}  // namespace
}  // namespace eplog
