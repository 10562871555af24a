// Device: a flat array of bytes that keeps what was flushed. Files, block devices, memory and
// simulations implement it; forwarding wrappers (device/wrappers.h) add counting, faults, delay and
// a volatile cache.
//
// Contract:
//  * Offsets, lengths and memory are aligned to capabilities().alignment_bytes (a power of two, at
//  most 4096).
//  * The memory of a request belongs to the device until the request completes, and does not change
//  meanwhile.
//    The iovec array itself too.
//  * Requests in flight that overlap have no order. A write is durable once a Flush that was
//  *submitted after the
//    write completed* has succeeded; until then a crash may keep, drop or tear it at 512 bytes.
//  * A read past the end or a request that completes short is an error.
//  * Errors carry code kIo, kNoSpace, kDeviceFailed or kShutdown, the offset and errno; the message
//  names the device.
//  * A failed Flush is never retried as if clean (I7).
//  * Destroy a device only when nothing is in flight on it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "runtime/task.h"

namespace eplog {

struct DeviceCapabilities {
  uint32_t alignment_bytes = 512;
  bool direct = true;    // O_DIRECT: false where the file system refused it
  bool discard = false;  // Discard does something; off for file members
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) = 0;
  virtual Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) = 0;
  virtual Task<Status> Flush() = 0;
  // The content of the range is undefined afterwards until written.
  virtual Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) = 0;

  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  [[nodiscard]] virtual const DeviceCapabilities& capabilities() const = 0;
  // Path or other name, for messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
};

inline uint64_t TotalBytes(std::span<const iovec> parts) {
  uint64_t total = 0;
  for (const iovec& part : parts) {
    total += part.iov_len;
  }
  return total;
}

}  // namespace eplog
