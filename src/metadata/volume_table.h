// VolumeTable: volumes and which extents they own. Free extents are handed out lowest first, so
// that the same requests give the same layout and the same free space (section 5).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "layout/geometry.h"

namespace eplog {

// Logical extent -> extent of the array, allocated in pages: thin volumes may be huge.
class ExtentMap {
 public:
  [[nodiscard]] std::optional<ExtentIndex> Get(uint32_t logical) const;
  void Set(uint32_t logical, std::optional<ExtentIndex> extent);
  // Calls visit(extent) for what is assigned in [first, last), in order. Huge holes cost nothing.
  template <typename Visit>
  void ForEach(uint64_t first, uint64_t last, Visit&& visit) const;
  [[nodiscard]] uint32_t count() const { return count_; }

 private:
  static constexpr uint32_t kPage = 512;
  using Page = std::array<uint32_t, kPage>;  // extent + 1; 0 = none
  std::vector<std::unique_ptr<Page>> pages_;
  uint32_t count_ = 0;
};

template <typename Visit>
void ExtentMap::ForEach(uint64_t first, uint64_t last, Visit&& visit) const {
  last = std::min<uint64_t>(last, uint64_t{pages_.size()} * kPage);
  for (uint64_t logical = first; logical < last;) {
    const auto& page = pages_[logical / kPage];
    const uint64_t page_end = std::min((logical / kPage + 1) * kPage, last);
    for (; page && logical < page_end; ++logical) {
      if (const uint32_t word = (*page)[logical % kPage]; word != 0) {
        visit(ExtentIndex(word - 1));
      }
    }
    logical = page_end;
  }
}

struct Volume {
  VolumeId id;
  std::string name;  // kept while deleting, for messages; the name itself is free then
  uint64_t size_bytes = 0;
  bool deleting = false;
  ExtentMap extents;
};

// Volume numbers are below this.
inline constexpr uint32_t kNoMoreVolumeIds = UINT32_MAX;

class VolumeTable {
 public:
  explicit VolumeTable(const Geometry& geometry);

  struct Owner {
    VolumeId volume;  // 0: free
    uint32_t logical = 0;
  };

  [[nodiscard]] Volume* Find(VolumeId id);
  [[nodiscard]] const Volume* Find(VolumeId id) const;
  [[nodiscard]] const Volume* FindByName(std::string_view name) const;  // not those being deleted
  [[nodiscard]] const std::map<uint32_t, Volume>& all() const { return volumes_; }
  [[nodiscard]] Owner OwnerOf(ExtentIndex extent) const { return owners_[extent.value]; }
  [[nodiscard]] uint32_t free_extents() const { return static_cast<uint32_t>(free_.size()); }
  [[nodiscard]] std::optional<ExtentIndex> LowestFree() const;
  // Takes it out of the free ones ahead of Assign, so that nobody else gets it.
  void Reserve(ExtentIndex extent) { free_.erase(extent.value); }
  void Unreserve(ExtentIndex extent);

  // What records say. Names and ids have been checked.
  void Create(VolumeId id, std::string name, uint64_t size_bytes);
  void Resize(VolumeId id, uint64_t size_bytes);
  void Rename(VolumeId id, std::string name);
  void Delete(VolumeId id);  // forgotten once it owns no extent
  void Assign(VolumeId id, uint32_t logical, ExtentIndex extent);
  void Free(ExtentIndex extent);

  // kNoMoreVolumeIds when all are used up: none is given twice.
  [[nodiscard]] uint32_t next_id() const { return next_id_; }
  void set_next_id(uint32_t id) { next_id_ = id; }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  void ForgetIfEmpty(VolumeId id);

  std::map<uint32_t, Volume> volumes_;
  std::map<std::string, uint32_t, std::less<>> names_;
  std::vector<Owner> owners_;
  std::set<uint32_t> free_;
  uint32_t next_id_ = 1;
};

}  // namespace eplog
