#include "device/members.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/task_group.h"

namespace eplog {
namespace {

tl::unexpected<Error> NotLive(DeviceIndex device) {
  Error error;
  error.code = ErrorCode::kDeviceFailed;
  error.message = "device " + std::to_string(device.value) + " is not part of the array now";
  error.device = device.value;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

void LatencyHistogram::Add(uint64_t us) {
  size_t bucket = us;
  if (us >= 4) {
    const auto exponent = static_cast<unsigned>(std::bit_width(us)) - 1;
    bucket = 4 + (exponent - 2) * 4 + ((us >> (exponent - 2)) & 3);
  }
  ++buckets_[std::min(bucket, buckets_.size() - 1)];
  ++count_;
}

uint64_t LatencyHistogram::Quantile(double q) const {
  if (count_ == 0) {
    return 0;
  }
  const auto rank = static_cast<uint64_t>(q * static_cast<double>(count_ - 1));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > rank) {
      if (i < 4) {
        return i;
      }
      const size_t exponent = (i - 4) / 4 + 2;
      return ((4 + (i - 4) % 4 + 1) << (exponent - 2)) - 1;
    }
  }
  return 0;
}

Task<Status> MemberSet::Read(DeviceIndex device, uint64_t offset_bytes,
                             std::span<const iovec> into) {
  if (!live(device)) {
    co_return NotLive(device);
  }
  if (before_io_) {
    before_io_(device, IoKind::kRead);
  }
  const uint64_t start = loop_.NowUs();
  const Asked asked = Ask(device);
  Task<Status> read = asked.device->Read(offset_bytes, into);
  Status status = co_await read;
  MemberCounters& counters = CountersOf(asked);
  const uint64_t took_us = loop_.NowUs() - start;
  counters.latency.Add(took_us);
  counters.busy_us += took_us;
  ++counters.reads;
  if (status.ok()) {
    counters.bytes_read += TotalBytes(into);
    if (!overlay_.empty()) {
      ApplyOverlay(device, offset_bytes, into);
    }
  } else {
    ++counters.read_errors;
    status.error().device = device.value;
    if (status.error().code == ErrorCode::kDeviceFailed) {
      Failed(asked, status.error(), true);
    }
  }
  co_return status;
}

void MemberSet::ApplyOverlay(DeviceIndex device, uint64_t offset_bytes,
                             std::span<const iovec> into) const {
  const uint64_t end = offset_bytes + TotalBytes(into);
  for (auto it = overlay_.lower_bound({device.value, 0});
       it != overlay_.end() && it->first.first == device.value && it->first.second < end; ++it) {
    const Buffer& bytes = it->second;
    uint64_t part_offset = offset_bytes;
    for (const iovec& part : into) {
      const uint64_t first = std::max(part_offset, it->first.second);
      const uint64_t last = std::min(part_offset + part.iov_len, it->first.second + bytes.size());
      if (first < last) {
        std::memcpy(static_cast<std::byte*>(part.iov_base) + (first - part_offset),
                    bytes.data() + (first - it->first.second), last - first);
      }
      part_offset += part.iov_len;
    }
  }
}

Task<Status> MemberSet::Write(DeviceIndex device, uint64_t offset_bytes,
                              std::span<const iovec> from, IoKind kind) {
  if (!live(device)) {
    co_return NotLive(device);
  }
  if (before_io_) {
    before_io_(device, kind);
  }
  const uint64_t start = loop_.NowUs();
  const Asked asked = Ask(device);
  Task<Status> write = asked.device->Write(offset_bytes, from);
  Status status = co_await write;
  MemberCounters& counters = CountersOf(asked);
  const uint64_t took_us = loop_.NowUs() - start;
  counters.latency.Add(took_us);
  counters.busy_us += took_us;
  ++counters.writes;
  if (status.ok()) {
    counters.bytes_written += TotalBytes(from);
  } else {
    ++counters.write_errors;
    Failed(asked, status.error());
  }
  co_return status;
}

void MemberSet::Lose(DeviceIndex device, const Error& why) {
  if (!live(device)) {
    return;
  }
  devices_[device.value] = nullptr;
  if (on_loss_) {
    on_loss_(device, why);
  }
}

void MemberSet::Join(DeviceIndex index, Device& device) {
  devices_[index.value] = &device;
  ++joined_[index.value];
  counters_[index.value] = {};
  flushing_[index.value] = std::make_shared<AsyncMutex>(loop_);  // nobody waits for its predecessor
  flush_failures_.erase(index.value);
  failed_ &= ~(uint64_t{1} << index.value);
}

// A write or flush has failed, or a read as nothing else would.
void MemberSet::Failed(const Asked& asked, Error& error, bool reads) {
  const DeviceIndex device = asked.index;
  error.device = device.value;
  const bool gone = devices_[device.value] != asked.device || IsReplaced(asked);
  const bool below = error.code == ErrorCode::kNoSpace || error.code == ErrorCode::kShutdown;
  failed_ |= !gone && !below && !reads ? uint64_t{1} << device.value : 0;
  if (on_loss_ && (gone || !below)) {
    if (!gone) {
      Lose(device, error);
    }
    error.code = ErrorCode::kDeviceFailed;
  }
}

Status MemberSet::Absorb(Status status) const {
  const bool lost = !status.ok() && on_loss_ && status.error().code == ErrorCode::kDeviceFailed;
  return lost ? OkStatus() : status;
}

Task<Status> MemberSet::Discard(DeviceIndex device, uint64_t offset_bytes, uint64_t length_bytes) {
  if (!live(device)) {
    co_return NotLive(device);
  }
  if (before_io_) {
    before_io_(device, IoKind::kDiscard);
  }
  ++counters_[device.value].discards;
  const Asked asked = Ask(device);
  Task<Status> discard = asked.device->Discard(offset_bytes, length_bytes);
  Status status = co_await discard;
  if (status.ok()) {
    CountersOf(asked).bytes_discarded += length_bytes;
  }
  co_return status;
}

Task<Status> MemberSet::Flush(DeviceIndex device) {
  // One after the other: of several at once the kernel may tell one alone that something was lost.
  const std::shared_ptr<AsyncMutex> flushing = flushing_[device.value];
  Task<AsyncMutex::Guard> waiting = flushing->Lock();
  const AsyncMutex::Guard turn = co_await waiting;
  if (!live(device)) {
    co_return NotLive(device);
  }
  if (const auto failed = flush_failures_.find(device.value); failed != flush_failures_.end()) {
    // I7: what an earlier flush lost, a later one that succeeds would pretend to have kept. One that
    // found no space is no loss, which nobody would be told of: whoever flushes beside it fails too.
    co_return Fail(failed->second);
  }
  if (before_io_) {
    before_io_(device, IoKind::kFlush);
  }
  ++counters_[device.value].flushes;
  if (drop_flushes_) {
    co_return OkStatus();
  }
  Asked asked = Ask(device);
  Task<Status> flush = asked.device->Flush();
  Status status = co_await flush;
  if (!status.ok() && retry_flushes_) {
    Task<Status> again = asked.device->Flush();
    status = co_await again;
  }
  if (!status.ok()) {
    if (devices_[device.value] == asked.device) {
      asked = Ask(device);  // out and back meanwhile: what it lost may be of what came since (I7)
    }
    ++CountersOf(asked).write_errors;
    Failed(asked, status.error());
    if (!IsReplaced(asked)) {
      flush_failures_.emplace(device.value, status.error());
    }
  }
  co_return status;
}

Task<Status> MemberSet::ReadBytes(DeviceIndex device, uint64_t offset_bytes,
                                  std::span<std::byte> into) {
  const iovec part{into.data(), into.size()};
  Task<Status> read = Read(device, offset_bytes, std::span(&part, 1));
  co_return co_await read;
}

Task<Status> MemberSet::WriteBytes(DeviceIndex device, uint64_t offset_bytes,
                                   std::span<const std::byte> from, IoKind kind) {
  const iovec part{const_cast<std::byte*>(from.data()), from.size()};
  Task<Status> write = Write(device, offset_bytes, std::span(&part, 1), kind);
  co_return co_await write;
}

Task<Status> MemberSet::FlushOne(DeviceIndex device) {
  Task<Status> flush = Flush(device);
  Status status = co_await flush;
  co_return Absorb(std::move(status));
}

Task<Status> MemberSet::FlushMask(uint64_t mask) {
  TaskGroup group(loop_);
  for (uint8_t i = 0; i < devices_.size(); ++i) {
    if ((mask >> i & 1) != 0 && devices_[i] != nullptr) {
      group.Start(FlushOne(DeviceIndex(i)));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

uint64_t MemberSet::live_mask() const {
  uint64_t mask = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    mask |= devices_[i] != nullptr ? uint64_t{1} << i : 0;
  }
  return mask;
}

}  // namespace eplog
