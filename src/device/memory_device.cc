#include "device/memory_device.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/types.h"
#include "device/request_check.h"

namespace eplog {

MemoryDevice::MemoryDevice(std::string name, uint64_t size_bytes, EventLoop* yield_to,
                           uint32_t alignment_bytes)
    : name_(std::move(name)), size_bytes_(size_bytes), yield_to_(yield_to) {
  EPLOG_CHECK(size_bytes != 0 && size_bytes % kSectorBytes == 0, "a device is whole sectors");
  capabilities_.alignment_bytes = alignment_bytes;
  capabilities_.discard = true;
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EPLOG_CHECK(memory != MAP_FAILED, "no address space for a memory device");
  data_ = static_cast<std::byte*>(memory);
}

MemoryDevice::~MemoryDevice() {
  munmap(data_, size_bytes_);
}

Task<Status> MemoryDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  Status checked = CheckRequest(*this, "read", offset_bytes, into);
  EPLOG_CO_TRY(checked);
  if (yield_to_ != nullptr) {
    co_await yield_to_->Yield();
  }
  const std::byte* from = data_ + offset_bytes;
  for (const iovec& part : into) {
    std::memcpy(part.iov_base, from, part.iov_len);
    from += part.iov_len;
  }
  co_return OkStatus();
}

Task<Status> MemoryDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  Status checked = CheckRequest(*this, "write", offset_bytes, from);
  EPLOG_CO_TRY(checked);
  if (yield_to_ != nullptr) {
    co_await yield_to_->Yield();
  }
  std::byte* to = data_ + offset_bytes;
  for (const iovec& part : from) {
    std::memcpy(to, part.iov_base, part.iov_len);
    to += part.iov_len;
  }
  co_return OkStatus();
}

Task<Status> MemoryDevice::Flush() {
  if (yield_to_ != nullptr) {
    co_await yield_to_->Yield();
  }
  co_return OkStatus();
}

Task<Status> MemoryDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRange(*this, "discard", offset_bytes, length_bytes);
  EPLOG_CO_TRY(checked);
  if (yield_to_ != nullptr) {
    co_await yield_to_->Yield();
  }
  // Whole pages go back to the system; the rest keeps its content, which is as good as any other.
  const uint64_t first = RoundUp(offset_bytes, kBlockBytes);
  const uint64_t last = RoundDown(offset_bytes + length_bytes, kBlockBytes);
  if (first < last) {
    madvise(data_ + first, last - first, MADV_DONTNEED);
  }
  co_return OkStatus();
}

}  // namespace eplog
