#include "host/displaced.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "host/bounded_call.h"
#include "host/device_content.h"
#include "host/typed_path.h"
#include "report/arguments.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLooking(1);

// What the kernel calls the open files of a process that have no name any more. Nothing is asked of their file systems.
std::set<std::string> RemovedFiles(int pid) {
  constexpr std::string_view kRemoved = " (deleted)";
  std::set<std::string> removed;
  std::error_code error;
  const fs::path open = fmt::format("/proc/{}/fd", pid);
  for (fs::directory_iterator entry(open, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    std::string path = fs::read_symlink(entry->path(), gone).string();
    if (path.ends_with(kRemoved)) {
      path.resize(path.size() - kRemoved.size());
      removed.insert(std::move(path));
    }
  }
  return removed;
}

bool IsAmong(const std::set<std::string>& removed, const std::string& path) {
  if (removed.empty()) {
    return false;
  }
  const auto resolved = ResolveTyped(path);
  return removed.contains(path) || (resolved.ok() && removed.contains(resolved->string()));
}

struct Looked {
  DisplacedMember member;
  DeviceIdentity held;
  BoundedCall<Result<DeviceIdentity>> now;
};

std::vector<Looked> LookAtHeld(const Json& told) {
  std::vector<Looked> looks;
  for (const Json& member : told.value("members", Json::array())) {
    const auto identity = IdentityArgument(member);
    if (!member.value("held", false) || !identity.ok()) {
      continue;
    }
    const auto path = member.value("path", "");
    looks.push_back({{member.value("name", ""), path, false},
                     *identity,
                     BoundedCall<Result<DeviceIdentity>>([path] { return IdentifyDevice(path); })});
  }
  return looks;
}

}  // namespace

std::vector<DisplacedMember> FindDisplaced(ControlClient& client) {
  const auto told = client.RequestSoon({{"verb", "serving"}});
  if (!told.ok() || !told->is_object()) {
    return {};
  }
  std::vector<Looked> looks = LookAtHeld(*told);
  const auto until = std::chrono::steady_clock::now() + kLooking;
  std::vector<DisplacedMember> displaced;
  for (Looked& look : looks) {
    const auto now = look.now.Wait(until);
    const bool other =
        now && (now->ok() ? **now != look.held : now->error().code == ErrorCode::kNotFound);
    if (other) {
      displaced.push_back(std::move(look.member));
    }
  }
  if (!displaced.empty()) {
    const std::set<std::string> removed = RemovedFiles(told->value("pid", 0));
    for (DisplacedMember& member : displaced) {
      member.removed = IsAmong(removed, member.path);
    }
  }
  return displaced;
}

std::string NamesOf(const std::vector<DisplacedMember>& members) {
  std::vector<std::string> names;
  std::transform(members.begin(), members.end(), std::back_inserter(names),
                 [](const DisplacedMember& member) { return member.name; });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace eplog
