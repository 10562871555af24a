// Series for pictures in bounded memory: when one is full, neighbours are merged and the step
// doubles.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace eplog {

// A value that changes as requests go by, at even steps.
class Series {
 public:
  struct Point {
    uint64_t at = 0;
    uint64_t value = 0;
  };
  static constexpr size_t kMaxPoints = 512;

  // The value after request number `at`; numbers ascend by one.
  void Add(uint64_t at, uint64_t value) {
    last_ = {at, value};
    if (at % step_ != 0) {
      return;
    }
    points_.push_back(last_);
    if (points_.size() == kMaxPoints) {
      step_ *= 2;
      std::erase_if(points_, [this](const Point& point) { return point.at % step_ != 0; });
    }
  }
  // With the last value at the end.
  [[nodiscard]] std::vector<Point> Points() const {
    std::vector<Point> out = points_;
    if (last_.at != 0 && (out.empty() || out.back().at != last_.at)) {
      out.push_back(last_);
    }
    return out;
  }

 private:
  std::vector<Point> points_;
  Point last_;
  uint64_t step_ = 1;
};

// How often each part of the address space was written, and when.
class HeatMap {
 public:
  static constexpr size_t kColumns = 160;
  static constexpr size_t kRows = 64;

  void Add(uint64_t request, uint64_t offset_bytes) {
    while (request / column_requests_ >= kColumns) {
      MergeColumns();
    }
    while (offset_bytes / row_bytes_ >= kRows) {
      MergeRows();
    }
    ++cells_[request / column_requests_][offset_bytes / row_bytes_];
  }
  [[nodiscard]] uint64_t At(size_t column, size_t row) const { return cells_[column][row]; }
  [[nodiscard]] uint64_t column_requests() const { return column_requests_; }
  [[nodiscard]] uint64_t row_bytes() const { return row_bytes_; }

 private:
  void MergeColumns() {
    column_requests_ *= 2;
    for (size_t column = 0; column < kColumns; ++column) {
      for (size_t row = 0; row < kRows; ++row) {
        cells_[column][row] =
            column * 2 < kColumns ? cells_[column * 2][row] + cells_[column * 2 + 1][row] : 0;
      }
    }
  }
  void MergeRows() {
    row_bytes_ *= 2;
    for (auto& column : cells_) {
      for (size_t row = 0; row < kRows; ++row) {
        column[row] = row * 2 < kRows ? column[row * 2] + column[row * 2 + 1] : 0;
      }
    }
  }

  std::vector<std::array<uint64_t, kRows>> cells_ =
      std::vector<std::array<uint64_t, kRows>>(kColumns);
  uint64_t column_requests_ = 1;
  uint64_t row_bytes_ = 4096;
};

}  // namespace eplog
