// A made-up sysfs and mount table over real files: what they are said to lie on.
#include "host/underlay.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/temp_dir.h"

namespace {
std::atomic<int> good_entries =
    -1;  // of a directory, after which it cannot be read; less than 0: all
}  // namespace

// Instead of that of the C library.
extern "C" struct dirent* readdir(DIR* directory) {
  using Read = struct dirent* (*)(DIR*);
  static const auto real = reinterpret_cast<Read>(::dlsym(RTLD_NEXT, "readdir"));
  if (good_entries == 0) {
    errno = EIO;
    return nullptr;
  }
  if (good_entries > 0) {
    --good_entries;
  }
  return real(directory);
}

namespace eplog {
namespace {

namespace fs = std::filesystem;

// A file system on which nothing lies. No numbers here are those of real devices.
constexpr dev_t kOther = 0;

class Underlay : public ::testing::Test {
 protected:
  Underlay() {
    fs::create_directories(Sysfs() / "dev/block");
    static_cast<void>(dir_.Write("mountinfo", ""));
  }

  [[nodiscard]] fs::path Sysfs() const { return dir_.path() / "sys"; }
  // A block device, in a folder below /sys/devices as in the real one.
  fs::path AddBlock(const std::string& folder, unsigned major, unsigned minor) {
    const fs::path path = Sysfs() / "devices" / folder;
    fs::create_directories(path);
    const std::string number = fmt::format("{}:{}", major, minor);
    Write(path / "dev", number + "\n");
    fs::create_symlink(path, Sysfs() / "dev/block" / number);
    return path;
  }
  fs::path AddLoop(unsigned minor, const fs::path& backing_file) {
    const fs::path path = AddBlock(fmt::format("loop{}", minor), 7, minor);
    fs::create_directories(path / "loop");
    Write(path / "loop/backing_file", backing_file.string() + "\n");
    return path;
  }
  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  void AddMount(const std::string& line) {
    std::ofstream(dir_.path() / "mountinfo", std::ios::app) << line << "\n";
  }

  [[nodiscard]] static dev_t FileSystemOf(const fs::path& path) {
    struct stat file {};
    EXPECT_EQ(::stat(path.c_str(), &file), 0);
    return file.st_dev;
  }
  [[nodiscard]] std::optional<std::string> Way(const Place& from, dev_t to) const {
    return FindWayDown(from, {to}, {Sysfs(), dir_.path() / "mountinfo"});
  }
  [[nodiscard]] static Place Block(unsigned major, unsigned minor) {
    return {.identity = {.block = true, .device = makedev(major, minor)}};
  }
  [[nodiscard]] static Place FileOn(dev_t file_system, uint64_t mount_id = 0) {
    return {.identity = {.device = file_system, .inode = 5}, .mount_id = mount_id};
  }

  TempDir dir_;
};

TEST_F(Underlay, AFileOfTheFileSystemItself) {
  const fs::path file = dir_.Write("file", "x");
  const auto place = PlaceOf(file);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(Way(*place, FileSystemOf(file)), "");
  EXPECT_EQ(Way(*place, makedev(0, 12345)), std::nullopt);
  EXPECT_FALSE(PlaceOf(dir_.path() / "none").ok());
}

TEST_F(Underlay, ALoopDeviceOverAFile) {
  const fs::path file = dir_.Write("file with\nodd name", "x");
  AddLoop(3, file);
  EXPECT_EQ(Way(Block(7, 3), FileSystemOf(file)), "loop3");
  EXPECT_EQ(Way(Block(7, 3), kOther), std::nullopt);
  EXPECT_EQ(Way(Block(7, 4), FileSystemOf(file)), std::nullopt);  // no such device
}

TEST_F(Underlay, TheLoopDeviceOverAFile) {
  const fs::path file = dir_.Write("file", "x");
  const fs::path other = dir_.Write("other", "x");
  EXPECT_FALSE(FindLoopOver({file, other}, {Sysfs(), "", dir_.path()}));
  const fs::path loop = AddLoop(3, file);
  fs::create_directories(Sysfs() / "block");
  fs::create_symlink(loop, Sysfs() / "block/loop3");
  fs::create_symlink(AddBlock("sda", 4002, 0), Sysfs() / "block/sda");
  const auto found = FindLoopOver({other, file}, {Sysfs(), "", dir_.path()});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "loop3");
  EXPECT_EQ(found->file, 1U);
  EXPECT_FALSE(FindLoopOver({other}, {Sysfs(), "", dir_.path()}));
}

TEST_F(Underlay, AFileOnAFileSystemOnPartsOfALoopDevice) {
  const fs::path file = dir_.Write("file", "x");
  const fs::path loop = AddLoop(3, file);
  const fs::path part = AddBlock("loop3/loop3p1", 4003, 1);
  Write(part / "partition", "1\n");
  const fs::path mapped = AddBlock("dm-0", 4001, 0);
  fs::create_directories(mapped / "slaves");
  const fs::path disk = AddBlock("sda", 4002, 0);
  fs::create_symlink(disk, mapped / "slaves/sda");
  fs::create_symlink(part, mapped / "slaves/loop3p1");
  EXPECT_EQ(Way(FileOn(makedev(4001, 0)), FileSystemOf(file)), "dm-0 on loop3p1 on loop3");
  EXPECT_EQ(Way(FileOn(makedev(4002, 0)), FileSystemOf(file)), std::nullopt);
}

// btrfs: its files have a number of their own; the mount names the device.
TEST_F(Underlay, AFileSystemWithNumbersOfItsOwn) {
  const fs::path file = dir_.Write("file", "x");
  if (::mknod((dir_.path() / "node").c_str(), S_IFBLK | 0600, makedev(7, 3)) != 0) {
    GTEST_SKIP() << "needs root: device nodes";
  }
  AddLoop(3, file);
  AddMount(fmt::format("77 1 0:50 / /mnt/b rw - btrfs {}/node rw", dir_.path().string()));
  EXPECT_EQ(Way(FileOn(makedev(0, 51), 77), FileSystemOf(file)), "loop3");
  EXPECT_EQ(Way(FileOn(makedev(0, 51), 78), FileSystemOf(file)), std::nullopt);
}

TEST_F(Underlay, AnOverlay) {
  const fs::path upper = dir_.path() / "upper";
  fs::create_directories(upper);
  AddMount(
      fmt::format("77 1 0:50 / /mnt/o rw - overlay overlay rw,lowerdir=/etc,upperdir={},work=/w",
                  upper.string()));
  EXPECT_EQ(Way(FileOn(makedev(0, 50), 77), FileSystemOf(upper)), "overlay");
  EXPECT_EQ(Way(FileOn(makedev(0, 50), 77), kOther), std::nullopt);
  EXPECT_EQ(Way(FileOn(makedev(0, 50), 78), FileSystemOf(upper)), std::nullopt);
}

TEST_F(Underlay, ABackingFileThatIsDeleted) {
  AddLoop(3, "/mnt/a/b/file (deleted)");
  AddMount("1 1 8:1 / / rw - ext4 /dev/sda1 rw");
  AddMount("2 1 0:60 / /mnt/a rw - fuse.eplog /nowhere rw");
  AddMount("3 2 0:61 / /mnt/a/bb rw - tmpfs tmpfs rw");
  EXPECT_EQ(Way(Block(7, 3), makedev(0, 60)), "loop3");
  EXPECT_EQ(Way(Block(7, 3), makedev(0, 61)), std::nullopt);
}

// A file of another array's mount lies on that array's members.
TEST_F(Underlay, AnArrayBetween) {
  const fs::path member = dir_.Write("member", "x");
  dir_.Write("array.toml",
             "uuid = \"6a1f1a6e-3e5c-4a55-8f2d-4c6f6b1f0c11\"\nname = \"other\"\n"
             "[[member]]\nname = \"ssd0\"\npath = \"/nowhere\"\n"
             "[[member]]\nname = \"ssd1\"\npath = \"member\"\n"
             "[[member]]\nname = \"ssd2\"\npath = \"/nowhere/2\"\n"
             "[[member]]\nname = \"log0\"\npath = \"/nowhere/log0\"\n");
  const std::string source = dir_.path().string();
  AddMount(fmt::format("2 1 0:60 / /mnt/a rw - fuse.eplog {} rw", source));
  EXPECT_EQ(Way(FileOn(makedev(0, 60)), FileSystemOf(member)), "array " + source);
  EXPECT_EQ(Way(FileOn(makedev(0, 60)), kOther), std::nullopt);
}

// As that of a device that just goes away: what was seen of them is all there is.
TEST_F(Underlay, PartsThatCannotAllBeRead) {
  const fs::path mapped = AddBlock("dm-0", 4001, 0);
  fs::create_directories(mapped / "slaves");
  for (unsigned i = 1; i <= 4; ++i) {
    const std::string name = fmt::format("sd{}", i);
    fs::create_symlink(AddBlock(name, 4002, i), mapped / "slaves" / name);
  }
  for (int good = 0; good <= 6; ++good) {  // with . and ..
    good_entries = good;
    EXPECT_EQ(Way(Block(4001, 0), kOther), std::nullopt);
    EXPECT_EQ(good_entries, 0) << "it was not read at all";
    good_entries = -1;
  }
}

TEST_F(Underlay, CirclesEnd) {
  const fs::path a = AddBlock("dm-1", 4001, 1);
  const fs::path b = AddBlock("dm-2", 4001, 2);
  fs::create_directories(a / "slaves");
  fs::create_directories(b / "slaves");
  fs::create_symlink(b, a / "slaves/dm-2");
  fs::create_symlink(a, b / "slaves/dm-1");
  EXPECT_EQ(Way(Block(4001, 1), kOther), std::nullopt);
}

// Of real ones there are few; one that says that it has more is not followed for ever.
TEST_F(Underlay, LayersAreThirtyTwoAtMost) {
  const fs::path file = dir_.Write("file", "x");
  fs::path below = AddLoop(3, file);
  std::string all = "loop3";
  for (unsigned layers = 2; layers <= 33; ++layers) {
    const std::string name = fmt::format("dm-{}", layers);
    const fs::path above = AddBlock(name, 4001, layers);
    fs::create_directories(above / "slaves");
    fs::create_symlink(below, above / "slaves" / below.filename());
    below = above;
    all.insert(0, name + " on ");
    const auto way = Way(Block(4001, layers), FileSystemOf(file));
    EXPECT_EQ(way, layers <= 32 ? std::optional(all) : std::nullopt) << layers;
  }
}

// Where neither is a loop device nor a disk of its own: what it says of itself is believed.
TEST_F(Underlay, WhatTheKernelDoesNotTellWholeLeadsNowhere) {
  const fs::path file = dir_.Write("file", "x");
  AddLoop(3, "");
  EXPECT_EQ(Way(Block(7, 3), FileSystemOf(file)), std::nullopt) << "no backing file";
  const fs::path part = AddBlock("sdb/sdb1", 4003, 1);
  Write(part / "partition", "1\n");
  Write(part.parent_path() / "dev", "garbled\n");
  EXPECT_EQ(Way(Block(4003, 1), FileSystemOf(file)), std::nullopt) << "a disk without a number";
  AddLoop(5, file);
  Write(part.parent_path() / "dev", "7:5\n");
  EXPECT_EQ(Way(Block(4003, 1), FileSystemOf(file)), "sdb1 on loop5");
}

// Of two mounts of one file system, the one by which the file is reached.
TEST_F(Underlay, AMountIsKnownByItsNumberOrElseByItsFileSystem) {
  const fs::path upper = dir_.path() / "upper";
  fs::create_directories(upper);
  const std::string overlay = " 1 0:50 / /mnt/o rw - overlay overlay rw,upperdir=" + upper.string();
  AddMount("76" + overlay + "/none");
  AddMount("77" + overlay);
  EXPECT_EQ(Way(FileOn(makedev(0, 50), 77), FileSystemOf(upper)), "overlay") << "the last option";
  EXPECT_EQ(Way(FileOn(makedev(0, 50), 76), FileSystemOf(upper)), std::nullopt);
  EXPECT_EQ(Way(FileOn(makedev(0, 50)), FileSystemOf(upper)), std::nullopt) << "the first";
  EXPECT_EQ(Way(FileOn(makedev(0, 51)), FileSystemOf(upper)), std::nullopt);
  AddMount("78 1 0:52 / /mnt/p rw - other overlay rw,upperdir=" + upper.string());
  EXPECT_EQ(Way(FileOn(makedev(0, 52), 78), FileSystemOf(upper)), std::nullopt) << "no overlay";
}

TEST_F(Underlay, ASpareOfAnArrayBetweenCountsToo) {
  const fs::path spare = dir_.Write("spare", "x");
  dir_.Write("array.toml",
             "uuid = \"6a1f1a6e-3e5c-4a55-8f2d-4c6f6b1f0c11\"\nname = \"other\"\n"
             "[[member]]\nname = \"ssd0\"\npath = \"/nowhere\"\n"
             "[[spare]]\npath = \"spare\"\n");
  const std::string source = dir_.path().string();
  AddMount("2 1 0:60 / /mnt/a rw - fuse.eplog " + source + " rw");
  EXPECT_EQ(Way(FileOn(makedev(0, 60)), FileSystemOf(spare)), "array " + source);
  AddLoop(3, "/mnt/a/b/file (deleted)");
  EXPECT_EQ(Way(Block(7, 3), FileSystemOf(spare)), "loop3 on array " + source);
}

TEST_F(Underlay, APlaceIsAFileOnItsMountOrABlockDevice) {
  const fs::path file = dir_.Write("file", "x");
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  const auto place = PlaceOf(file);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->identity, (DeviceIdentity{false, info.st_dev, info.st_ino}));
  EXPECT_NE(place->mount_id, 0U);
  const std::string none = dir_.path() / "none";
  EXPECT_EQ(PlaceOf(none).error().message, "cannot look at " + none);
  EXPECT_EQ(PlaceOf(none).error().errno_value, ENOENT);
  const std::string node = dir_.path() / "node";
  if (::mknod(node.c_str(), S_IFBLK | 0600, makedev(4003, 77)) != 0) {
    GTEST_SKIP() << "needs root: device nodes";
  }
  EXPECT_EQ(PlaceOf(node)->identity, (DeviceIdentity{true, makedev(4003, 77), 0}));
  EXPECT_EQ(PlaceOf(node)->mount_id, 0U);
}

}  // namespace
}  // namespace eplog
