#include "frontend/request_buffers.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "base/out_of_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace eplog {

RequestBuffer::~RequestBuffer() {
  if (pool_ != nullptr) {
    pool_->Put(slot_);
  }
}

std::byte* RequestBuffer::payload() const {
  return pool_->SlotAt(slot_) + kBlockBytes;
}

void RequestBuffer::Touched(size_t payload_bytes) {
  if (payload_bytes > RequestBuffers::kThinBytes) {
    pool_->MarkFat(slot_);
  }
}

RequestBuffers::RequestBuffers(uint32_t slots) : slots_(slots), fat_(slots, false) {
  void* memory = ::mmap(nullptr, slots * kStride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    OutOfMemory("requests to come", slots * kStride);
  }
  memory_ = static_cast<std::byte*>(memory);
  free_.reserve(slots);
  for (uint32_t slot = slots; slot-- > 0;) {
    free_.push_back(slot);
  }
  // Those used first are there from the start, so that serving a loop device under memory pressure
  // does not begin by asking for memory. Older kernels refuse; then they come when touched.
  constexpr uint32_t kReady = 32;
  for (uint32_t slot = 0; slot < std::min(slots, kReady); ++slot) {
    ::madvise(SlotAt(slot), kBlockBytes + kThinBytes, MADV_POPULATE_WRITE);
  }
}

RequestBuffers::~RequestBuffers() {
  EPLOG_CHECK(free_.size() == slots_, "a request outlives its buffers");
  ::munmap(memory_, slots_ * kStride);
}

RequestBuffer RequestBuffers::TryGet() {
  if (free_.empty()) {
    return {};
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  return {this, slot};
}

void RequestBuffers::MarkFat(uint32_t slot) {
  if (!fat_[slot]) {
    fat_[slot] = true;
    ++fat_count_;
  }
}

void RequestBuffers::Put(uint32_t slot) noexcept {
  if (fat_[slot] && fat_count_ > kKeepFat) {
    std::byte* rest = SlotAt(slot) + kBlockBytes + kThinBytes;
    const size_t size = kStride - kBlockBytes - kThinBytes;
    // Plain DONTNEED fails on locked memory.
    if (::madvise(rest, size, MADV_DONTNEED_LOCKED) != 0) {
      ::madvise(rest, size, MADV_DONTNEED);
    }
    fat_[slot] = false;
    --fat_count_;
  }
  free_.push_back(slot);
}

}  // namespace eplog
