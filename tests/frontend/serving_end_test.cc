// Serving from outside and at its end: in which order things go, and that nothing of it is left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/read_text.h"
#include "control/control.h"
#include "frontend/daemon.h"
#include "host/fuse_mount.h"
#include "runtime/io_uring_loop.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/called_owner.h"
#include "tests/support/no_threads.h"

// Of libfuse: what it calls when something goes wrong.
extern "C" void fuse_log(int level, const char* format, ...);

namespace eplog {
namespace {

std::set<int> Descriptors() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    all.insert(std::stoi(entry.path().filename()));
  }
  return all;
}

bool SomebodyListens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const File socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

class ServingEnd : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    ::chmod(directory_.path().c_str(), 0700);
    ASSERT_EQ(::mkdir(mount_.c_str(), 0700), 0);
    options_.fuse.mountpoint = mount_;
    options_.socket_path = socket_;
    options_.owner = &owner_;
    owner_.release = [this] {
      end_ = std::string(MountedDevice(mount_) != 0 ? "mounted" : "unmounted") +
             (SomebodyListens(socket_) ? ", heard" : ", unheard") +
             (array_->closed ? ", closed" : ", open");
    };
  }
  // Here, with a user on a thread of its own, who unmounts when he has done his.
  Status Serve(const std::function<void()>& user) {
    auto loop = std::move(*IoUringLoop::Create());
    FakeArray array(*loop);
    array_ = &array;
    std::future<void> done;
    const Status served = ServeArray(*loop, array, options_, [&] {
      at_ready_();
      done = std::async(std::launch::async, [&] {
        user();
        EXPECT_TRUE(ControlRequest(socket_, {{"verb", "umount"}}).ok());
      });
    });
    if (done.valid()) {
      done.get();
    }
    left_ = loop->in_flight();
    return served;
  }

  TemporaryDirectory directory_;
  const std::string mount_ = directory_ / "mount";
  const std::string socket_ = directory_ / "socket";
  ServeOptions options_;
  CalledOwner owner_;
  std::function<void()> at_ready_ = [] {};
  FakeArray* array_ = nullptr;
  std::string end_;  // when the array was let go
  size_t left_ = 0;  // on the loop
};

// Who waits for it may open the array then, and nobody reaches this one any more.
TEST_F(ServingEnd, TheArrayIsLetGoLast) {
  EXPECT_TRUE(Serve([] {}).ok());
  EXPECT_EQ(end_, "unmounted, unheard, closed");
  EXPECT_EQ(left_, 0U) << "nothing waits for what is gone";
}

TEST_F(ServingEnd, TheArrayIsLetGoLastIfServingCannotBegin) {
  ASSERT_EQ(::mkdir(socket_.c_str(), 0700), 0);  // where the socket would be
  EXPECT_FALSE(Serve([] { FAIL() << "not ready"; }).ok());
  EXPECT_EQ(end_, "unmounted, unheard, closed");
  EXPECT_EQ(left_, 0U);
}

// What it starts, such as the hook for events, gets none of its descriptors.
TEST_F(ServingEnd, ItsDescriptorsAreItsOwn) {
  const std::set<int> before = Descriptors();
  at_ready_ = [&before] {
    for (const int fd : Descriptors()) {
      const int flags = ::fcntl(fd, F_GETFD);
      EXPECT_TRUE(before.contains(fd) || flags < 0 || (flags & FD_CLOEXEC) != 0)
          << std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
    }
  };
  EXPECT_TRUE(Serve([] {}).ok());
}

TEST_F(ServingEnd, OthersAreLetInOnlyIfThatWasAskedFor) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "allow_other needs root";
  }
  for (const bool others : {false, true}) {
    options_.fuse.allow_other = others;
    EXPECT_TRUE(Serve([&] {
                  struct stat root {};
                  EXPECT_EQ(::stat(mount_.c_str(), &root), 0);
                  EXPECT_EQ(root.st_mode, S_IFDIR | (others ? 0755U : 0700U));
                }).ok());
  }
}

// Asynchronous requests are as many as the design says, and the kernel lets them wait before that.
// It says so in a file system of its own, which may be mounted anywhere.
TEST_F(ServingEnd, TheKernelIsToldHowManyRequestsMayBeInFlight) {
  const TemporaryDirectory connections;
  if (::mount("none", connections.path().c_str(), "fusectl", 0, nullptr) != 0) {
    GTEST_SKIP() << "only root mounts";
  }
  EXPECT_TRUE(Serve([&] {
                struct stat root {};
                ASSERT_EQ(::stat(mount_.c_str(), &root), 0);
                const std::string connection =
                    connections / std::to_string(::minor(root.st_dev)) + "/";
                EXPECT_EQ(ReadText(connection + "max_background"), "256\n");
                EXPECT_EQ(ReadText(connection + "congestion_threshold"), "192\n");
              }).ok());
  EXPECT_EQ(::umount2(connections.path().c_str(), MNT_DETACH), 0);
}

// Removed while it was open, by who never closed it: it goes with the process, in a process of its
// own since it is ended by a signal.
TEST_F(ServingEnd, WhatWasRemovedWhileOpenGoes) {
  pid_t child = ::fork();
  if (child == 0) {
    auto loop = std::move(*IoUringLoop::Create());
    FakeArray array(*loop);
    options_.owner = nullptr;
    const Status served = ServeArray(*loop, array, options_, [] {});
    ::_exit(served.ok() ? 10 + static_cast<int>(array.volume_count()) : 1);
  }
  while (!ControlRequest(socket_, {{"verb", "status"}}).ok()) {
    ASSERT_EQ(::kill(child, 0), 0);
  }
  const File kept(mount_ + "/kept", O_CREAT | O_RDWR);
  const File file(mount_ + "/v", O_CREAT | O_RDWR);
  ASSERT_EQ(::unlink((mount_ + "/v").c_str()), 0);
  ASSERT_EQ(::kill(child, SIGTERM), 0);
  EXPECT_EQ(AwaitExit(child), 11);
}

// What libfuse has to say once there is a mount: as a line of ours.
TEST(ServingWords, OfTheLibraryAreSaidOnStandardError) {
  EPLOG_NEEDS_FUSE();
  const ServedMount mount;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const File reading(pipe[0]);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(pipe[1], STDERR_FILENO);
  ::close(pipe[1]);
  fuse_log(3, "it went %s: %d\n\n", "wrong", 7);
  std::string said;
  for (char byte = 0; byte != '\n';) {
    ASSERT_EQ(::read(reading.fd(), &byte, 1), 1);
    said += byte;
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  EXPECT_EQ(said, "eplog: it went wrong: 7\n");
}

// What could not be unmounted is not mounted.
void NothingIsMountedWithoutAThread() {
  const auto loop = std::move(*IoUringLoop::Create());
  FakeArray array(*loop);
  FuseOptions options;
  options.mountpoint = "/usr";  // which nobody but root could mount on
  const ThreadLimit limit;
  const auto refused = FuseServer::Mount(*loop, array, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(ServingEndDeathTest, NothingIsMountedWithoutAThread) {
  EPLOG_NEEDS_FUSE();
  EPLOG_IN_A_PROCESS(NothingIsMountedWithoutAThread);
}

}  // namespace
}  // namespace eplog
