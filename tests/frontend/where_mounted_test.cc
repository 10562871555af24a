// A file system of ours is found wherever it is mounted, and nothing else is taken for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "host/fuse_mount.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

#define EPLOG_NEEDS_ROOT()                \
  do {                                    \
    if (::geteuid() != 0) {               \
      GTEST_SKIP() << "only root mounts"; \
    }                                     \
  } while (false)

// Something that is mounted there until the end.
class Mounted {
 public:
  Mounted(const char* source, std::string path, const char* type, unsigned long flags)
      : path_(std::move(path)) {
    EXPECT_EQ(::mount(source, path_.c_str(), type, flags, nullptr), 0);
  }
  ~Mounted() { ::umount2(path_.c_str(), MNT_DETACH); }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;

 private:
  std::string path_;
};

dev_t NumberOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_dev;
}

MountLine LineOf(const std::string& directory) {
  MountLine found;
  for (const MountLine& mount : ReadMounts()) {
    found = mount.directory == directory ? mount : found;
  }
  return found;
}

TEST(WhereMounted, ItsNumberIsThatOfItsFiles) {
  EPLOG_NEEDS_FUSE();
  const TemporaryDirectory other;
  EXPECT_EQ(MountedDevice(other.path()), 0U);
  ServedMount mount;
  EXPECT_EQ(MountedDevice(mount.directory()), NumberOf(mount.directory()));
  EXPECT_EQ(MountedDevice(other.path()), 0U);
  EXPECT_EQ(MountedDevice("/proc"), 0U) << "not ours";
}

TEST(WhereMounted, ThatWhichWasMountedOverItIsNamed) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  const TemporaryDirectory above;
  MountSetup setup;
  setup.directory = above / "mount";
  ASSERT_EQ(::mkdir(setup.directory.c_str(), 0700), 0);
  ServedMount mount(setup);
  const MountLine line = LineOf(mount.directory());
  EXPECT_EQ(CoveredBy(line), "");
  EXPECT_TRUE(SyncMount(line.device, mount.directory()));
  {
    const Mounted cover("cover", mount.directory(), "tmpfs", 0);
    EXPECT_EQ(CoveredBy(line), "tmpfs 'cover' at " + mount.directory());
    EXPECT_FALSE(SyncMount(line.device, mount.directory()));
    EXPECT_EQ(MountedDevice(mount.directory()), line.device) << "it is there all the same";
  }
  {
    const Mounted cover("cover", above.path(), "tmpfs", 0);
    EXPECT_NE(CoveredBy(line), "") << "over a directory above";
    const Status busy = TakeMountAway(line.device, mount.directory(), TakeAway::kAtOnce);
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
    EXPECT_NE(busy.error().message.find("is covered by"), std::string::npos);
  }
  EXPECT_EQ(CoveredBy(line), "");
}

// The same file system, in two places.
TEST(WhereMounted, ItIsTakenAwayFromWhereItIsToBeTakenAwayFirst) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  const TemporaryDirectory other;
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  const Mounted bound(mount.directory().c_str(), other.path(), nullptr, MS_BIND);
  ASSERT_EQ(MountedDevice(other.path()), device);
  EXPECT_TRUE(TakeMountAway(device, mount.directory(), TakeAway::kIfUnused).ok());
  EXPECT_EQ(MountedDevice(mount.directory()), 0U);
  EXPECT_EQ(MountedDevice(other.path()), device) << "the other is left";
  EXPECT_TRUE(TakeMountAway(device, mount.directory(), TakeAway::kIfUnused).ok());
  EXPECT_EQ(MountedDevice(other.path()), 0U) << "where it is instead";
  EXPECT_TRUE(TakeMountAway(device, mount.directory(), TakeAway::kIfUnused).ok()) << "nowhere";
  EXPECT_TRUE(SyncMount(device, mount.directory()));
  mount.WaitUntilServed();
}

TEST(WhereMounted, ItIsTakenAwayFromTheLastPlaceToo) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  const TemporaryDirectory other;
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  const Mounted bound(mount.directory().c_str(), other.path(), nullptr, MS_BIND);
  EXPECT_TRUE(TakeMountAway(device, other.path(), TakeAway::kAtOnce).ok());
  EXPECT_EQ(MountedDevice(other.path()), 0U);
  EXPECT_EQ(MountedDevice(mount.directory()), device);
}

TEST(WhereMounted, AnotherFileSystemIsNotTouched) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  EXPECT_TRUE(TakeMountAway(device + 1, mount.directory(), TakeAway::kAtOnce).ok());
  EXPECT_TRUE(TakeMountAway(0, mount.directory(), TakeAway::kAtOnce).ok());
  EXPECT_FALSE(CutConnection(device + 1000));
  EXPECT_EQ(MountedDevice(mount.directory()), device);
  File file(mount / "v", O_CREAT | O_RDWR);
  const Status busy = TakeMountAway(device, mount.directory(), TakeAway::kIfUnused);
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  EXPECT_NE(busy.error().message.find(mount.directory() + " is in use"), std::string::npos);
  EXPECT_TRUE(TakeMountAway(device, mount.directory(), TakeAway::kAtOnce).ok());
  EXPECT_EQ(MountedDevice(mount.directory()), 0U);
  EXPECT_EQ(::pwrite(file.fd(), "x", 1, 0), 1) << "who has a file open keeps it";
  file.Close();
  mount.WaitUntilServed();
}

// With fusermount3, which lets nobody take away what is not his.
TEST(WhereMounted, AnotherUserDoesNotTakeItAway) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  const std::string directory = mount.directory();
  for (const TakeAway how : {TakeAway::kIfUnused, TakeAway::kAtOnce}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool other = ::setgid(65534) == 0 && ::setuid(65534) == 0;
      const Status taken = TakeMountAway(device, directory, how);
      ::_exit(other && !taken.ok() && taken.error().code == ErrorCode::kBusy ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(MountedDevice(directory), device);
  }
}

// ---- where it is to be mounted

TEST(MountPoints, AreResolved) {
  const TemporaryDirectory directory;
  const std::string real = std::filesystem::canonical(directory.path());
  ASSERT_EQ(::mkdir((directory / "a").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("a", (directory / "link").c_str()), 0);
  for (const char* way : {"a", "a/", "a//", "./a", "a/../a", "link", "link/"}) {
    const auto resolved = ResolveMountpoint(directory / way);
    ASSERT_TRUE(resolved.ok()) << way;
    EXPECT_EQ(*resolved, real + "/a") << way;
  }
  EXPECT_FALSE(ResolveMountpoint(directory / "none").ok());
  EXPECT_EQ(*ResolveMountpoint("/"), "/");
}

TEST(MountPoints, AreDirectoriesThatAreFree) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const TemporaryDirectory directory;
  EXPECT_TRUE(PrepareMountpoint(directory.path()).ok());
  const Status taken = PrepareMountpoint(mount.directory());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kBusy);
  ::close(::open((directory / "file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  const Status file = PrepareMountpoint(directory / "file");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(PrepareMountpoint(directory / "none").ok());
}

TEST(MountPoints, UnderADeadMountAreFoundByAnyPath) {
  EPLOG_NEEDS_FUSE();
  EPLOG_NEEDS_ROOT();
  const TemporaryDirectory above;
  const std::string real = std::filesystem::canonical(above.path());
  const std::string directory = real + "/mount";
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(real.c_str(), (above / "link").c_str()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    MountSetup setup;
    setup.directory = directory;
    const ServedMount mount(setup);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(real);
  for (const std::string& way :
       {directory, directory + "/", directory + "//", real + "/./mount", real + "/link/mount",
        std::string("mount"), std::string("./mount/"), std::string("link/mount")}) {
    const auto resolved = ResolveMountpoint(way);
    EXPECT_TRUE(resolved.ok()) << way;
    EXPECT_EQ(resolved.ok() ? *resolved : "", directory) << way;
  }
  std::filesystem::current_path(before);
  EXPECT_FALSE(ResolveMountpoint(directory + "/below").ok());
  EXPECT_NE(MountedDevice(directory), 0U);
  EXPECT_TRUE(PrepareMountpoint(directory).ok());
  EXPECT_EQ(MountedDevice(directory), 0U) << "the dead one is taken away";
}

}  // namespace
}  // namespace eplog
