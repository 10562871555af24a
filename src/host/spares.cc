#include "host/spares.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog {
namespace {

bool IsMemberOf(const ArrayFile& file, const Superblock& superblock) {
  return !superblock.is_spare() && UuidToString(superblock.array_uuid) == file.uuid;
}

// Of this array; nullopt if it is none of its members.
std::optional<Superblock> MemberAt(const ArrayFile& file, const std::filesystem::path& path) {
  auto superblock = ReadSuperblock(path);
  return superblock.ok() && IsMemberOf(file, *superblock) ? std::optional(std::move(*superblock))
                                                          : std::nullopt;
}

std::vector<std::filesystem::path> MemberPaths(const ArrayFile& file) {
  std::vector<std::filesystem::path> paths;
  for (const MemberPath& member : file.members) {
    paths.push_back(file.Locate(member));
  }
  return paths;
}

}  // namespace

Result<Superblock> AnyMember(const ArrayFile& file) {
  const auto is_member = [&](const Superblock& superblock) { return IsMemberOf(file, superblock); };
  std::vector<Result<Superblock>> superblocks = ReadSuperblocks(MemberPaths(file), is_member);
  for (Result<Superblock>& superblock : superblocks) {
    if (superblock.ok() && is_member(*superblock)) {
      return std::move(superblock);
    }
  }
  for (size_t i = 0; i < superblocks.size(); ++i) {
    if (superblocks[i].ok()) {
      return Fail(
          ErrorCode::kNotFound,
          fmt::format("{} names array {}, and {} belongs to {}; 'eplog assemble' finds what "
                      "belongs together",
                      file.file.string(), file.uuid, file.Locate(file.members[i]).string(),
                      UuidToString(superblocks[i]->array_uuid)));
    }
  }
  return Fail(ErrorCode::kNotFound, "no member of '" + file.name + "' can be read");
}

Status CheckNoLaterLog(const ArrayFile& file, const std::filesystem::path& path,
                       const ProbedDevice& probed) {
  const auto log = ReadSuperblock(path, probed);
  if (!log.ok() || log->is_spare() || !log->geometry.IsLog(log->index) ||
      UuidToString(log->array_uuid) != file.uuid) {
    return OkStatus();
  }
  uint64_t newest = 0;
  for (const auto& superblock : ReadSuperblocks(MemberPaths(file))) {
    if (superblock.ok() && IsMemberOf(file, *superblock)) {
      newest = std::max(newest, superblock->epoch.number);
    }
  }
  if (log->epoch.number <= newest) {
    return OkStatus();
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} was {} of a copy of '{}' that went on longer, and what its log holds "
                          "could be taken for this one's: overwrite it with zeros first",
                          path.string(), log->DeviceName(), file.name));
}

SpareRoles RolesFor(const Geometry& geometry, uint64_t size_bytes) {
  return {size_bytes >= geometry.ssd_bytes(), size_bytes >= geometry.log_bytes()};
}

std::string TooSmall(const Geometry& geometry, const std::string& path, uint64_t size_bytes) {
  return fmt::format(
      "{} is too small for every role: it has {} bytes, and an SSD needs {}, a log device {}", path,
      size_bytes, geometry.ssd_bytes(), geometry.log_bytes());
}

std::string HowToEnlarge(uint64_t needed_bytes, const std::string& path,
                         const ProbedDevice& probed) {
  return probed.block ? "give a larger one"
                      : fmt::format("give a larger one, or make it larger: truncate -s {} {}",
                                    needed_bytes, ShellWord(path));
}

std::string TooSmallFor(const std::string& role, uint64_t needed_bytes, const std::string& path,
                        const ProbedDevice& probed) {
  return fmt::format("{} is too small for {}: it has {} bytes and {} are needed; {}", path, role,
                     probed.size_bytes, needed_bytes, HowToEnlarge(needed_bytes, path, probed));
}

SpareFound IdentifySpare(const std::string& array_uuid, const std::filesystem::path& path) {
  const auto probed = ProbeDevice(path);
  if (!probed.ok()) {
    return {SpareKind::kOther, probed.error().ToString()};
  }
  return IdentifySpare(array_uuid, path, *probed);
}

SpareFound IdentifySpare(const std::string& array_uuid, const std::filesystem::path& path,
                         const ProbedDevice& probed) {
  const auto superblock = ReadSuperblock(path, probed);
  if (superblock.ok() && UuidToString(superblock->array_uuid) == array_uuid) {
    if (superblock->is_spare()) {
      return {SpareKind::kSpare, "", probed.identity};
    }
    const MemberEntry& self = superblock->members[superblock->index.value];
    const bool joining =
        self.state == MemberState::kJoining && self.uuid == superblock->device_uuid;
    return {joining ? SpareKind::kCutOff : SpareKind::kOther,
            fmt::format("{} bears the superblock of {}", path.string(), superblock->DeviceName()),
            probed.identity};
  }
  const auto content = FindContent(path, probed);
  if (!content.ok()) {
    return {SpareKind::kOther, content.error().ToString()};
  }
  return {content->empty() ? SpareKind::kBlank : SpareKind::kOther,
          fmt::format("{} is no spare of this array (any more): it holds {}; 'eplog spare add "
                      "--force' makes it one",
                      path.string(), content->empty() ? "nothing" : *content),
          probed.identity};
}

Status CheckNotListed(const ArrayFile& file, const std::filesystem::path& path) {
  const std::string name = file.MemberAt(path);
  return name.empty()
             ? OkStatus()
             : Status(Fail(ErrorCode::kExists,
                           fmt::format("{0} is where {1} of '{2}' is, or was: 'eplog replace {3} "
                                       "{1} {0}' puts another device there",
                                       path.string(), name, file.name,
                                       ShellWord(file.Argument().string()))));
}

bool BearsMember(const ArrayFile& file, const std::filesystem::path& path) {
  return MemberAt(file, path).has_value();
}

bool IsSpareOf(const ArrayFile& file, const std::filesystem::path& path) {
  return IdentifySpare(file.uuid, path).kind == SpareKind::kSpare;
}

ArrayFile WithJoinedSpares(const ArrayFile& file) {
  ArrayFile out = file;
  for (const std::string& spare : file.spares) {
    const std::filesystem::path path = file.LocatePath(spare);
    const auto joined = MemberAt(file, path);
    if (!joined) {
      continue;
    }
    const std::string name = joined->DeviceName();
    const auto member = std::find_if(out.members.begin(), out.members.end(),
                                     [&](const MemberPath& other) { return other.name == name; });
    const auto listed =
        member == out.members.end() ? std::nullopt : MemberAt(file, out.Locate(*member));
    if (!listed || listed->index != joined->index || listed->epoch < joined->epoch) {
      out.MoveMember(name, path);
    }
  }
  return out;
}

std::vector<DeviceStatus> LookAtSpares(const ArrayFile& file) {
  const ArrayFile settled = WithJoinedSpares(file);
  std::vector<DeviceStatus> list;
  for (const std::string& spare : settled.spares) {
    const std::filesystem::path path = file.LocatePath(spare);
    SpareFound found = IdentifySpare(file.uuid, path);
    DeviceStatus status;
    status.name = fmt::format("spare{}", list.size());
    status.path = path.string();
    status.role = DeviceRole::kSpare;
    // What was cut off is made a spare again when the array is mounted.
    status.state = found.kind == SpareKind::kOther ? DeviceState::kMissing : DeviceState::kOk;
    if (found.kind == SpareKind::kOther) {
      status.failed_because = std::move(found.what);
    }
    if (const auto probed = ProbeDevice(path); probed.ok()) {
      status.size_bytes = probed->size_bytes;
    }
    list.push_back(std::move(status));
  }
  return list;
}

void AddSpares(const ArrayFile& file, Json& status) {
  Json& devices = status["devices"];
  const bool known = std::any_of(devices.begin(), devices.end(), [](const Json& device) {
    return device.value("role", "") == DeviceRoleName(DeviceRole::kSpare);
  });
  if (!known) {
    for (const DeviceStatus& spare : LookAtSpares(file)) {
      devices.push_back(DeviceToJson(spare));
    }
  }
}

}  // namespace eplog
