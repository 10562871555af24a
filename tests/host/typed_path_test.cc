#include "host/typed_path.h"

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

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

// It may hang: that may be why it is named.
TEST(TypedPath, WhatIsTypedAsItIsListedIsNotLookedAt) {
  const TempDir temp;
  fs::create_directory(temp.path() / "real");
  fs::create_directory_symlink("real", temp.path() / "link");
  const std::string link = temp.path() / "link";
  ArrayFile array;
  array.file = temp.path() / "array.toml";
  array.members.push_back({"ssd0", link + "/m"});
  array.spares.push_back(link + "/s");
  const fs::path real = temp.path() / "real";
  EXPECT_EQ(*ResolveDevice(array, link + "/m"), link + "/m");
  EXPECT_EQ(*ResolveDevice(array, link + "/./m"), link + "/m");
  EXPECT_EQ(*ResolveDevice(array, link + "/s"), link + "/s");
  EXPECT_EQ(*ResolveDevice(array, link + "/other"), real / "other");
  EXPECT_EQ(*ResolveTyped(link + "/m"), real / "m");
  const fs::path before = fs::current_path();
  fs::current_path(temp.path());
  EXPECT_EQ(*ResolveDevice(array, "real/x"), real / "x");
  EXPECT_EQ(*ResolveTyped("x"), temp.path() / "x");
  fs::current_path(before);
}

TEST(TypedPath, IsThereIfSomethingIs) {
  const TempDir temp;
  const auto file = temp.Write("file", "x");
  fs::create_symlink("nothing", temp.path() / "link");
  EXPECT_TRUE(*IsThere(file));
  EXPECT_TRUE(*IsThere(temp.path()));
  EXPECT_FALSE(*IsThere(temp.path() / "none"));
  EXPECT_FALSE(*IsThere(temp.path() / "link"));
}

// Whether it was opened, the kernel tells.
TEST(TypedPath, IsOpenedToSeeWhetherItAnswersUnlessThatWouldDoSomething) {
  const TempDir temp;
  const auto opened = [](const fs::path& path) {
    const int events = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    EXPECT_GE(::inotify_add_watch(events, path.c_str(), IN_OPEN), 0);
    EXPECT_TRUE(CheckAnswers(path).ok());
    inotify_event event{};
    const bool any = ::read(events, &event, sizeof(event)) > 0;
    ::close(events);
    return any;
  };
  EXPECT_TRUE(opened(temp.Write("file", "x")));
  EXPECT_TRUE(opened(temp.path()));
  const std::string pipe = temp.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(opened(pipe)) << "its writer would take that for a reader";
  EXPECT_TRUE(CheckAnswers(temp.path() / "none").ok());
}

TEST(TypedPath, AnArgumentLeadsToAFileAndWhatItSays) {
  const TempDir temp;
  const auto none = LookAtArray(temp.path());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->file, temp.path() / "array.toml");
  EXPECT_EQ(none->array.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace eplog
