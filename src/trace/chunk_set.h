// A set of numbers that come in clusters (chunks, stripes, extents), in memory that follows what is
// in it: 64 neighbours share one word of an open hash table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace eplog {

class ChunkSet {
 public:
  ChunkSet() : cells_(kFirstCells) {}

  // True if `number`, below 2 ^ 63, was not in the set.
  bool Insert(uint64_t number) {
    Cell& cell = Find(number / kBits);
    const uint64_t bit = uint64_t{1} << (number % kBits);
    const bool is_new = (cell.bits & bit) == 0;
    cell.bits |= bit;
    size_ += is_new ? 1 : 0;
    return is_new;
  }
  [[nodiscard]] bool Contains(uint64_t number) const {
    const uint64_t key = number / kBits + 1;
    for (size_t at = Home(key);; at = (at + 1) & (cells_.size() - 1)) {
      if (cells_[at].key == key || cells_[at].key == 0) {
        return (cells_[at].bits >> (number % kBits) & 1) != 0;
      }
    }
  }
  [[nodiscard]] uint64_t size() const { return size_; }
  // Keeps its room.
  void Clear() {
    if (used_ != 0) {
      std::fill(cells_.begin(), cells_.end(), Cell{});
    }
    used_ = 0;
    size_ = 0;
  }
  // Each word that holds something, in no order: f(first number, bits).
  template <typename F>
  void ForEachWord(const F& f) const {
    for (const Cell& cell : cells_) {
      if (cell.key != 0) {
        f((cell.key - 1) * kBits, cell.bits);
      }
    }
  }
  static constexpr uint64_t kBits = 64;

 private:
  struct Cell {
    uint64_t key = 0;  // the word's number plus 1
    uint64_t bits = 0;
  };
  static constexpr size_t kFirstCells = 1024;

  [[nodiscard]] size_t Home(uint64_t key) const {
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15ULL >>
                               (64 - std::bit_width(cells_.size() - 1)));
  }
  Cell& Find(uint64_t word) {
    const uint64_t key = word + 1;
    for (;;) {
      for (size_t at = Home(key);; at = (at + 1) & (cells_.size() - 1)) {
        if (cells_[at].key == key) {
          return cells_[at];
        }
        if (cells_[at].key == 0) {
          if (used_ * 2 >= cells_.size()) {
            break;
          }
          cells_[at].key = key;
          ++used_;
          return cells_[at];
        }
      }
      Grow();
    }
  }
  void Grow() {
    std::vector<Cell> old = std::exchange(cells_, std::vector<Cell>(cells_.size() * 2));
    used_ = 0;
    for (const Cell& cell : old) {
      if (cell.key != 0) {
        Find(cell.key - 1).bits = cell.bits;
      }
    }
  }

  std::vector<Cell> cells_;
  size_t used_ = 0;  // cells
  uint64_t size_ = 0;
};

}  // namespace eplog
