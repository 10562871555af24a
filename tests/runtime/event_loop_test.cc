#include "eplog/event_loop.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/sync.h"
#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"

namespace eplog {
namespace {

using test::Await;
using test::RunDry;

Task<void> LogAt(EventLoop& loop, uint64_t us, int id, std::vector<int>* log) {
  if (us != 0) {
    co_await loop.Sleep(us);
  }
  log->push_back(id);
}

TEST(EventLoop, SpawnedTasksStartInOrderAndLater) {
  VirtualLoop loop;
  std::vector<int> log;
  loop.Spawn(LogAt(loop, 0, 1, &log));
  loop.Spawn(LogAt(loop, 0, 2, &log));
  EXPECT_TRUE(log.empty());
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({1, 2}));
}

TEST(EventLoop, StartRunsAtOnce) {
  VirtualLoop loop;
  std::vector<int> log;
  loop.Start(LogAt(loop, 0, 1, &log));
  EXPECT_EQ(log, std::vector<int>({1}));
}

TEST(EventLoop, TimersFireByDeadlineThenByCreation) {
  VirtualLoop loop;
  std::vector<int> log;
  loop.Spawn(LogAt(loop, 20, 3, &log));
  loop.Spawn(LogAt(loop, 10, 1, &log));
  loop.Spawn(LogAt(loop, 10, 2, &log));
  loop.Spawn(LogAt(loop, 30, 4, &log));
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({1, 2, 3, 4}));
  EXPECT_EQ(loop.NowUs(), 31U);
}

Task<void> CancelsTimer(EventLoop& loop, EventLoop::TimerKey* key) {
  co_await loop.Sleep(5);
  loop.CancelTimer(*key);
  loop.CancelTimer(*key);  // of one that is gone: nothing
}

TEST(EventLoop, ACancelledTimerDoesNotFire) {
  VirtualLoop loop;
  EventLoop::TimerKey key = loop.AddTimer(1000, std::noop_coroutine());
  loop.Spawn(CancelsTimer(loop, &key));
  RunDry(loop);
  EXPECT_EQ(loop.NowUs(), 6U);
}

TEST(EventLoop, RunUntilTellsThatNothingCanHappen) {
  VirtualLoop loop;
  EXPECT_FALSE(loop.RunUntil([] { return false; }));
  EXPECT_TRUE(loop.RunUntil([] { return true; }));
}

Task<void> YieldUntilLogged(EventLoop& loop, const std::vector<int>* log, uint64_t* turns) {
  while (log->empty() && *turns < 1000000) {
    ++*turns;
    co_await loop.Yield();
  }
}

// Time moves on by itself, as on a real machine, and asks for nothing else.
class TickingLoop final : public EventLoop {
 public:
  ~TickingLoop() override { Abort(); }
  [[nodiscard]] uint64_t NowUs() const override { return now_us_; }

 protected:
  bool Poll(bool, uint64_t) override {
    now_us_ += 10;
    return true;
  }

 private:
  uint64_t now_us_ = 1;
};

TEST(EventLoop, TasksThatYieldInCirclesDoNotStarveTimers) {
  TickingLoop loop;
  uint64_t turns = 0;
  std::vector<int> log;
  loop.Spawn(YieldUntilLogged(loop, &log, &turns));
  loop.Spawn(LogAt(loop, 100, 1, &log));
  EXPECT_TRUE(loop.RunUntil([&] { return !log.empty(); }));
  EXPECT_LT(turns, 1000000U);
}

struct Tracked {
  explicit Tracked(std::vector<int>* log, int id) : log_(log), id_(id) {}
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;
  ~Tracked() { log_->push_back(id_); }
  std::vector<int>* log_;
  int id_;
};

Task<void> InnerWaits(Event& event, std::vector<int>* log) {
  const Tracked inner(log, 2);
  co_await event.Wait();
}

Task<void> OuterWaits(Event& event, std::vector<int>* log) {
  const Tracked outer(log, 1);
  Task<void> inner = InnerWaits(event, log);
  co_await inner;
}

TEST(Abort, DestroysSuspendedFramesWithAllTheirLocals) {
  VirtualLoop loop;
  Event event(loop);
  std::vector<int> log;
  loop.Spawn(OuterWaits(event, &log));
  RunDry(loop);
  EXPECT_TRUE(event.has_waiters());
  loop.Abort();
  EXPECT_EQ(log, std::vector<int>({2, 1}));
  EXPECT_FALSE(event.has_waiters());
}

Task<void> WaitsWithMark(Event& event, int id, std::vector<int>* log) {
  const Tracked mark(log, id);
  co_await event.Wait();
}

// The youngest first: one that another started may refer to what is its starter's.
TEST(Abort, DestroysTasksInTheOppositeOrder) {
  VirtualLoop loop;
  Event event(loop);
  std::vector<int> log;
  for (int id = 1; id <= 4; ++id) {
    loop.Start(WaitsWithMark(event, id, &log));
  }
  loop.Start(LogAt(loop, 0, 9, &log));  // one that ends leaves the others linked
  loop.Spawn(WaitsWithMark(event, 5, &log));
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({9}));
  loop.Abort();
  EXPECT_EQ(log, std::vector<int>({9, 5, 4, 3, 2, 1}));
}

TEST(Abort, DestroysTasksThatNeverStarted) {
  VirtualLoop loop;
  Event event(loop);
  std::vector<int> log;
  loop.Spawn(OuterWaits(event, &log));
  loop.Abort();
  EXPECT_TRUE(log.empty()) << "its body had not begun";
  RunDry(loop);
}

TEST(Abort, ForgetsTimersAndWhatWasPosted) {
  VirtualLoop loop;
  std::vector<int> log;
  loop.Spawn(LogAt(loop, 10, 1, &log));
  loop.Spawn(LogAt(loop, 20, 2, &log));
  static_cast<void>(loop.RunUntil([&] { return log.size() == 1; }));
  loop.Abort();
  RunDry(loop);
  EXPECT_EQ(log, std::vector<int>({1}));
  Await(loop, LogAt(loop, 10, 3, &log));  // the loop is as good as new
  EXPECT_EQ(log.back(), 3);
}

Task<void> OwnsEvent(EventLoop& loop, std::unique_ptr<Event>* shared) {
  *shared = std::make_unique<Event>(loop);
  co_await (*shared)->WaitUntil(loop.NowUs() + 1000000);
}

TEST(Abort, WithTimedWaitersInFrames) {
  VirtualLoop loop;
  std::unique_ptr<Event> first;
  std::unique_ptr<Event> second;
  loop.Spawn(OwnsEvent(loop, &first));
  loop.Spawn(OwnsEvent(loop, &second));
  static_cast<void>(loop.RunUntil([&] { return second != nullptr; }));
  first->NotifyAll();  // posted, not yet resumed
  loop.Abort();
  RunDry(loop);
}

TEST(VirtualLoop, OneSeedIsOneSchedule) {
  const auto run = [](uint64_t seed) {
    VirtualLoop loop(seed);
    std::vector<int> log;
    for (int i = 0; i < 20; ++i) {
      loop.Spawn(LogAt(loop, static_cast<uint64_t>(i % 3), i, &log));
    }
    RunDry(loop);
    return log;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
  EXPECT_EQ(run(7).size(), 20U);
}

TEST(VirtualLoop, TimeJumpsToTheNextTimer) {
  VirtualLoop loop;
  std::vector<int> log;
  const uint64_t year_us = uint64_t{365} * 86400 * 1000000;
  Await(loop, LogAt(loop, year_us, 1, &log));
  EXPECT_EQ(loop.NowUs(), year_us + 1);
}

}  // namespace
}  // namespace eplog
