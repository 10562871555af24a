// Submitter: one thread that submits one request after the other, and stands still while one of
// them has to wait. Those behind it come in their order, and without a turn of the loop in between:
// what then follows from them is seen together.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/sync.h"

namespace eplog {

class Submitter {
 public:
  explicit Submitter(EventLoop& loop) : next_(loop) {}

  // Being submitted; the next one's turn comes at its end.
  class [[nodiscard]] Turn {
   public:
    Turn() = default;
    explicit Turn(Submitter* submitter) : submitter_(submitter) {}
    Turn(Turn&& other) noexcept : submitter_(std::exchange(other.submitter_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { End(); }
    void End() {
      if (submitter_ != nullptr) {
        ++submitter_->turn_;
        std::exchange(submitter_, nullptr)->next_.NotifyAll();
      }
    }

   private:
    Submitter* submitter_ = nullptr;
  };

  Task<Turn> Wait() {
    const uint64_t mine = tickets_++;
    while (turn_ != mine) {
      co_await next_.Wait();
    }
    co_return Turn(this);
  }

 private:
  Event next_;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;
};

}  // namespace eplog
