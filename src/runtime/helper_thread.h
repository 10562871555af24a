// HelperThread: runs the few system calls that may block until this very process has served further
// requests (umount, syncfs, invalidation of the kernel's cache), so that the loop never waits for
// itself, and those that wait for a device (opening it). Jobs begin in order, one after the other,
// or, with more threads, each without waiting for those before; and they end: what may never be
// answered is given up by its job. They touch nothing that belongs to the loop.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "eplog/result.h"
#include "eplog/task.h"
#include "runtime/sync.h"

namespace eplog {

class IoUringLoop;

class HelperThread {
 public:
  explicit HelperThread(IoUringLoop& loop, size_t most_threads = 1);
  // Nothing is running or waiting.
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // Now, so that no job is refused for want of a thread.
  [[nodiscard]] Status Start();
  // After `job` ran on a thread; they start when there is nobody for a job. Fails where there is
  // none and none can be had: the job was not run, and the next one tries again.
  Task<Status> Run(std::function<void()> job);

 private:
  struct Job {
    std::function<void()> work;
    bool done = false;  // on the loop's side
  };

  void StartThread();
  void ThreadMain();
  Task<void> Collect();

  IoUringLoop& loop_;
  const size_t most_threads_;
  int event_fd_ = -1;
  Event finished_;
  size_t outstanding_ = 0;  // jobs whose end the loop has not seen
  bool collecting_ = false;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Job*> queue_;
  std::deque<Job*> ended_;
  size_t busy_ = 0;  // threads
  bool stop_ = false;
};

}  // namespace eplog
