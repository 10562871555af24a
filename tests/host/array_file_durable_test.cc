// array.toml is written by other calls than those that always work: in pieces, interrupted, on a
// full file system, where nothing gets to the disk. What stood there stays until the new one is
// safe, and one change comes after the other.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/read_text.h"
#include "host/array_file.h"
#include "tests/support/temp_dir.h"

namespace {

// What becomes of the calls of one thread while it has one; of errors their numbers.
struct Disk {
  size_t most_bytes = SIZE_MAX;  // of one write
  bool interrupts = false;       // every second write
  size_t room = SIZE_MAX;        // for so many bytes
  std::function<int(const std::string& path)> at_sync;
  std::function<int()> at_lock;
  unsigned writes = 0;
};
thread_local Disk* disk = nullptr;

int Refuse(int error) {
  errno = error;
  return -1;
}

}  // namespace

// Instead of those of the C library.
extern "C" ssize_t write(int fd, const void* from, size_t bytes) {
  if (disk != nullptr) {
    if (disk->interrupts && ++disk->writes % 2 == 1) {
      return Refuse(EINTR);
    }
    if (disk->room == 0) {
      return Refuse(ENOSPC);
    }
    bytes = std::min({bytes, disk->most_bytes, disk->room});
    disk->room -= disk->room == SIZE_MAX ? 0 : bytes;
  }
  return static_cast<ssize_t>(::syscall(SYS_write, fd, from, bytes));
}

extern "C" int fsync(int fd) {
  if (disk != nullptr && disk->at_sync) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (const int error = disk->at_sync(std::filesystem::read_symlink(link).string()); error != 0) {
      return Refuse(error);
    }
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int flock(int fd, int operation) noexcept {
  if (disk != nullptr && disk->at_lock) {
    if (const int error = disk->at_lock(); error != 0) {
      return Refuse(error);
    }
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace eplog {
namespace {

namespace fs = std::filesystem;

class DurableArrayFile : public testing::Test {
 protected:
  DurableArrayFile() {
    file_.file = dir_.path() / kArrayFileName;
    file_.uuid = "0123abcd-0123-4567-89ab-0123456789ab";
    file_.name = "demo";
    file_.members = {{"ssd0", "ssd0"}};
    EXPECT_TRUE(WriteArrayFile(file_).ok());
    old_ = ReadText(file_.file);
  }
  // As the file system of `disk` lets it be done.
  template <typename Work>
  static auto On(Disk& with, const Work& work) {
    disk = &with;
    auto done = work();
    disk = nullptr;
    return done;
  }
  Status AddSpare(Disk& with) {
    return On(with, [this] {
      return ChangeArrayFile(file_, [](ArrayFile& now) { now.AddSpare("/dev/sdx"); });
    });
  }
  [[nodiscard]] std::string Temporary() const {
    return file_.file.string() + "." + std::to_string(::getpid()) + ".tmp";
  }
  // Nothing has changed, and nothing is left behind.
  void ExpectOld() const {
    EXPECT_EQ(ReadText(file_.file), old_);
    const auto files = std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator());
    EXPECT_EQ(files, 1);
  }

  TempDir dir_;
  ArrayFile file_;
  std::string old_;
};

TEST_F(DurableArrayFile, IsOnTheDiskBeforeItTakesThePlaceOfTheOld) {
  std::vector<std::string> synced;
  std::vector<std::string> stood;
  std::string beside;
  Disk watched;
  watched.at_sync = [&](const std::string& path) {
    synced.push_back(path);
    stood.push_back(ReadText(file_.file));
    beside += synced.size() == 1 ? ReadText(path) : "";
    return 0;
  };
  ASSERT_TRUE(AddSpare(watched).ok());
  ASSERT_EQ(synced, (std::vector<std::string>{Temporary(), dir_.path()}));
  EXPECT_EQ(stood[0], old_);
  EXPECT_EQ(beside, FormatArrayFile(file_)) << "all of it";
  EXPECT_EQ(stood[1], FormatArrayFile(file_)) << "and the directory knows of it";
}

TEST_F(DurableArrayFile, WhatDoesNotGetToTheDiskDoesNotTakeItsPlace) {
  Disk failing;
  failing.at_sync = [](const std::string&) { return EIO; };
  const Status changed = AddSpare(failing);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().message, "cannot sync " + Temporary());
  EXPECT_EQ(changed.error().errno_value, EIO);
  EXPECT_TRUE(file_.spares.empty());
  ExpectOld();
  const Status tried = On(failing, [this] { return CheckWritable(file_); });
  ASSERT_FALSE(tried.ok());
  EXPECT_EQ(tried.error().message, "cannot sync " + Temporary());
  ExpectOld();
  failing.at_sync = [this](const std::string& path) { return path == dir_.path() ? EIO : 0; };
  const Status renamed = AddSpare(failing);
  ASSERT_FALSE(renamed.ok()) << "after a power cut the old one may be there";
  EXPECT_EQ(renamed.error().message, "cannot sync the directory " + dir_.path().string());
  EXPECT_EQ(renamed.error().errno_value, EIO);
}

TEST_F(DurableArrayFile, PiecesOfItAreJoined) {
  Disk slow;
  slow.most_bytes = 7;
  slow.interrupts = true;
  ASSERT_TRUE(AddSpare(slow).ok());
  EXPECT_EQ(file_.spares, std::vector<std::string>{"/dev/sdx"});
  EXPECT_EQ(ReadText(file_.file), FormatArrayFile(file_));
}

TEST_F(DurableArrayFile, WhereThereIsNoRoomItStaysAsItIs) {
  Disk full;
  full.room = 20;
  const Status changed = AddSpare(full);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(changed.error().message, "cannot write " + Temporary());
  ExpectOld();
  const Status tried = On(full, [this] { return CheckWritable(file_); });
  ASSERT_FALSE(tried.ok());
  EXPECT_EQ(tried.error().message, "cannot write " + Temporary());
  ExpectOld();
}

// A signal that comes meanwhile does not stand for the lock.
TEST_F(DurableArrayFile, IsLockedWhileItIsChangedThoughThatWasInterrupted) {
  Disk interrupted;
  int calls = 0;
  interrupted.at_lock = [&] { return ++calls < 4 ? EINTR : 0; };
  bool locked = false;
  const Status changed = On(interrupted, [&] {
    return ChangeArrayFile(file_, [&](ArrayFile&) {
      const FileDescriptor fd(::open(dir_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      locked = ::syscall(SYS_flock, fd.get(), LOCK_EX | LOCK_NB) != 0;
    });
  });
  EXPECT_TRUE(changed.ok());
  EXPECT_EQ(calls, 4);
  EXPECT_TRUE(locked);
}

// As on a network file system without locks: two changes would undo each other.
TEST_F(DurableArrayFile, WhereItCannotBeLockedItIsNotChanged) {
  Disk without;
  without.at_lock = [] { return ENOLCK; };
  const Status changed = AddSpare(without);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().message, "cannot lock the directory " + dir_.path().string());
  EXPECT_EQ(changed.error().errno_value, ENOLCK);
  ExpectOld();
}

// Whoever changes nothing learns what others have changed.
TEST_F(DurableArrayFile, IsReadAnewAlsoWhereThereIsNothingToChange) {
  ArrayFile read_before = file_;
  Disk well;
  ASSERT_TRUE(AddSpare(well).ok());
  ASSERT_TRUE(ChangeArrayFile(read_before, [](ArrayFile&) {}).ok());
  EXPECT_EQ(read_before.spares, std::vector<std::string>{"/dev/sdx"});
}

// For want of descriptors, or since its disk is broken: it is no file without a UUID.
TEST_F(DurableArrayFile, WhatCannotBeReadIsNotTakenForGarbled) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto loaded = LoadArrayFile(dir_.path());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kIo);
  EXPECT_EQ(loaded.error().message, "cannot read " + file_.file.string());
  EXPECT_TRUE(LoadArrayFile(dir_.path()).ok());
}

// /dev/disk/by-id/... is what its owner wants to have written down, not what it leads to today.
TEST_F(DurableArrayFile, ALinkIsNamedAsItIs) {
  const TempDir other;
  other.Write("disk", "x");
  fs::create_symlink(other.path() / "disk", dir_.path() / "by-id");
  fs::create_symlink(other.path(), dir_.path() / "folder");
  EXPECT_EQ(ResolveParent(dir_.path() / "by-id"), dir_.path() / "by-id");
  EXPECT_EQ(ResolveParent(dir_.path() / "folder"), dir_.path() / "folder");
  EXPECT_EQ(ResolveParent(dir_.path() / "folder/disk"), other.path() / "disk");
  EXPECT_EQ(ResolveParent(dir_.path() / "folder/."), other.path());
  EXPECT_EQ(ResolveParent(dir_.path() / "folder/.."), other.path().parent_path());
  fs::create_symlink(file_.file, other.path() / "link.toml");
  EXPECT_EQ(ArrayFilePath(other.path() / "link.toml"), other.path() / "link.toml");
}

}  // namespace
}  // namespace eplog
