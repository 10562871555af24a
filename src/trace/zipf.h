// Drawing ranks by Zipf's law, on integers alone: no floating point, no library whose last digits
// differ from machine to machine.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace eplog {

// 2 ^ 32 * log2(x), rounded down in the last of 24 fractional bits; x > 0.
[[nodiscard]] uint64_t Log2Q32(uint64_t x);
// 2 ^ (62 - e / 2 ^ 32), at least 1.
[[nodiscard]] uint64_t Exp2Q62(uint64_t e);

// Ranks 0 ... n-1; rank r comes in proportion to (r + 1) ^ -(skew_milli / 1000). Walker's alias
// method: a draw costs one random number and one look. 8 bytes a rank. n is in [1, kMaxRanks].
class ZipfTable {
 public:
  static constexpr uint64_t kMaxRanks = uint64_t{1} << 22;
  ZipfTable(uint64_t ranks, uint64_t skew_milli);

  uint64_t Draw(Random& random) const {
    const uint64_t bits = random.Next();
    const uint64_t slot = (bits >> 32) * cells_.size() >> 32;
    const Cell& cell = cells_[slot];
    return (bits & UINT32_MAX) <= cell.keep ? slot : cell.alias;
  }

 private:
  struct Cell {
    uint32_t keep = UINT32_MAX;  // this slot's own rank below or at it, the alias above
    uint32_t alias = 0;
  };
  std::vector<Cell> cells_;
};

}  // namespace eplog
