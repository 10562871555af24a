// What every device asks of a request before it touches anything: alignment and range
// (device/device.h). One place, so that a test over memory refuses what a disk would refuse.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "eplog/device.h"
#include "eplog/result.h"

namespace eplog {

// kInvalidArgument when offset or length is not aligned, kIo when the range ends past the device.
// `verb` goes into the message: "read", "write", "discard".
[[nodiscard]] Status CheckRange(const Device& device, const char* verb, uint64_t offset_bytes,
                                uint64_t length_bytes);

// The range, and the alignment of each part's memory and length.
[[nodiscard]] Status CheckRequest(const Device& device, const char* verb, uint64_t offset_bytes,
                                  std::span<const iovec> parts);

}  // namespace eplog
