// The event loop of simulation: time stands still while anything is ready and jumps to the next
// timer when nothing is. With a seed it also resumes what is ready in a random order, so that one
// seed is one schedule.
#pragma once

#include <optional>

#include "base/random.h"
#include "eplog/event_loop.h"

namespace eplog {

class VirtualLoop final : public EventLoop {
 public:
  VirtualLoop() = default;
  explicit VirtualLoop(uint64_t shuffle_seed) : random_(Random(shuffle_seed)) {}
  ~VirtualLoop() override { Abort(); }

  [[nodiscard]] uint64_t NowUs() const override { return now_us_; }

 protected:
  bool Poll(bool may_block, uint64_t deadline_us) override;
  std::coroutine_handle<> PopReady() override;

 private:
  uint64_t now_us_ = 1;
  std::optional<Random> random_;
};

}  // namespace eplog
