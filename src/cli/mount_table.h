// What the kernel has mounted, and what of it is ours: which array serves which directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace eplog::cli {

struct MountLine {
  uint64_t id = 0;
  dev_t device = 0;
  std::string directory;
  std::string source;
  bool ours = false;
};

// All in the text of /proc/self/mountinfo, in its order.
std::vector<MountLine> ParseMounts(const std::string& mountinfo);
std::vector<MountLine> ReadMounts(const std::filesystem::path& mountinfo);

struct MountEntry {
  std::string directory;
  std::string source;  // the array's directory or file, as given to mount
  dev_t device = 0;    // the number that the file system has
};

// Mounts of ours in the text of /proc/self/mountinfo, in its order: a later one covers an earlier
// one.
std::vector<MountEntry> ParseMountTable(const std::string& mountinfo);
std::vector<MountEntry> ReadMountTable();

// The topmost mount of ours on exactly this directory.
std::optional<MountEntry> FindMountOn(const std::string& directory);
// A mount of ours whose source is this array.
std::optional<MountEntry> FindMountOf(const std::filesystem::path& array);
// The numbers of all file systems that serve this array, or did until their process died.
std::vector<dev_t> MountDevicesOf(const std::filesystem::path& array);

// The process that served it is gone.
bool MountIsDead(const std::string& directory);

}  // namespace eplog::cli
