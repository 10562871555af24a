#include "host/removed.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "host/path_looks.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLooking(1);

// A file that no name leads to any more. What the kernel calls removed may still have another name (a hard link).
std::optional<DeviceIdentity> IdentityIfNameless(const std::string& open,
                                                 std::span<std::byte> /*content*/) {
  struct stat info {};
  if (::stat(open.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 0) {
    return std::nullopt;
  }
  return DeviceIdentity{false, info.st_dev, info.st_ino};
}

// Of the process's open files those that the kernel calls removed: it needs no file system for that.
std::vector<std::string> OpenButRemoved(int pid) {
  constexpr std::string_view kRemoved = " (deleted)";
  std::vector<std::string> open;
  std::error_code error;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code closed;
    if (fs::read_symlink(entry->path(), closed).string().ends_with(kRemoved)) {
      open.push_back(entry->path());
    }
  }
  return open;
}

}  // namespace

std::vector<std::string> FindRemoved(const Server& server) {
  std::vector<std::string> removed;
  std::vector<std::string> open = OpenButRemoved(server.pid);
  if (open.empty()) {
    return removed;
  }
  const auto until = PathLooks::Clock::now() + kLooking;
  auto looks = PathLooks::Begin(std::move(open), IdentityIfNameless);
  while (looks.ok()) {
    const auto answer = looks->Next(until);
    if (!answer.ok() || !*answer) {
      break;
    }
    const auto is_it = [&](const HeldMember& held) { return held.identity == (*answer)->identity; };
    const auto member = std::find_if(server.held.begin(), server.held.end(), is_it);
    if (member != server.held.end()) {
      removed.push_back(member->name);
    }
  }
  std::sort(removed.begin(), removed.end());
  removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
  return removed;
}

}  // namespace eplog
