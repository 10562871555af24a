#include "runtime/side_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/start_thread.h"

namespace eplog {

// The mutex is only held to put a job in or to take one out, never while one runs: the engine's
// thread does not wait for a job by way of it.
struct SideThread::Shared {
  explicit Shared(size_t most) : most_waiting(most) {}
  const size_t most_waiting;
  std::mutex mutex;  // guards what follows
  std::condition_variable wake;
  std::condition_variable idle;
  std::deque<std::function<void()>> waiting;
  bool started = false;
  bool running = false;
  bool stop = false;
};

SideThread::SideThread(size_t most_waiting) : shared_(std::make_shared<Shared>(most_waiting)) {}

SideThread::~SideThread() {
  Finish(std::chrono::milliseconds(0));
}

bool SideThread::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stop || shared_->waiting.size() >= shared_->most_waiting || !Started()) {
      return false;
    }
    shared_->waiting.push_back(std::move(job));
  }
  shared_->wake.notify_one();
  return true;
}

bool SideThread::Started() {
  if (!shared_->started) {
    std::thread thread = TryStartThread([shared = shared_] { ThreadMain(shared); });
    shared_->started = thread.joinable();
    if (shared_->started) {
      thread.detach();
    }
  }
  return shared_->started;
}

bool SideThread::Finish(std::chrono::milliseconds grace) {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->idle.wait_for(lock, grace,
                         [this] { return !shared_->running && shared_->waiting.empty(); });
  shared_->waiting.clear();
  shared_->wake.notify_all();
  return !shared_->running;
}

void SideThread::ThreadMain(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->wake.wait(lock, [&] { return shared->stop || !shared->waiting.empty(); });
    if (shared->waiting.empty()) {
      return;
    }
    std::function<void()> job = std::move(shared->waiting.front());
    shared->waiting.pop_front();
    shared->running = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    shared->running = false;
    shared->idle.notify_all();
  }
}

}  // namespace eplog
