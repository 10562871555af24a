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

#include "eplog/result.h"
#include "eplog/task.h"

namespace eplog {

// What a device is, whatever path leads to it, or led to it once: a file by its file system and
// inode, a block device by its number; what is neither is only itself.
struct DeviceIdentity {
  bool block = false;
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const DeviceIdentity&) const = default;
};

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
  // Of two devices of one identity what is written to one is read from the other.
  [[nodiscard]] virtual DeviceIdentity identity() const {
    return {false, 0, reinterpret_cast<uintptr_t>(this)};
  }
  // Path or other name, for messages. Never to tell devices apart: another may be there by now.
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
