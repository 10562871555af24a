#include "sim/dirty_extents.h"

#include <algorithm>

namespace eplog::sim {

DirtyExtents::Map::iterator DirtyExtents::Erase(Map::iterator extent) {
  bytes_ -= extent->second.end - extent->second.begin;
  sequences_.erase(sequences_.find(extent->second.sequence));
  return extents_.erase(extent);
}

void DirtyExtents::Insert(const Extent& extent) {
  bytes_ += extent.end - extent.begin;
  sequences_.insert(extent.sequence);
  extents_.emplace(extent.begin, extent);
}

void DirtyExtents::Add(const Extent& added) {
  Extent whole = added;
  auto it = extents_.upper_bound(whole.begin);
  if (it != extents_.begin() && std::prev(it)->second.end >= whole.begin) {
    --it;
  }
  while (it != extents_.end() && it->second.begin <= whole.end) {
    whole.begin = std::min(whole.begin, it->second.begin);
    whole.end = std::max(whole.end, it->second.end);
    whole.sequence = std::min(whole.sequence, it->second.sequence);
    it = Erase(it);
  }
  Insert(whole);
}

std::optional<DirtyExtents::Extent> DirtyExtents::Next(uint64_t position) const {
  if (extents_.empty()) {
    return std::nullopt;
  }
  const auto behind = extents_.lower_bound(position);
  return behind == extents_.end() ? extents_.begin()->second : behind->second;
}

DirtyExtents::Extent DirtyExtents::Take(uint64_t begin, uint64_t limit_bytes) {
  const auto it = extents_.find(begin);
  Extent taken = it->second;
  Extent rest = taken;
  Erase(it);
  taken.end = std::min(taken.end, taken.begin + limit_bytes);
  if (taken.end < rest.end) {
    rest.begin = taken.end;
    Insert(rest);
  }
  return taken;
}

bool DirtyExtents::Covers(uint64_t begin, uint64_t end) const {
  const auto after = extents_.upper_bound(begin);
  return after != extents_.begin() && std::prev(after)->second.end >= end;
}

}  // namespace eplog::sim
