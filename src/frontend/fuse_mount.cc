#include "frontend/fuse_mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace eplog {
namespace {

// The kernel writes blanks and the like in paths as three octal digits.
std::string Unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct MountedHere {
  std::string device;  // major:minor
  std::string type;
};

// The topmost mount on exactly this path; empty if there is none.
MountedHere MountAt(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  MountedHere found;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) {
      fields.push_back(word);
    }
    size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") {
      ++dash;
    }
    if (dash + 1 < fields.size() && Unescape(fields[4]) == path) {
      found = {fields[2], fields[dash + 1]};
    }
  }
  return found;
}

std::string MountTypeAt(const std::string& path) {
  return MountAt(path).type;
}

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
  return MountTypeAt(path) == kMountType ? EBUSY : EINVAL;
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
    if (error != ENOTCONN || MountTypeAt(path) != kMountType) {
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
  if (MountTypeAt(path) == kMountType) {
    return Fail(ErrorCode::kBusy, "an array is already mounted on " + path);
  }
  return OkStatus();
}

int UnmountPath(const std::string& path) {
  if (::geteuid() != 0) {
    return Fusermount(path, /*lazy=*/false);
  }
  return ::umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0 ? 0 : errno;
}

void SyncMount(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::syncfs(fd);
    ::close(fd);
  }
}

int DetachPath(const std::string& path) {
  if (::geteuid() != 0) {
    return Fusermount(path, /*lazy=*/true);
  }
  return ::umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH) == 0 ? 0 : errno;
}

bool CutConnection(const std::string& path) {
  const MountedHere mount = MountAt(path);
  if (mount.type != kMountType) {
    return false;
  }
  const std::string number = mount.device.substr(mount.device.find(':') + 1);
  std::ofstream abort("/sys/fs/fuse/connections/" + number + "/abort");
  if (abort << 1 << std::flush) {
    return true;
  }
  // It is cut first of all, also where the mount cannot be taken away since it is in use.
  return ::umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_FORCE) == 0 || errno == EBUSY;
}

}  // namespace eplog
