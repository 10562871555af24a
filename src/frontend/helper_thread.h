// HelperThread: runs the few system calls that may block until this very process has served further
// requests (umount, syncfs, invalidation of the kernel's cache), so that the loop never waits for
// itself, and those that wait for a device (opening it). Jobs run one after the other and end: what
// a device may never answer is given up by its job. They touch nothing that belongs to the loop.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "runtime/sync.h"
#include "runtime/task.h"

namespace eplog {

class IoUringLoop;

class HelperThread {
 public:
  explicit HelperThread(IoUringLoop& loop);
  // Nothing is running or waiting.
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // Now, so that no job is refused for want of a thread.
  [[nodiscard]] Status Start();
  // After `job` ran on the thread, which starts with the first one. Fails where no thread can be
  // had: the job was not run, and the next one tries again.
  Task<Status> Run(std::function<void()> job);

 private:
  struct Job {
    std::function<void()> work;
    bool done = false;  // on the loop's side
  };

  void ThreadMain();
  Task<void> Collect();

  IoUringLoop& loop_;
  int event_fd_ = -1;
  Event finished_;
  size_t outstanding_ = 0;  // jobs whose end the loop has not seen
  bool collecting_ = false;
  std::thread thread_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Job*> queue_;
  std::deque<Job*> ended_;
  bool stop_ = false;
};

}  // namespace eplog
