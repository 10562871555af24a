#include "cli/mount_table.h"

#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "frontend/fuse_mount.h"

namespace eplog::cli {
namespace {

// The kernel writes blanks, backslashes and the like as three octal digits.
std::string Unescape(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) &&
        octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::vector<MountLine> ParseMounts(const std::string& mountinfo) {
  // ID PARENT MAJOR:MINOR ROOT DIRECTORY OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS
  std::vector<MountLine> mounts;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 3) {
      continue;
    }
    unsigned major_number = 0;
    unsigned minor_number = 0;
    if (std::sscanf(fields[2].c_str(), "%u:%u", &major_number, &minor_number) != 2) {
      continue;
    }
    mounts.push_back({.id = std::strtoull(fields[0].c_str(), nullptr, 10),
                      .device = makedev(major_number, minor_number),
                      .directory = Unescape(fields[4]),
                      .source = Unescape(dash[2]),
                      .ours = dash[1] == kMountType});
  }
  return mounts;
}

std::vector<MountLine> ReadMounts(const std::filesystem::path& mountinfo) {
  std::ifstream in(mountinfo);
  std::ostringstream text;
  text << in.rdbuf();
  return ParseMounts(text.str());
}

namespace {

std::vector<MountEntry> Ours(const std::vector<MountLine>& mounts) {
  std::vector<MountEntry> entries;
  for (const MountLine& mount : mounts) {
    if (mount.ours) {
      entries.push_back({mount.directory, mount.source, mount.device});
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
  // stat() may be answered from the kernel's cache; this always asks the process.
  struct statvfs info = {};
  const int answer = ::statvfs(directory.c_str(), &info);
  // Aborted: it died over this question.
  return answer != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

}  // namespace eplog::cli
