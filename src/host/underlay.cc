#include "host/underlay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/read_text.h"
#include "device/file_lock.h"
#include "host/array_file.h"
#include "host/mount_table.h"
#include "host/path_looks.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLayers = 32;  // of real ones there are few

// A file of sysfs: without the newline at its end, which a name may hold too.
std::string ReadAttribute(const fs::path& path) {
  std::string text = ReadText(path);
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

// "8:1"
std::optional<dev_t> ParseNumber(const std::string& text) {
  unsigned major_number = 0;
  unsigned minor_number = 0;
  if (std::sscanf(text.c_str(), "%u:%u", &major_number, &minor_number) != 2) {
    return std::nullopt;
  }
  return makedev(major_number, minor_number);
}

// As the kernel writes a number of a device down in 64 bits.
dev_t DecodeDevice(uint64_t number) {
  return makedev((number & 0xFFF00) >> 8, (number & 0xFF) | ((number >> 12) & 0xFFF00));
}

// Which file a loop device is over, whatever that is called, here or elsewhere (links, other mounts,
// other namespaces of mounts), and which part of it.
struct LoopWindow {
  DeviceIdentity over;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Of a loop device, in memory that two processes share: zero if it is over none, or may not be
// opened.
struct LoopSeen {
  bool is_one;
  loop_info64 info;
};
static_assert(std::is_trivial_v<LoopSeen>);

std::optional<DeviceIdentity> LookAtLoop(const std::string& path, std::span<std::byte> content) {
  auto& seen = *new (content.data()) LoopSeen{};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  seen.is_one = fd >= 0 && ::ioctl(fd, LOOP_GET_STATUS64, &seen.info) == 0;
  return std::nullopt;
}

LoopWindow WindowOf(const loop_info64& info) {
  LoopWindow window{.over = {.device = DecodeDevice(info.lo_device), .inode = info.lo_inode},
                    .begin = info.lo_offset,
                    .end = UINT64_MAX};
  if (info.lo_sizelimit != 0) {
    window.end = info.lo_offset + info.lo_sizelimit;
  }
  return window;
}

// By another process: the kernel asks who serves their files, and that may hang.
std::vector<std::optional<LoopWindow>> AskLoops(const std::vector<std::string>& paths) {
  constexpr std::chrono::seconds kAnswers(1);
  std::vector<std::optional<LoopWindow>> windows(paths.size());
  auto looks = PathLooks::Begin(paths, LookAtLoop, sizeof(LoopSeen));
  const auto until = PathLooks::Clock::now() + kAnswers;
  while (looks.ok()) {
    const auto answer = looks->Next(until);
    if (!answer.ok() || !*answer) {
      break;
    }
    LoopSeen seen{};
    std::memcpy(&seen, looks->content((*answer)->path).data(), sizeof seen);
    if (seen.is_one) {
      windows[(*answer)->path] = WindowOf(seen.info);
    }
  }
  return windows;
}

bool IsIn(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first ==
         directory.end();
}

class WayDown {
 public:
  WayDown(const std::vector<dev_t>& targets, const KernelTables& tables)
      : targets_(targets), tables_(tables), mounts_(ReadMounts(tables.mountinfo)) {}

  bool From(const Place& place) {
    return place.identity.block ? FromBlock(place.identity.device)
                                : FromFileSystem(place.identity.device, place.mount_id);
  }
  [[nodiscard]] std::string Text() const {
    return names_.empty() ? "" : fmt::format("{}", fmt::join(names_, " on "));
  }

 private:
  bool FromFileSystem(dev_t device, uint64_t mount_id) {
    if (std::find(targets_.begin(), targets_.end(), device) != targets_.end()) {
      return true;
    }
    const auto mount = std::find_if(mounts_.begin(), mounts_.end(), [&](const MountLine& line) {
      return mount_id == 0 ? line.device == device : line.id == mount_id;
    });
    if (mount != mounts_.end() && mount->ours()) {
      return Below("array " + mount->source, device, [&] { return FromArray(mount->source); });
    }
    if (FromBlock(device) || (mount != mounts_.end() && FromUpper(*mount, device))) {
      return true;
    }
    // btrfs and the like have numbers of their own.
    const auto source = mount == mounts_.end() || !mount->source.starts_with('/')
                            ? std::nullopt
                            : std::optional(PlaceOf(mount->source));
    return source && source->ok() && (*source)->identity.block &&
           FromBlock((*source)->identity.device);
  }

  // An overlay: what is written to it lies in another directory.
  bool FromUpper(const MountLine& mount, dev_t device) {
    constexpr std::string_view kUpper = ",upperdir=";
    const std::string options = "," + mount.options;
    const size_t found = mount.type == "overlay" ? options.find(kUpper) : std::string::npos;
    if (found == std::string::npos) {
      return false;
    }
    const size_t begin = found + kUpper.size();
    const auto upper = PlaceOf(options.substr(begin, options.find(',', begin) - begin));
    return upper.ok() && Below("overlay", device, [&] { return From(*upper); });
  }

  bool FromArray(const std::string& source) {
    const auto file = LoadArrayFile(source);
    if (!file.ok()) {
      return false;
    }
    std::vector<fs::path> paths;
    for (const MemberPath& member : file->members) {
      paths.push_back(file->Locate(member));
    }
    for (const std::string& spare : file->spares) {
      paths.push_back(file->LocatePath(spare));
    }
    return std::any_of(paths.begin(), paths.end(), [&](const fs::path& path) {
      const auto place = PlaceOf(path);
      return place.ok() && From(*place);
    });
  }

  bool FromBlock(dev_t device) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(
        tables_.sysfs / "dev/block" / fmt::format("{}:{}", major(device), minor(device)), ignored);
    return !folder.empty() &&
           Below(folder.filename().string(), device, [&] { return FromFolder(folder); });
  }

  // Of a block device in sysfs.
  bool FromFolder(const fs::path& folder) {
    std::error_code ignored;
    if (fs::exists(folder / "partition", ignored)) {
      const auto disk = ParseNumber(ReadAttribute(folder.parent_path() / "dev"));
      return disk && FromBlock(*disk);
    }
    if (fs::exists(folder / "loop", ignored)) {
      const auto backing = AskLoops({(tables_.dev / folder.filename()).string()}).front();
      return (backing && FromFileSystem(backing->over.device, 0)) ||
             FromBackingFile(ReadAttribute(folder / "loop/backing_file"));
    }
    for (fs::directory_iterator part(folder / "slaves", ignored), end; part != end;
         part.increment(ignored)) {  // to the end, if they cannot be read any further
      const auto device = ParseNumber(ReadAttribute(part->path() / "dev"));
      if (device && FromBlock(*device)) {
        return true;
      }
    }
    return false;
  }

  bool FromBackingFile(const std::string& path) {
    if (path.empty()) {
      return false;
    }
    if (const auto place = PlaceOf(path); place.ok()) {
      return From(*place);
    }
    // Deleted, or covered: the mount that it was in, by its name.
    const MountLine* holds = nullptr;
    for (const MountLine& mount : mounts_) {
      if (IsIn(path, mount.directory) &&
          (holds == nullptr || mount.directory.size() >= holds->directory.size())) {
        holds = &mount;
      }
    }
    return holds != nullptr && FromFileSystem(holds->device, holds->id);
  }

  // Each layer once.
  template <typename Go>
  bool Below(std::string name, dev_t device, Go go) {
    if (names_.size() >= kMostLayers || !seen_.insert(device).second) {
      return false;
    }
    names_.push_back(std::move(name));
    if (go()) {
      return true;
    }
    names_.pop_back();
    return false;
  }

  const std::vector<dev_t>& targets_;
  const KernelTables& tables_;
  std::vector<MountLine> mounts_;
  std::set<dev_t> seen_;
  std::vector<std::string> names_;
};

}  // namespace

Result<Place> PlaceOf(const fs::path& path) {
  struct statx info {};
  if (::statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO | STATX_MNT_ID,
              &info) != 0) {
    return FailErrno(errno, "cannot look at " + path.string());
  }
  Place place;
  place.identity.block = S_ISBLK(info.stx_mode);
  if (place.identity.block) {
    place.identity.device = makedev(info.stx_rdev_major, info.stx_rdev_minor);
    return place;
  }
  place.identity.device = makedev(info.stx_dev_major, info.stx_dev_minor);
  place.identity.inode = info.stx_ino;
  place.mount_id = (info.stx_mask & STATX_MNT_ID) != 0 ? info.stx_mnt_id : 0;
  return place;
}

namespace {

struct Loop {
  std::string name;
  std::string path;  // of its file, by which it was made
  std::optional<LoopWindow> window;
};

std::vector<Loop> AskAllLoops(const KernelTables& tables) {
  std::vector<Loop> loops;
  std::vector<std::string> paths;
  std::error_code ignored;
  for (fs::directory_iterator block(tables.sysfs / "block", ignored), end; block != end;
       block.increment(ignored)) {
    const std::string name = block->path().filename().string();
    const std::string over = ReadAttribute(block->path() / "loop/backing_file");
    if (!over.empty()) {
      loops.push_back({name, over, std::nullopt});
      paths.push_back((tables.dev / name).string());
    }
  }
  const auto windows = paths.empty() ? std::vector<std::optional<LoopWindow>>() : AskLoops(paths);
  for (size_t i = 0; i < loops.size(); ++i) {
    loops[i].window = windows[i];
  }
  return loops;
}

// The loop device that a block device is, or is a partition of; empty: neither.
std::string LoopAt(dev_t device, const KernelTables& tables) {
  std::error_code ignored;
  fs::path folder = fs::canonical(
      tables.sysfs / "dev/block" / fmt::format("{}:{}", major(device), minor(device)), ignored);
  if (fs::exists(folder / "partition", ignored)) {
    folder = folder.parent_path();
  }
  return fs::exists(folder / "loop", ignored) ? folder.filename().string() : std::string();
}

bool Overlap(const LoopWindow& a, const LoopWindow& b) {
  return a.over == b.over && a.begin < b.end && b.begin < a.end;
}

}  // namespace

std::optional<LoopOver> FindLoopOver(const std::vector<fs::path>& files,
                                     const KernelTables& tables) {
  const std::vector<Loop> loops = AskAllLoops(tables);
  for (size_t i = 0; i < files.size() && !loops.empty(); ++i) {
    const auto place = PlaceOf(files[i]);
    const auto has = std::find_if(loops.begin(), loops.end(), [&](const Loop& loop) {
      return loop.path == files[i].string() ||
             (place.ok() && loop.window && loop.window->over == place->identity);
    });
    if (has != loops.end()) {
      return LoopOver{has->name, i};
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindOtherUse(const Place& place, const KernelTables& tables) {
  std::string name = place.identity.block ? LoopAt(place.identity.device, tables) : std::string();
  const std::vector<Loop> loops = name.empty() ? std::vector<Loop>() : AskAllLoops(tables);
  for (size_t layer = 0; layer < kMostLayers && !name.empty(); ++layer) {
    const auto self = std::find_if(loops.begin(), loops.end(),
                                   [&](const Loop& loop) { return loop.name == name; });
    if (self == loops.end() || !self->window) {
      return std::nullopt;
    }
    for (const Loop& other : loops) {
      if (&other != &*self && other.window && Overlap(*other.window, *self->window)) {
        return fmt::format("/dev/{}, which is over the same file as /dev/{}", other.name, name);
      }
    }
    struct stat file {};
    if (::stat(self->path.c_str(), &file) != 0 || file.st_dev != self->window->over.device ||
        file.st_ino != self->window->over.inode) {
      return std::nullopt;  // by that name there is another
    }
    if (const auto holder = FindLockHolder(file)) {
      return DescribeHolder(self->path, *holder) + ", and below /dev/" + name;
    }
    name = S_ISBLK(file.st_mode) ? LoopAt(file.st_rdev, tables) : std::string();
  }
  return std::nullopt;
}

std::optional<std::string> FindWayDown(const Place& place, const std::vector<dev_t>& file_systems,
                                       const KernelTables& tables) {
  WayDown way(file_systems, tables);
  return way.From(place) ? std::optional(way.Text()) : std::nullopt;
}

}  // namespace eplog
