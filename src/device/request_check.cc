#include "device/request_check.h"

#include <cerrno>
#include <string>
#include <utility>

namespace eplog {
namespace {

tl::unexpected<Error> Refuse(const Device& device, ErrorCode code, const char* verb,
                             uint64_t offset_bytes, const std::string& why) {
  Error error;
  error.code = code;
  error.message = device.name() + ": " + verb + " " + why;
  error.offset_bytes = static_cast<int64_t>(offset_bytes);
  error.errno_value = code == ErrorCode::kInvalidArgument ? EINVAL : 0;
  return Fail(std::move(error));
}

tl::unexpected<Error> RefuseUnaligned(const Device& device, const char* verb,
                                      uint64_t offset_bytes) {
  return Refuse(device, ErrorCode::kInvalidArgument, verb, offset_bytes,
                "is not aligned to " + std::to_string(device.capabilities().alignment_bytes));
}

}  // namespace

Status CheckRange(const Device& device, const char* verb, uint64_t offset_bytes,
                  uint64_t length_bytes) {
  const uint64_t mask = device.capabilities().alignment_bytes - 1;
  if (((offset_bytes | length_bytes) & mask) != 0) {
    return RefuseUnaligned(device, verb, offset_bytes);
  }
  const uint64_t size = device.size_bytes();
  if (offset_bytes > size || length_bytes > size - offset_bytes) {
    return Refuse(device, ErrorCode::kIo, verb, offset_bytes,
                  "of " + std::to_string(length_bytes) + " bytes goes past the end (" +
                      std::to_string(size) + ")");
  }
  return OkStatus();
}

Status CheckRequest(const Device& device, const char* verb, uint64_t offset_bytes,
                    std::span<const iovec> parts) {
  const uint64_t mask = device.capabilities().alignment_bytes - 1;
  uint64_t length = 0;
  uint64_t bits = 0;
  for (const iovec& part : parts) {
    bits |= reinterpret_cast<uintptr_t>(part.iov_base) | part.iov_len;
    length += part.iov_len;
  }
  if ((bits & mask) != 0) {
    return RefuseUnaligned(device, verb, offset_bytes);
  }
  return CheckRange(device, verb, offset_bytes, length);
}

}  // namespace eplog
