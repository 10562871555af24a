#include "tests/device/real_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace eplog::test {

TempFolder::TempFolder(const std::string& parent)
    : path_((std::filesystem::path(parent) / "eplog-device-XXXXXX").string()) {
  EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::MakeFile(const std::string& name, uint64_t size_bytes) const {
  const std::string path = File(name);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0) << path;
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size_bytes)), 0);
  close(fd);
  return path;
}

SmallFileSystem::SmallFileSystem(const std::string& kind, const std::string& options)
    : folder_(::testing::TempDir()) {
  if (mount("none", folder_.path().c_str(), kind.c_str(), 0, options.c_str()) != 0) {
    trouble_ = "cannot mount " + kind + ": " + std::generic_category().message(errno);
  }
}

SmallFileSystem::~SmallFileSystem() {
  if (trouble_.empty()) {
    umount2(folder_.path().c_str(), MNT_DETACH);
  }
}

LoopDevice::LoopDevice(const std::string& file) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
  const int backing = open(file.c_str(), O_RDWR | O_CLOEXEC);
  path_ = "/dev/loop" + std::to_string(number);
  fd_ = number < 0 ? -1 : open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ < 0 || ioctl(fd_, LOOP_SET_FD, backing) != 0) {
    trouble_ = "no loop device: " + std::generic_category().message(errno);
  }
  close(control);
  close(backing);
}

LoopDevice::~LoopDevice() {
  if (trouble_.empty()) {
    ioctl(fd_, LOOP_CLR_FD);
  }
  close(fd_);
}

bool LoopDevice::FollowFile() const {
  return ioctl(fd_, LOOP_SET_CAPACITY, 0) == 0;
}

OtherProcess::OtherProcess(const std::function<void()>& body) {
  std::array<int, 2> ready{};
  EXPECT_EQ(pipe(ready.data()), 0);
  pid_ = fork();
  if (pid_ == 0) {
    body();
    static_cast<void>(!write(ready[1], "x", 1));
    while (true) {
      pause();
    }
  }
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the other process has ended";
  close(ready[0]);
}

OtherProcess::~OtherProcess() {
  Kill();
  waitpid(pid_, nullptr, 0);
}

void OtherProcess::Kill() {
  kill(pid_, SIGKILL);
}

uint64_t OccupiedBytes(const std::string& path) {
  struct stat file {};
  EXPECT_EQ(stat(path.c_str(), &file), 0) << path;
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

}  // namespace eplog::test
