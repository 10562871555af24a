// What the kernel has mounted, and what of it is ours: which array serves which directory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "host/mount_lines.h"

namespace eplog {

// A mount of ours: its source is the array's directory or file, as given to mount.
using MountEntry = MountLine;

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

// The process that served what is mounted there is gone. One that does not answer is not.
bool MountIsDead(const std::string& directory);

}  // namespace eplog
