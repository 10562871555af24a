#include "device/wrappers.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/types.h"

namespace eplog {
namespace {

const char* VerbOf(RequestKind kind) {
  switch (kind) {
    case RequestKind::kRead:
      return "read";
    case RequestKind::kWrite:
      return "write";
    case RequestKind::kFlush:
      return "flush";
    case RequestKind::kDiscard:
      return "discard";
  }
  return "request";
}

uint64_t EndOf(uint64_t offset, uint64_t length) {
  return length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
}

bool Touches(const Fault& fault, RequestKind kind, uint64_t offset, uint64_t length) {
  return kind == RequestKind::kFlush ||
         (offset < EndOf(fault.range_offset_bytes, fault.range_length_bytes) &&
          fault.range_offset_bytes < EndOf(offset, length));
}

// Wrong by one bit, which only a checksum sees.
void FlipOneBit(std::span<const iovec> parts) {
  for (const iovec& part : parts) {
    if (part.iov_len != 0) {
      static_cast<std::byte*>(part.iov_base)[part.iov_len / 2] ^= std::byte{0x10};
      return;
    }
  }
}

}  // namespace

Task<Status> CountingDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  ++counters_.reads;
  counters_.bytes_read += TotalBytes(into);
  return below().Read(offset_bytes, into);
}

Task<Status> CountingDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  const uint64_t length = TotalBytes(from);
  ++counters_.writes;
  counters_.bytes_written += length;
  const auto log2 = static_cast<size_t>(std::bit_width(std::max<uint64_t>(length, 1)) - 1);
  ++counters_.writes_by_size[std::min(log2, counters_.writes_by_size.size() - 1)];
  return below().Write(offset_bytes, from);
}

Task<Status> CountingDevice::Flush() {
  ++counters_.flushes;
  return below().Flush();
}

Task<Status> CountingDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  ++counters_.discards;
  counters_.bytes_discarded += length_bytes;
  return below().Discard(offset_bytes, length_bytes);
}

void FaultDevice::Add(const Fault& fault) {
  faults_.push_back({fault, 0});
}

void FaultDevice::FailDevice() {
  faults_.insert(faults_.begin(),
                 Armed{{.from_then_on = true, .code = ErrorCode::kDeviceFailed}, 0});
}

const Fault* FaultDevice::Strike(RequestKind kind, uint64_t offset_bytes, uint64_t length_bytes) {
  ++requests_;
  const Fault* struck = nullptr;
  for (Armed& armed : faults_) {
    const Fault& fault = armed.fault;
    if ((fault.kinds & MaskOf(kind)) == 0 || !Touches(fault, kind, offset_bytes, length_bytes)) {
      continue;
    }
    ++armed.seen;
    const bool due = fault.from_then_on ? armed.seen >= fault.nth : armed.seen == fault.nth;
    if (due && struck == nullptr) {
      struck = &fault;
    }
  }
  fired_ += struck != nullptr ? 1 : 0;
  return struck;
}

Error FaultDevice::MakeError(const Fault& fault, RequestKind kind, uint64_t offset_bytes) const {
  Error error;
  error.code = fault.code;
  error.message = name() + ": injected fault in " + VerbOf(kind);
  error.offset_bytes = kind == RequestKind::kFlush ? kNoOffset : static_cast<int64_t>(offset_bytes);
  error.errno_value = fault.errno_value;
  return error;
}

Task<Status> FaultDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  const Fault* fault = Strike(RequestKind::kRead, offset_bytes, TotalBytes(into));
  return fault == nullptr ? below().Read(offset_bytes, into)
                          : StruckRead(*fault, offset_bytes, into);
}

Task<Status> FaultDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  const Fault* fault = Strike(RequestKind::kWrite, offset_bytes, TotalBytes(from));
  return fault == nullptr ? below().Write(offset_bytes, from)
                          : StruckWrite(*fault, offset_bytes, from);
}

Task<Status> FaultDevice::Flush() {
  const Fault* fault = Strike(RequestKind::kFlush, 0, 0);
  const bool forward = fault == nullptr || fault->action == Fault::Action::kFailAfter;
  Task<Status> flush = forward ? below().Flush() : Task<Status>();
  return fault == nullptr ? std::move(flush)
                          : StruckOther(*fault, RequestKind::kFlush, 0, std::move(flush));
}

Task<Status> FaultDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  const Fault* fault = Strike(RequestKind::kDiscard, offset_bytes, length_bytes);
  const bool forward = fault == nullptr || fault->action == Fault::Action::kFailAfter;
  Task<Status> discard = forward ? below().Discard(offset_bytes, length_bytes) : Task<Status>();
  return fault == nullptr
             ? std::move(discard)
             : StruckOther(*fault, RequestKind::kDiscard, offset_bytes, std::move(discard));
}

Task<Status> FaultDevice::StruckRead(Fault fault, uint64_t offset_bytes,
                                     std::span<const iovec> into) {
  if (fault.action == Fault::Action::kFailAfter || fault.action == Fault::Action::kCorrupt) {
    EPLOG_CO_AWAIT(below().Read(offset_bytes, into));
  }
  if (fault.action == Fault::Action::kCorrupt) {
    FlipOneBit(into);
    co_return OkStatus();
  }
  co_return Fail(MakeError(fault, RequestKind::kRead, offset_bytes));
}

Task<Status> FaultDevice::StruckWrite(Fault fault, uint64_t offset_bytes,
                                      std::span<const iovec> from) {
  // Of the bytes that the caller gave, how many reach the device.
  uint64_t length = TotalBytes(from);
  switch (fault.action) {
    case Fault::Action::kFail:
    case Fault::Action::kDrop:
      length = 0;
      break;
    case Fault::Action::kFailPartly:
      length = RoundDown(length / 2, capabilities().alignment_bytes);
      break;
    case Fault::Action::kFailAfter:
    case Fault::Action::kCorrupt:
      break;
  }
  if (length != 0) {
    EPLOG_CO_AWAIT(WriteCopy(offset_bytes, from, length, fault.action == Fault::Action::kCorrupt));
  }
  if (fault.action == Fault::Action::kDrop || fault.action == Fault::Action::kCorrupt) {
    co_return OkStatus();
  }
  co_return Fail(MakeError(fault, RequestKind::kWrite, offset_bytes));
}

Task<Status> FaultDevice::WriteCopy(uint64_t offset_bytes, std::span<const iovec> from,
                                    uint64_t length_bytes, bool corrupt) {
  const size_t whole = RoundUp(length_bytes, kBlockBytes);
  const std::unique_ptr<void, decltype(&std::free)> copy(std::aligned_alloc(kBlockBytes, whole),
                                                         &std::free);
  EPLOG_CHECK(copy != nullptr, "out of memory for a test device");
  auto* to = static_cast<std::byte*>(copy.get());
  uint64_t done = 0;
  for (const iovec& part : from) {
    const uint64_t take = std::min<uint64_t>(part.iov_len, length_bytes - done);
    std::memcpy(to + done, part.iov_base, take);
    done += take;
  }
  const iovec part{to, length_bytes};
  const std::span<const iovec> parts(&part, 1);
  if (corrupt) {
    FlipOneBit(parts);
  }
  Task<Status> write = below().Write(offset_bytes, parts);
  co_return co_await write;
}

// `request` is empty unless the fault lets it through.
Task<Status> FaultDevice::StruckOther(Fault fault, RequestKind kind, uint64_t offset_bytes,
                                      Task<Status> request) {
  if (fault.action == Fault::Action::kDrop) {
    co_return OkStatus();
  }
  if (fault.action == Fault::Action::kFailAfter) {
    Status status = co_await request;
    EPLOG_CO_TRY(status);
  }
  co_return Fail(MakeError(fault, kind, offset_bytes));
}

Task<Status> DelayDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  return After(delays_.read_us, below().Read(offset_bytes, into));
}

Task<Status> DelayDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  return After(delays_.write_us, below().Write(offset_bytes, from));
}

Task<Status> DelayDevice::Flush() {
  return After(delays_.flush_us, below().Flush());
}

Task<Status> DelayDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  return After(delays_.discard_us, below().Discard(offset_bytes, length_bytes));
}

Task<Status> DelayDevice::After(uint64_t delay_us, Task<Status> request) {
  // Also when the loop is aborted and this frame goes.
  const struct Counted {
    explicit Counted(uint64_t& in) : count(in) { ++count; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { --count; }
    uint64_t& count;
  } counted(in_flight_);
  if (delays_.channels != 0) {
    busy_until_us_.resize(delays_.channels);
    uint64_t& channel = *std::min_element(busy_until_us_.begin(), busy_until_us_.end());
    channel = std::max(channel, loop_.NowUs()) + delay_us;
    delay_us = channel - loop_.NowUs();
  }
  if (delay_us != 0) {
    co_await loop_.Sleep(delay_us);
  }
  co_return co_await request;
}

}  // namespace eplog
