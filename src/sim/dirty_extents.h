// DirtyExtents: what lies in a disk's write cache and is not on the disk yet. Extents that touch
// are one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace eplog::sim {

class DirtyExtents {
 public:
  struct Extent {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t sequence = 0;  // the oldest of the writes that made it
  };

  void Add(const Extent& added);
  // The first at or behind `position`, or the first of all: one way over the disk, then back to its
  // beginning. Nothing if there is none.
  [[nodiscard]] std::optional<Extent> Next(uint64_t position) const;
  // Takes up to `limit_bytes` from the beginning of what Next returned.
  Extent Take(uint64_t begin, uint64_t limit_bytes);

  [[nodiscard]] bool Covers(uint64_t begin, uint64_t end) const;
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // UINT64_MAX: there is none.
  [[nodiscard]] uint64_t oldest_sequence() const {
    return sequences_.empty() ? UINT64_MAX : *sequences_.begin();
  }

 private:
  using Map = std::map<uint64_t, Extent>;  // by begin
  Map::iterator Erase(Map::iterator extent);
  void Insert(const Extent& extent);

  Map extents_;
  std::multiset<uint64_t> sequences_;
  uint64_t bytes_ = 0;
};

}  // namespace eplog::sim
