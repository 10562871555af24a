#include "cli/bounded_call.h"

#include <fmt/format.h>
#include <signal.h>

#include <system_error>
#include <thread>

namespace eplog::cli {

void RunDetached(std::function<void()> work) {
  // The thread inherits the mask: signals are for who waits for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  try {
    std::thread([shared] { (*shared)(); }).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) {
    (*shared)();
  }
}

tl::unexpected<Error> DoesNotAnswer(const std::filesystem::path& path) {
  return Fail(ErrorCode::kDeviceFailed, fmt::format("{} does not answer: nothing came within {} s",
                                                    path.string(), kPatience.count()));
}

}  // namespace eplog::cli
