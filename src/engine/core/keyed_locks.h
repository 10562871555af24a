// Mutual exclusion by key between coroutines: one lock a chunk, one a row. An unlocked key costs
// nothing.
//
// Order, so that nobody waits in a circle: space first (Admission), then rows in ascending order,
// then chunks in ascending order.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "runtime/sync.h"

namespace eplog {

class KeyedLocks {
 public:
  explicit KeyedLocks(EventLoop& loop) : released_(loop) {}

  class [[nodiscard]] Guard {
   public:
    Guard() = default;
    Guard(KeyedLocks* locks, uint64_t key) : locks_(locks), key_(key) {}
    Guard(Guard&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), key_(other.key_) {}
    Guard& operator=(Guard&& other) noexcept {
      std::swap(locks_, other.locks_);
      std::swap(key_, other.key_);
      return *this;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { Release(); }
    void Release() {
      if (locks_ != nullptr) {
        std::exchange(locks_, nullptr)->Unlock(key_);
      }
    }

   private:
    KeyedLocks* locks_ = nullptr;
    uint64_t key_ = 0;
  };

  [[nodiscard]] bool IsLocked(uint64_t key) const { return held_.contains(key); }

  Task<Guard> Lock(uint64_t key) {
    while (held_.contains(key)) {
      co_await released_.Wait();
    }
    held_.emplace(key, true);
    co_return Guard(this, key);
  }

 private:
  void Unlock(uint64_t key) {
    held_.erase(key);
    released_.NotifyAll();
  }

  std::unordered_map<uint64_t, bool> held_;
  Event released_;
};

}  // namespace eplog
