#include "tests/host/held_close.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace eplog {
namespace {

constexpr int kNone = -1;
std::atomic<int> held_fd = kNone;
std::thread::id owner;
std::mutex mutex;  // guards what follows
std::condition_variable released;
bool is_begun = false;
bool is_begun_here = false;

void WaitIfHeld(int fd) {
  if (fd == kNone || fd != held_fd) {
    return;
  }
  std::unique_lock lock(mutex);
  is_begun = true;
  if (std::this_thread::get_id() == owner) {
    is_begun_here = true;
    held_fd = kNone;
    return;
  }
  released.wait(lock, [fd] { return held_fd != fd; });
}

int DescriptorOf(const std::filesystem::path& path) {
  struct stat wanted {};
  EXPECT_EQ(::stat(path.c_str(), &wanted), 0);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat open_file {};
    if (::stat(entry.path().c_str(), &open_file) == 0 && open_file.st_dev == wanted.st_dev &&
        open_file.st_ino == wanted.st_ino) {
      return std::stoi(entry.path().filename().string());
    }
  }
  ADD_FAILURE() << path << " is not open";
  return kNone;
}

}  // namespace

HeldClose::HeldClose(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex);
  is_begun = false;
  is_begun_here = false;
  owner = std::this_thread::get_id();
  held_fd = DescriptorOf(path);
}

void HeldClose::Release() {
  const std::lock_guard lock(mutex);
  held_fd = kNone;
  released.notify_all();
}

bool HeldClose::begun() const {
  const std::lock_guard lock(mutex);
  return is_begun;
}

bool HeldClose::begun_here() const {
  const std::lock_guard lock(mutex);
  return is_begun_here;
}

}  // namespace eplog

// Instead of that of the C library.
extern "C" int close(int fd) {
  eplog::WaitIfHeld(fd);
  return static_cast<int>(::syscall(SYS_close, fd));
}
