// Reuse distances in bounded memory: how many different chunks were touched since the same chunk
// was last touched. It is what decides how much a buffer of a given size absorbs.
//
// Method: SHARDS with a fixed number of samples (Waldspurger and others, "Efficient MRC
// Construction with SHARDS", FAST '15). A chunk is watched if the hash of its number lies below a
// threshold; the distances between watched chunks, divided by the watched share, estimate all. When
// more than kMaxWatched chunks are watched the threshold falls. Up to kMaxWatched different chunks
// the result is exact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace eplog {

class ReuseDistances {
 public:
  static constexpr size_t kMaxWatched = 65536;
  // Bucket 0 counts distance 0; bucket i, distances in [2^(i-1), 2^i).
  static constexpr size_t kBuckets = 49;

  void Touch(uint64_t chunk);

  struct Summary {
    bool exact = true;
    double watched_share = 1;  // of all chunks, at the end
    // Parts of all touches: first ones, and repeated ones by bucket. Their sum is 1 if there were
    // any.
    double first = 0;
    std::array<double, kBuckets> repeated{};
  };
  [[nodiscard]] Summary Summarise() const;

 private:
  static constexpr uint64_t kScale = uint64_t{1} << 24;  // of hashes and the threshold
  struct Watched {
    uint32_t hash;
    uint64_t chunk;
    bool operator<(const Watched& other) const {
      return hash != other.hash ? hash < other.hash : chunk < other.chunk;
    }
  };

  void Lower();
  void Renumber();
  void Add(size_t at, int32_t change);
  [[nodiscard]] uint64_t CountFrom(size_t at) const;

  uint64_t threshold_ = kScale;
  std::unordered_map<uint64_t, uint32_t> last_;  // watched chunk -> when it was touched last
  std::priority_queue<Watched> largest_;         // watched chunks by hash
  // A Fenwick tree over moments: 1 at the last touch of each watched chunk.
  std::vector<int32_t> tree_ = std::vector<int32_t>(4 * kMaxWatched + 1);
  uint32_t now_ = 0;
  // Weighted by the inverse of the watched share at the time, in 2 ^ -16.
  uint64_t first_ = 0;
  std::array<uint64_t, kBuckets> repeated_{};
};

}  // namespace eplog
