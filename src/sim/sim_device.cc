#include "sim/sim_device.h"

#include <utility>

#include "base/check.h"
#include "base/types.h"

namespace eplog::sim {

SimDevice::SimDevice(EventLoop& loop, std::string name, uint64_t size_bytes, uint32_t queue_depth)
    : loop_(loop),
      content_(size_bytes),
      room_line_(loop),
      name_(std::move(name)),
      queue_depth_(queue_depth),
      place_free_(loop) {
  EPLOG_CHECK(size_bytes != 0 && size_bytes % kSectorBytes == 0, "a device is whole sectors");
  EPLOG_CHECK(queue_depth != 0, "a queue has a place at least");
  capabilities_.alignment_bytes = kSectorBytes;
}

Task<SimDevice::Place> SimDevice::Enter() {
  if (inside_ < queue_depth_ && !place_free_.has_waiters()) {
    ++inside_;
  } else {
    co_await place_free_.Wait();  // who leaves hands his place over
  }
  co_return Place(this);
}

void SimDevice::Leave() {
  if (place_free_.has_waiters()) {
    place_free_.NotifyOne();
  } else {
    --inside_;
  }
}

Task<void> SimDevice::Until(uint64_t at_ns) {
  const uint64_t at_us = DivideUp(at_ns, 1000);
  const uint64_t now_us = loop_.NowUs();
  if (at_us > now_us) {
    co_await loop_.Sleep(at_us - now_us);
  }
}

void SimDevice::Put(uint64_t offset_bytes, std::span<const iovec> from) {
  for (const iovec& part : from) {
    content_.Write(offset_bytes, {static_cast<const std::byte*>(part.iov_base), part.iov_len});
    offset_bytes += part.iov_len;
  }
}

void SimDevice::Get(uint64_t offset_bytes, std::span<const iovec> into) const {
  for (const iovec& part : into) {
    content_.Read(offset_bytes, {static_cast<std::byte*>(part.iov_base), part.iov_len});
    offset_bytes += part.iov_len;
  }
}

}  // namespace eplog::sim
