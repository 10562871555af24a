// What a device is and what lies on it, in the words in which people are told before it is
// overwritten.
#include "host/device_content.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/host/member_superblock.h"
#include "tests/support/no_processes.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string Encoded(const Superblock& superblock) {
  std::string bytes(kSuperblockCopyBytes, '\0');
  EncodeSuperblock(superblock, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  return bytes;
}

class Contents : public testing::Test {
 protected:
  // Zeros, but for these.
  using Parts = std::vector<std::pair<uint64_t, std::string>>;
  std::filesystem::path Make(const std::string& name, uint64_t bytes, const Parts& parts = {}) {
    const auto path = dir_.WriteSparse(name, bytes);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (const auto& [at, text] : parts) {
      file.seekp(static_cast<std::streamoff>(at));
      file << text;
    }
    return path;
  }
  // In words.
  std::string Found(uint64_t bytes, const Parts& parts) {
    const auto path = Make("device", bytes, parts);
    const auto probed = ProbeDevice(path);
    EXPECT_TRUE(probed.ok());
    const auto found = FindContent(path, *probed);
    EXPECT_TRUE(found.ok());
    return found.value_or("an error");
  }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }

  TempDir dir_;
};

// ---- which device it is

TEST_F(Contents, ADeviceIsTheSameByEveryPath) {
  const auto path = Make("a", 4096);
  Make("b", 4096);
  std::filesystem::create_symlink("a", At("link"));
  std::filesystem::create_hard_link(path, At("hard"));
  const auto a = IdentifyDevice(path);
  ASSERT_TRUE(a.ok());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(*a, (DeviceIdentity{false, info.st_dev, info.st_ino}));
  EXPECT_EQ(*a, *IdentifyDevice(At("link")));
  EXPECT_EQ(*a, *IdentifyDevice(At("hard")));
  EXPECT_FALSE(*a == *IdentifyDevice(At("b")));
}

TEST_F(Contents, WhatIsNoDeviceIsSaidToBe) {
  Make("file", 10);
  ASSERT_EQ(::mkfifo(At("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", At("loop"));
  const struct {
    std::string path;
    ErrorCode code;
    std::string message;
  } cases[] = {
      {At("none"), ErrorCode::kNotFound, "there is no " + At("none")},
      {At("file/below"), ErrorCode::kNotFound, "there is no " + At("file/below")},
      {dir_.path(), ErrorCode::kInvalidArgument,
       dir_.path().string() + " is neither a regular file nor a block device"},
      // Opening it would wait for a writer.
      {At("pipe"), ErrorCode::kInvalidArgument,
       At("pipe") + " is neither a regular file nor a block device"},
      {"/dev/null", ErrorCode::kInvalidArgument,
       "/dev/null is neither a regular file nor a block device"},
      {At("loop"), ErrorCode::kIo, "cannot look at " + At("loop")},
  };
  for (const auto& each : cases) {
    const auto identity = IdentifyDevice(each.path);
    const auto probed = ProbeDevice(each.path);
    ASSERT_FALSE(identity.ok() || probed.ok()) << each.path;
    EXPECT_EQ(identity.error().code, each.code) << each.path;
    EXPECT_EQ(identity.error().message, each.message);
    EXPECT_EQ(probed.error().code, each.code) << each.path;
    EXPECT_EQ(probed.error().message, each.message);
  }
}

TEST_F(Contents, AProbeTellsSizesAndHoldsWhatItSaw) {
  const auto path = Make("a", 3 * kMiB + 5, {{kMiB, std::string(8192, 'x')}});
  auto probed = ProbeDevice(path);
  ASSERT_TRUE(probed.ok());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_FALSE(probed->block);
  EXPECT_EQ(probed->identity, *IdentifyDevice(path));
  EXPECT_EQ(probed->size_bytes, 3 * kMiB + 5);
  EXPECT_EQ(probed->disk_bytes, static_cast<uint64_t>(info.st_blocks) * 512);
  EXPECT_NE(probed->disk_bytes, 0U);
  std::filesystem::rename(path, At("moved"));
  Make("a", 4096);
  EXPECT_EQ(*FindContent(path, *probed), "") << "not what took its name";
  ASSERT_EQ(::fstat(probed->held->get(), &info), 0);
  EXPECT_EQ(info.st_ino, probed->identity.inode);
}

TEST_F(Contents, OnlyTheDeviceThatWasLookedAtIsProbed) {
  const auto path = Make("a", 4096);
  const DeviceIdentity looked_at = *IdentifyDevice(path);
  EXPECT_TRUE(ProbeDevice(path, looked_at).ok());
  Make("b", 4096);
  std::filesystem::rename(At("b"), path);
  const auto other = ProbeDevice(path, looked_at);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kBusy);
}

// Whoever looks at the members closes first what it has inherited: closing must ask nothing of a
// file system that hangs by now.
TEST_F(Contents, WhatIsHeldIsHeldAsAPathAndIsReadAllTheSame) {
  const auto path = Make("a", kMiB, {{0, Encoded(MemberSuperblock())}});
  const auto probed = ProbeDevice(path);
  ASSERT_TRUE(probed.ok());
  const int flags = ::fcntl(probed->held->get(), F_GETFL);
  EXPECT_NE(flags & O_PATH, 0);
  EXPECT_NE(::fcntl(probed->held->get(), F_GETFD) & FD_CLOEXEC, 0);
  std::filesystem::remove(path);
  const auto superblock = ReadSuperblock(path, *probed);
  ASSERT_TRUE(superblock.ok());
  EXPECT_EQ(superblock->DeviceName(), "ssd1");
}

// ---- what lies on it

// The beginning and the end are looked at, a MiB each.
TEST_F(Contents, ZerosAreNothingAndAnyOtherByteIsData) {
  const uint64_t last_of_head = kMiB - 1;
  EXPECT_EQ(Found(8 * kMiB, {}), "");
  EXPECT_EQ(Found(0, {}), "");
  EXPECT_EQ(Found(100, {}), "");
  EXPECT_EQ(Found(8 * kMiB, {{0, "x"}}), "data");
  EXPECT_EQ(Found(8 * kMiB, {{last_of_head, "x"}}), "data");
  EXPECT_EQ(Found(8 * kMiB, {{last_of_head + 1, "x"}}), "") << "it is not read as a whole";
  EXPECT_EQ(Found(8 * kMiB, {{7 * kMiB - 1, "x"}}), "");
  EXPECT_EQ(Found(8 * kMiB, {{7 * kMiB, "x"}}), "data");
  EXPECT_EQ(Found(8 * kMiB, {{8 * kMiB - 1, "x"}}), "data");
  EXPECT_EQ(Found(kMiB + 1, {{kMiB, "x"}}), "data");
  EXPECT_EQ(Found(kMiB, {{kMiB - 1, "x"}}), "data");
  EXPECT_EQ(Found(100, {{99, "x"}}), "data");
}

std::string Numbers(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(number >> shift & 0xFF);
    }
  }
  return bytes;
}

TEST_F(Contents, WhatOthersPutThereIsCalledAsPeopleCallIt) {
  using namespace std::string_literals;
  const Parts ext2 = {{1024, Numbers({128, 1024, 0, 900, 100, 1, 0})}, {1080, "\x53\xEF"}};
  Parts ext4 = ext2;
  ext4.insert(ext4.end(), {{1100, Numbers({1})}, {1116, Numbers({4, 0x40, 0})}});
  const struct {
    Parts parts;
    std::string words;
  } cases[] = {
      {ext2, "an ext2 file system"},
      {ext4, "an ext4 file system"},
      {{{0, "hsqs"}, {28, "\4\0\0\0"s}}, "a squashfs file system"},
      {{{1024, Numbers({1, 1023})}, {4086, "SWAPSPACE2"}}, "swap space"},
      {{{0, "LUKS\xBA\xBE\0\1"s}}, "an encrypted (LUKS) volume"},
      {{{4 * kMiB - 0x10000, Numbers({0xA92B4EFC, 0, 90, 0})}}, "a Linux MD member"},
      {{{4104, Numbers({8, 0})},
        {4120, "\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81"}},
       "a bcache device"},
      {{{446, "\0\0\2\0\x83\0\0\0"s + Numbers({2048, 2048})}, {510, "\x55\xAA"}},
       "a partition table (dos)"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(Found(4 * kMiB, each.parts), each.words);
  }
}

TEST_F(Contents, DevicesOfArraysAreNamed) {
  const std::string of = " of the EPLOG array 'demo', 0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a";
  EXPECT_EQ(Found(kMiB, {{0, Encoded(MemberSuperblock())}}), "a member (ssd1)" + of);
  EXPECT_EQ(Found(kMiB, {{kSuperblockCopyOffset[1], Encoded(MemberSuperblock())}}),
            "a member (ssd1)" + of);
  EXPECT_EQ(Found(kMiB, {{0, Encoded(SpareSuperblock(MemberSuperblock(), UuidOf(7)))}}),
            "a spare" + of);
  Superblock newer = MemberSuperblock();
  newer.version = kFormatVersion + 1;
  EXPECT_EQ(Found(kMiB, {{0, Encoded(newer)}}), "a member of an EPLOG array of a newer version");
  std::string damaged = Encoded(MemberSuperblock());
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_EQ(Found(kMiB, {{0, damaged}}), "data");
}

// ---- ranges and superblocks

TEST_F(Contents, RangesEndWithTheFile) {
  const auto path = Make("a", 100, {{0, std::string(100, 'a')}, {40, "bcd"}});
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = [&](uint64_t offset, uint64_t length) {
    const auto range = ReadRange(fd.get(), offset, length, path);
    EXPECT_TRUE(range.ok());
    return range.ok() ? std::string(reinterpret_cast<const char*>(range->data()), range->size())
                      : "";
  };
  EXPECT_EQ(text(39, 5), "abcda");
  EXPECT_EQ(text(98, 50), "aa");
  EXPECT_EQ(text(0, 100).size(), 100U);
  EXPECT_EQ(text(100, 10), "");
  EXPECT_EQ(text(0, 0), "");
  const FileDescriptor directory(::open(dir_.path().c_str(), O_RDONLY | O_CLOEXEC));
  const auto failed = ReadRange(directory.get(), 7, 5, dir_.path());
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "cannot read " + dir_.path().string());
  EXPECT_EQ(failed.error().offset_bytes, 7);
  EXPECT_EQ(failed.error().errno_value, EISDIR);
}

TEST_F(Contents, TheNewestCopyThatIsWholeCounts) {
  Superblock older = MemberSuperblock();
  older.generation = 6;
  Superblock newer = MemberSuperblock();
  newer.generation = 7;
  std::string torn = Encoded(newer);
  torn.back() = static_cast<char>(torn.back() ^ 1);
  const uint64_t second = kSuperblockCopyOffset[1];
  const auto read = [&](const Parts& parts) { return ReadSuperblock(Make("device", kMiB, parts)); };
  EXPECT_EQ(read({{0, Encoded(older)}, {second, Encoded(newer)}})->generation, 7U);
  EXPECT_EQ(read({{0, Encoded(newer)}, {second, Encoded(older)}})->generation, 7U);
  EXPECT_EQ(read({{0, torn}, {second, Encoded(older)}})->generation, 6U);
  EXPECT_EQ(read({{0, Encoded(older)}, {second, torn}})->generation, 6U);
  EXPECT_EQ(read({{0, torn}}).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read({{second, torn}}).error().message.rfind(At("device") + ": ", 0), 0U);
  // What ends within the second copy has the first all the same.
  EXPECT_EQ(ReadSuperblock(Make("device", second + 100, {{0, Encoded(older)}}))->generation, 6U);
}

TEST_F(Contents, WhereThereIsNoSuperblockItIsSaidSo) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, kMiB}) {
    const auto none = ReadSuperblock(Make("device", bytes));
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(none.error().message, At("device") + " has no EPLOG superblock");
  }
  const auto nothing = ReadSuperblock(At("none"));
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().message, "cannot open " + At("none"));
  EXPECT_EQ(nothing.error().errno_value, ENOENT);
}

TEST_F(Contents, SeveralSuperblocksComeInTheOrderOfTheirPaths) {
  Make("a", kMiB, {{0, Encoded(MemberSuperblock())}});
  Make("b", kMiB);
  Superblock other = MemberSuperblock();
  other.index = DeviceIndex(3);
  Make("c", kMiB, {{0, Encoded(other)}});
  const auto read = ReadSuperblocks({At("c"), At("b"), At("none"), At("a")});
  ASSERT_EQ(read.size(), 4U);
  ASSERT_TRUE(read[0].ok() && read[3].ok());
  EXPECT_EQ(read[0]->DeviceName(), "log0");
  EXPECT_EQ(read[1].error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read[2].error().errno_value, ENOENT);
  EXPECT_EQ(read[3]->DeviceName(), "ssd1");
}

// Nothing of this process stays with one that hangs, so that it can end; nor do the others wait for
// that one longer than for what is enough.
TEST_F(Contents, WhereASuperblockHangsNoThreadStays) {
  Make("a", kMiB, {{0, Encoded(MemberSuperblock())}});
  ASSERT_EQ(::mkfifo(At("hangs").c_str(), 0600), 0);  // whoever opens it waits
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = threads();
  const auto read = ReadSuperblocks({At("hangs"), At("a"), At("hangs")},
                                    [](const Superblock& found) { return found.index.value == 1; });
  EXPECT_EQ(threads(), before);
  ASSERT_EQ(read.size(), 3U);
  ASSERT_TRUE(read[1].ok());
  EXPECT_EQ(read[1]->DeviceName(), "ssd1");
  for (const size_t hung : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(read[hung].error().code, ErrorCode::kDeviceFailed);
    EXPECT_NE(read[hung].error().message.find("hangs does not answer"), std::string::npos);
  }
}

// What is a member does not pass for missing for want of a process that looks.
TEST_F(Contents, WithoutProcessesSuperblocksAreReadAllTheSame) {
  Make("a", kMiB, {{0, Encoded(MemberSuperblock())}});
  Make("b", kMiB);
  WithoutProcesses([this] {
    const auto read = ReadSuperblocks({At("a"), At("b"), At("none")});
    ASSERT_TRUE(read[0].ok());
    EXPECT_EQ(read[0]->DeviceName(), "ssd1");
    EXPECT_EQ(read[1].error().message, At("b") + " has no EPLOG superblock");
    EXPECT_EQ(read[2].error().errno_value, ENOENT);
  });
}

TEST_F(Contents, ASuperblockThatCannotBeReadIsNoMissingOne) {
  const auto directory = ReadSuperblock(dir_.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().errno_value, EISDIR);
  EXPECT_EQ(directory.error().message, "cannot read " + dir_.path().string());
  EXPECT_EQ(directory.error().offset_bytes, 0);
}

// More than are read at once; and by paths from where this process is.
TEST_F(Contents, ManySuperblocksAreReadByRelativePaths) {
  Make("a", kMiB, {{0, Encoded(MemberSuperblock())}});
  const std::string relative = std::filesystem::relative(At("a")).string();
  std::vector<std::filesystem::path> paths(300, relative);
  paths[200] = At("none");
  const auto read = ReadSuperblocks(paths);
  ASSERT_EQ(read.size(), paths.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].ok(), i != 200) << i;
  }
}

TEST_F(Contents, FreeSpaceIsThatOfTheDirectory) {
  // Others write there meanwhile.
  bool same = false;
  for (int i = 0; i < 1000 && !same; ++i) {
    same = FreeBytes(dir_.path()).value_or(0) == std::filesystem::space(dir_.path()).available;
  }
  EXPECT_TRUE(same);
  const auto nowhere = FreeBytes(At("none"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().message, "cannot tell the free space of " + At("none"));
}

}  // namespace
}  // namespace eplog
