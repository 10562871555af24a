// What the kernel says of its mounts is taken apart as it says it.
#include "host/mount_lines.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/files.h"

namespace eplog {
namespace {

TEST(MountLines, HoldEachFieldOfALine) {
  const auto mounts = ParseMounts(
      "22 27 0:21 / /proc rw,nosuid - proc proc rw\n"
      "4294967297 27 259:1048 /sub /mnt/a rw shared:3 master:1 - fuse.eplog /arrays/a "
      "rw,user_id=0,allow_other\n");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0].id, 22U);
  EXPECT_EQ(mounts[0].device, makedev(0, 21));
  EXPECT_EQ(mounts[0].directory, "/proc");
  EXPECT_EQ(mounts[0].type, "proc");
  EXPECT_EQ(mounts[0].source, "proc");
  EXPECT_EQ(mounts[0].options, "rw");
  EXPECT_FALSE(mounts[0].ours());
  EXPECT_EQ(mounts[1].id, 4294967297U);
  EXPECT_EQ(mounts[1].device, makedev(259, 1048));
  EXPECT_EQ(mounts[1].directory, "/mnt/a");
  EXPECT_EQ(mounts[1].source, "/arrays/a");
  EXPECT_EQ(mounts[1].options, "rw,user_id=0,allow_other");
  EXPECT_TRUE(mounts[1].ours());
}

TEST(MountLines, EscapesAreTakenBack) {
  const auto mounts = ParseMounts(
      "1 2 0:1 / /a\\040b\\011c\\012d\\134e rw - fuse.eplog s\\040\\054t o\\040p\n"
      "1 2 0:1 / /\\303\\244 rw - t s o\n"
      "1 2 0:1 / /\\04 rw - t s o\n"        // too short for one
      "1 2 0:1 / /\\089\\780 rw - t s o\n"  // no octal digits
      "1 2 0:1 / /a\\\\040 rw - t s o\n");
  ASSERT_EQ(mounts.size(), 5U);
  EXPECT_EQ(mounts[0].directory, "/a b\tc\nd\\e");
  EXPECT_EQ(mounts[0].source, "s ,t");
  EXPECT_EQ(mounts[0].options, "o p");
  EXPECT_EQ(mounts[1].directory, "/\xc3\xa4");
  EXPECT_EQ(mounts[2].directory, "/\\04");
  EXPECT_EQ(mounts[3].directory, "/\\089\\780");
  EXPECT_EQ(mounts[4].directory, "/a\\ ");
}

TEST(MountLines, SourcesMayBeEmptyAndOptionsMissing) {
  const auto mounts = ParseMounts(
      "1 2 0:1 / /- rw - fuse.eplog  rw\n"
      "2 2 0:1 / /b rw a b c d e - t s\n");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0].directory, "/-");
  EXPECT_EQ(mounts[0].source, "");
  EXPECT_EQ(mounts[0].options, "rw");
  EXPECT_EQ(mounts[1].type, "t");
  EXPECT_EQ(mounts[1].source, "s");
  EXPECT_EQ(mounts[1].options, "");
}

TEST(MountLines, WhatIsNoLineIsPassedOver) {
  const auto mounts = ParseMounts(
      "\n"
      "1 2 0:1 / /short\n"
      "1 2 0:1 / /nodash rw shared:1\n"
      "1 2 0:1 / /nosource rw - t\n"
      "1 2 01 / /nonumber rw - t s o\n"
      "1 2 x:1 / /nonumber rw - t s o\n"
      "1 2 0:1 / /good rw - t s o\n"
      "broken - - - - - -");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].directory, "/good");
}

TEST(MountLines, AreThoseOfAFile) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "mounts") << "7 2 0:1 / /a rw - t s o\n8 2 0:1 / /a rw - t s o\n";
  const auto mounts = ReadMounts(directory / "mounts");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0].id, 7U);
  EXPECT_EQ(mounts[1].id, 8U) << "in their order";
  EXPECT_TRUE(ReadMounts(directory / "none").empty());
  const auto none = LoadMounts(directory / "none");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().errno_value, ENOENT);
  std::ofstream(directory / "empty") << "";
  EXPECT_TRUE(LoadMounts(directory / "empty").ok()) << "it could be read";
  EXPECT_FALSE(LoadMounts(directory.path()).ok()) << "nor can a directory";
  EXPECT_FALSE(ReadMounts().empty()) << "of this process";
}

}  // namespace
}  // namespace eplog
