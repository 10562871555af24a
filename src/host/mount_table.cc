#include "host/mount_table.h"

#include <sys/statvfs.h>

#include <cerrno>

#include "host/bounded_call.h"

namespace eplog {
namespace {

std::vector<MountEntry> Ours(const std::vector<MountLine>& mounts) {
  std::vector<MountEntry> entries;
  for (const MountLine& mount : mounts) {
    if (mount.ours()) {
      entries.push_back(mount);
    }
  }
  return entries;
}

}  // namespace

std::vector<MountEntry> ParseMountTable(const std::string& mountinfo) {
  return Ours(ParseMounts(mountinfo));
}

std::vector<MountEntry> ReadMountTable() {
  return Ours(ReadMounts("/proc/self/mountinfo"));
}

std::optional<MountEntry> FindMountOn(const std::string& directory) {
  std::optional<MountEntry> found;
  for (const MountEntry& entry : ReadMountTable()) {
    if (entry.directory == directory) {
      found = entry;
    }
  }
  return found;
}

std::optional<MountEntry> FindMountOf(const std::filesystem::path& array) {
  std::optional<MountEntry> found;
  for (const MountEntry& entry : ReadMountTable()) {
    if (entry.source == array.string()) {
      found = entry;
    }
  }
  return found;
}

std::vector<dev_t> MountDevicesOf(const std::filesystem::path& array) {
  std::vector<dev_t> devices;
  for (const MountEntry& entry : ReadMountTable()) {
    if (entry.source == array.string()) {
      devices.push_back(entry.device);
    }
  }
  return devices;
}

bool MountIsDead(const std::string& directory) {
  BoundedCall<bool> look([directory] {
    // stat() may be answered from the kernel's cache; this always asks the process.
    struct statvfs info = {};
    const int answer = ::statvfs(directory.c_str(), &info);
    // Aborted: it died over this question.
    return answer != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
  });
  return look.Wait(BoundedCall<bool>::Clock::now() + kPatience).value_or(false);
}

}  // namespace eplog
