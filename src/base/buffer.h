// Aligned buffers, pooled by size. A buffer belongs to one request in flight and is never shared by
// two.
//
// BufferPool is used by one thread. It keeps what is returned to it (up to `keep_bytes`), so that
// steady state allocates nothing. Contents of a fresh buffer are undefined.
#pragma once

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

 private:
  friend class Buffer;
  void Put(std::byte* data, size_t size) noexcept;

  size_t keep_bytes_;
  size_t kept_bytes_ = 0;
  size_t outstanding_ = 0;
  std::map<size_t, std::vector<std::byte*>> free_;  // by allocation size
};

}  // namespace eplog
