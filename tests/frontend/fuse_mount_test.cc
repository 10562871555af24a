// The life of a mount: taken away in peace, by force, by hand, by death; and changes that come from
// elsewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host/fuse_mount.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

bool IsMountPoint(const std::string& path) {
  struct stat here {};
  struct stat above {};
  return ::stat(path.c_str(), &here) == 0 && ::stat((path + "/..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

TEST(FuseMount, UnmountIsRefusedWhileInUseAndThenWorks) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  File file(mount / "v", O_CREAT | O_RDWR);
  const Status busy = mount.Unmount();
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  EXPECT_NE(busy.error().message.find(mount.directory()), std::string::npos);
  EXPECT_EQ(::pwrite(file.fd(), "works", 5, 0), 5) << "nothing changed";
  EXPECT_FALSE(mount.Served());
  file.Close();
  const Status done = mount.Unmount();
  EXPECT_TRUE(done.ok());
  mount.WaitUntilServed();
  EXPECT_FALSE(IsMountPoint(mount.directory()));
}

TEST(FuseMount, UnmountedByHandEndsServing) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  EXPECT_TRUE(IsMountPoint(mount.directory()));
  const std::string command = "fusermount3 -u " + mount.directory();
  if (std::system(command.c_str()) != 0) {
    ASSERT_EQ(::umount(mount.directory().c_str()), 0);
  }
  mount.WaitUntilServed();
}

TEST(FuseMount, ForcedUnmountWritesDirtyPagesBackFirst) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  constexpr size_t kSize = 256 * 4096;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), kSize), 0);
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::vector<std::byte> want(kSize);
  FillPattern(want, 3);
  std::memcpy(memory, want.data(), kSize);
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  mount.WaitUntilServed();
  EXPECT_FALSE(IsMountPoint(mount.directory()));
  EXPECT_EQ(mount.Content("v"), want);
  EXPECT_EQ(::pwrite(file.fd(), "x", 1, 0), -1) << "the file has lost its array";
  ::munmap(memory, kSize);
}

TEST(FuseMount, ForcedUnmountWaitsForRequestsInFlight) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR | O_DIRECT);
  ASSERT_EQ(::ftruncate(file.fd(), 64 * 4096), 0);
  mount.Do([](FakeArray& array) { array.max_delay_us = 300'000; });
  std::vector<std::thread> threads;
  std::vector<ssize_t> results(8);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      AlignedBytes block(4096, t);
      results[t] = ::pwrite(file.fd(), block.data(), 4096, static_cast<off_t>(t * 4096));
    });
  }
  for (uint64_t begun = 0; begun < results.size();) {
    mount.Do([&begun](const FakeArray& array) { begun = array.writes; });
  }
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  mount.WaitUntilServed();
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const ssize_t result : results) {
    EXPECT_EQ(result, 4096);
  }
}

TEST(FuseMount, UnlinkedAndOpenIsDeletedByForcedUnmount) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::unlink((mount / "v").c_str()), 0);
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  mount.WaitUntilServed();
  mount.Do([](FakeArray& array) { EXPECT_TRUE(array.Volumes().empty()); });
}

TEST(FuseMount, DeadMountIsClearedAndALiveOneRefused) {
  EPLOG_NEEDS_FUSE();
  const TemporaryDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    MountSetup setup;
    setup.directory = directory.path();
    const ServedMount mount(setup);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  struct stat info {};
  ASSERT_EQ(::stat(directory.path().c_str(), &info), -1);
  ASSERT_EQ(errno, ENOTCONN);

  MountSetup setup;
  setup.directory = directory.path();
  ServedMount mount(setup);
  EXPECT_TRUE(IsMountPoint(directory.path()));
  Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  FakeArray other(**loop);
  FuseOptions options;
  options.mountpoint = directory.path();
  const auto second = FuseServer::Mount(**loop, other, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
}

TEST(FuseMount, BadMountPointsAreRefusedInOneLine) {
  EPLOG_NEEDS_FUSE();
  const TemporaryDirectory directory;
  Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  FakeArray array(**loop);
  ::close(::open((directory / "file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  for (const std::string& path : {directory / "none", directory / "file", std::string()}) {
    FuseOptions options;
    options.mountpoint = path;
    const auto server = FuseServer::Mount(**loop, array, options);
    ASSERT_FALSE(server.ok()) << path;
    EXPECT_NE(server.error().message.find("mount point " + path), std::string::npos);
  }
}

TEST(FuseMount, NeverServedMountIsTakenAway) {
  EPLOG_NEEDS_FUSE();
  const TemporaryDirectory directory;
  Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  FakeArray array(**loop);
  FuseOptions options;
  options.mountpoint = directory.path();
  {
    const auto server = FuseServer::Mount(**loop, array, options);
    ASSERT_TRUE(server.ok());
  }
  EXPECT_FALSE(IsMountPoint(directory.path()));
}

// ---- another mount over it

// Memory, over a directory; gone at the end.
class Cover {
 public:
  explicit Cover(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(::mount("cover", path_.c_str(), "tmpfs", 0, ""), 0);
  }
  ~Cover() { Remove(); }
  Cover(const Cover&) = delete;
  Cover& operator=(const Cover&) = delete;
  [[nodiscard]] bool IsThere() const {
    struct statfs info {};
    constexpr auto kTmpfs = 0x01021994;
    return ::statfs(path_.c_str(), &info) == 0 && info.f_type == kTmpfs;
  }
  void Remove() {
    if (!path_.empty()) {
      ::umount2(path_.c_str(), MNT_DETACH);
      path_.clear();
    }
  }

 private:
  std::string path_;
};

#define EPLOG_NEEDS_ROOT()                \
  do {                                    \
    if (::geteuid() != 0) {               \
      GTEST_SKIP() << "only root mounts"; \
    }                                     \
  } while (false)

TEST(FuseMount, UnmountTakesNothingAwayThatIsMountedOverIt) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  ServedMount mount;
  Cover cover(mount.directory());
  const Status busy = mount.Unmount();
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  EXPECT_NE(busy.error().message.find("tmpfs 'cover' at " + mount.directory()), std::string::npos)
      << busy.error().message;
  EXPECT_TRUE(cover.IsThere());
  EXPECT_FALSE(mount.Served());
  cover.Remove();
  EXPECT_TRUE(mount.Unmount().ok());
  mount.WaitUntilServed();
}

TEST(FuseMount, ForcedUnmountUnderAnotherMountWritesDirtyPagesBack) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  ServedMount mount;
  constexpr size_t kSize = 256 * 4096;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), kSize), 0);
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::vector<std::byte> want(kSize);
  FillPattern(want, 3);
  std::memcpy(memory, want.data(), kSize);
  Cover cover(mount.directory());
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  mount.WaitUntilServed();
  EXPECT_TRUE(cover.IsThere());
  EXPECT_EQ(mount.Content("v") == want, true);
  ::munmap(memory, kSize);
  cover.Remove();
  struct stat info {};
  EXPECT_EQ(::stat(mount.directory().c_str(), &info), -1);
  EXPECT_EQ(errno, ENOTCONN) << "what was under it is dead";
  ::umount2(mount.directory().c_str(), MNT_DETACH);
}

// Whoever finds it dead takes it away, and says so.
TEST(FuseMount, CutOffItStaysWhereItIs) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  ASSERT_NE(device, 0U);
  EXPECT_TRUE(CutConnection(device));
  mount.WaitUntilServed();
  EXPECT_EQ(MountedDevice(mount.directory()), device);
  EXPECT_TRUE(TakeMountAway(device, mount.directory(), TakeAway::kAtOnce).ok());
  EXPECT_EQ(MountedDevice(mount.directory()), 0U);
}

// Nor does its server, when it ends.
TEST(FuseMount, CutOffItStaysWhenItsServerGoes) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  const TemporaryDirectory directory;
  dev_t device = 0;
  {
    MountSetup setup;
    setup.directory = directory.path();
    ServedMount mount(setup);
    device = MountedDevice(directory.path());
    ASSERT_NE(device, 0U);
    EXPECT_TRUE(CutConnection(device));
    mount.WaitUntilServed();
  }
  EXPECT_EQ(MountedDevice(directory.path()), device);
  EXPECT_TRUE(TakeMountAway(device, directory.path(), TakeAway::kAtOnce).ok());
}

// A container that was started meanwhile has a copy of it, which its end does not wait for.
TEST(FuseMount, ACopyInAnotherNamespaceKeepsNobodyServing) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  ServedMount mount;
  int ready[2];
  int end[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(end, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(end[1]);
    char byte = ::unshare(CLONE_NEWNS) == 0 ? 'y' : 'n';
    const bool told = ::write(ready[1], &byte, 1) == 1;
    ::_exit(told && ::read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  char unshared = 0;
  ASSERT_EQ(::read(ready[0], &unshared, 1), 1);
  EXPECT_TRUE(mount.Unmount().ok());
  mount.WaitUntilServed();
  EXPECT_FALSE(IsMountPoint(mount.directory()));
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) {
    ::close(fd);
  }
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// ---- changes by another front end

Task<void> ResizeFromElsewhere(FakeArray* array, FuseServer* server, uint64_t size) {
  const VolumeId id = array->FindVolume("v")->id;
  const Status resized = co_await array->ResizeVolume(id, size);
  EXPECT_TRUE(resized.ok());
  Task<void> notify = server->NotifyVolumeChanged(id);
  co_await notify;
}

Task<void> WriteFromElsewhere(FakeArray* array, FuseServer* server,
                              std::span<const std::byte> bytes) {
  const VolumeId id = array->FindVolume("v")->id;
  const Status written = co_await array->Write(id, 0, bytes);
  EXPECT_TRUE(written.ok());
  Task<void> notify = server->NotifyVolumeChanged(id);
  co_await notify;
}

Task<void> CreateFromElsewhere(FakeArray* array, std::string name) {
  Task<Result<VolumeId>> creating = array->CreateVolume(name, 123);
  const Result<VolumeId> created = co_await creating;
  EXPECT_TRUE(created.ok());
}

Task<void> DeleteFromElsewhere(FakeArray* array, std::string name) {
  const Status deleted = co_await array->DeleteVolume(array->FindVolume(name)->id);
  EXPECT_TRUE(deleted.ok());
}

// A volume v, and what deletes it from elsewhere.
class DeletedFromElsewhere : public testing::Test {
 protected:
  void Serve(std::function<void(FakeArray&)> prepare) {
    MountSetup setup;
    setup.prepare = [this, prepare = std::move(prepare)](FakeArray& array) {
      FillPattern(bytes_, 1);
      array.AddVolume("v", bytes_);
      prepare(array);
    };
    mount_ = std::make_unique<ServedMount>(setup);
  }
  std::future<Status> Delete() {
    return std::async(std::launch::async, [this] {
      Status result;
      mount_->Await([&](FakeArray& /*array*/, FuseServer& server) -> Task<void> {
        Task<Status> deleting = server.DeleteVolume("v");
        result = co_await deleting;
      });
      return result;
    });
  }
  void WaitForCall(FakeArray::Op op) {
    bool seen = false;
    while (!seen) {
      mount_->Do([&](FakeArray& array) { seen = array.Count(op) != 0; });
    }
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(20000);
  std::unique_ptr<ServedMount> mount_;
};

TEST_F(DeletedFromElsewhere, OnlyIfItHasItsNameStill) {
  EPLOG_NEEDS_FUSE();
  // The rename is before it.
  Serve([](FakeArray& array) {
    array.hold = [&array](const FakeArray::Call& call) {
      return call.op == FakeArray::Op::kRename
                 ? array.Count(FakeArray::Op::kDelete) == 0
                 : call.op == FakeArray::Op::kDelete && !array.FindVolume("w");
    };
  });
  auto renaming = std::async(std::launch::async, [this] {
    return ::rename((*mount_ / "v").c_str(), (*mount_ / "w").c_str());
  });
  WaitForCall(FakeArray::Op::kRename);
  const Status deleted = Delete().get();
  EXPECT_EQ(renaming.get(), 0);
  ASSERT_FALSE(deleted.ok());
  EXPECT_EQ(deleted.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(mount_->Content("w") == bytes_, true);
  const File file(*mount_ / "w", O_RDWR);
  EXPECT_GE(file.fd(), 0) << "it can be opened as before";
}

TEST_F(DeletedFromElsewhere, NobodyOpensItMeanwhile) {
  EPLOG_NEEDS_FUSE();
  std::atomic<bool> may = false;
  Serve([&may](FakeArray& array) {
    array.hold = [&may](const FakeArray::Call& call) {
      return call.op == FakeArray::Op::kDelete && !may;
    };
  });
  EXPECT_EQ(::access((*mount_ / "v").c_str(), F_OK), 0) << "the kernel knows it";
  auto deleting = Delete();
  WaitForCall(FakeArray::Op::kDelete);
  EXPECT_EQ(::open((*mount_ / "v").c_str(), O_RDWR | O_CLOEXEC), -1);
  may = true;
  EXPECT_TRUE(deleting.get().ok());
  EXPECT_NE(::access((*mount_ / "v").c_str(), F_OK), 0);
}

TEST_F(DeletedFromElsewhere, ThatCouldNotBeIsThereStill) {
  EPLOG_NEEDS_FUSE();
  Serve([](FakeArray& array) {
    array.before = [](const FakeArray::Call& call) -> Status {
      return call.op == FakeArray::Op::kDelete
                 ? Status(Fail(ErrorCode::kNoSpace, "the array is full"))
                 : OkStatus();
    };
  });
  EXPECT_EQ(Delete().get().error().code, ErrorCode::kNoSpace);
  const File file(*mount_ / "v", O_RDWR);
  EXPECT_GE(file.fd(), 0);
  mount_->Do([](FakeArray& array) { array.before = {}; });
}

TEST(FuseMount, ResizeAndWritesFromElsewhereAreSeen) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR);
  std::vector<std::byte> bytes(20000);
  FillPattern(bytes, 1);
  ASSERT_EQ(::pwrite(file.fd(), bytes.data(), bytes.size(), 0), 20000);
  struct stat info {};
  for (const uint64_t size : {5000UL, 30000UL, 0UL, 12288UL}) {
    mount.Await([&](FakeArray& array, FuseServer& server) {
      return ResizeFromElsewhere(&array, &server, size);
    });
    ASSERT_EQ(::fstat(file.fd(), &info), 0);
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), size);
    std::vector<std::byte> read(40000);
    EXPECT_EQ(::pread(file.fd(), read.data(), read.size(), 0), static_cast<ssize_t>(size));
  }
  FillPattern(bytes, 2);
  mount.Await([&](FakeArray& array, FuseServer& server) {
    return WriteFromElsewhere(&array, &server, std::span(bytes).first(12288));
  });
  std::vector<std::byte> read(12288);
  ASSERT_EQ(::pread(file.fd(), read.data(), read.size(), 0), 12288);
  EXPECT_EQ(std::memcmp(read.data(), bytes.data(), 12288), 0);
}

TEST(FuseMount, ShrinkingUnderDirtyPagesDoesNotGrowBack) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  constexpr size_t kSize = 64 * 4096;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), kSize), 0);
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 'x', kSize);
  mount.Await([&](FakeArray& array, FuseServer& server) {
    return ResizeFromElsewhere(&array, &server, 10000);
  });
  ::fsync(file.fd());
  EXPECT_EQ(mount.Content("v").size(), 10000U);
  ::munmap(memory, kSize);
}

TEST(FuseMount, NamesFromElsewhereAreSeen) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  struct stat info {};
  EXPECT_EQ(::stat((mount / "new").c_str(), &info), -1);
  mount.Await(
      [](FakeArray& array, FuseServer& /*server*/) { return CreateFromElsewhere(&array, "new"); });
  EXPECT_EQ(::stat((mount / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 123);
  mount.Await(
      [](FakeArray& array, FuseServer& /*server*/) { return DeleteFromElsewhere(&array, "new"); });
  EXPECT_EQ(::stat((mount / "new").c_str(), &info), -1);
}

}  // namespace
}  // namespace eplog
