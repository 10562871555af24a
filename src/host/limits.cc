#include "host/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "control/control.h"

namespace eplog {
namespace {

// Of the control group and those above it; version 2 of them only.
uint64_t GroupMemory() {
  uint64_t least = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    if (!line.starts_with("0::/")) {
      continue;
    }
    for (std::filesystem::path group = line.substr(3);; group = group.parent_path()) {
      std::ifstream in("/sys/fs/cgroup" + (group / "memory.max").string());
      uint64_t bytes = 0;
      if (in >> bytes) {  // "max" is no number
        least = std::min(least, bytes);
      }
      if (!group.has_relative_path()) {
        break;
      }
    }
  }
  return least;
}

// Loop, FUSE, control socket, signals, helper threads, files that are read meanwhile; and whoever
// is connected to the control socket: those who only keep a connection would else take what
// unmounting needs. Counted here, and not kept from connecting: it costs nobody anything whose
// limit is not that low.
constexpr uint64_t kDescriptorsBesideMembers = 32 + kMaxControlConnections;
// Nobody needs more, and there are programs that walk over all that they may have.
constexpr uint64_t kMostDescriptors = 65536;

}  // namespace

uint64_t MostBufferBytes() {
  const auto pages = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  uint64_t least = std::min(pages * page, GroupMemory());
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(kind, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      least = std::min<uint64_t>(least, limit.rlim_cur);
    }
  }
  return least / 4;
}

Status CheckFileSizes(const ArrayFile& file) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return OkStatus();
  }
  for (const MemberPath& member : file.members) {
    std::error_code ignored;
    const std::filesystem::path path = file.Locate(member);
    const bool regular = std::filesystem::is_regular_file(path, ignored);
    const uint64_t size = regular ? std::filesystem::file_size(path, ignored) : 0;
    if (!ignored && size > limit.rlim_cur) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{} has {} KiB, and this process may write files up to {} KiB only "
                              "(ulimit -f): raise that",
                              path.string(), size >> 10, limit.rlim_cur >> 10));
    }
  }
  return OkStatus();
}

Status MakeRoomForDescriptors(const ArrayFile& file) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return OkStatus();
  }
  const uint64_t needed = file.members.size() + file.spares.size() + kDescriptorsBesideMembers;
  if (limit.rlim_cur < std::min<uint64_t>(limit.rlim_max, kMostDescriptors)) {
    limit.rlim_cur = std::min<uint64_t>(limit.rlim_max, kMostDescriptors);
    static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
    static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
  }
  if (limit.rlim_cur >= needed) {
    return OkStatus();
  }
  return Fail(ErrorCode::kNoSpace,
              fmt::format("this process may have {} files open, and to serve this array takes {}: "
                          "raise that limit (ulimit -n)",
                          limit.rlim_cur, needed));
}

}  // namespace eplog
