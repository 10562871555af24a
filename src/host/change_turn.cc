#include "host/change_turn.h"

#include <fmt/format.h>

#include <utility>

#include "host/bounded_call.h"

namespace eplog {

bool ChangeTurn::Take(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (!free_.wait_until(lock, until, [this] { return !taken_; })) {
    return false;
  }
  taken_ = true;
  return true;
}

void ChangeTurn::GiveBack() {
  const std::lock_guard lock(mutex_);
  taken_ = false;
  free_.notify_one();
}

Result<ArrayFile> ChangeInTime(const ArrayFile& file, const std::function<void(ArrayFile&)>& change,
                               const std::shared_ptr<ChangeTurn>& turn) {
  const auto until = ChangeTurn::Clock::now() + kPatience;
  const auto late = [path = file.file.string()] {
    return Fail(ErrorCode::kDeviceFailed,
                fmt::format("{} could not be changed within {} s: its file system does not answer",
                            path, kPatience.count()));
  };
  BoundedCall<Result<ArrayFile>> call([=]() -> Result<ArrayFile> {
    if (!turn->Take(until)) {
      return late();
    }
    ArrayFile now = file;
    const Status changed = ChangeArrayFile(now, change);
    turn->GiveBack();
    EPLOG_TRY(changed);
    return now;
  });
  auto changed = call.Wait(until);
  return changed ? std::move(*changed) : late();
}

}  // namespace eplog
