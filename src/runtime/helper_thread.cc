#include "runtime/helper_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/start_thread.h"
#include "runtime/io_uring_loop.h"

namespace eplog {

HelperThread::HelperThread(IoUringLoop& loop, size_t most_threads)
    : loop_(loop),
      most_threads_(most_threads),
      event_fd_(::eventfd(0, EFD_CLOEXEC)),
      finished_(loop) {
  EPLOG_CHECK(event_fd_ >= 0, "no descriptor left for an eventfd");
}

HelperThread::~HelperThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  ::close(event_fd_);
}

Status HelperThread::Start() {
  if (threads_.empty()) {
    StartThread();
  }
  return threads_.empty() ? Status(FailNoThread()) : OkStatus();
}

Task<Status> HelperThread::Run(std::function<void()> work) {
  Status started = Start();
  EPLOG_CO_TRY(started);
  Job job;
  job.work = std::move(work);
  ++outstanding_;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&job);
    if (queue_.size() > threads_.size() - busy_ && threads_.size() < most_threads_) {
      StartThread();  // else one of those that there are does it
    }
  }
  wake_.notify_one();
  if (!collecting_) {
    collecting_ = true;
    loop_.Spawn(Collect());
  }
  while (!job.done) {
    co_await finished_.Wait();
  }
  co_return OkStatus();
}

void HelperThread::StartThread() {
  std::thread thread = TryStartThread([this] { ThreadMain(); });
  if (thread.joinable()) {
    threads_.push_back(std::move(thread));
  }
}

void HelperThread::ThreadMain() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Job* job = queue_.front();
    queue_.pop_front();
    ++busy_;
    lock.unlock();
    job->work();
    lock.lock();
    --busy_;
    ended_.push_back(job);
    const uint64_t one = 1;
    const ssize_t written = ::write(event_fd_, &one, sizeof(one));
    EPLOG_CHECK(written == sizeof(one), "an eventfd takes every signal");
  }
}

// Lives only while jobs run, so that nothing is in flight on the loop when nothing is to do.
Task<void> HelperThread::Collect() {
  while (outstanding_ != 0) {
    uint64_t count = 0;
    const int read = co_await loop_.Read(event_fd_, &count, sizeof(count));
    EPLOG_CHECK(read == sizeof(count), "reading an eventfd");
    const std::lock_guard lock(mutex_);
    for (Job* job : ended_) {
      job->done = true;
      --outstanding_;
    }
    ended_.clear();
    finished_.NotifyAll();
  }
  collecting_ = false;
}

}  // namespace eplog
