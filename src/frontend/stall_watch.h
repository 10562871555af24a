// StallWatch: sees that a thread which may never block does. A thread of its own looks at the
// system call in which the other sits; one and the same for too long, that is not the loop's own
// wait, is told. It goes by what the kernel says of the thread, not by how long a turn takes: one
// that only gets no processor is not waiting. For builds with checks; where no thread can be had,
// nobody watches.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace eplog {

class StallWatch {
 public:
  // Watches the calling thread. `stalled` is called on the watching one, once for each wait, with
  // one line that names the call.
  StallWatch(std::chrono::milliseconds longest, std::function<void(const std::string&)> stalled);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Says the line and ends the program.
  static void Die(const std::string& line);

 private:
  void Look();
  void ThreadMain();
  // The call and its arguments, as text; empty if there is none, or the loop's own.
  [[nodiscard]] std::string CallNow() const;

  const std::chrono::milliseconds longest_;
  const std::function<void(const std::string&)> stalled_;
  const pid_t watched_;
  std::string call_;
  int seen_ = 0;  // so often, one look after the other

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace eplog
