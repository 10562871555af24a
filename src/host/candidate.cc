#include "host/candidate.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "device/file_device.h"
#include "host/bounded_call.h"
#include "host/mount_table.h"
#include "host/one_writer.h"
#include "host/scrub_mark.h"
#include "host/session.h"
#include "host/underlay.h"

namespace eplog {
namespace {

using Paths = std::vector<std::filesystem::path>;

// Empty: none is.
std::string WhyLooped(const Paths& paths) {
  Paths real;
  for (const std::filesystem::path& path : paths) {
    std::error_code ignored;
    real.push_back(std::filesystem::canonical(path, ignored));
  }
  if (const auto loop = FindLoopOver(real)) {
    return fmt::format(
        "{} is in use as /dev/{}, and what is written there would be overwritten here: losetup -d "
        "/dev/{} ends that",
        paths[loop->file].string(), loop->name, loop->name);
  }
  for (const std::filesystem::path& path : paths) {
    const auto place = PlaceOf(path);
    if (const auto use = place.ok() ? FindOtherUse(*place) : std::nullopt) {
      return fmt::format("{} is not alone over what it lies on: {}; end one of them", path.string(),
                         *use);
    }
  }
  return {};
}

// Empty: nothing is against it.
Result<std::string> WhyNot(const ArrayFile& file, const std::filesystem::path& path,
                           const std::optional<DeviceIdentity>& looked_at) {
  const auto place = PlaceOf(path);
  EPLOG_TRY(place);
  if (looked_at) {
    EPLOG_TRY(CheckIdentity(path.string(), place->identity, *looked_at));
  }
  for (const std::filesystem::path& own :
       {file.file, std::filesystem::path(EventsPath(file)),
        std::filesystem::path(EventsPath(file) + ".1"), ScrubMarkPath(file)}) {
    const auto there = PlaceOf(own);
    if (there.ok() && there->identity == place->identity) {
      return fmt::format(
          "{} is {} of '{}' itself, which the array keeps beside its devices: give another",
          path.string(), own.filename().string(), file.name);
    }
  }
  if (const std::string loop = WhyLooped({path}); !loop.empty()) {
    return loop;
  }
  const auto way = FindWayDown(*place, MountDevicesOf(file.Argument()));
  if (!way) {
    return std::string();
  }
  return fmt::format(
      "{} lies on '{}' itself{}, and the array would wait for itself: give one that lies elsewhere",
      path.string(), file.name, way->empty() ? "" : fmt::format(" (through {})", *way));
}

}  // namespace

Status CheckCandidate(const ArrayFile& file, const std::filesystem::path& path,
                      const std::optional<DeviceIdentity>& looked_at) {
  const auto why =
      Bounded<std::string>(path, [file, path, looked_at] { return WhyNot(file, path, looked_at); });
  EPLOG_TRY(why);
  return why->empty() ? OkStatus() : Status(Fail(ErrorCode::kInvalidArgument, *why));
}

Status CheckNotServed(const std::filesystem::path& path, const ProbedDevice& probed,
                      std::string_view own_uuid) {
  const auto bears = ReadSuperblock(path, probed);
  const std::string uuid = bears.ok() ? UuidToString(bears->array_uuid) : std::string();
  if (uuid.empty() || uuid == own_uuid) {
    return OkStatus();
  }
  const auto who = OneWriter::Who(uuid);
  return who ? Status(
                   Fail(ErrorCode::kBusy,
                        fmt::format(
                            "{} bears the name of {} of the EPLOG array '{}', which is in use by "
                            "{}: it may be that by another path. End that first; if it is a "
                            "copy, or was replaced there, wipe it first",
                            path.string(),
                            bears->is_spare() ? std::string("a spare") : bears->DeviceName(),
                            bears->name, *who)))
             : OkStatus();
}

Status CheckNoLoopOver(const std::vector<std::filesystem::path>& paths) {
  if (paths.empty()) {
    return OkStatus();
  }
  const auto why = Bounded<std::string>(
      paths.front(), [paths]() -> Result<std::string> { return WhyLooped(paths); });
  EPLOG_TRY(why);
  return why->empty() ? OkStatus() : Status(Fail(ErrorCode::kInvalidArgument, *why));
}

}  // namespace eplog
