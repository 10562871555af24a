#include "host/underlay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/read_text.h"
#include "host/array_file.h"
#include "host/mount_table.h"

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
      return FromBackingFile(ReadAttribute(folder / "loop/backing_file"));
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

std::optional<std::string> FindLoopOver(const fs::path& file, const KernelTables& tables) {
  std::error_code ignored;
  for (fs::directory_iterator block(tables.sysfs / "block", ignored), end; block != end;
       block.increment(ignored)) {
    const std::string over = ReadAttribute(block->path() / "loop/backing_file");
    if (!over.empty() && over == file.string()) {
      return block->path().filename().string();
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindWayDown(const Place& place, const std::vector<dev_t>& file_systems,
                                       const KernelTables& tables) {
  WayDown way(file_systems, tables);
  return way.From(place) ? std::optional(way.Text()) : std::nullopt;
}

}  // namespace eplog
