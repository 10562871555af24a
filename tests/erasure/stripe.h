// Chunks of a stripe for tests: placed at any alignment, with a guard behind each that tells a
// write beyond its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "tests/erasure/oracle.h"

namespace eplog {

inline constexpr std::byte kGuard{0xA5};
inline constexpr size_t kGuardBytes = 80;

class StripeChunks {
 public:
  // `count` chunks of guard bytes; chunk i starts `misalignment * (i + 1)` bytes beyond an aligned
  // place.
  StripeChunks(size_t count, size_t bytes, size_t misalignment = 0) : bytes_(bytes) {
    constexpr size_t kAlign = 64;
    const size_t stride =
        (bytes + misalignment * (count + 1) + kGuardBytes + kAlign) / kAlign * kAlign;
    memory_.resize(stride * count + kAlign, kGuard);
    const size_t skip = kAlign - reinterpret_cast<uintptr_t>(memory_.data()) % kAlign;
    for (size_t i = 0; i < count; ++i) {
      pointers_.push_back(memory_.data() + skip % kAlign + i * stride + misalignment * (i + 1));
    }
  }
  StripeChunks(const StripeChunks&) = delete;
  StripeChunks& operator=(const StripeChunks&) = delete;

  std::vector<std::byte*>& pointers() { return pointers_; }
  std::span<std::byte* const> from(size_t first) { return std::span(pointers_).subspan(first); }
  std::span<std::byte* const> first(size_t count) { return std::span(pointers_).first(count); }

  void Set(size_t i, const oracle::Bytes& content) {
    for (size_t at = 0; at < bytes_; ++at) {
      pointers_[i][at] = content[at];
    }
  }
  void SetAll(const std::vector<oracle::Bytes>& contents) {
    for (size_t i = 0; i < contents.size(); ++i) {
      Set(i, contents[i]);
    }
  }
  // The content; empty if the guard behind it was touched.
  [[nodiscard]] oracle::Bytes Get(size_t i) const {
    for (size_t at = 0; at < kGuardBytes; ++at) {
      if (pointers_[i][bytes_ + at] != kGuard) {
        return {};
      }
    }
    return {pointers_[i], pointers_[i] + bytes_};
  }

 private:
  size_t bytes_;
  oracle::Bytes memory_;
  std::vector<std::byte*> pointers_;
};

inline oracle::Bytes RandomBytes(Random& random, size_t bytes) {
  oracle::Bytes content(bytes);
  for (auto& byte : content) {
    byte = static_cast<std::byte>(random.Next());
  }
  return content;
}

inline std::vector<oracle::Bytes> RandomData(Random& random, size_t count, size_t bytes) {
  std::vector<oracle::Bytes> data;
  for (size_t i = 0; i < count; ++i) {
    data.push_back(RandomBytes(random, bytes));
  }
  return data;
}

// Encode's view of chunks: pointers to const.
inline std::vector<const std::byte*> ConstPointers(std::span<std::byte* const> pointers) {
  return {pointers.begin(), pointers.end()};
}

}  // namespace eplog
