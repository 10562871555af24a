// What a file or a block device lies on, as far as the kernel tells: a file on its file system,
// that on a block device, a partition on its disk, a mapped device or an MD array on its parts, a
// loop device on its backing file, a file of a mount of ours on the members of the array that is
// served there. Of these only loop devices are opened, for a moment; files are looked up by name,
// which asks those who serve them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eplog/device.h"
#include "eplog/result.h"

namespace eplog {

// Where something is.
struct Place {
  DeviceIdentity identity;
  uint64_t mount_id = 0;  // a file: of /proc/self/mountinfo; 0: not known
};
Result<Place> PlaceOf(const std::filesystem::path& path);

// Where it is looked up.
struct KernelTables {
  std::filesystem::path sysfs = "/sys";
  std::filesystem::path mountinfo = "/proc/self/mountinfo";
  std::filesystem::path dev = "/dev";
};

// What is over the same storage as the loop device at this place, or as the one that it is a
// partition of: another loop device over the same part of its file, or who has that file locked as
// a device. In words; nullopt: nothing, as far as can be seen.
std::optional<std::string> FindOtherUse(const Place& place, const KernelTables& tables = {});

// How what is at `place` comes to lie on one of these file systems: what is between, from the top
// ("loop3", "dm-0 on loop3"), empty if it is a file there. nullopt: it does not, or it cannot be
// seen.
std::optional<std::string> FindWayDown(const Place& place, const std::vector<dev_t>& file_systems,
                                       const KernelTables& tables = {});

// A loop device that has one of these files as its own, by whatever name of it; by just this name
// where the loop device does not say in time which file that is.
struct LoopOver {
  std::string name;  // "loop3"
  size_t file = 0;   // which of them
};
std::optional<LoopOver> FindLoopOver(const std::vector<std::filesystem::path>& files,
                                     const KernelTables& tables = {});

}  // namespace eplog
