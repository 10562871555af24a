// What is read of a device comes in pieces, is interrupted, fails in the middle, or ends whoever
// reads: all that there is comes of it, or what is missing is said.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/device_content.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace {

// How one file is read while this lasts, also by processes that are started meanwhile.
struct Reads {
  std::atomic<uint64_t> inode = 0;  // 0: no file
  std::atomic<size_t> most_bytes = SIZE_MAX;
  std::atomic<off_t> fails_from = INT64_MAX;
  std::atomic<bool> interrupted = false;  // every second one
  std::atomic<pid_t> only_by = 0;         // any other process is ended
  std::atomic<unsigned> count = 0;
};
Reads reads;

bool IsDisturbed(int fd) {
  struct stat info {};
  return reads.inode != 0 && ::fstat(fd, &info) == 0 && info.st_ino == reads.inode;
}

}  // namespace

// Instead of that of the C library.
extern "C" ssize_t pread(int fd, void* into, size_t bytes, off_t offset) {
  if (IsDisturbed(fd)) {
    if (reads.only_by != 0 && reads.only_by != ::getpid()) {
      ::_exit(1);
    }
    if (reads.interrupted && ++reads.count % 2 == 1) {
      errno = EINTR;
      return -1;
    }
    if (offset >= reads.fails_from) {
      errno = EIO;
      return -1;
    }
    bytes = std::min<size_t>(bytes, reads.most_bytes);
  }
  return static_cast<ssize_t>(::syscall(SYS_pread64, fd, into, bytes, offset));
}

namespace eplog {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Superblock Member(uint64_t generation) {
  Superblock superblock = MemberSuperblock();
  superblock.generation = generation;
  return superblock;
}

class DisturbedReads : public testing::Test {
 protected:
  ~DisturbedReads() override {
    reads.inode = 0;
    reads.most_bytes = SIZE_MAX;
    reads.fails_from = INT64_MAX;
    reads.interrupted = false;
    reads.only_by = 0;
    reads.count = 0;
  }
  void Put(const std::string& name, uint64_t at, std::span<const std::byte> bytes) const {
    std::fstream file(At(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  // A device with these copies of a superblock; generation 0: none there.
  void Make(const std::string& name, uint64_t first, uint64_t second) const {
    dir_.WriteSparse(name, 8 * kMiB);
    std::vector<std::byte> bytes(kSuperblockCopyBytes);
    for (size_t copy = 0; copy < 2; ++copy) {
      if (const uint64_t generation = copy == 0 ? first : second; generation != 0) {
        EncodeSuperblock(Member(generation), bytes);
        Put(name, kSuperblockCopyOffset[copy], bytes);
      }
    }
  }
  void Disturb(const std::string& name) const {
    struct stat info {};
    ASSERT_EQ(::stat(At(name).c_str(), &info), 0);
    reads.inode = info.st_ino;
  }
  // Of one copy, by this process, from what was looked at.
  [[nodiscard]] Result<Superblock> ReadHere(const std::string& name) const {
    const auto probed = ProbeDevice(At(name));
    EXPECT_TRUE(probed.ok());
    return ReadSuperblock(At(name), *probed);
  }
  [[nodiscard]] Result<std::string> Find(const std::string& name) const {
    const auto probed = ProbeDevice(At(name));
    EXPECT_TRUE(probed.ok());
    return FindContent(At(name), *probed);
  }
  [[nodiscard]] std::filesystem::path At(const std::string& name) const {
    return dir_.path() / name;
  }

  TempDir dir_;
};

TEST_F(DisturbedReads, OfARangeAllPiecesAreJoined) {
  std::string text;
  for (int i = 0; text.size() < 5000; ++i) {
    text += std::to_string(i) + " ";
  }
  dir_.Write("a", text);
  Disturb("a");
  reads.most_bytes = 7;
  reads.interrupted = true;
  const FileDescriptor fd(::open(At("a").c_str(), O_RDONLY | O_CLOEXEC));
  const auto read = [&](uint64_t offset, uint64_t length) {
    const auto range = ReadRange(fd.get(), offset, length, At("a"));
    EXPECT_TRUE(range.ok());
    return range.ok() ? std::string(reinterpret_cast<const char*>(range->data()), range->size())
                      : "";
  };
  EXPECT_EQ(read(0, text.size()), text);
  EXPECT_EQ(read(3, 1000), text.substr(3, 1000));
  EXPECT_EQ(read(4000, 9999), text.substr(4000)) << "as far as the file goes";
}

TEST_F(DisturbedReads, OfARangeTheByteThatCannotBeReadIsSaid) {
  dir_.Write("a", std::string(1000, 'x'));
  Disturb("a");
  reads.most_bytes = 7;
  reads.fails_from = 50;
  const FileDescriptor fd(::open(At("a").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(ReadRange(fd.get(), 3, 47, At("a")).ok());
  const auto failed = ReadRange(fd.get(), 3, 500, At("a"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().errno_value, EIO);
  EXPECT_EQ(failed.error().offset_bytes, 52) << "behind the pieces that were read";
}

TEST_F(DisturbedReads, OfSuperblocksAllPiecesAreJoined) {
  Make("first", 7, 6);
  Make("second", 0, 9);
  for (const char* name : {"first", "second"}) {
    Disturb(name);
    reads.most_bytes = 1000;
    reads.interrupted = true;
    const uint64_t newest = name == std::string("first") ? 7 : 9;
    const auto elsewhere = ReadSuperblock(At(name));
    ASSERT_TRUE(elsewhere.ok()) << elsewhere.error().ToString();
    EXPECT_EQ(elsewhere->generation, newest);
    const auto here = ReadHere(name);
    ASSERT_TRUE(here.ok()) << here.error().ToString();
    EXPECT_EQ(here->generation, newest);
  }
}

// The newer one may be where it cannot be read.
TEST_F(DisturbedReads, ACopyThatCannotBeReadIsNotPassedOver) {
  Make("a", 7, 6);
  Disturb("a");
  reads.most_bytes = 1000;
  const auto second = static_cast<off_t>(kSuperblockCopyOffset[1]);
  const struct {
    off_t from;
    off_t said;
  } cases[] = {{0, 0}, {1500, 2000}, {second, second}, {second + 1500, second + 2000}};
  for (const auto& [from, said] : cases) {
    reads.fails_from = from;
    for (const bool here : {false, true}) {
      const auto read = here ? ReadHere("a") : ReadSuperblock(At("a"));
      ASSERT_FALSE(read.ok()) << from;
      EXPECT_EQ(read.error().message, "cannot read " + At("a").string());
      EXPECT_EQ(read.error().errno_value, EIO);
      EXPECT_EQ(read.error().offset_bytes, said);
    }
  }
}

// What ends before the second copy fails nothing, whatever failed before that.
TEST_F(DisturbedReads, TheEndOfADeviceIsNoError) {
  Make("a", 7, 0);
  std::filesystem::resize_file(At("a"), kSuperblockCopyOffset[1] + 100);
  errno = EIO;
  const auto read = ReadSuperblock(At("a"));
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(read->generation, 7U);
}

// Whoever dies of looking at one device takes the answers of the others along: then all that has
// not been seen is read by this process.
TEST_F(DisturbedReads, OneWhoDiesLookingHidesNoSuperblock) {
  Make("a", 1, 0);
  Make("b", 2, 0);
  Make("c", 3, 0);
  Disturb("b");
  reads.only_by = ::getpid();
  const auto read = ReadSuperblocks({At("a"), At("b"), At("none"), At("c")});
  ASSERT_EQ(read.size(), 4U);
  for (const size_t there : {0U, 1U, 3U}) {
    ASSERT_TRUE(read[there].ok()) << there << ": " << read[there].error().ToString();
    EXPECT_EQ(read[there]->generation, there == 3 ? 3U : there + 1);
  }
  EXPECT_EQ(read[2].error().errno_value, ENOENT);
}

// ---- nobody is told that there is nothing on what could not be looked at

TEST_F(DisturbedReads, ABeginningOrEndThatCannotBeReadIsNotEmpty) {
  Make("a", 0, 0);
  Disturb("a");
  EXPECT_EQ(*Find("a"), "");
  for (const off_t from : {off_t{0}, static_cast<off_t>(7 * kMiB)}) {
    reads.fails_from = from;
    const auto found = Find("a");
    ASSERT_FALSE(found.ok()) << from;
    EXPECT_EQ(found.error().message, "cannot read " + At("a").string());
    EXPECT_EQ(found.error().offset_bytes, from);
  }
}

TEST_F(DisturbedReads, WhatCannotBeReadAtAllIsNotEmpty) {
  Make("a", 0, 0);
  auto probed = ProbeDevice(At("a"));
  ASSERT_TRUE(probed.ok());
  probed->held = std::make_shared<const FileDescriptor>();
  const auto found = FindContent(At("a"), *probed);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, "cannot open " + At("a").string());
  EXPECT_EQ(found.error().errno_value, ENOENT);
  const auto superblock = ReadSuperblock(At("a"), *probed);
  ASSERT_FALSE(superblock.ok());
  EXPECT_EQ(superblock.error().message, "cannot open " + At("a").string());
}

}  // namespace
}  // namespace eplog
