#include "host/member_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "eplog/status.h"
#include "host/device_content.h"
#include "host/server.h"
#include "host/spares.h"
#include "host/typed_path.h"

namespace eplog {
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

// As the process that serves the array knows it: a member may hang, and whoever looks at it.
std::optional<Geometry> ServedShape(const ArrayFile& file) {
  auto link = ConnectServer(file);
  const auto status = link.ok() ? link->client.Request({{"verb", "status"}}, {})
                                : Result<Json>(Fail(std::move(link).error()));
  if (!status.ok() || !status->contains("devices")) {
    return std::nullopt;
  }
  Geometry geometry;
  for (const Json& device : (*status)["devices"]) {
    const std::string role = device.value("role", "");
    geometry.n += role == DeviceRoleName(DeviceRole::kSsd) ? 1 : 0;
    geometry.m += role == DeviceRoleName(DeviceRole::kLog) ? 1 : 0;
  }
  return geometry.n == 0 ? std::nullopt : std::optional(geometry);
}

Geometry ShapeOf(const ArrayFile& file) {
  if (const auto served = ServedShape(file)) {
    return *served;
  }
  const auto geometry = GeometryOf(file);
  return geometry.ok() ? *geometry : Listed(file);
}

// A device that bears the superblock of a member of the array, or of what once was one.
struct Bearer {
  std::filesystem::path path;
  Superblock superblock;
};

std::vector<Bearer> FindBearers(const ArrayFile& file) {
  std::vector<std::filesystem::path> paths;
  for (const MemberPath& member : file.members) {
    paths.push_back(file.Locate(member));
  }
  for (const std::string& spare : file.spares) {  // which may have become a member
    paths.push_back(file.LocatePath(spare));
  }
  std::vector<Result<Superblock>> superblocks = ReadSuperblocks(paths);
  std::vector<Bearer> bearers;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (superblocks[i].ok() && !superblocks[i]->is_spare() &&
        UuidToString(superblocks[i]->array_uuid) == file.uuid) {
      bearers.push_back({paths[i], std::move(*superblocks[i])});
    }
  }
  return bearers;
}

// By what is known in the newest epoch: what was replaced still says of itself that it is a member.
bool IsMemberBy(const Superblock& newest, const Superblock& device) {
  return newest.members[device.index.value].uuid == device.device_uuid;
}

// Its superblock says which member is there: members may have changed places since array.toml was
// written. Where that cannot be read, array.toml says, unless that one is elsewhere.
Result<std::string> NameAt(const ArrayFile& file, const MemberPath& listed) {
  const std::filesystem::path path = file.Locate(listed);
  const std::vector<Bearer> bearers = FindBearers(file);
  if (bearers.empty()) {
    return listed.name;
  }
  const Superblock& newest =
      std::max_element(bearers.begin(), bearers.end(), [](const Bearer& a, const Bearer& b) {
        return a.superblock.epoch < b.superblock.epoch;
      })->superblock;
  const auto here = std::find_if(bearers.begin(), bearers.end(),
                                 [&](const Bearer& bearer) { return bearer.path == path; });
  const std::string name = here == bearers.end() ? listed.name : here->superblock.DeviceName();
  if (here != bearers.end() && !IsMemberBy(newest, here->superblock)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the device at {} was {} of '{}', and is not any more: say by its name "
                            "which member is meant ({}, as array.toml says?)",
                            path.string(), name, file.name, listed.name));
  }
  const auto elsewhere = std::find_if(bearers.begin(), bearers.end(), [&](const Bearer& bearer) {
    return bearer.path != path && bearer.superblock.DeviceName() == name &&
           IsMemberBy(newest, bearer.superblock);
  });
  if (elsewhere != bearers.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("which member is meant by {} is not sure, since {} is at {}{}: say it "
                            "by its name",
                            path.string(), name, elsewhere->path.string(),
                            here == bearers.end() ? "" : " too"));
  }
  return name;
}

Result<std::string> NameOf(const ArrayFile& file, std::string_view device) {
  if (IsMemberName(device)) {
    return std::string(device);
  }
  const auto path = ResolveDevice(file, device);
  EPLOG_TRY(path);
  const auto listed =
      std::find_if(file.members.begin(), file.members.end(),
                   [&](const MemberPath& member) { return file.Locate(member) == *path; });
  return listed == file.members.end() ? std::string(device) : NameAt(file, *listed);
}

}  // namespace

Result<Geometry> GeometryOf(const ArrayFile& file) {
  const auto member = AnyMember(file);
  EPLOG_TRY(member);
  return member->geometry;
}

Result<uint32_t> MemberIndex(const ArrayFile& file, std::string_view device) {
  const auto name = NameOf(file, device);
  EPLOG_TRY(name);
  const Geometry geometry = ShapeOf(file);
  for (uint8_t i = 0; i < geometry.devices(); ++i) {
    if (geometry.DeviceName(DeviceIndex(i)) == *name) {
      return uint32_t{i};
    }
  }
  const auto last = static_cast<uint8_t>(geometry.devices() - 1);
  return Fail(ErrorCode::kNotFound,
              fmt::format("'{}' has no member {}: there are ssd0 to {}", file.name, *name,
                          geometry.DeviceName(DeviceIndex(last))));
}

Status CheckMember(const ArrayFile& file, std::string_view device) {
  if (!IsMemberName(device)) {
    const auto path = ResolveDevice(file, device);
    EPLOG_TRY(path);
    if (!file.MemberAt(*path).empty() ||
        (file.ListsSpare(*path) && BearsMember(file, *path))) {  // it has become one
      return OkStatus();
    }
  }
  EPLOG_TRY(MemberIndex(file, device));
  return OkStatus();
}

std::string MemberName(const ArrayFile& file, uint32_t index) {
  return ShapeOf(file).DeviceName(DeviceIndex(static_cast<uint8_t>(index)));
}

}  // namespace eplog
