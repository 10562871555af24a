#include "host/typed_path.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

// `link` leads out of the array's directory, so that what lies beside where it leads to is no
// member.
TEST(TypedPath, WhatIsBehindALinkIsWhereTheLinkLeads) {
  const TempDir temp;
  fs::create_directories(temp.path() / "other" / "sub");
  fs::create_directory(temp.path() / "a");
  fs::create_symlink(temp.path() / "other" / "sub", temp.path() / "a" / "link");
  temp.Write("other/ssd0", "");
  temp.Write("a/ssd0", "");
  ArrayFile array;
  array.file = temp.path() / "a" / "array.toml";
  array.members.push_back({"ssd0", "ssd0"});

  const auto listed = ResolveDevice(array, temp.path() / "a" / "ssd0");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(array.MemberAt(*listed), "ssd0");
  const auto behind = ResolveDevice(array, temp.path() / "a" / "link" / ".." / "ssd0");
  ASSERT_TRUE(behind.ok());
  EXPECT_EQ(*behind, temp.path() / "other" / "ssd0");
  EXPECT_EQ(array.MemberAt(*behind), "");
  const auto around = ResolveDevice(array, temp.path() / "other" / ".." / "a" / "ssd0");
  ASSERT_TRUE(around.ok());
  EXPECT_EQ(array.MemberAt(*around), "ssd0");
}

}  // namespace
}  // namespace eplog
