#include "cli/members.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <utility>

#include "cli/probe.h"
#include "cli/spares.h"
#include "device/file_device.h"
#include "device/wrappers.h"

namespace eplog::cli {
namespace {

// Says that it flushed and does not pass it on.
class DeafDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Task<Status> Flush() override { co_return OkStatus(); }
};

Member Wrap(IoUringLoop& loop, std::unique_ptr<Device> device, const MemberOptions& options) {
  if (options.volatile_cache) {
    device = std::make_unique<VolatileCacheDevice>(loop, std::move(device));
  }
  if (options.ignore_flush) {
    device = std::make_unique<DeafDevice>(std::move(device));
  }
  Member member;
  auto inject = std::make_unique<InjectDevice>(loop, std::move(device), loop.NowUs());
  member.inject = inject.get();
  member.device = std::move(inject);
  if (options.io_deadline_us != 0) {
    auto deadline =
        std::make_unique<DeadlineDevice>(loop, std::move(member.device), options.io_deadline_us);
    member.deadline = deadline.get();
    member.device = std::move(deadline);
  }
  return member;
}

// Somebody has to do something about these before the array may be opened at all; other errors mean
// that the member is as good as gone.
bool StopsOpening(const Error& error) {
  return error.code == ErrorCode::kBusy || error.errno_value == EACCES ||
         error.errno_value == EPERM || error.errno_value == EMFILE;
}

Status CheckDistinct(const ArrayFile& array) {
  std::vector<std::pair<DeviceIdentity, const MemberPath*>> seen;
  for (const MemberPath& member : array.members) {
    const auto identity = IdentifyDevice(array.Locate(member));
    if (!identity.ok()) {
      continue;
    }
    for (const auto& [other, other_member] : seen) {
      if (other == *identity) {
        return Fail(
            ErrorCode::kCorrupt,
            fmt::format("{}: {} and {} are the same device ({} and {})", array.file.string(),
                        other_member->name, member.name, array.Locate(*other_member).string(),
                        array.Locate(member).string()));
      }
    }
    seen.emplace_back(*identity, &member);
  }
  return OkStatus();
}

}  // namespace

std::vector<Device*> Members::Pointers() const {
  std::vector<Device*> out;
  for (const Member& member : opened) {
    out.push_back(member.device.get());
  }
  return out;
}

Result<Member> OpenMember(IoUringLoop& loop, const std::string& path,
                          const MemberOptions& options) {
  FileDeviceOptions device_options;
  device_options.read_only = options.read_only;
  device_options.lock = options.lock;
  auto device = FileDevice::Open(loop, path, device_options);
  if (!device.ok()) {
    return Fail(std::move(device).error());
  }
  return Wrap(loop, std::move(*device), options);
}

Result<Members> OpenMembers(IoUringLoop& loop, const ArrayFile& file,
                            const MemberOptions& options) {
  const ArrayFile array = WithJoinedSpares(file);
  EPLOG_TRY(CheckDistinct(array));
  Members members;
  for (const MemberPath& member : array.members) {
    auto device = OpenMember(loop, array.Locate(member).string(), options);
    if (device.ok()) {
      members.opened.push_back(std::move(*device));
      continue;
    }
    if (StopsOpening(device.error())) {
      return Fail(std::move(device).error());
    }
    members.missing.push_back(
        fmt::format("{} is missing: {}", member.name, device.error().ToString()));
  }
  if (members.opened.empty()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("none of the {} members that {} lists is there ({})",
                            array.members.size(), array.file.string(), members.missing.front()));
  }
  return members;
}

}  // namespace eplog::cli
