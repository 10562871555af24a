#include "host/removed.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "host/bounded_call.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLooking(1);

using Look = BoundedCall<std::optional<DeviceIdentity>>;

// A file that no name leads to any more. What the kernel calls removed may still have another name (a hard link).
std::optional<DeviceIdentity> IdentityIfNameless(const fs::path& open) {
  struct stat info {};
  if (::stat(open.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 0) {
    return std::nullopt;
  }
  return DeviceIdentity{false, info.st_dev, info.st_ino};
}

// Of the process's open files only those that the kernel calls removed are looked at: it needs no file system for that,
// and one that hangs delays nobody.
std::vector<Look> LookAtRemoved(int pid) {
  constexpr std::string_view kRemoved = " (deleted)";
  std::vector<Look> looks;
  std::error_code error;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code closed;
    if (fs::read_symlink(entry->path(), closed).string().ends_with(kRemoved)) {
      looks.emplace_back([open = entry->path()] { return IdentityIfNameless(open); });
    }
  }
  return looks;
}

}  // namespace

std::vector<std::string> FindRemoved(const Server& server) {
  std::vector<Look> looks = LookAtRemoved(server.pid);
  const auto until = Look::Clock::now() + kLooking;
  std::vector<std::string> removed;
  for (Look& look : looks) {
    const auto nameless = look.Wait(until);
    const auto is_it = [&](const HeldMember& held) {
      return nameless && *nameless && held.identity == **nameless;
    };
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
