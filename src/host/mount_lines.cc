#include "host/mount_lines.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/file_descriptor.h"

namespace eplog {
namespace {

// The kernel writes blanks, ends of lines, backslashes and the like as three octal digits.
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

// At each blank, and at nothing else: a path may hold other white space, and a source be empty.
std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream words(line);
  for (std::string word; std::getline(words, word, ' ');) {
    fields.push_back(std::move(word));
  }
  return fields;
}

}  // namespace

std::vector<MountLine> ParseMounts(const std::string& mountinfo) {
  // ID PARENT MAJOR:MINOR ROOT DIRECTORY OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS
  constexpr size_t kBeforeTags = 6;
  std::vector<MountLine> mounts;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = Fields(line);
    if (fields.size() < kBeforeTags) {
      continue;
    }
    const auto dash = std::find(fields.begin() + kBeforeTags, fields.end(), "-");
    unsigned major_number = 0;
    unsigned minor_number = 0;
    if (fields.end() - dash < 3 ||
        std::sscanf(fields[2].c_str(), "%u:%u", &major_number, &minor_number) != 2) {
      continue;
    }
    mounts.push_back({.id = std::strtoull(fields[0].c_str(), nullptr, 10),
                      .device = makedev(major_number, minor_number),
                      .directory = Unescape(fields[4]),
                      .type = dash[1],
                      .source = Unescape(dash[2]),
                      .options = fields.end() - dash > 3 ? Unescape(dash[3]) : ""});
  }
  return mounts;
}

Result<std::vector<MountLine>> LoadMounts(const std::filesystem::path& mountinfo) {
  const FileDescriptor file(::open(mountinfo.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) {
    return FailErrno(errno, "cannot read " + mountinfo.string());
  }
  std::string text;
  std::array<char, 4096> part{};
  ssize_t n = 0;
  do {
    n = ::read(file.get(), part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  } while (n > 0 || (n < 0 && errno == EINTR));
  if (n < 0) {
    return FailErrno(errno, "cannot read " + mountinfo.string());
  }
  return ParseMounts(text);
}

std::vector<MountLine> ReadMounts(const std::filesystem::path& mountinfo) {
  auto mounts = LoadMounts(mountinfo);
  return mounts.ok() ? std::move(*mounts) : std::vector<MountLine>();
}

}  // namespace eplog
