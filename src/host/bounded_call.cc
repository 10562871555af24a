#include "host/bounded_call.h"

#include <fmt/format.h>

#include "base/start_thread.h"

namespace eplog {

void RunDetached(std::function<void()> work) {
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  std::thread thread = TryStartThread([shared] { (*shared)(); });
  if (thread.joinable()) {
    thread.detach();
  } else {
    (*shared)();
  }
}

tl::unexpected<Error> DoesNotAnswer(const std::filesystem::path& path) {
  return Fail(ErrorCode::kDeviceFailed, fmt::format("{} does not answer: nothing came within {} s",
                                                    path.string(), kPatience.count()));
}

}  // namespace eplog
