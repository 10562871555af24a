// What the kernel has mounted, as it shows it: /proc/self/mountinfo. Asks nobody who serves a file
// system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eplog/result.h"

namespace eplog {

// The file system type that the kernel shows for our mounts.
inline constexpr char kMountType[] = "fuse.eplog";

struct MountLine {
  uint64_t id = 0;
  dev_t device = 0;
  std::string directory;
  std::string type;
  std::string source;
  std::string options;  // of the file system, separated by commas
  [[nodiscard]] bool ours() const { return type == kMountType; }
};

// All in the text of /proc/self/mountinfo, in its order: a later one on the same directory covers
// an earlier one.
std::vector<MountLine> ParseMounts(const std::string& mountinfo);
// Of the kernel now. An error: it cannot be read, as for want of descriptors, and what is mounted
// is not known.
Result<std::vector<MountLine>> LoadMounts(
    const std::filesystem::path& mountinfo = "/proc/self/mountinfo");
// The same, and none where it cannot be read: for who only wants to know more than he does.
std::vector<MountLine> ReadMounts(const std::filesystem::path& mountinfo = "/proc/self/mountinfo");

}  // namespace eplog
