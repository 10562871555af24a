#include "frontend/stall_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/start_thread.h"

namespace eplog {
namespace {

// In the longest time that is borne. They are counted, not the time: if the whole process was
// stopped for long, nobody waited.
constexpr int kLooks = 20;

}  // namespace

StallWatch::StallWatch(std::chrono::milliseconds longest,
                       std::function<void(const std::string&)> stalled)
    : longest_(longest), stalled_(std::move(stalled)), watched_(::gettid()) {
  thread_ = TryStartThread([this] { ThreadMain(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void StallWatch::Die(const std::string& line) {
  std::fprintf(stderr, "eplog: %s\n", line.c_str());
  std::fflush(stderr);
  std::abort();
}

void StallWatch::ThreadMain() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, longest_ / kLooks, [this] { return stop_; })) {
    Look();
  }
}

// "running", or the number of the call, its arguments, the stack and the place in the program. A
// thread without a processor is running, too; -1 waits for a page of memory, which is not its
// fault.
std::string StallWatch::CallNow() const {
  std::ifstream file("/proc/self/task/" + std::to_string(watched_) + "/syscall");
  std::string call;
  std::getline(file, call);
  const bool waits = !call.empty() && call != "running" && call[0] != '-';
  const bool own = std::strtol(call.c_str(), nullptr, 10) == SYS_io_uring_enter;
  return waits && !own ? call : "";
}

void StallWatch::Look() {
  std::string call = CallNow();
  if (call.empty() || call != call_) {
    call_ = std::move(call);
    seen_ = 0;
    return;
  }
  if (++seen_ == kLooks) {
    stalled_("the engine's thread waits in system call " + call_.substr(0, call_.find(' ')) + " (" +
             call_ + "), and may wait for nothing but its loop");
  }
}

}  // namespace eplog
