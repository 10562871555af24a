// Aligned buffers, pooled by size. A buffer belongs to one request in flight and is never shared by
// two.
//
// BufferPool is used by one thread. It keeps what is returned to it (up to `keep_bytes`), so that
// steady state allocates nothing; the rest goes back to the system. Small buffers are cut from
// segments of 1 MiB, so that the pool takes hardly more than what is in use: an aligned block of 4
// KiB by itself costs twice as much. Contents of a fresh buffer are undefined.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"

namespace eplog {

class BufferPool;

// Owning, movable, 4 KiB aligned. Returns itself to its pool.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(
        std::move(other));  // `other` is left empty: what this held goes back to its pool now
    Swap(taken);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_}; }
  [[nodiscard]] explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::byte* data, size_t size) : pool_(pool), data_(data), size_(size) {}
  void Swap(Buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class BufferPool {
 public:
  explicit BufferPool(size_t keep_bytes = size_t{64} << 20) : keep_bytes_(keep_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // `size` is rounded up to whole blocks for the allocation; Buffer::size() is `size` itself.
  [[nodiscard]] Buffer Get(size_t size);
  [[nodiscard]] Buffer GetZeroed(size_t size);

  [[nodiscard]] size_t outstanding() const { return outstanding_; }
  // What it has from the system, in use or not.
  [[nodiscard]] size_t memory_bytes() const { return memory_bytes_; }

 private:
  friend class Buffer;
  struct Segment;
  // Those with something left to give, by whether anything of them is in use.
  struct Segments {
    Segment* partial = nullptr;
    Segment* empty = nullptr;
  };
  static constexpr size_t kMostSmallBlocks = 16;
  void Put(std::byte* data, size_t size) noexcept;
  std::byte* GetSmall(size_t blocks);
  void PutSmall(std::byte* data, size_t blocks) noexcept;
  void ReleaseEmpty(size_t blocks) noexcept;

  size_t keep_bytes_;
  size_t kept_bytes_ = 0;
  size_t outstanding_ = 0;
  size_t memory_bytes_ = 0;
  std::array<Segments, kMostSmallBlocks + 1> small_;  // by blocks of a buffer
  std::map<size_t, std::vector<std::byte*>> large_;   // what is kept, by allocation size
};

}  // namespace eplog
