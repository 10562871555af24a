// What the kernel knows of a volume stays usable until it has forgotten it, what it is told of one
// is true, and what another front end changed behind its back is found out.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "host/fuse_mount.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

using Op = FakeArray::Op;

std::vector<std::byte> Pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  FillPattern(bytes, seed);
  return bytes;
}

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path << ": " << std::strerror(errno);
  return info;
}

std::string LinkOf(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

size_t Volumes(ServedMount& mount) {
  size_t count = 0;
  mount.Do([&](FakeArray& array) { count = array.volume_count(); });
  return count;
}

bool IsOpen(ServedMount& mount, uint32_t volume) {
  bool open = false;
  mount.Await([&](FakeArray&, FuseServer& server) -> Task<void> {
    open = server.IsOpen(VolumeId(volume));
    co_return;
  });
  return open;
}

// The kernel tells of a close, and that it forgot, after it has answered.
void Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 12000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(holds());
}

// ---- what the kernel knows by other means than an open file

// How the kernel may come to know a volume.
enum class Known { kByCreate, kByMakeNode, kByLookup, kByDirectory };

class KnownVolume : public testing::TestWithParam<Known> {
 protected:
  void SetUp() override { EPLOG_NEEDS_FUSE(); }
  // A handle by which it may be opened, and which is no open file to the server.
  int Handle(ServedMount& mount) {
    const std::string path = mount / "v";
    switch (GetParam()) {
      case Known::kByCreate: {
        const File file(path, O_CREAT | O_EXCL | O_RDWR);
        return ::open(LinkOf(file.fd()).c_str(), O_PATH | O_CLOEXEC);
      }
      case Known::kByMakeNode:
        EXPECT_EQ(::mknod(path.c_str(), S_IFREG | 0600, 0), 0);
        break;
      case Known::kByLookup:
        break;
      case Known::kByDirectory: {
        DIR* directory = ::opendir(mount.directory().c_str());
        while (::readdir(directory) != nullptr) {
        }
        ::closedir(directory);
        break;
      }
    }
    return ::open(path.c_str(), O_PATH | O_CLOEXEC);
  }
};

TEST_P(KnownVolume, CanBeOpenedUntilItIsForgotten) {
  MountSetup setup;
  const bool new_one = GetParam() == Known::kByCreate || GetParam() == Known::kByMakeNode;
  setup.prepare = [&](FakeArray& array) {
    if (!new_one) {
      array.AddVolume("v", Pattern(100, 1));
    }
  };
  ServedMount mount(setup);
  const int handle = Handle(mount);
  ASSERT_GE(handle, 0);
  {
    const File file(LinkOf(handle), O_RDWR);
    ASSERT_EQ(::unlink((mount / "v").c_str()), 0) << "it is open, and hidden therefore";
    ASSERT_EQ(::pwrite(file.fd(), "still", 5, 0), 5);
  }
  Eventually([&] { return !IsOpen(mount, 1); });
  EXPECT_EQ(Volumes(mount), 1U) << "who has the handle may open it again";
  {
    const File again(LinkOf(handle), O_RDONLY);
    std::string text(5, '\0');
    EXPECT_EQ(::pread(again.fd(), text.data(), 5, 0), 5);
    EXPECT_EQ(text, "still");
  }
  ::close(handle);
  Eventually([&] { return Volumes(mount) == 0; });
}

INSTANTIATE_TEST_SUITE_P(FuseNodes, KnownVolume,
                         testing::Values(Known::kByCreate, Known::kByMakeNode, Known::kByLookup,
                                         Known::kByDirectory));

TEST(FuseNodes, AreOpenWhileSomebodyHasThemOpen) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  EXPECT_FALSE(IsOpen(mount, 1)) << "there is none";
  File cached(mount / "v", O_CREAT | O_RDWR);
  EXPECT_TRUE(IsOpen(mount, 1));
  File direct(mount / "v", O_RDONLY | O_DIRECT);
  cached.Close();
  EXPECT_TRUE(IsOpen(mount, 1));
  direct.Close();
  Eventually([&] { return !IsOpen(mount, 1); });
}

// ---- attributes

TEST(FuseNodes, TheRootIsTheMountingUsersAlone) {
  EPLOG_NEEDS_FUSE();
  const time_t before = ::time(nullptr);
  ServedMount mount;
  const struct stat root = StatOf(mount.directory());
  EXPECT_EQ(root.st_mode, S_IFDIR | 0700U);
  EXPECT_EQ(root.st_nlink, 2U);
  EXPECT_EQ(root.st_ino, 1U);
  EXPECT_EQ(root.st_uid, ::geteuid());
  EXPECT_EQ(root.st_gid, ::getegid());
  EXPECT_EQ(root.st_blksize, 4096);
  for (const timespec& when : {root.st_atim, root.st_mtim, root.st_ctim}) {
    EXPECT_GE(when.tv_sec, before);
    EXPECT_LE(when.tv_sec, ::time(nullptr) + 1);
  }
  EXPECT_EQ(::chmod(mount.directory().c_str(), 0755), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(FuseNodes, AVolumeFromBeforeIsTheMountingUsers) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.prepare = [](FakeArray& array) { array.AddVolume("v", Pattern(5000, 1)); };
  const time_t before = ::time(nullptr);
  ServedMount mount(setup);
  const struct stat info = StatOf(mount / "v");
  EXPECT_EQ(info.st_mode, S_IFREG | 0600U);
  EXPECT_EQ(info.st_nlink, 1U);
  EXPECT_EQ(info.st_ino, 17U) << "its number is that of the volume, and stays so";
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_gid, ::getegid());
  EXPECT_EQ(info.st_size, 5000);
  EXPECT_EQ(info.st_blocks, 2 * 8);
  for (const timespec& when : {info.st_atim, info.st_mtim, info.st_ctim}) {
    EXPECT_GE(when.tv_sec, before);
    EXPECT_LE(when.tv_sec, ::time(nullptr) + 1);
  }
}

// As the kernel was told when it was made, and as it is told when it asks.
TEST(FuseNodes, ANewVolumeIsWhoseMadeIt) {
  EPLOG_NEEDS_FUSE();
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  ServedMount mount;
  const time_t before = ::time(nullptr);
  const mode_t mask = ::umask(0);
  // Of the mounting user, whom alone the kernel lets in; only the group that he makes files with
  // differs.
  ::setfsgid(4711);
  const File created(mount / "v", O_CREAT | O_EXCL | O_RDWR, 04751);
  EXPECT_EQ(::mknod((mount / "n").c_str(), S_IFREG | 0604, 0), 0);
  ::setfsgid(::getegid());
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::fstat(created.fd(), &info), 0);
  const auto check = [&](mode_t mode, ino_t inode) {
    EXPECT_EQ(info.st_mode, S_IFREG | mode);
    EXPECT_EQ(info.st_ino, inode);
    EXPECT_EQ(info.st_nlink, 1U);
    EXPECT_EQ(info.st_uid, 0U);
    EXPECT_EQ(info.st_gid, 4711U);
    EXPECT_EQ(info.st_size, 0);
    EXPECT_EQ(info.st_blocks, 0);
    EXPECT_EQ(info.st_blksize, 4096);
    for (const timespec& when : {info.st_atim, info.st_mtim, info.st_ctim}) {
      EXPECT_GE(when.tv_sec, before);
      EXPECT_LE(when.tv_sec, ::time(nullptr) + 1);
    }
  };
  check(04751, 17);
  info = StatOf(mount / "v");
  check(04751, 17);
  info = StatOf(mount / "n");
  check(0604, 18);
}

TEST(FuseNodes, OnlyWhatIsSetChanges) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const std::string path = mount / "v";
  const File file(path, O_CREAT | O_RDWR);
  const timespec first[2] = {{1000, 5}, {2000, 6}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), first, 0), 0);
  const auto expect = [&](mode_t mode, time_t atime, time_t mtime) {
    const struct stat info = StatOf(path);
    EXPECT_EQ(info.st_mode, S_IFREG | mode);
    EXPECT_EQ(info.st_atim.tv_sec, atime);
    EXPECT_EQ(info.st_mtim.tv_sec, mtime);
    EXPECT_GT(info.st_ctim.tv_sec, 1000000) << "that is when it was changed";
  };
  expect(0600, 1000, 2000);
  EXPECT_EQ(StatOf(path).st_atim.tv_nsec, 5);
  ASSERT_EQ(::chmod(path.c_str(), 07777), 0);
  expect(07777, 1000, 2000);
  const timespec only_access[2] = {{3000, 0}, {0, UTIME_OMIT}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), only_access, 0), 0);
  expect(07777, 3000, 2000);
  const timespec only_change[2] = {{0, UTIME_OMIT}, {4000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), only_change, 0), 0);
  expect(07777, 3000, 4000);
  const time_t before = ::time(nullptr);
  const timespec access_now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), access_now, 0), 0);
  EXPECT_GE(StatOf(path).st_atim.tv_sec, before);
  EXPECT_EQ(StatOf(path).st_mtim.tv_sec, 4000);
  const timespec change_now[2] = {{5000, 0}, {0, UTIME_NOW}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), change_now, 0), 0);
  EXPECT_EQ(StatOf(path).st_atim.tv_sec, 5000);
  EXPECT_GE(StatOf(path).st_mtim.tv_sec, before);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 7, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(StatOf(path).st_uid, 7U);
    EXPECT_EQ(StatOf(path).st_gid, ::getegid());
    ASSERT_EQ(::chown(path.c_str(), static_cast<uid_t>(-1), 8), 0);
    EXPECT_EQ(StatOf(path).st_uid, 7U);
    EXPECT_EQ(StatOf(path).st_gid, 8U);
  }
}

// ---- the directory

TEST(FuseNodes, ADirectoryTellsNumbersAndKinds) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.prepare = [](FakeArray& array) {
    array.AddVolume("b", Pattern(1, 1));
    array.AddVolume("a", Pattern(2, 2));
  };
  ServedMount mount(setup);
  for (int round = 0; round < 2; ++round) {  // the kernel may ask with attributes or without
    std::map<std::string, std::pair<ino_t, int>> seen;
    DIR* directory = ::opendir(mount.directory().c_str());
    ASSERT_NE(directory, nullptr);
    while (const dirent* entry = ::readdir(directory)) {
      seen[entry->d_name] = {entry->d_ino, entry->d_type};
    }
    ::closedir(directory);
    const std::map<std::string, std::pair<ino_t, int>> want = {{".", {1, DT_DIR}},
                                                               {"..", {seen[".."].first, DT_DIR}},
                                                               {"a", {18, DT_REG}},
                                                               {"b", {17, DT_REG}}};
    EXPECT_EQ(seen, want);
  }
  DIR* directory = ::opendir(mount.directory().c_str());
  ASSERT_NE(directory, nullptr);
  size_t count = 0;
  while (::readdir(directory) != nullptr) {
    ++count;
  }
  EXPECT_EQ(count, 4U);
  const File added(mount / "c", O_CREAT | O_RDWR);
  ::rewinddir(directory);
  count = 0;
  while (::readdir(directory) != nullptr) {
    ++count;
  }
  EXPECT_EQ(count, 5U) << "read anew from its beginning, it is as it is now";
  ::closedir(directory);
}

// ---- the mount, as others see it

TEST(FuseNodes, AMountSaysWhatItIs) {
  EPLOG_NEEDS_FUSE();
  if (::geteuid() != 0) {
    GTEST_SKIP() << "allow_other needs root";
  }
  const TemporaryDirectory directory;
  const auto loop = IoUringLoop::Create();
  FakeArray array(**loop);
  FuseOptions options;
  options.mountpoint = directory.path();
  const auto line = [&] {
    const auto server = FuseServer::Mount(**loop, array, options);
    EXPECT_TRUE(server.ok());
    EXPECT_EQ((*server)->mountpoint(), directory.path());
    EXPECT_EQ((*server)->device(), MountedDevice(directory.path()));
    MountLine found;
    for (const MountLine& mount : ReadMounts()) {
      found = mount.directory == directory.path() ? mount : found;
    }
    EXPECT_TRUE(found.ours());
    return found;
  };
  const auto has = [](const MountLine& mount, const std::string& option) {
    return ("," + mount.options + ",").find("," + option + ",") != std::string::npos;
  };
  MountLine mount = line();
  EXPECT_EQ(mount.source, "eplog");
  EXPECT_TRUE(has(mount, "default_permissions"));
  EXPECT_TRUE(has(mount, "max_read=1048576"));
  EXPECT_TRUE(has(mount, "rw"));
  EXPECT_FALSE(has(mount, "allow_other"));
  options.fsname = "/a,b\\c d";
  options.allow_other = true;
  options.read_only = true;
  mount = line();
  EXPECT_EQ(mount.source, options.fsname);
  EXPECT_TRUE(has(mount, "allow_other"));
  EXPECT_FALSE(has(mount, "rw"));
}

// libfuse has its own words for that.
TEST(FuseNodes, AMountThatFailsSaysWhyInOneLine) {
  EPLOG_NEEDS_FUSE();
  const TemporaryDirectory directory;
  const auto loop = IoUringLoop::Create();
  FakeArray array(**loop);
  FuseOptions options;
  options.mountpoint = directory.path();
  options.fsname = std::string(10000, 'x');  // more than the kernel takes
  const auto refused = FuseServer::Mount(**loop, array, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  const std::string& message = refused.error().message;
  const std::string begin = "cannot mount on " + directory.path() + ": ";
  EXPECT_EQ(message.substr(0, begin.size()), begin);
  EXPECT_GT(message.size(), begin.size());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

}  // namespace
}  // namespace eplog
