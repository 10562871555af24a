// EventLoop: runs the coroutines of one thread. Two kinds behind this interface: IoUringLoop (the
// real one) and VirtualLoop (a simulated clock that jumps to the next timer). The engine sees only
// this.
//
// Order: Post is FIFO. Timers that are due fire in order of (deadline, creation). Not thread-safe.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "eplog/task.h"

namespace eplog {

class EventLoop;

namespace internal {

// A spawned task's outermost frame. Known to its loop, so that Abort can destroy what never
// finished.
struct RootNode {
  RootNode* prev = nullptr;
  RootNode* next = nullptr;
  std::coroutine_handle<> handle;
  void Unlink() {
    if (prev != nullptr) {
      prev->next = next;
      next->prev = prev;
      prev = next = nullptr;
    }
  }
};

}  // namespace internal

class EventLoop {
 public:
  using TimerKey = std::pair<uint64_t, uint64_t>;  // deadline in microseconds, sequence

  EventLoop();
  virtual ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Monotonic microseconds; only differences mean anything.
  [[nodiscard]] virtual uint64_t NowUs() const = 0;

  // Resume `handle` in a later step of this thread, after what was posted before.
  void Post(std::coroutine_handle<> handle) { ready_.push_back(handle); }

  // Run `task` detached; it starts in a later step. Its frame is destroyed when it ends.
  void Spawn(Task<void> task);
  // The same, but it starts here and now, inside this call.
  void Start(Task<void> task);

  // A timer posts `handle` once, after calling `on_fire(argument)` if given. Cancelling a timer
  // that has fired does nothing.
  using TimerHook = void (*)(void* argument);
  TimerKey AddTimer(uint64_t deadline_us, std::coroutine_handle<> handle,
                    TimerHook on_fire = nullptr, void* argument = nullptr);
  void CancelTimer(const TimerKey& key) { timers_.erase(key); }

  struct YieldAwaiter {
    EventLoop& loop;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) const { loop.Post(handle); }
    void await_resume() const noexcept {}
  };
  // Let everything that is ready run first.
  YieldAwaiter Yield() { return {*this}; }

  struct SleepAwaiter {
    EventLoop& loop;
    uint64_t deadline_us;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) const { loop.AddTimer(deadline_us, handle); }
    void await_resume() const noexcept {}
  };
  SleepAwaiter Sleep(uint64_t us) { return {*this, NowUs() + us}; }

  // Turn until `done()` holds (asked between steps that leave nothing ready). False: nothing is
  // ready, no timer is set and no I/O is in flight, so that it can never hold.
  [[nodiscard]] bool RunUntil(const std::function<bool()>& done);

  // Destroy every spawned task that has not ended and forget what was posted and all timers. For a
  // simulated crash, and for the end of a program. Nothing may be running. Objects in the frames
  // are destroyed, so whatever they refer to must still live.
  void Abort();

 protected:
  // Wait for I/O or the clock. `may_block`: nothing is ready. Returns false if nothing can ever
  // happen. `deadline_us`: the next timer, or UINT64_MAX.
  virtual bool Poll(bool may_block, uint64_t deadline_us) = 0;

  // Called by Abort while the frames still live: afterwards nothing outside may refer to their
  // memory. A loop with I/O in flight ends it here, and calls Abort in its own destructor.
  virtual void BeforeAbort() {}

  // Pick the next ready handle; VirtualLoop may shuffle.
  virtual std::coroutine_handle<> PopReady();

  std::deque<std::coroutine_handle<>> ready_;

 private:
  std::coroutine_handle<> NewRoot(Task<void> task);
  void RunReady();
  void FireTimers();

  struct Timer {
    std::coroutine_handle<> handle;
    TimerHook on_fire;
    void* argument;
  };
  std::map<TimerKey, Timer> timers_;
  uint64_t next_timer_ = 0;
  internal::RootNode roots_;  // ring head
};

}  // namespace eplog
