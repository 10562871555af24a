#include "base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/out_of_memory.h"

namespace eplog {
namespace {

constexpr size_t kSegmentBytes = size_t{1} << 20;

// With AddressSanitizer each buffer stands alone, so that it sees who writes beyond one.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSegments = false;
#else
constexpr bool kSegments = true;
#endif

size_t BlocksOf(size_t size) {
  return DivideUp(std::max<size_t>(size, 1), kBlockBytes);
}

// Aligned to its size.
std::byte* MapSegment() {
  const size_t span = 2 * kSegmentBytes;
  void* mapped = ::mmap(nullptr, span, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    OutOfMemory("buffers", kSegmentBytes);
  }
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t before = RoundUp(reinterpret_cast<uintptr_t>(begin), kSegmentBytes) -
                        reinterpret_cast<uintptr_t>(begin);
  if (before != 0) {
    ::munmap(begin, before);
  }
  if (before != kSegmentBytes) {
    ::munmap(begin + before + kSegmentBytes, kSegmentBytes - before);
  }
  return begin + before;
}

}  // namespace

// Lies in its own first block; the buffers follow.
struct BufferPool::Segment {
  Segment* prev = nullptr;
  Segment* next = nullptr;
  std::byte* free = nullptr;  // each begins with the address of the next
  uint32_t blocks = 0;        // of each of its buffers
  uint32_t most = 0;          // buffers
  uint32_t fresh = 0;         // the first that was never handed out
  uint32_t used = 0;

  static Segment* Of(std::byte* data) {
    return reinterpret_cast<Segment*>(data -
                                      (reinterpret_cast<uintptr_t>(data) & (kSegmentBytes - 1)));
  }
  [[nodiscard]] bool full() const { return free == nullptr && fresh == most; }
  void Enter(Segment*& list) {
    prev = nullptr;
    next = list;
    if (list != nullptr) {
      list->prev = this;
    }
    list = this;
  }
  void Leave(Segment*& list) const {
    (prev == nullptr ? list : prev->next) = next;
    if (next != nullptr) {
      next->prev = prev;
    }
  }
};

Buffer::~Buffer() {
  if (data_ != nullptr) {
    pool_->Put(data_, size_);
  }
}

BufferPool::~BufferPool() {
  EPLOG_CHECK(outstanding_ == 0, "a buffer outlives its pool");
  for (size_t blocks = 0; blocks <= kMostSmallBlocks; ++blocks) {
    while (small_[blocks].empty != nullptr) {
      ReleaseEmpty(blocks);
    }
  }
  for (auto& [size, list] : large_) {
    for (std::byte* data : list) {
      std::free(data);
    }
  }
}

Buffer BufferPool::Get(size_t size) {
  const size_t blocks = BlocksOf(size);
  ++outstanding_;
  if (kSegments && blocks <= kMostSmallBlocks) {
    return {this, GetSmall(blocks), size};
  }
  const size_t whole = blocks * kBlockBytes;
  auto& list = large_[whole];
  std::byte* data = nullptr;
  if (!list.empty()) {
    data = list.back();
    list.pop_back();
    kept_bytes_ -= whole;
  } else {
    data = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, whole));
    if (data == nullptr) {
      OutOfMemory("buffers", whole);
    }
    memory_bytes_ += whole;
  }
  return {this, data, size};
}

Buffer BufferPool::GetZeroed(size_t size) {
  Buffer buffer = Get(size);
  std::memset(buffer.data(), 0, size);
  return buffer;
}

std::byte* BufferPool::GetSmall(size_t blocks) {
  Segments& segments = small_[blocks];
  Segment* segment = segments.partial;
  if (segment == nullptr) {
    segment = segments.empty;
    if (segment != nullptr) {
      segment->Leave(segments.empty);
    } else {
      segment = new (MapSegment()) Segment();
      segment->blocks = static_cast<uint32_t>(blocks);
      segment->most = static_cast<uint32_t>((kSegmentBytes / kBlockBytes - 1) / blocks);
      memory_bytes_ += kSegmentBytes;
    }
    segment->Enter(segments.partial);
  }
  std::byte* data = segment->free;
  if (data != nullptr) {
    std::memcpy(&segment->free, data, sizeof segment->free);
    kept_bytes_ -= blocks * kBlockBytes;
  } else {
    data = reinterpret_cast<std::byte*>(segment) + (1 + segment->fresh++ * blocks) * kBlockBytes;
  }
  ++segment->used;
  if (segment->full()) {
    segment->Leave(segments.partial);
  }
  return data;
}

void BufferPool::PutSmall(std::byte* data, size_t blocks) noexcept {
  Segments& segments = small_[blocks];
  Segment* const segment = Segment::Of(data);
  if (segment->full()) {
    segment->Enter(segments.partial);
  }
  std::memcpy(data, &segment->free, sizeof segment->free);
  segment->free = data;
  kept_bytes_ += blocks * kBlockBytes;
  if (--segment->used == 0) {
    segment->Leave(segments.partial);
    segment->Enter(segments.empty);
  }
  for (size_t i = 0; kept_bytes_ > keep_bytes_ && i <= kMostSmallBlocks; ++i) {
    if (small_[i].empty != nullptr) {
      ReleaseEmpty(i);
    }
  }
}

void BufferPool::ReleaseEmpty(size_t blocks) noexcept {
  Segment* const segment = small_[blocks].empty;
  segment->Leave(small_[blocks].empty);
  kept_bytes_ -= segment->fresh * blocks * kBlockBytes;
  memory_bytes_ -= kSegmentBytes;
  ::munmap(segment, kSegmentBytes);
}

void BufferPool::Put(std::byte* data, size_t size) noexcept {
  const size_t blocks = BlocksOf(size);
  --outstanding_;
  if (kSegments && blocks <= kMostSmallBlocks) {
    PutSmall(data, blocks);
    return;
  }
  const size_t whole = blocks * kBlockBytes;
  if (kept_bytes_ + whole > keep_bytes_) {
    std::free(data);
    memory_bytes_ -= whole;
    return;
  }
  large_[whole].push_back(data);
  kept_bytes_ += whole;
}

}  // namespace eplog
