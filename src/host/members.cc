#include "host/members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "device/file_lock.h"
#include "device/wrappers.h"
#include "host/bounded_call.h"
#include "host/device_content.h"
#include "host/spares.h"
#include "host/typed_path.h"
#include "terminal/console.h"

namespace eplog {
namespace {

// Says that it flushed and does not pass it on.
class DeafDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Task<Status> Flush() override { co_return OkStatus(); }
};

using Opened = Result<std::unique_ptr<FileDevice>>;

BoundedCall<Opened> BeginOpening(IoUringLoop& loop, const std::string& path,
                                 const MemberOptions& options,
                                 const std::optional<DeviceIdentity>& looked_at = std::nullopt) {
  FileDeviceOptions device_options;
  device_options.read_only = options.read_only;
  device_options.lock = options.lock;
  device_options.looked_at = looked_at;
  return BoundedCall<Opened>(
      [&loop, path, device_options] { return FileDevice::Open(loop, path, device_options); });
}

// Opening waits for a dead owner's requests, and is a request itself.
BoundedCall<Opened>::Clock::time_point OpeningEnds(const MemberOptions& options) {
  const auto now = BoundedCall<Opened>::Clock::now();
  return options.io_deadline_us == 0 ? now + std::chrono::years(1)
                                     : now + std::chrono::milliseconds(kDeadOwnerWaitMs) +
                                           std::chrono::microseconds(options.io_deadline_us);
}

Opened EndOpening(BoundedCall<Opened>& opening, const std::string& path,
                  BoundedCall<Opened>::Clock::time_point until) {
  auto opened = opening.Wait(until);
  if (!opened) {
    return Fail(ErrorCode::kDeviceFailed,
                path + " does not answer: it could not be opened in time");
  }
  return std::move(*opened);
}

// Somebody has to do something about these before the array may be opened at all; other errors mean
// that the member is as good as gone.
bool StopsOpening(const Error& error) {
  return error.code == ErrorCode::kBusy || error.errno_value == EMFILE ||
         error.errno_value == ENFILE || error.errno_value == ENOMEM;
}

// Who serves an array holds more of its members than parity replaces. One that has fewer, while the others are free, may be
// what is left of a process that has unmounted it and waits for a device that hangs, which can be for ever.
Error WithWayOut(Error refused, const std::vector<std::string>& busy, const ArrayFile& array) {
  // There are as many log devices as chunks of parity.
  const auto parity = std::count_if(array.members.begin(), array.members.end(),
                                    [](const auto& m) { return m.name.starts_with("log"); });
  if (!busy.empty() && std::ssize(busy) <= parity) {
    refused.message +=
        fmt::format("; the others are free: should it hang, eplog mount --without {} goes on",
                    fmt::join(busy, " --without "));
  }
  return refused;
}

std::string LeftOutLine(const std::string& what, const std::filesystem::path& path) {
  return fmt::format("{} ({}) is left out, as told", what, path.string());
}

// As if these paths were not listed.
Result<ArrayFile> WithoutPaths(ArrayFile array, const MemberOptions& options, Members& members) {
  for (const std::string& device : options.without) {
    if (IsMemberName(device)) {
      continue;
    }
    const auto resolved = ResolveDevice(array, device);
    EPLOG_TRY(resolved);
    const std::filesystem::path& path = *resolved;
    if (const std::string name = array.MemberAt(path); !name.empty()) {
      members.left_out.push_back(LeftOutLine(name, path));
    } else if (array.ListsSpare(path)) {
      members.left_out.push_back(LeftOutLine("a spare", path));
    }
    members.as_told.push_back(path);
    std::erase_if(array.members,
                  [&](const MemberPath& member) { return array.Locate(member) == path; });
    array.DropSpare(path);
  }
  return array;
}

// As if these names were not listed: those that the devices bear, or else those of array.toml. What
// is listed as a spare and bears such a name is left out as well: it was stepping in, or had.
ArrayFile WithoutNames(const ArrayFile& array, const MemberOptions& options, Members& members) {
  if (std::none_of(options.without.begin(), options.without.end(), IsMemberName)) {
    return array;
  }
  std::vector<std::filesystem::path> paths;
  for (const MemberPath& member : array.members) {
    paths.push_back(array.Locate(member));
  }
  for (const std::string& spare : array.spares) {
    paths.push_back(array.LocatePath(spare));
  }
  const std::vector<Result<Superblock>> superblocks = ReadSuperblocks(paths);
  ArrayFile out = array;
  out.members.clear();
  for (size_t i = 0; i < paths.size(); ++i) {
    const Result<Superblock>& superblock = superblocks[i];
    const bool tells = superblock.ok() && !superblock->is_spare() &&
                       UuidToString(superblock->array_uuid) == array.uuid;
    const bool spare = i >= array.members.size();
    const std::string listed = spare ? "" : array.members[i].name;
    const std::string name = tells ? superblock->DeviceName() : listed;
    if (std::find(options.without.begin(), options.without.end(), name) != options.without.end()) {
      members.left_out.push_back(LeftOutLine(name, paths[i]));
      members.as_told.push_back(paths[i]);
      out.DropSpare(paths[i]);
    } else if (!spare) {
      out.members.push_back(array.members[i]);
    }
  }
  return out;
}

// The members to be opened: each device once, by what it is.
std::vector<MemberPath> Wanted(const ArrayFile& array, std::vector<std::string>& left_out) {
  std::vector<MemberPath> wanted;
  std::vector<std::pair<DeviceIdentity, const MemberPath*>> seen;
  for (const MemberPath& member : array.members) {
    const std::string path = array.Locate(member).string();
    const auto identity = IdentifyDevice(path);
    if (!identity.ok()) {
      left_out.push_back(
          fmt::format("{} is missing: {}", member.name, identity.error().ToString()));
      continue;
    }
    const auto same = std::find_if(seen.begin(), seen.end(),
                                   [&](const auto& other) { return other.first == *identity; });
    if (same != seen.end()) {
      left_out.push_back(fmt::format("{} ({}) is left out: it is the same device as {} ({})",
                                     member.name, path, same->second->name,
                                     array.Locate(*same->second).string()));
      continue;
    }
    seen.emplace_back(*identity, &member);
    wanted.push_back(member);
  }
  return wanted;
}

}  // namespace

tl::unexpected<Error> FailReadOnlyBelow(const ArrayFile& file,
                                        const std::vector<std::string>& left_out) {
  return Fail(
      ErrorCode::kReadOnly,
      fmt::format("the members of '{}' lie on a read-only file system: make it writable, or "
                  "only read: eplog mount {} DIR --read-only ({})",
                  file.name, ShellWord(file.Argument().string()), fmt::join(left_out, "; ")));
}

std::vector<Device*> Members::Pointers() const {
  std::vector<Device*> out;
  for (const Member& member : opened) {
    out.push_back(member.device.get());
  }
  return out;
}

Result<std::unique_ptr<FileDevice>> OpenFile(IoUringLoop& loop, const std::string& path,
                                             const MemberOptions& options,
                                             const std::optional<DeviceIdentity>& looked_at) {
  auto opening = BeginOpening(loop, path, options, looked_at);
  return EndOpening(opening, path, OpeningEnds(options));
}

Member WrapFile(IoUringLoop& loop, std::unique_ptr<FileDevice> file, const MemberOptions& options) {
  std::unique_ptr<Device> device = std::move(file);
  if (options.volatile_cache) {
    device = std::make_unique<VolatileCacheDevice>(loop, std::move(device));
  }
  if (options.ignore_flush) {
    device = std::make_unique<DeafDevice>(std::move(device));
  }
  Member member;
  auto inject = std::make_unique<InjectDevice>(loop, std::move(device), loop.NowUs());
  member.inject = inject.get();
  auto deadline = std::make_unique<DeadlineDevice>(loop, std::move(inject), options.io_deadline_us);
  member.deadline = deadline.get();
  member.device = std::move(deadline);
  return member;
}

Result<Member> OpenMember(IoUringLoop& loop, const std::string& path,
                          const MemberOptions& options) {
  auto file = OpenFile(loop, path, options);
  if (!file.ok()) {
    return Fail(std::move(file).error());
  }
  return WrapFile(loop, std::move(*file), options);
}

Result<Members> OpenMembers(IoUringLoop& loop, const ArrayFile& file,
                            const MemberOptions& options) {
  Members members;
  const auto listed = WithoutPaths(file, options, members);
  EPLOG_TRY(listed);
  const ArrayFile array = WithoutNames(WithJoinedSpares(*listed), options, members);
  const std::vector<MemberPath> wanted = Wanted(array, members.left_out);
  // All at once, so that several that hang take no longer than one; all of them, so that nothing of
  // a refused opening goes on.
  const auto until = OpeningEnds(options);
  std::vector<BoundedCall<Opened>> openings;
  openings.reserve(wanted.size());
  for (const MemberPath& member : wanted) {
    openings.push_back(BeginOpening(loop, array.Locate(member).string(), options));
  }
  std::optional<Error> refused;
  std::vector<std::string> busy;
  bool only_busy = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto opened = EndOpening(openings[i], array.Locate(wanted[i]).string(), until);
    if (opened.ok()) {
      members.opened.push_back(WrapFile(loop, std::move(*opened), options));
      members.opened.back().name = wanted[i].name;
    } else if (StopsOpening(opened.error())) {
      only_busy = only_busy && opened.error().code == ErrorCode::kBusy;
      refused = refused ? refused : opened.error();
      busy.push_back(wanted[i].name);
    } else {
      const bool read_only = opened.error().errno_value == EROFS;
      members.read_only_below = members.read_only_below || read_only;
      members.left_out.push_back(fmt::format("{} {}: {}", wanted[i].name,
                                             read_only ? "cannot be written" : "is missing",
                                             opened.error().ToString()));
    }
  }
  if (refused) {
    const bool others = only_busy && !members.opened.empty();
    return Fail(others ? WithWayOut(std::move(*refused), busy, array) : std::move(*refused));
  }
  if (members.opened.empty() && members.read_only_below) {
    return FailReadOnlyBelow(array, members.left_out);
  }
  if (members.opened.empty()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("none of the {} members that {} lists is there ({})",
                            file.members.size(), file.file.string(), members.left_out.front()));
  }
  return members;
}

}  // namespace eplog
