// The state of the toy array and the records that change it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "eplog/array.h"

namespace eplog::torture {

class ToyState {
 public:
  static std::vector<std::byte> WriteRecord(VolumeId volume, uint64_t offset_bytes,
                                            std::span<const std::byte> data);
  static std::vector<std::byte> CreateRecord(VolumeId volume, const std::string& name,
                                             uint64_t size_bytes);
  static std::vector<std::byte> ResizeRecord(VolumeId volume, uint64_t size_bytes);
  static std::vector<std::byte> RenameRecord(VolumeId volume, const std::string& name,
                                             bool replace);
  static std::vector<std::byte> DeleteRecord(VolumeId volume);

  // `dirty`, `keep_tail`: broken on purpose (ToyBug).
  void Apply(std::span<const std::byte> record, bool dirty, bool keep_tail);

  [[nodiscard]] VolumeId NextId() { return VolumeId(next_id_++); }
  [[nodiscard]] bool Holds(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) const;
  bool Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) const;
  [[nodiscard]] std::vector<VolumeInfo> Infos() const;

  [[nodiscard]] std::vector<std::byte> Encode() const;
  void Decode(std::span<const std::byte> bytes);

 private:
  struct Volume {
    std::string name;
    std::vector<std::byte> bytes;
    std::vector<std::byte> tail;  // what the last cut took; only for ToyBug::kTailKept
  };
  std::map<uint32_t, Volume> volumes_;
  uint32_t next_id_ = 1;
  std::vector<std::byte> grave_;  // of the last deleted volume; only for ToyBug::kDirtyVolume
};

}  // namespace eplog::torture
