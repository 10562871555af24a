#include "cli/mount_table.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
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

std::vector<MountEntry> ParseMountTable(const std::string& mountinfo) {
  // ID PARENT MAJOR:MINOR ROOT DIRECTORY OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS
  std::vector<MountEntry> entries;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 3 || dash[1] != kMountType) {
      continue;
    }
    entries.push_back({Unescape(fields[4]), Unescape(dash[2])});
  }
  return entries;
}

std::vector<MountEntry> ReadMountTable() {
  std::ifstream in("/proc/self/mountinfo");
  std::ostringstream text;
  text << in.rdbuf();
  return ParseMountTable(text.str());
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

bool MountIsDead(const std::string& directory) {
  // stat() may be answered from the kernel's cache; this always asks the process.
  struct statvfs info = {};
  const int answer = ::statvfs(directory.c_str(), &info);
  // Aborted: it died over this question.
  return answer != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

}  // namespace eplog::cli
