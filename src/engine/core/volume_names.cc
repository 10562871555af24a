#include "engine/core/volume_names.h"

#include "eplog/array.h"

namespace eplog {
namespace {

constexpr char kHiddenEnd = '\x7F';

}  // namespace

std::string HiddenName(VolumeId id) {
  return std::string(kReservedVolumePrefix) + std::to_string(id.value) + kHiddenEnd;
}

bool IsHidden(const Volume& volume) {
  return volume.name.starts_with(kReservedVolumePrefix) && volume.name.ends_with(kHiddenEnd);
}

std::string LabelOf(const Volume& volume) {
  return IsHidden(volume)
             ? "(deleted/replaced while open, #" + std::to_string(volume.id.value) + ")"
             : volume.name;
}

}  // namespace eplog
