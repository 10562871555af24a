// Strong index types and the few numbers that every room shares, besides those of the API.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "eplog/types.h"

namespace eplog {

using StripeIndex = Index<struct StripeTag, uint32_t>;  // data stripe of the array
using SlotIndex = Index<struct SlotTag, uint32_t>;      // place for one chunk on one SSD
using ExtentIndex = Index<struct ExtentTag, uint32_t>;  // run of stripes that a volume may own

// A data chunk of the array: stripe * k + index in the stripe.
using ChunkIndex = Index<struct ChunkTag, uint64_t>;

// A device of the array: 0 ... n-1 are the SSDs, n ... n+m-1 the log devices.
using DeviceIndex = Index<struct DeviceTag, uint8_t>;

inline constexpr uint32_t kBlockBytes = 4096;  // unit of the log, the rings and the metadata area
inline constexpr uint32_t kSectorBytes = 512;  // what a power cut may tear at

using Uuid = std::array<std::byte, 16>;
std::string UuidToString(const Uuid& uuid);

// One life of the array between opening and the next, or between changes of device states (I11).
struct Epoch {
  uint64_t number = 0;
  uint64_t random = 0;
  constexpr auto operator<=>(const Epoch&) const = default;  // NOLINT(modernize-use-nullptr)
};

constexpr uint64_t DivideUp(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}
constexpr uint64_t RoundUp(uint64_t a, uint64_t b) {
  return DivideUp(a, b) * b;
}
constexpr uint64_t RoundDown(uint64_t a, uint64_t b) {
  return a / b * b;
}

}  // namespace eplog
