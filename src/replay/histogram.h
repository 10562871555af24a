// Histogram: how often which latency came, without keeping each. Buckets are a 64th of their power
// of two wide, so a percentile is at most 1.6 % too high; the count, the mean and the largest are
// exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace eplog {

class Histogram {
 public:
  void Add(uint64_t value) {
    const size_t bucket = BucketOf(value);
    if (bucket >= counts_.size()) {
      counts_.resize(bucket + 1);
    }
    ++counts_[bucket];
    ++count_;
    sum_ += value;
    largest_ = std::max(largest_, value);
  }

  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] uint64_t largest() const { return largest_; }
  [[nodiscard]] double mean() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }
  // The smallest value that `per_million` of all do not exceed, or a little more; 0 of none.
  [[nodiscard]] uint64_t Percentile(uint64_t per_million) const {
    const uint64_t rank = (count_ * per_million + 999'999) / 1'000'000;
    uint64_t below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (below >= rank && below != 0) {
        return std::min(LastOf(i), largest_);
      }
    }
    return 0;
  }
  // {value, how many do not exceed it}, for a curve.
  [[nodiscard]] std::vector<std::pair<uint64_t, uint64_t>> Cumulative() const {
    std::vector<std::pair<uint64_t, uint64_t>> points;
    uint64_t below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) {
        below += counts_[i];
        points.emplace_back(std::min(LastOf(i), largest_), below);
      }
    }
    return points;
  }

 private:
  static constexpr int kBits = 6;  // 2^6 buckets for each power of two

  static size_t BucketOf(uint64_t value) {
    const int width = static_cast<int>(std::bit_width(value));
    const int shift = std::max(0, width - kBits - 1);
    return (static_cast<size_t>(shift) << kBits) + static_cast<size_t>(value >> shift);
  }
  // The largest value of a bucket.
  static uint64_t LastOf(size_t bucket) {
    constexpr size_t kFirst = size_t{2} << kBits;
    if (bucket < kFirst) {
      return bucket;
    }
    const size_t shift = (bucket >> kBits) - 1;
    const uint64_t mantissa = bucket - (shift << kBits);
    return ((mantissa + 1) << shift) - 1;
  }

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t largest_ = 0;
};

}  // namespace eplog
