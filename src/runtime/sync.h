// What coroutines of one loop wait on. Nothing here is thread-safe; waking is by EventLoop::Post,
// in the order of waiting. Everything must outlive its waiters.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "eplog/event_loop.h"
#include "eplog/task.h"

namespace eplog {

// A condition to wait for: `while (!condition) co_await event.Wait();`
class Event {
  struct Node {
    Node* prev = nullptr;
    Node* next = nullptr;
    std::coroutine_handle<> handle;
    bool timed = false;
    EventLoop::TimerKey timer{};
    [[nodiscard]] bool linked() const { return prev != nullptr; }
    // The analyzer loses track of who is linked in these rings.
    void Unlink() {
      prev->next = next;  // NOLINT(clang-analyzer-core.NullDereference)
      next->prev = prev;
      prev = next = nullptr;
    }
  };

 public:
  explicit Event(EventLoop& loop) : loop_(loop) { head_.prev = head_.next = &head_; }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    while (head_.next != &head_) {
      head_.next->Unlink();  // only after an Abort: the waiters are being destroyed
    }
  }

  class Awaiter {
   public:
    explicit Awaiter(Event& event) : event_(event) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (node_.linked()) {
        node_.Unlink();
      }
    }
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      node_.handle = handle;
      event_.Link(node_);
    }
    void await_resume() const noexcept {}

   private:
    Event& event_;
    Node node_;
  };
  // Until the next notification.
  Awaiter Wait() { return Awaiter(*this); }

  // Until the next notification or the deadline, whichever is first.
  class TimedAwaiter {
   public:
    TimedAwaiter(Event& event, uint64_t deadline_us) : event_(event), deadline_us_(deadline_us) {}
    TimedAwaiter(const TimedAwaiter&) = delete;
    TimedAwaiter& operator=(const TimedAwaiter&) = delete;
    ~TimedAwaiter() {
      if (node_.linked()) {
        node_.Unlink();
        event_.loop_.CancelTimer(node_.timer);
      }
    }
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      node_.handle = handle;
      node_.timed = true;
      event_.Link(node_);
      // Whichever comes first takes the other away at once: the coroutine must be posted only once.
      node_.timer = event_.loop_.AddTimer(
          deadline_us_, handle, [](void* node) { static_cast<Node*>(node)->Unlink(); }, &node_);
    }
    void await_resume() const noexcept {}

   private:
    Event& event_;
    uint64_t deadline_us_;
    Node node_;
  };
  TimedAwaiter WaitUntil(uint64_t deadline_us) { return {*this, deadline_us}; }

  void NotifyAll() {
    while (head_.next != &head_) {
      NotifyOne();
    }
  }
  void NotifyOne() {
    if (head_.next != &head_) {
      Node* node = head_.next;
      node->Unlink();
      if (node->timed) {
        loop_.CancelTimer(node->timer);
      }
      loop_.Post(node->handle);
    }
  }
  [[nodiscard]] bool has_waiters() const { return head_.next != &head_; }

 private:
  void Link(Node& node) {
    node.prev = head_.prev;
    node.next = &head_;
    head_.prev->next = &node;
    head_.prev = &node;
  }

  EventLoop& loop_;
  Node head_;
};

// Counts things in flight; Wait() returns when none is.
class WaitGroup {
 public:
  explicit WaitGroup(EventLoop& loop) : event_(loop) {}
  void Add(size_t count = 1) { count_ += count; }
  void Done() {
    EPLOG_CHECK(count_ > 0, "WaitGroup::Done without Add");
    if (--count_ == 0) {
      event_.NotifyAll();
    }
  }
  [[nodiscard]] size_t count() const { return count_; }
  Task<void> Wait() {
    while (count_ != 0) {
      co_await event_.Wait();
    }
  }

 private:
  Event event_;
  size_t count_ = 0;
};

// Mutual exclusion between coroutines, first come first served: an unlock hands over to the longest
// waiter, so that nobody who comes meanwhile can overtake it.
class AsyncMutex {
 public:
  explicit AsyncMutex(EventLoop& loop) : loop_(loop) { queue_.prev_ = queue_.next_ = &queue_; }
  AsyncMutex(const AsyncMutex&) = delete;
  AsyncMutex& operator=(const AsyncMutex&) = delete;
  ~AsyncMutex() {
    while (queue_.next_ != &queue_) {
      queue_.next_->Unlink();  // only after an Abort: the waiters are being destroyed
    }
  }

  class [[nodiscard]] Guard {
   public:
    Guard() = default;
    explicit Guard(AsyncMutex* mutex) : mutex_(mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      std::swap(mutex_, other.mutex_);
      return *this;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { Release(); }
    void Release() {
      if (mutex_ != nullptr) {
        std::exchange(mutex_, nullptr)->Unlock();
      }
    }

   private:
    AsyncMutex* mutex_ = nullptr;
  };

  Task<Guard> Lock() {
    Turn turn(*this);
    co_await turn;
    co_return Guard(this);
  }
  [[nodiscard]] bool locked() const { return locked_; }

 private:
  // A place in the queue. A frame that is destroyed between being given the mutex and running gives
  // it on.
  class Turn {
   public:
    explicit Turn(AsyncMutex& mutex) : mutex_(mutex) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (prev_ != nullptr) {
        Unlink();
      } else if (given_) {
        mutex_.Unlock();
      }
    }
    [[nodiscard]] bool await_ready() const noexcept { return !mutex_.locked_; }
    void await_suspend(std::coroutine_handle<> handle) {
      handle_ = handle;
      next_ = &mutex_.queue_;
      prev_ = mutex_.queue_.prev_;
      prev_->next_ = next_->prev_ = this;
    }
    void await_resume() noexcept {
      mutex_.locked_ = true;
      given_ = false;
    }

   private:
    friend class AsyncMutex;
    void Unlink() {
      prev_->next_ = next_;  // NOLINT(clang-analyzer-core.NullDereference)
      next_->prev_ = prev_;
      prev_ = next_ = nullptr;
    }
    AsyncMutex& mutex_;
    Turn* prev_ = nullptr;
    Turn* next_ = nullptr;
    std::coroutine_handle<> handle_{};
    bool given_ = false;
  };

  void Unlock() {
    Turn* first = queue_.next_;
    locked_ = first != &queue_;
    if (locked_) {
      first->Unlink();
      first->given_ = true;
      loop_.Post(first->handle_);
    }
  }

  EventLoop& loop_;
  bool locked_ = false;
  Turn queue_{*this};  // ring head
};

}  // namespace eplog
