// Segmented: an array that grows by pieces, so that growing never moves or copies anything: no
// pause, no second copy, and references stay valid. Elements are never destroyed before the whole
// is.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace eplog {

template <typename T>
class Segmented {
 public:
  [[nodiscard]] T& operator[](size_t i) { return segments_[i / kSegment][i % kSegment]; }
  [[nodiscard]] const T& operator[](size_t i) const {
    return segments_[i / kSegment][i % kSegment];
  }
  [[nodiscard]] size_t size() const { return size_; }
  // One element more, value-initialised; its index.
  size_t Add() {
    if (size_ == segments_.size() * kSegment) {
      segments_.push_back(std::make_unique<T[]>(kSegment));
    }
    return size_++;
  }
  [[nodiscard]] size_t memory_bytes() const {
    return segments_.size() * kSegment * sizeof(T) + segments_.capacity() * sizeof(segments_[0]);
  }

 private:
  static constexpr size_t kSegment = 1024;
  std::vector<std::unique_ptr<T[]>> segments_;
  size_t size_ = 0;
};

}  // namespace eplog
