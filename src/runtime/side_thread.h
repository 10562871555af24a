// SideThread: work that may block for as long as it likes (a file on whatever file system, a
// command of the owner's) and that nobody waits for. What is to block and is waited for is
// HelperThread's.
//
// Whoever posts never waits: what is too much is dropped, and he is told. At the end there is a
// bounded wait; a job that does not end by then is left behind on its thread, so a job owns all
// that it touches.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace eplog {

class SideThread {
 public:
  // So many jobs may wait while one runs.
  explicit SideThread(size_t most_waiting);
  // Finish, without any wait.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Jobs run one after the other. False: this one will not be done, since too many wait already or
  // no thread can be had; the thread starts with the first job, and the next one tries again.
  [[nodiscard]] bool Post(std::function<void()> job);
  // No more jobs. Waits until all are done, at most for `grace`; then those not begun are
  // forgotten. False: one of them still runs.
  bool Finish(std::chrono::milliseconds grace);

 private:
  struct Shared;
  static void ThreadMain(const std::shared_ptr<Shared>& shared);
  [[nodiscard]] bool Started();

  std::shared_ptr<Shared> shared_;  // also the thread's, which may outlive this
};

}  // namespace eplog
