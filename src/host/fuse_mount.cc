#include "host/fuse_mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace eplog {
namespace {

// The topmost mount on exactly this path.
std::optional<MountLine> MountAt(std::vector<MountLine> mounts, const std::string& path) {
  std::optional<MountLine> found;
  for (MountLine& mount : mounts) {
    if (mount.directory == path) {
      found = std::move(mount);
    }
  }
  return found;
}

bool OursIsAt(const std::string& path) {
  const auto mount = MountAt(ReadMounts(), path);
  return mount && mount->ours();
}

// Where this file system of ours is mounted: at `directory` rather than elsewhere. An error: that
// cannot be known.
Result<std::optional<MountLine>> FindOurs(dev_t device, const std::string& directory) {
  auto mounts = LoadMounts();
  EPLOG_TRY(mounts);
  std::optional<MountLine> found;
  for (MountLine& mount : *mounts) {
    const bool better = !found || found->directory != directory || mount.directory == directory;
    if (mount.ours() && mount.device == device && better) {
      found = std::move(mount);
    }
  }
  return found;
}

// What is at a path, whatever that is: opening it so asks nobody. While this lives its mount is in
// use.
class PathHandle {
 public:
  explicit PathHandle(const std::string& path)
      : fd_(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)), error_(fd_ < 0 ? errno : 0) {}
  ~PathHandle() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  PathHandle(const PathHandle&) = delete;
  PathHandle& operator=(const PathHandle&) = delete;

  [[nodiscard]] bool ok() const { return fd_ >= 0; }
  // As a path that leads there, whatever is mounted over it meanwhile.
  [[nodiscard]] std::string Link() const { return "/proc/self/fd/" + std::to_string(fd_); }
  // In /proc/self/mountinfo; an error: it cannot be told.
  [[nodiscard]] Result<uint64_t> MountId() const {
    if (!ok()) {
      return FailErrno(error_, "cannot open it");
    }
    errno = 0;
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd_));
    if (!info) {
      return FailErrno(errno, "cannot read /proc/self/fdinfo");
    }
    for (std::string key; info >> key;) {
      uint64_t value = 0;
      if (key == "mnt_id:" && info >> value) {
        return value;
      }
    }
    return Fail(ErrorCode::kIo, "/proc/self/fdinfo does not say");
  }

 private:
  int fd_;
  int error_;
};

// Run fusermount3 quietly. It says nothing but 0 or 1; the reason is found by looking.
int Fusermount(const std::string& path, bool lazy) {
  std::vector<std::string> words = {"fusermount3", "-u", "-q"};
  if (lazy) {
    words.emplace_back("-z");
  }
  words.emplace_back("--");
  words.push_back(path);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) {
    return error;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return 0;
  }
  auto mounts = LoadMounts();
  if (!mounts.ok()) {
    return mounts.error().errno_value;
  }
  const auto left = MountAt(std::move(*mounts), path);
  return left && left->ours() ? EBUSY : EINVAL;
}

// 0 or an errno: EBUSY if in use.
int UnmountPath(const std::string& path) {
  if (::geteuid() != 0) {
    return Fusermount(path, /*lazy=*/false);
  }
  return ::umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0 ? 0 : errno;
}

int DetachPath(const std::string& path) {
  if (::geteuid() != 0) {
    return Fusermount(path, /*lazy=*/true);
  }
  return ::umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH) == 0 ? 0 : errno;
}

}  // namespace

Result<std::string> ResolveMountpoint(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) != nullptr) {
    return std::string(resolved.data());
  }
  if (errno != ENOTCONN) {
    return FailErrno(errno, "mount point " + path);
  }
  // A dead mount covers it: resolve what is above.
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') {
    trimmed.pop_back();
  }
  const size_t slash = trimmed.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : trimmed.substr(0, slash + 1);
  if (::realpath(parent.c_str(), resolved.data()) == nullptr) {
    return FailErrno(errno, "mount point " + path);
  }
  std::string above = resolved.data();
  if (above.back() != '/') {
    above += '/';
  }
  return above + trimmed.substr(slash == std::string::npos ? 0 : slash + 1);
}

Status PrepareMountpoint(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (error != ENOTCONN || !OursIsAt(path)) {
      return FailErrno(error, "mount point " + path);
    }
    if (const int detach = DetachPath(path); detach != 0) {
      return FailErrno(detach, "cannot clear the dead mount on " + path);
    }
    if (::stat(path.c_str(), &info) != 0) {
      return FailErrno(errno, "mount point " + path);
    }
  }
  if (!S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "mount point " + path + " is not a directory");
  }
  if (OursIsAt(path)) {
    return Fail(ErrorCode::kBusy, "an array is already mounted on " + path);
  }
  return OkStatus();
}

dev_t MountedDevice(const std::string& path) {
  dev_t device = 0;
  for (const MountLine& mount : ReadMounts()) {
    if (mount.ours() && mount.directory == path) {
      device = mount.device;
    }
  }
  return device;
}

namespace {

// An error: it cannot be known, for want of descriptors. A path that does not lead anywhere is
// covered above.
Result<std::string> CoverOf(const MountLine& mount) {
  const PathHandle there(mount.directory);
  const Result<uint64_t> id = there.MountId();
  const int error = id.ok() ? 0 : id.error().errno_value;
  if (error == EMFILE || error == ENFILE) {
    return FailErrno(error, "cannot tell what is at " + mount.directory);
  }
  if (id.ok() && *id == mount.id) {
    return std::string();
  }
  for (const MountLine& other : ReadMounts()) {
    if (id.ok() && other.id == *id && other.directory.size() > 1) {
      return other.type + " '" + other.source + "' at " + other.directory;
    }
  }
  return std::string("something else");
}

}  // namespace

std::string CoveredBy(const MountLine& mount) {
  auto cover = CoverOf(mount);
  return cover.ok() ? *std::move(cover) : cover.error().message;
}

Status TakeMountAway(dev_t device, const std::string& directory, TakeAway how) {
  const auto found = FindOurs(device, directory);
  EPLOG_TRY(found);
  const std::optional<MountLine>& mount = *found;
  if (!mount) {
    return OkStatus();
  }
  const std::string& path = mount->directory;
  const auto cover = CoverOf(*mount);
  EPLOG_TRY(cover);
  if (!cover->empty()) {
    return Fail(ErrorCode::kBusy,
                "the mount on " + path + " is covered by " + *cover + ": unmount that first");
  }
  const int error = how == TakeAway::kAtOnce ? DetachPath(path) : UnmountPath(path);
  if (error == EBUSY) {
    return Fail(ErrorCode::kBusy, path + " is in use: close what is open there first (fuser -vm " +
                                      path + " tells who)");
  }
  // EINVAL: somebody else was quicker.
  return error == 0 || error == EINVAL ? OkStatus()
                                       : Status(FailErrno(error, "cannot unmount " + path));
}

bool SyncMount(dev_t device, const std::string& directory) {
  const auto found = FindOurs(device, directory);
  if (!found.ok()) {
    return false;
  }
  const std::optional<MountLine>& mount = *found;
  if (!mount) {
    return true;
  }
  if (!CoveredBy(*mount).empty()) {
    return false;
  }
  const int fd = ::open(mount->directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::syncfs(fd);
    ::close(fd);
  }
  return true;
}

namespace {

std::string ConnectionDirectory(dev_t device) {
  return "/sys/fs/fuse/connections/" + std::to_string(minor(device));
}

}  // namespace

std::optional<ino_t> ConnectionOf(dev_t device) {
  struct stat info {};
  return ::stat(ConnectionDirectory(device).c_str(), &info) == 0 ? std::optional(info.st_ino)
                                                                 : std::nullopt;
}

bool CutConnection(dev_t device) {
  std::ofstream abort(ConnectionDirectory(device) + "/abort");
  if (abort << 1 << std::flush) {
    return true;
  }
  for (const MountLine& mount : ReadMounts()) {
    if (!mount.ours() || mount.device != device) {
      continue;
    }
    // Through the handle, so that it is this very mount, and in use: it is cut first of all, and
    // then stays where it is.
    const PathHandle there(mount.directory);
    const auto id = there.MountId();
    if (id.ok() && *id == mount.id &&
        (::umount2(there.Link().c_str(), MNT_FORCE) == 0 || errno == EBUSY)) {
      return true;
    }
  }
  return false;
}

}  // namespace eplog
