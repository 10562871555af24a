#include "sim/sim_ssd.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/request_check.h"

namespace eplog::sim {

SimSsd::SimSsd(EventLoop& loop, std::string name, const SsdParameters& parameters,
               uint64_t size_bytes)
    : SimDevice(loop, std::move(name), size_bytes, parameters.link.queue_depth),
      model_(parameters, size_bytes) {
  capabilities_.discard = true;
}

Task<Status> SimSsd::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  Status checked = CheckRequest(*this, "read", offset_bytes, into);
  EPLOG_CO_TRY(checked);
  Task<Place> enter = Enter();
  const Place place = co_await enter;
  Task<void> answered = Until(model_.Read(NowNs(), offset_bytes, TotalBytes(into)));
  co_await answered;
  Get(offset_bytes, into);
  co_return OkStatus();
}

// The line is left before the bytes move: who is next may look for room while they do.
Task<void> SimSsd::WaitForRoom(uint64_t offset_bytes, uint64_t length_bytes) {
  Task<AsyncMutex::Guard> line = room_line_.Lock();
  const AsyncMutex::Guard guard = co_await line;
  while (!model_.HasRoom(NowNs(), offset_bytes, length_bytes)) {
    const uint64_t next_ns = model_.NextEventNs();
    EPLOG_CHECK(next_ns != SsdModel::kNever, "a full buffer is being emptied");
    Task<void> until = Until(next_ns);
    co_await until;
  }
}

Task<Status> SimSsd::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  Status checked = CheckRequest(*this, "write", offset_bytes, from);
  EPLOG_CO_TRY(checked);
  Task<Place> enter = Enter();
  const Place place = co_await enter;
  const uint64_t end = offset_bytes + TotalBytes(from);
  uint64_t answered_ns = NowNs();
  for (uint64_t at = offset_bytes; at < end;) {
    const uint64_t take = std::min(end - at, model_.write_limit_bytes());
    Task<void> room = WaitForRoom(at, take);
    co_await room;
    answered_ns = model_.Write(NowNs(), at, take);
    at += take;
  }
  Task<void> answered = Until(answered_ns);
  co_await answered;
  Put(offset_bytes, from);
  co_return OkStatus();
}

Task<void> SimSsd::WaitForFlush(SsdModel::Flush flush) {
  while (!model_.HasEnded(NowNs(), flush)) {
    const uint64_t next_ns = model_.NextEventNs();
    EPLOG_CHECK(next_ns != SsdModel::kNever, "what a flush waits for is under way");
    Task<void> until = Until(next_ns);
    co_await until;
  }
  Task<void> answered = Until(flush.earliest_ns);
  co_await answered;
}

Task<Status> SimSsd::Flush() {
  Task<Place> enter = Enter();
  const Place place = co_await enter;
  Task<void> wait = WaitForFlush(model_.BeginFlush(NowNs()));
  co_await wait;
  co_return OkStatus();
}

Task<Status> SimSsd::FlushRange(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRange(*this, "flush", offset_bytes, length_bytes);
  EPLOG_CO_TRY(checked);
  Task<Place> enter = Enter();
  const Place place = co_await enter;
  Task<void> wait = WaitForFlush(model_.BeginFlush(NowNs(), offset_bytes, length_bytes));
  co_await wait;
  co_return OkStatus();
}

Task<Status> SimSsd::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRange(*this, "discard", offset_bytes, length_bytes);
  EPLOG_CO_TRY(checked);
  Task<Place> enter = Enter();
  const Place place = co_await enter;
  Task<void> answered = Until(model_.Trim(NowNs(), offset_bytes, length_bytes));
  co_await answered;
  const uint64_t page = model_.parameters().flash.page_bytes;
  const uint64_t first = RoundUp(offset_bytes, page);
  const uint64_t last = RoundDown(offset_bytes + length_bytes, page);
  if (first < last) {
    content_.Drop(first, last - first);
  }
  co_return OkStatus();
}

}  // namespace eplog::sim
