// TaskGroup: run several tasks at once and wait for all. The first error is kept; the others still
// finish. The group, and everything that its tasks refer to, lives until Wait has returned.
#pragma once

#include <utility>

#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "runtime/sync.h"

namespace eplog {

class TaskGroup {
 public:
  explicit TaskGroup(EventLoop& loop) : loop_(loop), waiting_(loop) {}

  // Starts `task` in place; it runs until it first suspends.
  void Start(Task<Status> task) {
    ++running_;
    loop_.Start(Run(*this, std::move(task)));
  }

  [[nodiscard]] Task<Status> Wait() {
    while (running_ != 0) {
      co_await waiting_.Wait();
    }
    co_return std::exchange(status_, OkStatus());
  }

  // Until fewer than `limit` run.
  Task<void> WaitBelow(size_t limit) {
    while (running_ >= limit) {
      co_await waiting_.Wait();
    }
  }

  [[nodiscard]] size_t running() const { return running_; }
  [[nodiscard]] bool failed() const { return !status_.ok(); }

 private:
  static Task<void> Run(TaskGroup& group, Task<Status> task) {
    Status status = co_await task;
    if (!status.ok() && group.status_.ok()) {
      group.status_ = std::move(status);
    }
    --group.running_;
    group.waiting_.NotifyAll();
  }

  EventLoop& loop_;
  Event waiting_;
  size_t running_ = 0;
  Status status_;
};

}  // namespace eplog
