#include "host/mount_table.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

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

}  // namespace
}  // namespace eplog
