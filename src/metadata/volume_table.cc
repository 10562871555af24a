#include "metadata/volume_table.h"

#include "base/check.h"

namespace eplog {

std::optional<ExtentIndex> ExtentMap::Get(uint32_t logical) const {
  const uint32_t page = logical / kPage;
  if (page >= pages_.size() || !pages_[page] || (*pages_[page])[logical % kPage] == 0) {
    return std::nullopt;
  }
  return ExtentIndex((*pages_[page])[logical % kPage] - 1);
}

void ExtentMap::Set(uint32_t logical, std::optional<ExtentIndex> extent) {
  const uint32_t page = logical / kPage;
  if (page >= pages_.size()) {
    pages_.resize(size_t{page} + 1);
  }
  if (!pages_[page]) {
    pages_[page] = std::make_unique<Page>();
  }
  uint32_t& word = (*pages_[page])[logical % kPage];
  count_ -= word != 0 ? 1 : 0;
  word = extent ? extent->value + 1 : 0;
  count_ += word != 0 ? 1 : 0;
}

VolumeTable::VolumeTable(const Geometry& geometry) : owners_(geometry.extents()) {
  for (uint32_t i = 0; i < geometry.extents(); ++i) {
    free_.insert(free_.end(), i);
  }
}

Volume* VolumeTable::Find(VolumeId id) {
  const auto found = volumes_.find(id.value);
  return found == volumes_.end() ? nullptr : &found->second;
}

const Volume* VolumeTable::Find(VolumeId id) const {
  const auto found = volumes_.find(id.value);
  return found == volumes_.end() ? nullptr : &found->second;
}

const Volume* VolumeTable::FindByName(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : Find(VolumeId(found->second));
}

std::optional<ExtentIndex> VolumeTable::LowestFree() const {
  return free_.empty() ? std::nullopt : std::optional(ExtentIndex(*free_.begin()));
}

void VolumeTable::Unreserve(ExtentIndex extent) {
  if (owners_[extent.value].volume.value == 0) {
    free_.insert(extent.value);
  }
}

void VolumeTable::Create(VolumeId id, std::string name, uint64_t size_bytes) {
  EPLOG_CHECK(!volumes_.contains(id.value) && !names_.contains(name),
              "a volume id or name is used twice");
  names_[name] = id.value;
  Volume& volume = volumes_[id.value];
  volume.id = id;
  volume.name = std::move(name);
  volume.size_bytes = size_bytes;
  next_id_ = std::max(next_id_, std::min(id.value, kNoMoreVolumeIds - 1) + 1);
}

void VolumeTable::Resize(VolumeId id, uint64_t size_bytes) {
  if (Volume* volume = Find(id)) {
    volume->size_bytes = size_bytes;
  }
}

void VolumeTable::Rename(VolumeId id, std::string name) {
  Volume* volume = Find(id);
  EPLOG_CHECK(volume != nullptr && !names_.contains(name), "rename of no volume or to a used name");
  names_.erase(volume->name);
  names_[name] = id.value;
  volume->name = std::move(name);
}

void VolumeTable::Delete(VolumeId id) {
  Volume* volume = Find(id);
  EPLOG_CHECK(volume != nullptr && !volume->deleting, "delete of no volume");
  names_.erase(volume->name);
  volume->name = "/" + std::to_string(id.value);  // that no volume can have: its own is free again
  volume->deleting = true;
  ForgetIfEmpty(id);
}

void VolumeTable::Assign(VolumeId id, uint32_t logical, ExtentIndex extent) {
  Volume* volume = Find(id);
  EPLOG_CHECK(
      volume != nullptr && owners_[extent.value].volume.value == 0 && !volume->extents.Get(logical),
      "an extent has one owner");
  free_.erase(extent.value);
  owners_[extent.value] = {id, logical};
  volume->extents.Set(logical, extent);
}

void VolumeTable::Free(ExtentIndex extent) {
  const Owner owner = owners_[extent.value];
  if (owner.volume.value == 0) {
    return;
  }
  owners_[extent.value] = {};
  free_.insert(extent.value);
  if (Volume* volume = Find(owner.volume)) {
    volume->extents.Set(owner.logical, std::nullopt);
    ForgetIfEmpty(owner.volume);
  }
}

void VolumeTable::ForgetIfEmpty(VolumeId id) {
  const Volume* volume = Find(id);
  if (volume->deleting && volume->extents.count() == 0) {
    volumes_.erase(id.value);
  }
}

size_t VolumeTable::memory_bytes() const {
  return owners_.size() * sizeof(Owner) + free_.size() * 40 + volumes_.size() * 256;
}

}  // namespace eplog
