#include "cli/bounded_call.h"

#include "base/start_thread.h"

namespace eplog::cli {

void RunDetached(std::function<void()> work) {
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  std::thread thread = TryStartThread([shared] { (*shared)(); });
  if (thread.joinable()) {
    thread.detach();
  } else {
    (*shared)();
  }
}

}  // namespace eplog::cli
