// LineLocks: mutual exclusion by line between coroutines, first come first served. A line that
// nobody holds costs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "runtime/sync.h"

namespace eplog {

class LineLocks {
 public:
  explicit LineLocks(EventLoop& loop) : loop_(loop) {}

  class [[nodiscard]] Guard {
   public:
    Guard(LineLocks& locks, uint64_t line, AsyncMutex::Guard held)
        : locks_(&locks), line_(line), held_(std::move(held)) {}
    Guard(Guard&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)),
          line_(other.line_),
          held_(std::move(other.held_)) {}
    Guard& operator=(Guard&&) = delete;
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      if (locks_ != nullptr) {
        held_.Release();
        locks_->Leave(line_);
      }
    }

   private:
    LineLocks* locks_;
    uint64_t line_;
    AsyncMutex::Guard held_;
  };

  Task<Guard> Lock(uint64_t line) {
    std::unique_ptr<Entry>& entry = entries_[line];
    if (!entry) {
      entry = std::make_unique<Entry>(loop_);
    }
    ++entry->users;
    Task<AsyncMutex::Guard> locking = entry->mutex.Lock();
    AsyncMutex::Guard held = co_await locking;
    co_return Guard(*this, line, std::move(held));
  }

 private:
  struct Entry {
    explicit Entry(EventLoop& loop) : mutex(loop) {}
    AsyncMutex mutex;
    uint32_t users = 0;  // who holds it, and who waits
  };

  void Leave(uint64_t line) {
    const auto entry = entries_.find(line);
    if (--entry->second->users == 0) {
      entries_.erase(entry);
    }
  }

  EventLoop& loop_;
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries_;
};

}  // namespace eplog
