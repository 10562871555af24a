#include "cli/member_name.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/probe.h"

namespace eplog::cli {
namespace {

// What array.toml lists at least, where no superblock can be asked.
Geometry Listed(const ArrayFile& file) {
  Geometry geometry;
  for (const MemberPath& member : file.members) {
    uint32_t& count = member.name.starts_with("log") ? geometry.m : geometry.n;
    count = std::max(count, static_cast<uint32_t>(std::stoul(member.name.substr(3))) + 1);
  }
  return geometry;
}

Geometry ShapeOf(const ArrayFile& file) {
  const auto geometry = GeometryOf(file);
  return geometry.ok() ? *geometry : Listed(file);
}

// Of a path its superblock says which member is there: members may have changed places since
// array.toml was written. Where that cannot be read, array.toml says.
std::string NameOf(const ArrayFile& file, std::string_view device) {
  for (const MemberPath& member : file.members) {
    const std::filesystem::path path = file.Locate(member);
    if (path != ResolveParent(std::filesystem::path(device))) {
      continue;
    }
    const auto superblock = ReadSuperblock(path);
    const bool tells = superblock.ok() && !superblock->is_spare() &&
                       UuidToString(superblock->array_uuid) == file.uuid;
    return tells ? superblock->DeviceName() : member.name;
  }
  return std::string(device);
}

}  // namespace

Result<Geometry> GeometryOf(const ArrayFile& file) {
  for (const MemberPath& member : file.members) {
    const auto superblock = ReadSuperblock(file.Locate(member));
    if (superblock.ok() && UuidToString(superblock->array_uuid) == file.uuid) {
      return superblock->geometry;
    }
  }
  return Fail(ErrorCode::kNotFound, "no member of '" + file.name + "' can be read");
}

Result<uint32_t> MemberIndex(const ArrayFile& file, std::string_view device) {
  const std::string name = NameOf(file, device);
  const Geometry geometry = ShapeOf(file);
  for (uint8_t i = 0; i < geometry.devices(); ++i) {
    if (geometry.DeviceName(DeviceIndex(i)) == name) {
      return uint32_t{i};
    }
  }
  const auto last = static_cast<uint8_t>(geometry.devices() - 1);
  return Fail(ErrorCode::kNotFound,
              fmt::format("'{}' has no member {}: there are ssd0 to {}", file.name, name,
                          geometry.DeviceName(DeviceIndex(last))));
}

std::string MemberName(const ArrayFile& file, uint32_t index) {
  return ShapeOf(file).DeviceName(DeviceIndex(static_cast<uint8_t>(index)));
}

}  // namespace eplog::cli
