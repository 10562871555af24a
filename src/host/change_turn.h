// One change of array.toml after the other in a process that serves: one that is late, since the
// file system does not answer, is not overtaken, or it would undo what came after it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "eplog/result.h"
#include "host/array_file.h"

namespace eplog {

class ChangeTurn {
 public:
  using Clock = std::chrono::steady_clock;

  // False: it is another's still.
  [[nodiscard]] bool Take(Clock::time_point until);
  void GiveBack();

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

// ChangeArrayFile, for a bounded time: what stands there then. After an error (kDeviceFailed)
// `change` may be made later, while it has the turn, or not: it refers to nothing that may be gone
// by then.
Result<ArrayFile> ChangeInTime(const ArrayFile& file, const std::function<void(ArrayFile&)>& change,
                               const std::shared_ptr<ChangeTurn>& turn);

}  // namespace eplog
