// What names things in this API, and the bounds of what an array can be.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace eplog {

// An integer that only compares and counts with its own kind.
template <typename Tag, typename Rep>
struct Index {
  using rep = Rep;
  Rep value = 0;

  constexpr Index() = default;
  constexpr explicit Index(Rep v) : value(v) {}
  constexpr auto operator<=>(const Index&) const = default;  // NOLINT(modernize-use-nullptr)
  constexpr Index& operator++() {
    ++value;
    return *this;
  }
};

using VolumeId = Index<struct VolumeTag, uint32_t>;  // never reused within an array's life

inline constexpr uint32_t kMaxSsds = 32;   // n
inline constexpr uint32_t kMaxParity = 4;  // m
// What RAID calls an array with m parity chunks a stripe: 5 or 6; by the same count 7 and 8, which
// have no common name.
constexpr uint32_t LevelOfParity(uint32_t m) {
  return m + 4;
}
constexpr uint32_t ParityOfLevel(uint32_t level) {
  return level - 4;
}
inline constexpr uint32_t kMaxDevices = kMaxSsds + kMaxParity;
inline constexpr uint32_t kMinChunkBytes = 4096;
inline constexpr uint32_t kMaxChunkBytes = 1U << 20;
// What a volume may be given. The format could tell larger ones.
inline constexpr uint64_t kMaxVolumeBytes = uint64_t{1} << 50;
inline constexpr size_t kMaxVolumeNameBytes = 200;
inline constexpr size_t kMaxArrayNameBytes = 63;

}  // namespace eplog

template <typename Tag, typename Rep>
struct std::hash<eplog::Index<Tag, Rep>> {
  size_t operator()(const eplog::Index<Tag, Rep>& index) const noexcept {
    return std::hash<uint64_t>()(static_cast<uint64_t>(index.value) * 0x9E3779B97F4A7C15ULL);
  }
};
