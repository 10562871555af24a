// MemberSet: the devices of one array by index (SSDs first), with what is counted about each and
// the hook that tests use to see and strike requests.
//
// Losing a device: once TakeLosses was called, a write or flush that fails, for another reason than
// lack of space below, makes its device *lost*: no request reaches it any more, and the listener
// hears of it at once. Who asked for the write gets kDeviceFailed and need not care (Absorb), since
// nothing is acknowledged before the loss is written down on the survivors (I11). Before that call
// failures are only returned. A failed read is only returned too, unless it says that the device is
// gone or hangs (kDeviceFailed).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/types.h"
#include "device/io_kind.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

// Latencies in buckets of a quarter of a power of two.
class LatencyHistogram {
 public:
  void Add(uint64_t us);
  // Upper edge of the bucket in which the quantile lies; 0 when empty.
  [[nodiscard]] uint64_t Quantile(double q) const;

 private:
  std::array<uint64_t, 160> buckets_{};
  uint64_t count_ = 0;
};

struct MemberCounters {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t discards = 0;
  uint64_t bytes_discarded = 0;
  uint64_t read_errors = 0;
  uint64_t write_errors = 0;  // flushes too
  uint64_t corrupt_chunks = 0;
  uint64_t busy_us = 0;  // of all reads and writes together
  LatencyHistogram latency;
};

class MemberSet {
 public:
  using BeforeIo = std::function<void(DeviceIndex, IoKind)>;
  using OnLoss = std::function<void(DeviceIndex, const Error&)>;

  // `devices[i]` is the member with index i, null if it is missing or not trusted. Borrowed.
  MemberSet(EventLoop& loop, std::vector<Device*> devices)
      : loop_(loop), devices_(std::move(devices)) {
    counters_.resize(devices_.size());
    joined_.resize(devices_.size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      flushing_.push_back(std::make_shared<AsyncMutex>(loop));
    }
  }

  void set_before_io(BeforeIo hook) { before_io_ = std::move(hook); }
  void set_drop_flushes(bool drop) { drop_flushes_ = drop; }  // canaries of the tests
  void set_retry_flushes(bool retry) { retry_flushes_ = retry; }

  void TakeLosses(OnLoss listener) { on_loss_ = std::move(listener); }
  // From now on the device is lost. Nothing happens if it is already.
  void Lose(DeviceIndex device, const Error& why);
  // In the place of one that is lost. What is counted begins anew.
  void Join(DeviceIndex index, Device& device);
  // A device that missed something may be read where that helps.
  void Lend(DeviceIndex index, Device& device) { devices_[index.value] = &device; }
  // Success instead of the failure of a device that is lost.
  [[nodiscard]] Status Absorb(Status status) const;

  [[nodiscard]] size_t size() const { return devices_.size(); }
  [[nodiscard]] bool live(DeviceIndex device) const { return devices_[device.value] != nullptr; }
  [[nodiscard]] Device* device(DeviceIndex device) const { return devices_[device.value]; }
  [[nodiscard]] const MemberCounters& counters(DeviceIndex device) const {
    return counters_[device.value];
  }
  void CountCorrupt(DeviceIndex device) { ++counters_[device.value].corrupt_chunks; }

  // On a device that is not live: kDeviceFailed at once. The iovecs live until the task ends.
  Task<Status> Read(DeviceIndex device, uint64_t offset_bytes, std::span<const iovec> into);
  Task<Status> Write(DeviceIndex device, uint64_t offset_bytes, std::span<const iovec> from,
                     IoKind kind);
  Task<Status> Flush(DeviceIndex device);
  Task<Status> Discard(DeviceIndex device, uint64_t offset_bytes, uint64_t length_bytes);

  // One contiguous buffer.
  Task<Status> ReadBytes(DeviceIndex device, uint64_t offset_bytes, std::span<std::byte> into);
  Task<Status> WriteBytes(DeviceIndex device, uint64_t offset_bytes,
                          std::span<const std::byte> from, IoKind kind);

  // A read-only opening recovers in RAM: from now on reads see `bytes` at this place instead of
  // what is on the device.
  void Overlay(DeviceIndex device, uint64_t offset_bytes, Buffer bytes) {
    overlay_.insert_or_assign({device.value, offset_bytes}, std::move(bytes));
  }

  // Flushes the live devices whose bit is set in `mask`, all at once; the first error that is not
  // the loss of a device.
  Task<Status> FlushMask(uint64_t mask);
  [[nodiscard]] uint64_t live_mask() const;
  // Those a write or flush of which has failed, for another reason than lack of space below: of
  // several that fail at once an error tells only one.
  [[nodiscard]] uint64_t failed_mask() const { return failed_; }

 private:
  // Whom a request was sent to: by its end another may be in that place, and it is not about that.
  struct Asked {
    DeviceIndex index;
    Device* device;
    uint64_t joined;
  };
  [[nodiscard]] Asked Ask(DeviceIndex index) const {
    return {index, devices_[index.value], joined_[index.value]};
  }
  [[nodiscard]] bool IsReplaced(const Asked& asked) const {
    return joined_[asked.index.value] != asked.joined;
  }
  MemberCounters& CountersOf(const Asked& asked) {
    return IsReplaced(asked) ? of_replaced_ : counters_[asked.index.value];
  }
  Task<Status> FlushOne(DeviceIndex device);
  void Failed(const Asked& asked, Error& error, bool reads = false);
  void ApplyOverlay(DeviceIndex device, uint64_t offset_bytes, std::span<const iovec> into) const;

  EventLoop& loop_;
  std::vector<Device*> devices_;
  std::vector<MemberCounters> counters_;
  MemberCounters of_replaced_;    // what was on its way when others took their places
  std::vector<uint64_t> joined_;  // by device: how often one took its place
  BeforeIo before_io_;
  OnLoss on_loss_;
  bool drop_flushes_ = false;
  bool retry_flushes_ = false;
  std::vector<std::shared_ptr<AsyncMutex>> flushing_;  // by device
  std::map<uint8_t, Error> flush_failures_;            // the same (I7)
  uint64_t failed_ = 0;                                // mask
  std::map<std::pair<uint8_t, uint64_t>, Buffer> overlay_;
};

}  // namespace eplog
