#include "base/buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace eplog {

Buffer::~Buffer() {
  if (data_ != nullptr) {
    pool_->Put(data_, size_);
  }
}

BufferPool::~BufferPool() {
  EPLOG_CHECK(outstanding_ == 0, "a buffer outlives its pool");
  for (auto& [size, list] : free_) {
    for (std::byte* data : list) {
      std::free(data);
    }
  }
}

Buffer BufferPool::Get(size_t size) {
  const size_t whole = RoundUp(size == 0 ? 1 : size, kBlockBytes);
  auto& list = free_[whole];
  std::byte* data = nullptr;
  if (!list.empty()) {
    data = list.back();
    list.pop_back();
    kept_bytes_ -= whole;
  } else {
    data = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, whole));
    EPLOG_CHECK(data != nullptr, "out of memory for buffers");
  }
  ++outstanding_;
  return {this, data, size};
}

Buffer BufferPool::GetZeroed(size_t size) {
  Buffer buffer = Get(size);
  std::memset(buffer.data(), 0, size);
  return buffer;
}

void BufferPool::Put(std::byte* data, size_t size) noexcept {
  const size_t whole = RoundUp(size == 0 ? 1 : size, kBlockBytes);
  --outstanding_;
  if (kept_bytes_ + whole > keep_bytes_) {
    std::free(data);
    return;
  }
  auto found = free_.find(whole);
  if (found == free_.end()) {
    std::free(data);
    return;
  }
  found->second.push_back(data);
  kept_bytes_ += whole;
}

}  // namespace eplog
