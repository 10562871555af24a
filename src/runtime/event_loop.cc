#include "eplog/event_loop.h"

#include <limits>

#include "base/check.h"

namespace eplog {
namespace {

// The frame of a spawned task: starts suspended, destroys itself at its end.
struct Root {
  struct promise_type : internal::RootNode {
    static void* operator new(size_t size) { return internal::AllocateFrame(size); }
    static void operator delete(void* frame, size_t size) noexcept {
      internal::FreeFrame(frame, size);
    }
    Root get_return_object() noexcept {
      handle = std::coroutine_handle<promise_type>::from_promise(*this);
      return Root{this};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
    ~promise_type() { Unlink(); }
  };
  internal::RootNode* node;
};

Root RunRoot(Task<void> task) {
  co_await task;
}

}  // namespace

EventLoop::EventLoop() {
  roots_.prev = roots_.next = &roots_;
}

EventLoop::~EventLoop() {
  Abort();
}

std::coroutine_handle<> EventLoop::NewRoot(Task<void> task) {
  internal::RootNode* node = RunRoot(std::move(task)).node;
  node->prev = roots_.prev;
  node->next = &roots_;
  roots_.prev->next = node;
  roots_.prev = node;
  return node->handle;
}

void EventLoop::Spawn(Task<void> task) {
  Post(NewRoot(std::move(task)));
}

void EventLoop::Start(Task<void> task) {
  NewRoot(std::move(task)).resume();
}

EventLoop::TimerKey EventLoop::AddTimer(uint64_t deadline_us, std::coroutine_handle<> handle,
                                        TimerHook on_fire, void* argument) {
  const TimerKey key{deadline_us, next_timer_++};
  timers_.emplace(key, Timer{handle, on_fire, argument});
  return key;
}

std::coroutine_handle<> EventLoop::PopReady() {
  const auto handle = ready_.front();
  ready_.pop_front();
  return handle;
}

// Bounded, so that tasks that yield in circles keep neither I/O nor timers waiting.
void EventLoop::RunReady() {
  constexpr int kStepsPerTurn = 1024;
  for (int step = 0; step < kStepsPerTurn && !ready_.empty(); ++step) {
    PopReady().resume();
  }
}

void EventLoop::FireTimers() {
  const uint64_t now = NowUs();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const Timer timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    if (timer.on_fire != nullptr) {
      timer.on_fire(timer.argument);
    }
    Post(timer.handle);
  }
}

bool EventLoop::RunUntil(const std::function<bool()>& done) {
  while (true) {
    RunReady();
    if (ready_.empty() && done()) {
      return true;
    }
    FireTimers();
    const uint64_t deadline =
        timers_.empty() ? std::numeric_limits<uint64_t>::max() : timers_.begin()->first.first;
    if (!Poll(ready_.empty(), deadline) && ready_.empty()) {
      return false;
    }
    FireTimers();
  }
}

void EventLoop::Abort() {
  BeforeAbort();
  ready_.clear();
  timers_.clear();
  // The youngest first: a task that another one started may refer to what is in its starter's
  // frame.
  while (roots_.prev != &roots_) {
    roots_.prev->handle.destroy();  // unlinks itself
  }
  // Destructors of the frames may have posted others, which are gone too.
  ready_.clear();
  timers_.clear();
}

}  // namespace eplog
