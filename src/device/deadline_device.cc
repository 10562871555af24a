#include "device/deadline_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace eplog {
namespace {

constexpr uint64_t kLastLookUs = 1000;
constexpr uint64_t kLooksADeadline = 4;

}  // namespace

Error DeadlineDevice::Hung() const {
  Error error;
  error.code = ErrorCode::kDeviceFailed;
  if (abandoned_) {
    error.message = name() + " is lost: nobody waits for its answers any more";
    return error;
  }
  error.errno_value = ETIMEDOUT;
  error.message = name() + " hangs: a request was not answered within " +
                  (deadline_us_ >= 1'000'000 ? std::to_string(deadline_us_ / 1'000'000) + " s"
                                             : std::to_string(deadline_us_ / 1'000) + " ms");
  return error;
}

Task<void> DeadlineDevice::Carry(RequestPtr request, Task<Status> task,
                                 std::shared_ptr<uint64_t> unanswered) {
  Status status = co_await task;
  request->status = std::move(status);
  request->done = true;
  --*unanswered;
  request->answered.NotifyAll();
}

Task<Status> DeadlineDevice::Await(RequestPtr request, Task<Status> task) {
  if (hung_) {
    co_return Fail(Hung());
  }
  ++*unanswered_;
  ++inside_;
  uint64_t until = loop_.NowUs() + deadline_us_;
  const auto place = waiting_.insert(waiting_.end(), request.get());
  loop_.Start(Carry(request, std::move(task), unanswered_));
  while (!request->done && !hung_ && deadline_us_ == 0) {
    co_await request->answered.Wait();
  }
  while (!request->done && !hung_ && loop_.NowUs() < until) {
    const uint64_t look =
        std::min(until, loop_.NowUs() + std::max<uint64_t>(deadline_us_ / kLooksADeadline, 1));
    co_await request->answered.WaitUntil(look);
    // By as much as nobody looked (this process was stopped, say) the device has not been late: what
    // this loop had prepared had not even come to it.
    until += std::max(loop_.NowUs(), look) - look;
  }
  // The answers may be there and only not seen yet: the loop looks for them between timers.
  for (int look = 0; look < 2 && !request->done && !hung_; ++look) {
    co_await request->answered.WaitUntil(loop_.NowUs() + kLastLookUs);
  }
  --inside_;
  waiting_.erase(place);
  if (!request->done) {
    GiveUp();
    co_return Fail(Hung());
  }
  co_return std::move(request->status);
}

// What else is on its way to the device has hardly a chance to be answered, and who asked would
// wait for up to another deadline.
void DeadlineDevice::GiveUp() {
  if (std::exchange(hung_, true)) {
    return;
  }
  for (Request* request : waiting_) {
    request->answered.NotifyAll();
  }
}

void DeadlineDevice::Abandon() {
  abandoned_ = abandoned_ || !hung_;
  GiveUp();
}

Task<Status> DeadlineDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  const auto request = std::make_shared<Request>(loop_);
  request->pool = pool_;
  request->memory = pool_->Get(TotalBytes(into));
  request->parts.push_back({request->memory.data(), request->memory.size()});
  Task<Status> below_read = below().Read(offset_bytes, request->parts);
  Task<Status> reading = Await(request, std::move(below_read));
  Status status = co_await reading;
  const std::byte* from = request->memory.data();
  for (const iovec& part : into) {
    if (status.ok()) {
      std::memcpy(part.iov_base, from, part.iov_len);
      from += part.iov_len;
    }
  }
  co_return status;
}

Task<Status> DeadlineDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  const auto request = std::make_shared<Request>(loop_);
  request->parts.assign(from.begin(), from.end());
  Task<Status> below_write = below().Write(offset_bytes, request->parts);
  Task<Status> writing = Await(request, std::move(below_write));
  co_return co_await writing;
}

Task<Status> DeadlineDevice::Flush() {
  Task<Status> flushing = Await(std::make_shared<Request>(loop_), below().Flush());
  co_return co_await flushing;
}

Task<Status> DeadlineDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  Task<Status> discarding =
      Await(std::make_shared<Request>(loop_), below().Discard(offset_bytes, length_bytes));
  co_return co_await discarding;
}

}  // namespace eplog
