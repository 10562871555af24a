#pragma once

#include <cstddef>

#include "runtime/sync.h"

namespace eplog {

// Lets so many through at a time, first come first served: who leaves hands his place to the longest
// waiter, so that nobody who comes meanwhile can overtake it.
class Places {
 public:
  Places(EventLoop& loop, size_t count) : event_(loop), free_(count) {}
  // False: wait, and then it is taken.
  [[nodiscard]] bool TryTake() {
    const bool taken = free_ != 0;
    free_ -= taken ? 1 : 0;
    return taken;
  }
  Event::Awaiter Wait() { return event_.Wait(); }
  void GiveBack() {
    if (event_.has_waiters()) {
      event_.NotifyOne();
    } else {
      ++free_;
    }
  }

 private:
  Event event_;
  size_t free_;
};

}  // namespace eplog
