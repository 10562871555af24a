// A file that hangs: whoever opens it waits until this lets go of it (at most for
// /proc/sys/fs/lease-break-time, 45 s), by a lease of the kernel's.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace eplog {

class HangingFile {
 public:
  // Nobody has it open.
  explicit HangingFile(const std::filesystem::path& path) {
    ::signal(SIGIO, SIG_IGN);  // as which the kernel tells that somebody waits
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    int seconds = 0;
    std::ifstream("/proc/sys/fs/lease-break-time") >> seconds;
    hangs_ = seconds >= 45 && fd_ >= 0 && ::fcntl(fd_, F_SETLEASE, F_WRLCK) == 0;
  }
  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() { LetGo(); }

  // False: this file system has no leases, or they are short.
  [[nodiscard]] bool hangs() const { return hangs_; }
  // Somebody does.
  [[nodiscard]] bool waited_for() const { return ::fcntl(fd_, F_GETLEASE) != F_WRLCK; }
  void LetGo() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  bool hangs_ = false;
};

}  // namespace eplog

#define EPLOG_NEEDS_HANGING(file)                                             \
  if (!(file).hangs()) {                                                      \
    GTEST_SKIP() << "the file system of TMPDIR does not know leases of 45 s"; \
  }
