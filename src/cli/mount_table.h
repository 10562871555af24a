// What the kernel has mounted, as far as it is ours: which array serves which directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace eplog::cli {

struct MountEntry {
  std::string directory;
  std::string source;  // the array's directory or file, as given to mount
};

// Mounts of ours in the text of /proc/self/mountinfo, in its order: a later one covers an earlier
// one.
std::vector<MountEntry> ParseMountTable(const std::string& mountinfo);
std::vector<MountEntry> ReadMountTable();

// The topmost mount of ours on exactly this directory.
std::optional<MountEntry> FindMountOn(const std::string& directory);
// A mount of ours whose source is this array.
std::optional<MountEntry> FindMountOf(const std::filesystem::path& array);

// The process that served it is gone.
bool MountIsDead(const std::string& directory);

}  // namespace eplog::cli
