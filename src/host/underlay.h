// What a file or a block device lies on, as far as the kernel tells: a file on its file system,
// that on a block device, a partition on its disk, a mapped device or an MD array on its parts, a
// loop device on its backing file, a file of a mount of ours on the members of the array that is
// served there. Nothing is opened; files are looked up by name, which asks those who serve them.
#pragma once

#include <sys/types.h>

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
};

// How what is at `place` comes to lie on one of these file systems: what is between, from the top
// ("loop3", "dm-0 on loop3"), empty if it is a file there. nullopt: it does not, or it cannot be
// seen.
std::optional<std::string> FindWayDown(const Place& place, const std::vector<dev_t>& file_systems,
                                       const KernelTables& tables = {});

// The loop device that has the file at this path as its own ("loop3"). By its name alone, so that no
// file is looked up.
std::optional<std::string> FindLoopOver(const std::filesystem::path& file,
                                        const KernelTables& tables = {});

}  // namespace eplog
