#include "runtime/virtual_loop.h"

#include <limits>
#include <utility>

namespace eplog {

bool VirtualLoop::Poll(bool may_block, uint64_t deadline_us) {
  if (!may_block) {
    return true;
  }
  if (deadline_us == std::numeric_limits<uint64_t>::max()) {
    return false;
  }
  now_us_ = deadline_us;
  return true;
}

std::coroutine_handle<> VirtualLoop::PopReady() {
  if (random_ && ready_.size() > 1) {
    std::swap(ready_.front(), ready_[random_->Below(ready_.size())]);
  }
  const auto handle = ready_.front();
  ready_.pop_front();
  return handle;
}

}  // namespace eplog
