// The edges of what array.toml may say, and what is said where it cannot be read or written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "host/array_file.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr char kUuid[] = "0123abcd-0123-4567-89ab-0123456789ab";

ArrayFile In(const fs::path& file) {
  ArrayFile array;
  array.file = file;
  array.uuid = kUuid;
  array.name = "demo";
  array.members = {{"ssd0", "ssd0"}};
  return array;
}

std::string TextOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> FilesIn(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// ---- names and UUIDs

TEST(ArrayFileNames, OfMembersAreAKindAndANumber) {
  for (const char* name : {"ssd0", "ssd9", "ssd10", "ssd31", "ssd99", "log0", "log3"}) {
    EXPECT_TRUE(IsMemberName(name)) << name;
  }
  for (const char* name : {"", "ssd", "log", "ssd00", "ssd01", "log03", "ssd100", "ssd-1", "ssd/",
                           "ssd:", "ssd1x", "ssd x", "hdd0", "SSD0", "lo0", "sd0", "ssdlog0"}) {
    EXPECT_FALSE(IsMemberName(name)) << name;
  }
}

TEST(ArrayFileNames, OfMembersAreInOrder) {
  const std::vector<std::string> ordered = {"ssd0",  "ssd1", "ssd9", "ssd10",
                                            "ssd11", "log0", "log1", "log10"};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(MemberBefore(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
    }
  }
}

TEST(ArrayFileNames, AUuidIsDigitsWithFourDashes) {
  const auto parses = [](const std::string& uuid) {
    ArrayFile array = In("/x/array.toml");
    array.uuid = uuid;
    return ParseArrayFile(FormatArrayFile(array), array.file).ok();
  };
  const std::string good = kUuid;
  EXPECT_TRUE(parses(good));
  EXPECT_TRUE(parses("ABCDEF01-2345-6789-abcd-ef0123456789"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = good[i] == '-' ? '0' : '-';
    EXPECT_FALSE(parses(bad)) << bad;
    bad[i] = 'g';
    EXPECT_FALSE(parses(bad)) << bad;
  }
  EXPECT_FALSE(parses(good + "0"));
  EXPECT_FALSE(parses(good.substr(1)));
}

TEST(ArrayFileNames, OfArraysHave63BytesAtMostAndNoNul) {
  ArrayFile array = In("/x/array.toml");
  array.name = std::string(63, 'n');
  EXPECT_TRUE(ParseArrayFile(FormatArrayFile(array), array.file).ok());
  array.name = std::string("a\0b", 3);
  const auto nul = ParseArrayFile(FormatArrayFile(array), array.file);
  ASSERT_FALSE(nul.ok());
  EXPECT_EQ(nul.error().message, "/x/array.toml:3: 'name' is empty or has a NUL in it");
}

// Whatever a name holds is read again as it was.
TEST(ArrayFileNames, EveryByteOfTextIsKept) {
  ArrayFile array = In("/x/array.toml");
  for (int byte = 1; byte < 0x80; ++byte) {
    array.name = std::string("a") + static_cast<char>(byte) + "b";
    const auto parsed = ParseArrayFile(FormatArrayFile(array), array.file);
    ASSERT_TRUE(parsed.ok()) << byte << parsed.error().message;
    EXPECT_EQ(parsed->name, array.name) << byte;
  }
  array.name = "\x1F\x7F \"\\";
  EXPECT_EQ(FormatArrayFile(array),
            "# Where the members of this array are. The truth about the array is in its "
            "superblocks.\nuuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\n"
            "name = \"\\u001F\\u007F \\\"\\\\\"\n\n[[member]]\nname = \"ssd0\"\npath = \"ssd0\"\n");
}

// ---- paths

TEST(ArrayFilePaths, AreRelativeWhereTheyLieInTheDirectory) {
  const ArrayFile array = In("/a/b/array.toml");
  EXPECT_EQ(PathFor(array, "/a/b/c"), "c");
  EXPECT_EQ(PathFor(array, "/a/b/c/d"), "c/d");
  EXPECT_EQ(PathFor(array, "/a/bb/c"), "/a/bb/c");
  EXPECT_EQ(PathFor(array, "/a/c"), "/a/c");
  EXPECT_EQ(PathFor(array, "/dev/sdx"), "/dev/sdx");
}

TEST(ArrayFilePaths, AreCleanedOnlyWhereNoLinkCanBe) {
  const ArrayFile array = In("/a/b/array.toml");
  EXPECT_EQ(array.LocatePath("./x//y/."), "/a/b/x/y/");
  EXPECT_EQ(array.LocatePath("../x"), "/a/x");
  EXPECT_EQ(array.LocatePath("./.././x"), "/a/x");
  EXPECT_EQ(array.LocatePath("/../x"), "/x");
  EXPECT_EQ(array.LocatePath("c/../x"), "/a/b/c/../x") << "c may be a link";
  EXPECT_EQ(array.LocatePath("../c/../x"), "/a/b/../c/../x");
}

TEST(ArrayFilePaths, OfAnArgumentNeedNotBeThere) {
  const TempDir dir;
  dir.Write("plain", "x");
  fs::create_directory(dir.path() / "odd.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "plain"), dir.path() / "plain")
      << "a file, whatever its name";
  EXPECT_EQ(ArrayFilePath(dir.path() / "odd.toml"), dir.path() / "odd.toml/array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "new/"), dir.path() / "new/array.toml");
  EXPECT_EQ(ResolveParent(dir.path() / "odd.toml/.."), dir.path());
  EXPECT_EQ(ResolveParent(dir.path() / "odd.toml/."), dir.path() / "odd.toml");
  EXPECT_EQ(ResolveParent(dir.path().string() + "/"), dir.path());
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  EXPECT_EQ(ResolveParent("plain"), dir.path() / "plain");
  EXPECT_EQ(ArrayFilePath("."), dir.path() / "array.toml");
  EXPECT_EQ(ArrayFilePath("x.toml"), dir.path() / "x.toml");
  fs::current_path(before);
}

TEST(ArrayFilePaths, OfMembersAndSparesAreCompared) {
  ArrayFile array = In("/a/array.toml");
  array.members = {{"ssd0", "x"}, {"ssd1", "/b/y"}};
  array.spares = {"s", "/b/t"};
  EXPECT_EQ(array.MemberAt("/a/x"), "ssd0");
  EXPECT_EQ(array.MemberAt("/b/y"), "ssd1");
  EXPECT_EQ(array.MemberAt("/a/s"), "");
  EXPECT_TRUE(array.ListsSpare("/b/t"));
  EXPECT_FALSE(array.ListsSpare("/a/t"));
  array.MoveMember("ssd0", "/b/y");  // which is ssd1's no more
  EXPECT_EQ(array.members, (std::vector<MemberPath>{{"ssd0", "/b/y"}}));
  EXPECT_EQ(array.spares, (std::vector<std::string>{"s", "/b/t"}));
}

// The first that lost its place gets the first that is left.
TEST(ArrayFilePaths, PlacesThatAreLeftAreGivenAwayInOrder) {
  ArrayFile array = In("/a/array.toml");
  array.members = {{"ssd0", "p"}, {"ssd1", "q"}, {"ssd2", "r"}, {"ssd3", "t"}};
  EXPECT_TRUE(array.PlaceMembers({{"ssd2", "/a/p"}, {"ssd3", "/a/q"}}));
  EXPECT_EQ(array.members,
            (std::vector<MemberPath>{{"ssd0", "r"}, {"ssd1", "t"}, {"ssd2", "p"}, {"ssd3", "q"}}));
  array.spares = {"u"};
  EXPECT_FALSE(array.PlaceMembers({{"ssd2", "/a/p"}}));
  EXPECT_TRUE(array.PlaceMembers({{"ssd2", "/a/u"}})) << "it is no spare any more";
  EXPECT_TRUE(array.spares.empty());
}

// ---- files that cannot be read

TEST(ArrayFileReading, WhatIsNoArrayIsSaidToBe) {
  const TempDir dir;
  fs::create_directory(dir.path() / "array.toml");
  const auto of = [&](const fs::path& argument) {
    const auto loaded = LoadArrayFile(argument);
    EXPECT_FALSE(loaded.ok());
    return std::string(ErrorCodeName(loaded.error().code)) + ": " + loaded.error().message;
  };
  const std::string at = dir.path();
  EXPECT_EQ(of(dir.path()),
            "not found: " + at + " is neither an array's directory nor its array.toml");
  EXPECT_EQ(of(dir.path() / "none"), "not found: no array at " + at + "/none: there is no " + at +
                                         "/none/array.toml; 'eplog create' makes one");
  dir.Write("file", "x");
  EXPECT_EQ(of(dir.path() / "file/a.toml"), "not found: no array at " + at +
                                                "/file/a.toml: there is no " + at +
                                                "/file/a.toml; 'eplog create' makes one");
  fs::create_symlink("loop.toml", dir.path() / "loop.toml");
  EXPECT_EQ(of(dir.path() / "loop.toml"), "io: cannot look at " + at + "/loop.toml");
}

TEST(ArrayFileReading, AMebibyteIsTheMost) {
  const TempDir dir;
  const std::string text = FormatArrayFile(In(dir.path() / "array.toml"));
  constexpr size_t kMost = size_t{1} << 20;
  dir.Write("array.toml", text + std::string(kMost - text.size(), '\n'));
  EXPECT_TRUE(LoadArrayFile(dir.path()).ok());
  dir.Write("array.toml", text + std::string(kMost - text.size() + 1, '\n'));
  const auto loaded = LoadArrayFile(dir.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(loaded.error().message,
            (dir.path() / "array.toml").string() + " is too large for an array.toml");
}

// ---- files that are written

TEST(ArrayFileWriting, LeavesAFileThatOthersMayRead) {
  const TempDir dir;
  const mode_t mask = ::umask(022);
  ASSERT_TRUE(WriteArrayFile(In(dir.path() / "array.toml")).ok());
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat((dir.path() / "array.toml").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644U);
  // What a killed writer with the same number left is no hindrance, and does not stay.
  const std::string left = "array.toml." + std::to_string(::getpid()) + ".tmp";
  dir.Write(left, std::string(10000, 'x'));
  ASSERT_TRUE(WriteArrayFile(In(dir.path() / "array.toml")).ok());
  EXPECT_EQ(TextOf(dir.path() / "array.toml"), FormatArrayFile(In("")));
  EXPECT_EQ(FilesIn(dir.path()), std::vector<std::string>{"array.toml"});
}

TEST(ArrayFileWriting, WhatCannotBeWrittenIsSaidAndLeavesNothing) {
  const TempDir dir;
  const ArrayFile nowhere = In(dir.path() / "none/array.toml");
  const std::string temporary = nowhere.file.string() + "." + std::to_string(::getpid()) + ".tmp";
  EXPECT_EQ(WriteArrayFile(nowhere).error().message, "cannot create " + temporary);
  EXPECT_EQ(CheckWritable(nowhere).error().message, "cannot create " + temporary);
  ArrayFile gone = nowhere;
  EXPECT_EQ(ChangeArrayFile(gone, [](ArrayFile&) {}).error().message,
            "cannot open the directory " + (dir.path() / "none").string());
  fs::create_directories(dir.path() / "array.toml/full");
  const Status taken = WriteArrayFile(In(dir.path() / "array.toml"));
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().message, "cannot rename to " + (dir.path() / "array.toml").string());
  EXPECT_EQ(FilesIn(dir.path()), std::vector<std::string>{"array.toml"});
}

TEST(ArrayFileWriting, OnlyTryingLeavesEverythingAsItWas) {
  const TempDir dir;
  dir.Write("array.toml", "old");
  EXPECT_TRUE(CheckWritable(In(dir.path() / "array.toml")).ok());
  EXPECT_EQ(TextOf(dir.path() / "array.toml"), "old");
  EXPECT_EQ(FilesIn(dir.path()), std::vector<std::string>{"array.toml"});
}

TEST(ArrayFileWriting, WhatCouldNotBeReadAgainIsNotWritten) {
  ArrayFile array = In("/x/array.toml");
  EXPECT_TRUE(CheckReadable(array).ok());
  array.spares = {"./ssd0"};
  Status unreadable = CheckReadable(array);
  ASSERT_FALSE(unreadable.ok());
  EXPECT_EQ(unreadable.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unreadable.error().message,
            "array.toml is left as it is: it would be /x/array.toml:10: './ssd0' is the path of "
            "ssd0 and of a spare");
  EXPECT_EQ(CheckWritable(array).error().message, unreadable.error().message);
  const std::string no_text =
      " is not UTF-8, and array.toml can name no such path: give a link to it";
  array.spares = {"a\xFF"};
  EXPECT_EQ(CheckReadable(array).error().message, "a\xFF" + no_text);
  array.spares = {};
  array.members[0].path = "b\xFF";
  EXPECT_EQ(CheckReadable(array).error().message, "b\xFF" + no_text);
  EXPECT_EQ(CheckReadable(array).error().code, ErrorCode::kInvalidArgument);
}

TEST(ArrayFileWriting, AChangeThatCannotBeReadAgainIsNone) {
  const TempDir dir;
  ArrayFile array = In(dir.path() / "array.toml");
  ASSERT_TRUE(WriteArrayFile(array).ok());
  const std::string before = TextOf(array.file);
  EXPECT_FALSE(ChangeArrayFile(array, [](ArrayFile& now) { now.name = ""; }).ok());
  EXPECT_EQ(TextOf(array.file), before);
  EXPECT_EQ(array.name, "demo") << "nothing stands there but what stood there";
}

TEST(ArrayFileWriting, LinksThatLeadInACircleAreNotFollowedForEver) {
  const TempDir dir;
  fs::create_symlink("b.toml", dir.path() / "a.toml");
  fs::create_symlink("a.toml", dir.path() / "b.toml");
  ASSERT_TRUE(WriteArrayFile(In(dir.path() / "a.toml")).ok()) << "one of them is replaced";
  EXPECT_TRUE(LoadArrayFile(dir.path() / "a.toml").ok());
}

TEST(ArrayFileWriting, AnothersIsWhatHasAnotherUuid) {
  const TempDir dir;
  const ArrayFile array = In(dir.path() / "array.toml");
  EXPECT_FALSE(IsAnothersByNow(array)) << "nothing is there";
  ASSERT_TRUE(WriteArrayFile(array).ok());
  EXPECT_FALSE(IsAnothersByNow(array));
  ArrayFile other = array;
  other.uuid[0] = 'f';
  ASSERT_TRUE(WriteArrayFile(other).ok());
  EXPECT_TRUE(IsAnothersByNow(array));
  ArrayFile mine = array;
  const Status changed = ChangeArrayFile(mine, [](ArrayFile&) {});
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().message, array.file.string() + " is another array's by now ('demo', " +
                                         other.uuid + "), and is left as it is");
  dir.Write("array.toml", "garbled [[[");
  EXPECT_FALSE(IsAnothersByNow(array));
}

}  // namespace
}  // namespace eplog
