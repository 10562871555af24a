// Masks of positions, and pages as sums.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "baseline/placement.h"

namespace eplog {

constexpr uint64_t BitOf(uint32_t position) {
  return uint64_t{1} << position;
}
// The lowest `count` bits, count < 64.
constexpr uint64_t LowBits(uint32_t count) {
  return (uint64_t{1} << count) - 1;
}

// visit(position), ascending.
template <typename Visit>
void ForEachBit(uint64_t mask, Visit&& visit) {
  for (; mask != 0; mask &= mask - 1) {
    visit(static_cast<uint32_t>(std::countr_zero(mask)));
  }
}

// into ^= other, a page each.
inline void XorPage(std::byte* into, const std::byte* other) {
  for (size_t at = 0; at < kPageBytes; at += sizeof(uint64_t)) {
    uint64_t a = 0;
    uint64_t b = 0;
    std::memcpy(&a, into + at, sizeof a);
    std::memcpy(&b, other + at, sizeof b);
    a ^= b;
    std::memcpy(into + at, &a, sizeof a);
  }
}

}  // namespace eplog
