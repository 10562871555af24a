// InFlight: counts a request as in flight while it lives, for who waits until none is.
#pragma once

#include "runtime/sync.h"

namespace eplog {

class InFlight {
 public:
  explicit InFlight(WaitGroup& group) : group_(group) { group_.Add(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() { group_.Done(); }

 private:
  WaitGroup& group_;
};

}  // namespace eplog
