#include "base/start_thread.h"

#include <csignal>
#include <system_error>
#include <utility>

namespace eplog {

std::thread TryStartThread(std::function<void()> work) {
  // It inherits the mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error&) {
    thread = std::thread();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

tl::unexpected<Error> FailNoThread() {
  return Fail(ErrorCode::kUnsupported,
              "no further thread can be started: a limit of processes (ulimit -u, or pids.max of "
              "the control group) or of memory is reached");
}

}  // namespace eplog
