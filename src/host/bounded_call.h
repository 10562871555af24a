// BoundedCall: a call that may never return, since it asks a device, for callers that go on without
// its answer then. It runs on a thread of its own, which is left behind if it is late; what it
// returns after that is destroyed there. So it may own what it works on, and refers to nothing
// that its caller could take away.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "eplog/result.h"

namespace eplog {

// Starts `work` on a thread that nobody waits for; runs it here and now where no thread can be had.
void RunDetached(std::function<void()> work);

template <typename T>
class BoundedCall {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BoundedCall(std::function<T()> call) : state_(std::make_shared<State>()) {
    RunDetached([state = state_, call = std::move(call)] {
      T result = call();
      const std::lock_guard lock(state->mutex);
      if (!state->abandoned) {
        state->result.emplace(std::move(result));
      }
      state->done.notify_all();
    });
  }

  // Once. Nothing if there is no answer by then.
  std::optional<T> Wait(Clock::time_point until) {
    std::unique_lock lock(state_->mutex);
    state_->done.wait_until(lock, until, [this] { return state_->result.has_value(); });
    state_->abandoned = true;
    return std::exchange(state_->result, std::nullopt);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<T> result;
    bool abandoned = false;
  };
  std::shared_ptr<State> state_;
};

// How long somebody waits for a file or a device that he looks at.
inline constexpr std::chrono::seconds kPatience(10);

// kDeviceFailed, in a line.
[[nodiscard]] tl::unexpected<Error> DoesNotAnswer(const std::filesystem::path& path);

// What `look` finds, or that what is at the path does not answer.
template <typename T>
Result<T> Bounded(const std::filesystem::path& path, std::function<Result<T>()> look) {
  BoundedCall<Result<T>> call(std::move(look));
  auto found = call.Wait(BoundedCall<Result<T>>::Clock::now() + kPatience);
  if (!found) {
    return DoesNotAnswer(path);
  }
  return std::move(*found);
}

}  // namespace eplog
