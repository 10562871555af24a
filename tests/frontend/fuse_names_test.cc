// Names and attributes through the mount.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

std::string Reserved(std::string_view rest) {
  std::string name(kReservedVolumePrefix);
  name += rest;
  return name;
}

using Op = FakeArray::Op;

std::multiset<std::string> List(const std::string& directory) {
  std::multiset<std::string> names;
  DIR* handle = ::opendir(directory.c_str());
  EXPECT_NE(handle, nullptr);
  while (const dirent* entry = ::readdir(handle)) {
    names.insert(entry->d_name);
  }
  ::closedir(handle);
  names.erase(".");
  names.erase("..");
  return names;
}

std::vector<std::string> VolumeNames(ServedMount& mount) {
  std::vector<std::string> names;
  mount.Do([&](FakeArray& array) {
    for (const VolumeInfo& volume : array.Volumes()) {
      names.push_back(volume.name);
    }
  });
  return names;
}

void Put(const std::string& path, const std::string& text) {
  const File file(path, O_CREAT | O_TRUNC | O_WRONLY);
  ASSERT_EQ(::write(file.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string Get(int fd) {
  std::string text(100, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  EXPECT_GE(n, 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

bool Exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

// Those without a name too.
size_t Volumes(ServedMount& mount) {
  size_t count = 0;
  mount.Do([&](FakeArray& array) { count = array.volume_count(); });
  return count;
}

// Closing is answered before the volume is released.
template <typename Condition>
void Eventually(Condition condition) {
  for (int i = 0; i < 12000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(condition());
}

TEST(FuseNames, CreateListAndRemove) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  std::multiset<std::string> want;
  for (int i = 0; i < 700; ++i) {
    const std::string name = "volume number " + std::to_string(i) + std::string(60, 'x');
    Put(mount / name, name);
    want.insert(name);
  }
  EXPECT_EQ(List(mount.directory()), want);
  EXPECT_EQ(VolumeNames(mount).size(), 700U);
  EXPECT_EQ(::open((mount / *want.begin()).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600),
            -1);
  EXPECT_EQ(errno, EEXIST);
  for (const std::string& name : want) {
    ASSERT_EQ(::unlink((mount / name).c_str()), 0);
  }
  EXPECT_TRUE(List(mount.directory()).empty());
  EXPECT_TRUE(VolumeNames(mount).empty());
  EXPECT_EQ(::unlink((mount / "none").c_str()), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(FuseNames, DirectoryReadIsASnapshot) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  std::set<std::string> want;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "v" + std::to_string(i);
    Put(mount / name, "x");
    want.insert(name);
  }
  DIR* handle = ::opendir(mount.directory().c_str());
  ASSERT_NE(handle, nullptr);
  std::multiset<std::string> seen;
  int removed = 0;
  while (const dirent* entry = ::readdir(handle)) {
    seen.insert(entry->d_name);
    if (removed < 150) {
      ASSERT_EQ(::unlink((mount / ("v" + std::to_string(removed))).c_str()), 0);
      ++removed;
    }
  }
  ::closedir(handle);
  for (const std::string& name : want) {
    EXPECT_EQ(seen.count(name), 1U) << name;
  }
  EXPECT_EQ(List(mount.directory()).size(), 150U);
}

TEST(FuseNames, BadNamesAreRefused) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const auto create = [&](const std::string& name) {
    const int fd = ::open((mount / name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    const int error = fd < 0 ? errno : 0;
    if (fd >= 0) {
      ::close(fd);
    }
    return error;
  };
  EXPECT_EQ(create(std::string(200, 'n')), 0);
  EXPECT_EQ(create(std::string(201, 'n')), ENAMETOOLONG);
  EXPECT_EQ(create("line\nbreak"), EINVAL);
  EXPECT_EQ(create(Reserved("1")), EPERM);
  EXPECT_EQ(create(Reserved("")), EPERM);
  EXPECT_EQ(create("\xc3\xa4\xc3\xb6 volume"), 0);
}

// Scripts, JSON and the command line could not name them again.
TEST(FuseNames, NewNamesAreUtf8AndOldOnesCanBeRidOf) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.prepare = [](FakeArray& array) {
    array.AddVolume("old \xff", std::vector<std::byte>(100));
    array.AddVolume("older \xff", std::vector<std::byte>(100));
  };
  ServedMount mount(setup);
  for (const char* bad : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_EQ(::open((mount / bad).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600), -1);
    EXPECT_EQ(errno, EILSEQ) << bad;
    EXPECT_EQ(::mknod((mount / bad).c_str(), S_IFREG | 0600, 0), -1);
    EXPECT_EQ(errno, EILSEQ) << bad;
    EXPECT_EQ(::rename((mount / "old \xff").c_str(), (mount / bad).c_str()), -1);
    EXPECT_EQ(errno, EILSEQ) << bad;
  }
  { const File open(mount / "old \xff", O_RDWR); }
  EXPECT_EQ(::rename((mount / "old \xff").c_str(), (mount / "new").c_str()), 0);
  EXPECT_EQ(::unlink((mount / "older \xff").c_str()), 0);
  EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"new"});
}

TEST(FuseNames, OnlyPlainFiles) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "v", "x");
  EXPECT_EQ(::mkdir((mount / "d").c_str(), 0700), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::symlink("v", (mount / "s").c_str()), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::link((mount / "v").c_str(), (mount / "l").c_str()), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mkfifo((mount / "f").c_str(), 0600), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mknod((mount / "n").c_str(), S_IFREG | 0600, 0), 0);
  EXPECT_EQ(::setxattr((mount / "v").c_str(), "user.a", "b", 1, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(List(mount.directory()), (std::multiset<std::string>{"n", "v"}));
}

TEST(FuseNames, RenameMovesReplacesAndRefuses) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "a", "content of a");
  Put(mount / "b", "b");
  const auto rename = [&](const char* from, const char* to, unsigned flags) {
    return ::renameat2(AT_FDCWD, (mount / from).c_str(), AT_FDCWD, (mount / to).c_str(), flags) == 0
               ? 0
               : errno;
  };
  EXPECT_EQ(rename("a", "b", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(rename("a", "b", RENAME_EXCHANGE), EINVAL);
  EXPECT_EQ(rename("none", "b", 0), ENOENT);
  EXPECT_EQ(rename("a", ".eplog-deleted-7", 0), EPERM);
  EXPECT_EQ(rename("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(rename("c", "b", 0), 0);
  EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"b"});
  EXPECT_EQ(Get(File(mount / "b", O_RDONLY).fd()), "content of a");
  EXPECT_FALSE(Exists(mount / "a"));
  EXPECT_FALSE(Exists(mount / "c"));

  Put(mount / "d", "d");
  {
    const File open(mount / "b", O_RDONLY);
    EXPECT_EQ(rename("b", "e", 0), 0) << "an open volume may change its name";
    EXPECT_EQ(rename("d", "e", 0), 0) << "and be replaced";
    EXPECT_EQ(Get(open.fd()), "content of a") << "for who has it open it stays";
    EXPECT_EQ(Get(File(mount / "e", O_RDONLY).fd()), "d");
    EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"e"});
    EXPECT_EQ(Volumes(mount), 2U);
  }
  Eventually([&] { return Volumes(mount) == 1; });
}

// Whatever else goes on, a name that is replaced means the old volume or the new one.
TEST(FuseNames, OpensByNameNeverMissAVolumeThatIsReplaced) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  mount.Do([](FakeArray& array) { array.max_delay_us = 500; });
  Put(mount / "v", "version 0");
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> opened = 0;
  std::mutex mutex;
  std::set<std::string> wrong;  // guarded by mutex
  const auto look = [&](int flags) {
    while (!stop) {
      const int fd = ::open((mount / "v").c_str(), flags | O_CLOEXEC);
      const std::string error = fd < 0 ? std::strerror(errno) : "";
      const std::string text = fd < 0 ? "" : Get(fd);
      if (fd >= 0) {
        ::close(fd);
      }
      struct stat info {};
      const bool there = ::stat((mount / "v").c_str(), &info) == 0;
      const std::lock_guard lock(mutex);
      if (!error.empty()) {
        wrong.insert("open: " + error);
      } else if (text.rfind("version ", 0) != 0) {
        wrong.insert("content: '" + text + "'");
      }
      if (!there) {
        wrong.insert("stat fails");
      }
      ++opened;
    }
  };
  std::vector<std::thread> lookers;
  lookers.emplace_back(look, O_RDONLY);
  lookers.emplace_back(look, O_RDWR);
  lookers.emplace_back(look, O_RDWR | O_CREAT);
  for (int version = 1; version <= 300; ++version) {
    Put(mount / "new", "version " + std::to_string(version));
    const bool renamed = ::rename((mount / "new").c_str(), (mount / "v").c_str()) == 0;
    const std::string error = renamed ? "" : std::strerror(errno);
    const std::lock_guard lock(mutex);
    if (!renamed) {
      wrong.insert("rename: " + error);
    }
  }
  stop = true;
  for (std::thread& looker : lookers) {
    looker.join();
  }
  EXPECT_EQ(wrong, std::set<std::string>());
  EXPECT_GT(opened, 0U);
  EXPECT_EQ(Get(File(mount / "v", O_RDONLY).fd()), "version 300");
  EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"v"});
  Eventually([&] { return Volumes(mount) == 1; });
}

// Who read the directory knows the volumes too.
TEST(FuseNames, WhatADirectoryShowedCanBeReplacedAndGoes) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  for (int i = 0; i < 40; ++i) {
    Put(mount / ("v" + std::to_string(i)), "old");
    Put(mount / ("w" + std::to_string(i)), "new");
  }
  for (int round = 0; round < 3; ++round) {  // with and without attributes
    for (const std::string& name : List(mount.directory())) {
      struct stat info {};
      ASSERT_EQ(::stat((mount / name).c_str(), &info), 0);
    }
  }
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_EQ(::rename((mount / ("w" + number)).c_str(), (mount / ("v" + number)).c_str()), 0);
  }
  EXPECT_EQ(List(mount.directory()).size(), 40U);
  EXPECT_EQ(Get(File(mount / "v7", O_RDONLY).fd()), "new");
  Eventually([&] { return Volumes(mount) == 40; });
}

TEST(FuseNames, UnlinkedWhileOpenLivesUntilClosed) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "v", "still here");
  File open(mount / "v", O_RDWR);
  File second(mount / "v", O_RDONLY | O_DIRECT);
  ASSERT_EQ(::unlink((mount / "v").c_str()), 0);
  EXPECT_FALSE(Exists(mount / "v"));
  EXPECT_TRUE(List(mount.directory()).empty());
  EXPECT_EQ(Get(open.fd()), "still here");
  struct stat info {};
  ASSERT_EQ(::fstat(open.fd(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0U);
  ASSERT_EQ(::pwrite(open.fd(), "S", 1, 0), 1);
  EXPECT_EQ(Get(open.fd()), "Still here");

  Put(mount / "v", "a new one");  // the name is free at once
  EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"v"});
  EXPECT_EQ(Volumes(mount), 2U);
  open.Close();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Volumes(mount), 2U) << "one opener is left";
  second.Close();
  Eventually([&] { return Volumes(mount) == 1; });
  EXPECT_EQ(Get(File(mount / "v", O_RDONLY).fd()), "a new one");
}

// Unlinked while open and never closed: the mount goes, and the volume with it.
TEST(FuseNames, WhatWasUnlinkedGoesWithTheMount) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "v", "x");
  Put(mount / "kept", "y");
  const File open(mount / "v", O_RDONLY);
  ASSERT_EQ(::unlink((mount / "v").c_str()), 0);
  EXPECT_EQ(Volumes(mount), 2U);
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  mount.WaitUntilServed();
  EXPECT_EQ(Volumes(mount), 1U);
}

// Earlier versions let other front ends give such names, and then destroyed what bore them.
TEST(FuseNames, AReservedNameFromBeforeIsAVolumeLikeAnyOther) {
  EPLOG_NEEDS_FUSE();
  const std::string name = Reserved("1");
  MountSetup setup;
  setup.prepare = [&](FakeArray& array) {
    array.AddVolume(name, std::vector<std::byte>(5, std::byte{'x'}));
    array.AddVolume(Reserved("mine"), std::vector<std::byte>(5));
  };
  ServedMount mount(setup);
  EXPECT_EQ(List(mount.directory()).size(), 2U);
  EXPECT_EQ(Get(File(mount / name, O_RDWR).fd()), "xxxxx");
  EXPECT_EQ(::rename((mount / name).c_str(), (mount / "good").c_str()), 0);
  EXPECT_EQ(::rename((mount / "good").c_str(), (mount / name).c_str()), -1);
  EXPECT_EQ(errno, EPERM) << "it is nobody's to give";
  EXPECT_EQ(Get(File(mount / "good", O_RDONLY).fd()), "xxxxx");
}

TEST(FuseNames, AttributesAreKeptInRam) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "v", "x");
  struct stat info {};
  ASSERT_EQ(::stat((mount / "v").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0600U);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_GT(info.st_ino, 16U);
  const ino_t inode = info.st_ino;
  ASSERT_EQ(::chmod((mount / "v").c_str(), 0640), 0);
  const timespec times[2] = {{1000, 5}, {2000, 6}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (mount / "v").c_str(), times, 0), 0);
  ASSERT_EQ(::rename((mount / "v").c_str(), (mount / "w").c_str()), 0);
  ASSERT_EQ(::stat((mount / "w").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0640U);
  EXPECT_EQ(info.st_atim.tv_sec, 1000);
  EXPECT_EQ(info.st_mtim.tv_nsec, 6);
  EXPECT_EQ(info.st_ino, inode);
  Put(mount / "w", "longer than before");
  ASSERT_EQ(::stat((mount / "w").c_str(), &info), 0);
  EXPECT_GT(info.st_mtim.tv_sec, 1000000);
  EXPECT_EQ(info.st_size, 18);
}

TEST(FuseNames, RefusedChangesLeaveThingsAsTheyWere) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  Put(mount / "v", "x");
  mount.Do([](FakeArray& array) {
    array.before = [](const FakeArray::Call& call) -> Status {
      if (call.op == Op::kRead || call.op == Op::kWrite) {
        return OkStatus();
      }
      return Fail(ErrorCode::kNoSpace, "wanted");
    };
  });
  EXPECT_EQ(::unlink((mount / "v").c_str()), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(::rename((mount / "v").c_str(), (mount / "w").c_str()), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(::truncate((mount / "v").c_str(), 100), -1);
  EXPECT_EQ(errno, ENOSPC);
  {
    const File open(mount / "v", O_RDONLY);
    EXPECT_EQ(::unlink((mount / "v").c_str()), -1);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(Get(open.fd()), "x");
  }
  mount.Do([](FakeArray& array) { array.before = nullptr; });
  EXPECT_EQ(Get(File(mount / "v", O_RDWR).fd()), "x");
  EXPECT_EQ(VolumeNames(mount), std::vector<std::string>{"v"});
}

}  // namespace
}  // namespace eplog
