// Which mounts are ours, and what becomes of paths on which nothing of ours is mounted.
#include "host/mount_table.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "host/fuse_mount.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

TEST(MountTable, FindsOursAndUnescapes) {
  const auto entries = ParseMountTable(
      "22 27 0:21 / /proc rw,nosuid - proc proc rw\n"
      "90 27 0:44 / /mnt/a\\040b rw,nosuid shared:3 master:1 - fuse.eplog /home/u/my\\040array "
      "rw,user_id=0\n"
      "91 27 0:45 / /mnt/s rw - fuse.sshfs host:/ rw\n"
      "92 27 0:46 / /mnt/back\\134slash rw - fuse.eplog /b rw\n"
      "broken line - \n"
      "\n");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].directory, "/mnt/a b");
  EXPECT_EQ(entries[0].source, "/home/u/my array");
  EXPECT_EQ(entries[1].directory, "/mnt/back\\slash");
  EXPECT_EQ(entries[1].source, "/b");
  EXPECT_EQ(entries[0].device, makedev(0, 44));
}

// The kernel hides blanks, tabs and ends of lines in a path, and no other white space.
TEST(MountTable, OtherWhiteSpaceBelongsToThePath) {
  const auto entries = ParseMountTable(
      "90 27 0:44 / /mnt/a\rb\vc\fd rw shared:3 - fuse.eplog /home/\fu rw\n"
      "91 27 0:45 / /mnt/- rw - fuse.eplog  rw\n");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].directory, "/mnt/a\rb\vc\fd");
  EXPECT_EQ(entries[0].source, "/home/\fu");
  EXPECT_EQ(entries[1].directory, "/mnt/-");
  EXPECT_EQ(entries[1].source, "");
}

TEST(MountTable, OfThisProcessHoldsOnlyOurs) {
  const TempDir dir;
  for (const MountEntry& entry : ReadMountTable()) {
    EXPECT_TRUE(entry.ours()) << entry.type;
  }
  EXPECT_FALSE(FindMountOn("/proc").has_value());
  EXPECT_FALSE(FindMountOn(dir.path()).has_value());
  EXPECT_FALSE(FindMountOf(dir.path()).has_value());
  EXPECT_TRUE(MountDevicesOf(dir.path()).empty());
  EXPECT_FALSE(MountIsDead(dir.path()));
  EXPECT_FALSE(MountIsDead(dir.path() / "none"));
}

// ---- a place to mount on

// No file system has these numbers.
const dev_t kNobodys = makedev(0, 0xFFFFF);

TEST(MountPlace, IsADirectoryWithoutLinks) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "real");
  std::filesystem::create_directory_symlink("real", dir.path() / "link");
  const std::string real = dir.path() / "real";
  EXPECT_EQ(*ResolveMountpoint(dir.path() / "link"), real);
  EXPECT_EQ(*ResolveMountpoint(real + "/"), real);
  EXPECT_TRUE(PrepareMountpoint(real).ok());
  const std::string none = dir.path() / "none";
  EXPECT_EQ(ResolveMountpoint(none).error().message, "mount point " + none);
  EXPECT_EQ(ResolveMountpoint(none).error().errno_value, ENOENT);
  EXPECT_EQ(PrepareMountpoint(none).error().message, "mount point " + none);
  EXPECT_EQ(PrepareMountpoint(none).error().errno_value, ENOENT);
  const std::string file = dir.Write("file", "x");
  const Status refused = PrepareMountpoint(file);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message, "mount point " + file + " is not a directory");
}

TEST(MountPlace, WhereNothingOfOursIsMountedThereIsNothingToDo) {
  const TempDir dir;
  EXPECT_EQ(MountedDevice(dir.path()), 0U);
  EXPECT_EQ(MountedDevice("/proc"), 0U) << "somebody else's";
  EXPECT_TRUE(TakeMountAway(kNobodys, dir.path(), TakeAway::kIfUnused).ok());
  EXPECT_TRUE(TakeMountAway(kNobodys, dir.path(), TakeAway::kAtOnce).ok());
  EXPECT_TRUE(SyncMount(kNobodys, dir.path()));
  EXPECT_FALSE(ConnectionOf(kNobodys).has_value());
  EXPECT_FALSE(CutConnection(kNobodys));
}

// What is reached by the path of a mount is that mount, or what covers it.
TEST(MountPlace, WhatCoversAMountIsNamed) {
  const std::vector<MountLine> mounts = ReadMounts();
  const auto proc = std::find_if(mounts.rbegin(), mounts.rend(),
                                 [](const MountLine& mount) { return mount.directory == "/proc"; });
  ASSERT_NE(proc, mounts.rend());
  EXPECT_EQ(CoveredBy(*proc), "");
  MountLine covered = *proc;
  covered.id = 0xFFFFFFFF;
  EXPECT_EQ(CoveredBy(covered), "proc '" + proc->source + "' at /proc");
  covered.directory = "/proc/self";  // on which nothing is mounted
  EXPECT_EQ(CoveredBy(covered), "proc '" + proc->source + "' at /proc");
  covered.directory = "/";
  EXPECT_EQ(CoveredBy(covered), "something else");
}

}  // namespace
}  // namespace eplog
