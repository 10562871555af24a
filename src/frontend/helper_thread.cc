#include "frontend/helper_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/check.h"
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

Task<int> HelperThread::Run(std::function<int()> work) {
  Job job;
  job.work = std::move(work);
  ++outstanding_;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&job);
    if (queue_.size() > idle_ && threads_.size() < most_threads_) {
      StartThread();
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
  co_return job.result;
}

void HelperThread::StartThread() {
  try {
    threads_.emplace_back(&HelperThread::ThreadMain, this);
  } catch (const std::system_error&) {
    if (threads_.empty()) {
      throw;
    }
    // One of those that there are does it.
  }
}

void HelperThread::ThreadMain() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) {
      return;
    }
    Job* job = queue_.front();
    queue_.pop_front();
    lock.unlock();
    job->result = job->work();
    lock.lock();
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
