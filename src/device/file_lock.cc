#include "device/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/process_life.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPollInterval(20);

std::string ReadLine(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Whether a descriptor of the process is this file. /proc/locks names the device of the file
// system, which is not what stat tells on btrfs and some overlays.
bool HasOpen(pid_t pid, const struct stat& file) {
  std::error_code error;
  const fs::path folder = fs::path("/proc") / std::to_string(pid) / "fd";
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat open_file {};
    if (stat(entry->path().c_str(), &open_file) == 0 && open_file.st_dev == file.st_dev &&
        open_file.st_ino == file.st_ino) {
      return true;
    }
  }
  return false;
}

// By the kernel: a mount, a device built on it. Empty if none can be seen.
std::string WhyClaimed(const std::string& path, const struct stat& file) {
  const std::string number =
      std::to_string(major(file.st_rdev)) + ":" + std::to_string(minor(file.st_rdev));
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string id;
    std::string parent;
    std::string device;
    std::string root;
    std::string where;
    if (fields >> id >> parent >> device >> root >> where && device == number) {
      return std::string(path).append(" is mounted on ").append(where);
    }
  }
  std::error_code error;
  const fs::directory_iterator holders(fs::path("/sys/dev/block") / number / "holders", error);
  if (!error && holders != fs::directory_iterator()) {
    return path + " is part of " + holders->path().filename().string();
  }
  return {};
}

// A process that does something still, or one that is only at its end.
std::optional<LockHolder> FindHolder(const struct stat& file, bool acts) {
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF; those that wait have "->" before the kind.
    pid_t pid = 0;
    unsigned major_number = 0;
    unsigned minor_number = 0;
    unsigned long inode = 0;
    char kind = 0;  // of READ or WRITE
    if (std::sscanf(line.c_str(), "%*d: FLOCK %*s %c%*s %d %x:%x:%lu", &kind, &pid, &major_number,
                    &minor_number, &inode) != 5 ||
        inode != file.st_ino || pid <= 0) {
      continue;
    }
    const bool same_device =
        makedev(major_number, minor_number) == file.st_dev || HasOpen(pid, file);
    if (same_device && ProcessActs(pid) == acts) {
      return LockHolder{pid, ReadLine(fs::path("/proc") / std::to_string(pid) / "comm"),
                        kind == 'R'};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LockHolder> FindLockHolder(const struct stat& file) {
  return FindHolder(file, /*acts=*/true);
}

std::string DescribeHolder(const std::string& path, const LockHolder& holder) {
  std::string text = path + " is in use by process " + std::to_string(holder.pid);
  if (!holder.command.empty()) {
    text += " (" + holder.command + ")";
  }
  return text;
}

namespace {

// By nobody who does anything any more, as far as can be seen.
std::string WhyLocked(const std::string& path, const struct stat& file) {
  const auto dying = FindHolder(file, /*acts=*/false);
  return dying && !dying->command.empty()
             ? path + " is still locked by process " + std::to_string(dying->pid) +
                   ", which was killed and does not end: the kernel waits for a device of its "
                   "that does not answer; until that does, or the machine starts anew, nobody "
                   "can have it"
             : path +
                   " is locked, by a process that cannot be seen from here or by requests of "
                   "a dead one that do not end";
}

}  // namespace

Status LockFile(int fd, const std::string& path, bool shared, uint64_t wait_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return FailErrno(errno, path + ": cannot be locked");
    }
    struct stat file {};
    if (fstat(fd, &file) != 0) {
      return FailErrno(errno, path + ": cannot be examined");
    }
    const bool late = std::chrono::steady_clock::now() >= deadline;
    const auto holder = FindLockHolder(file);
    if (holder && (late || shared || !holder->shared)) {
      return Fail(ErrorCode::kBusy, DescribeHolder(path, *holder));
    }
    if (late) {
      return Fail(ErrorCode::kBusy, WhyLocked(path, file));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return OkStatus();
}

void UnlockAndClose(int fd) {
  static_cast<void>(flock(fd, LOCK_UN));
  close(fd);
}

Status CheckNotWritten(int fd, const std::string& path, uint64_t wait_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  const std::string same = "/proc/self/fd/" + std::to_string(fd);
  struct stat file {};
  if (fstat(fd, &file) != 0) {
    return FailErrno(errno, path + ": cannot be examined");
  }
  while (true) {
    const int probe = open(same.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC);
    const int error = errno;
    if (probe >= 0) {
      close(probe);
      return OkStatus();
    }
    if (error != EINTR && (error != EBUSY || !WhyClaimed(path, file).empty())) {
      return OkStatus();  // it cannot be told, or is no writer
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return Fail(ErrorCode::kBusy, path + " is in use, by another name of it");
    }
    // Who has claimed it may be waiting for this very lock.
    static_cast<void>(flock(fd, LOCK_UN));
    std::this_thread::sleep_for(kPollInterval);
    EPLOG_TRY(LockFile(fd, path, true, 0));
  }
}

std::string WhyBlockDeviceBusy(const std::string& path, const struct stat& file, bool& passing) {
  const auto holder = FindLockHolder(file);
  std::string claimed = holder && !holder->shared ? "" : WhyClaimed(path, file);
  passing = holder && holder->shared && claimed.empty();
  return holder && claimed.empty() ? DescribeHolder(path, *holder) : claimed;
}

}  // namespace eplog
