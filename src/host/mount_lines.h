// What the kernel has mounted, as it shows it: /proc/self/mountinfo. Asks nobody who serves a file
// system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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
std::vector<MountLine> ReadMounts(const std::filesystem::path& mountinfo = "/proc/self/mountinfo");

}  // namespace eplog
