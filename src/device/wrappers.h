// Devices in front of devices, so that counting, faults and delay compose. Each forwards what it
// does not change. The volatile cache, which is larger, is in device/volatile_cache.h and comes
// with this header.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/forwarding_device.h"
#include "device/volatile_cache.h"  // IWYU pragma: export
#include "eplog/device.h"
#include "eplog/event_loop.h"

namespace eplog {

// What a request is, for wrappers that treat kinds differently. Bits of a mask.
enum class RequestKind : uint8_t { kRead = 1, kWrite = 2, kFlush = 4, kDiscard = 8 };
using RequestMask = uint8_t;
constexpr RequestMask operator|(RequestKind a, RequestKind b) {
  return static_cast<RequestMask>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr RequestMask MaskOf(RequestKind kind) {
  return static_cast<RequestMask>(kind);
}
inline constexpr RequestMask kAnyRequest = 15;

struct DeviceCounters {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t discards = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t bytes_discarded = 0;
  // Writes by size: bucket i holds those of [2^i, 2^(i+1)) bytes.
  std::array<uint64_t, 40> writes_by_size{};

  [[nodiscard]] double MeanWriteBytes() const {
    return writes == 0 ? 0 : static_cast<double>(bytes_written) / static_cast<double>(writes);
  }
};

// Counts requests when they are made, whatever becomes of them.
class CountingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  [[nodiscard]] const DeviceCounters& counters() const { return counters_; }
  void Reset() { counters_ = {}; }

 private:
  DeviceCounters counters_;
};

struct Fault {
  enum class Action : uint8_t {
    kFail,        // the request fails and changes nothing
    kFailAfter,   // it is carried out, then fails
    kFailPartly,  // the first half (in whole sectors) of a write is carried out, then it fails
    kCorrupt,     // a read succeeds with one bit wrong; a write stores one bit wrong
    kDrop,        // a write, flush or discard succeeds and does nothing; a read fails
  };
  RequestMask kinds = kAnyRequest;
  uint64_t nth = 1;           // strikes the nth matching request from now on; 1 is the next
  bool from_then_on = false;  // and all after it
  Action action = Action::kFail;
  ErrorCode code = ErrorCode::kIo;
  int errno_value = 5;  // EIO
  // Only requests that touch this range match; a flush always does.
  uint64_t range_offset_bytes = 0;
  uint64_t range_length_bytes = UINT64_MAX;
};

// Strikes requests as told. "Fail the Nth request, N = 1, 2, ... until a run meets no fault" is:
// Add({.nth = n}), run, ask fired().
class FaultDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  // Of several faults that match one request the first added strikes; each counts its own matches.
  void Add(const Fault& fault);
  // Everything fails with kDeviceFailed from now on, until Clear.
  void FailDevice();
  void Clear() { faults_.clear(); }

  // Requests struck so far, and all requests.
  [[nodiscard]] uint64_t fired() const { return fired_; }
  [[nodiscard]] uint64_t requests() const { return requests_; }

 private:
  struct Armed {
    Fault fault;
    uint64_t seen = 0;
  };
  // The fault that strikes this request, or null. Valid until the next Add or Clear: copy before
  // awaiting.
  const Fault* Strike(RequestKind kind, uint64_t offset_bytes, uint64_t length_bytes);
  [[nodiscard]] Error MakeError(const Fault& fault, RequestKind kind, uint64_t offset_bytes) const;
  Task<Status> StruckRead(Fault fault, uint64_t offset_bytes, std::span<const iovec> into);
  Task<Status> StruckWrite(Fault fault, uint64_t offset_bytes, std::span<const iovec> from);
  Task<Status> StruckOther(Fault fault, RequestKind kind, uint64_t offset_bytes,
                           Task<Status> request);
  Task<Status> WriteCopy(uint64_t offset_bytes, std::span<const iovec> from, uint64_t length_bytes,
                         bool corrupt);

  std::vector<Armed> faults_;
  uint64_t fired_ = 0;
  uint64_t requests_ = 0;
};

struct DeviceDelays {
  uint64_t read_us = 0;
  uint64_t write_us = 0;
  uint64_t flush_us = 0;
  uint64_t discard_us = 0;
  uint32_t channels = 0;  // requests served at once; others wait their turn. 0 = any number
};

// Each request takes its time, then goes below.
class DelayDevice final : public ForwardingDevice {
 public:
  DelayDevice(EventLoop& loop, Device& below, const DeviceDelays& delays)
      : ForwardingDevice(below), loop_(loop), delays_(delays) {}
  DelayDevice(EventLoop& loop, std::unique_ptr<Device> below, const DeviceDelays& delays)
      : ForwardingDevice(std::move(below)), loop_(loop), delays_(delays) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  // For requests made from now on.
  void set_delays(const DeviceDelays& delays) { delays_ = delays; }
  // Requests that have not ended.
  [[nodiscard]] uint64_t in_flight() const { return in_flight_; }

 private:
  Task<Status> After(uint64_t delay_us, Task<Status> request);

  EventLoop& loop_;
  DeviceDelays delays_;
  std::vector<uint64_t> busy_until_us_;  // of each channel
  uint64_t in_flight_ = 0;
};

}  // namespace eplog
