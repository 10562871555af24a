#include "host/array_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "base/file_descriptor.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr char kGood[] = R"(uuid = "0123abcd-0123-4567-89ab-0123456789ab"
name = "demo"

[[member]]
name = "ssd0"
path = "ssd0"

[[member]]
name = "log0"
path = "/dev/disk/by-id/x"
)";

constexpr char kHead[] = "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"demo\"\n";

TEST(ArrayFile, ReadsAndLocatesMembers) {
  const auto parsed = ParseArrayFile(kGood, "/a/b/array.toml");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->uuid, "0123abcd-0123-4567-89ab-0123456789ab");
  EXPECT_EQ(parsed->name, "demo");
  ASSERT_EQ(parsed->members.size(), 2U);
  EXPECT_EQ(parsed->Locate(parsed->members[0]), "/a/b/ssd0");
  EXPECT_EQ(parsed->Locate(parsed->members[1]), "/dev/disk/by-id/x");
  EXPECT_EQ(parsed->Argument(), "/a/b");
}

struct BadCase {
  const char* name;
  std::string text;
  const char* message;  // after the file's path
  friend void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }
};

class BadArrayFile : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadArrayFile, IsRefusedWithFileAndLine) {
  const auto parsed = ParseArrayFile(GetParam().text, "/x/array.toml");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(parsed.error().message.find(std::string("/x/array.toml") + GetParam().message), 0U)
      << parsed.error().message;
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos) << "one line";
}

const std::string kMember = "[[member]]\nname = \"ssd0\"\npath = \"ssd0\"\n";

INSTANTIATE_TEST_SUITE_P(
    All, BadArrayFile,
    ::testing::Values(
        BadCase{"Empty", "", ":1: 'uuid' is missing"}, BadCase{"Syntax", "uuid = \n", ":1: "},
        BadCase{"NotToml",
                "\x7f"
                "ELF\x02\x01",
                ":1: "},
        BadCase{"UnknownKey", std::string(kHead) + "level = 6\n" + kMember,
                ":3: unknown key 'level'; known here: uuid, name, member, spare"},
        BadCase{"UnknownMemberKey", kHead + kMember + "size = 3\n",
                ":6: unknown key 'size'; known here: name, path"},
        BadCase{"NoUuid", "name = \"x\"\n" + kMember, ":1: 'uuid' is missing"},
        BadCase{"UuidIsNumber", "uuid = 7\nname = \"x\"\n" + kMember,
                ":1: 'uuid' must be a string"},
        BadCase{"UuidIsNone", "uuid = \"123\"\nname = \"x\"\n" + kMember,
                ":1: '123' is not a UUID"},
        BadCase{"UuidSteersTheTerminal", "uuid = \"a\\n\\u001B[2Jb\"\nname = \"x\"\n" + kMember,
                ":1: 'a  [2Jb' is not a UUID"},
        BadCase{"EmptyName",
                "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"\"\n" + kMember,
                ":2: 'name' is empty"},
        BadCase{"LongName",
                "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"" +
                    std::string(64, 'n') + "\"\n" + kMember,
                ":2: 'name' is longer than 63 bytes"},
        BadCase{"NoMembers", kHead, ":1: no members"},
        BadCase{"MembersIsText", std::string(kHead) + "member = \"ssd0\"\n", ":3: no members"},
        BadCase{"MemberIsText", std::string(kHead) + "member = [\"ssd0\"]\n",
                ":3: 'member' must be a table"},
        BadCase{"MemberWithoutPath", std::string(kHead) + "[[member]]\nname = \"ssd0\"\n",
                ":3: 'path' is missing"},
        BadCase{"MemberWithoutName", std::string(kHead) + "[[member]]\npath = \"ssd0\"\n",
                ":3: 'name' is missing"},
        BadCase{"PathIsNumber", std::string(kHead) + "[[member]]\nname = \"ssd0\"\npath = 0\n",
                ":5: 'path' must be a string"},
        BadCase{"StrangeMemberName",
                std::string(kHead) + "[[member]]\nname = \"hdd0\"\npath = \"a\"\n",
                ":4: 'hdd0' is no member name"},
        BadCase{"PaddedMemberName",
                std::string(kHead) + "[[member]]\nname = \"ssd00\"\npath = \"a\"\n",
                ":4: 'ssd00' is no member name"},
        BadCase{"DoubledName", kHead + kMember + "[[member]]\nname = \"ssd0\"\npath = \"b\"\n",
                ":7: member 'ssd0' is listed twice"},
        BadCase{"DoubledPath",
                kHead + kMember + "[[member]]\nname = \"ssd1\"\npath = \"../x/./ssd0\"\n",
                ":8: '../x/./ssd0' is the path of ssd0 and of ssd1"},
        BadCase{"SpareIsText", std::string(kHead) + "spare = \"x\"\n" + kMember,
                ":3: 'spare' must be a table"},
        BadCase{"SpareListIsText", std::string(kHead) + "spare = [\"x\"]\n" + kMember,
                ":3: 'spare' must be a table"},
        BadCase{"SpareWithoutPath", kHead + kMember + "[[spare]]\n", ":6: 'path' is missing"},
        BadCase{"SpareWithName", kHead + kMember + "[[spare]]\npath = \"x\"\nname = \"s\"\n",
                ":8: unknown key 'name'; known here: path"},
        BadCase{"DoubledSpare",
                kHead + kMember + "[[spare]]\npath = \"x\"\n[[spare]]\npath = \"./x\"\n",
                ":9: spare './x' is listed twice"},
        BadCase{"SpareIsMember", kHead + kMember + "[[spare]]\npath = \"/x/ssd0\"\n",
                ":7: '/x/ssd0' is the path of ssd0 and of a spare"},
        BadCase{"DoubledKey", std::string(kHead) + "name = \"y\"\n" + kMember, ":3: "}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ArrayFile, FormatAndParseAgree) {
  ArrayFile array;
  array.file = "/x/array.toml";
  array.uuid = "0123abcd-0123-4567-89ab-0123456789ab";
  array.name = "quo\"te \\ back\tslash \xC3\xA9";
  array.members = {{"ssd0", "with space"}, {"ssd31", "/dev/\"odd\""}, {"log3", "b#c"}};
  array.spares = {"a spare", "/dev/sd\"x\""};
  const auto parsed = ParseArrayFile(FormatArrayFile(array), array.file);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->uuid, array.uuid);
  EXPECT_EQ(parsed->name, array.name);
  EXPECT_EQ(parsed->members, array.members);
  EXPECT_EQ(parsed->spares, array.spares);
}

TEST(ArrayFile, SparesAreAddedAndDroppedByPath) {
  auto array = ParseArrayFile(kGood, "/a/b/array.toml");
  ASSERT_TRUE(array.ok());
  array->AddSpare("/a/b/below/s0");
  array->AddSpare("/dev/sdx");
  array->AddSpare("/dev/sdx");
  EXPECT_EQ(array->spares, (std::vector<std::string>{"below/s0", "/dev/sdx"}));
  EXPECT_TRUE(array->ListsSpare("/a/b/below/s0"));
  EXPECT_FALSE(array->ListsSpare("/a/b/ssd0"));
  array->DropSpare("/a/b/below/s0");
  EXPECT_EQ(array->spares, std::vector<std::string>{"/dev/sdx"});
}

TEST(ArrayFile, SpareThatSteppedInIsNoSpareAnyMore) {
  auto array = ParseArrayFile(kGood, "/a/b/array.toml");
  ASSERT_TRUE(array.ok());
  array->AddSpare("/dev/sdx");
  array->AddSpare("/a/b/s1");
  array->MoveMember("ssd0", "/dev/sdx");
  array->MoveMember("log1", "/a/b/s1");  // one that was not listed
  EXPECT_TRUE(array->spares.empty());
  const std::vector<MemberPath> expected = {
      {"ssd0", "/dev/sdx"}, {"log0", "/dev/disk/by-id/x"}, {"log1", "s1"}};
  EXPECT_EQ(array->members, expected);
  EXPECT_TRUE(ParseArrayFile(FormatArrayFile(*array), array->file).ok());
}

TEST(ArrayFile, ChangesDoNotUndoEachOther) {
  const TempDir dir;
  dir.Write("array.toml", kGood);
  auto one = LoadArrayFile(dir.path());
  auto other = LoadArrayFile(dir.path());
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE(ChangeArrayFile(*one, [](ArrayFile& file) { file.AddSpare("/dev/sdx"); }).ok());
  ASSERT_TRUE(
      ChangeArrayFile(*other, [](ArrayFile& file) { file.MoveMember("ssd0", "/dev/sdy"); }).ok());
  EXPECT_EQ(other->spares, std::vector<std::string>{"/dev/sdx"});
  const auto written = LoadArrayFile(dir.path());
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->spares, other->spares);
  EXPECT_EQ(written->members, other->members);
  EXPECT_EQ(written->members.front().path, "/dev/sdy");
}

TEST(ArrayFile, WriteReplacesAndLeavesNothingBehind) {
  const TempDir dir;
  auto array = ParseArrayFile(kGood, dir.path() / "array.toml");
  ASSERT_TRUE(array.ok());
  dir.Write("array.toml", "old");
  ASSERT_TRUE(WriteArrayFile(*array).ok());
  const auto loaded = LoadArrayFile(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->members, array->members);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

// By either name the same file is written, and the same directory is locked meanwhile.
TEST(ArrayFile, LinkStaysOneAndWhatItLeadsToIsWritten) {
  const TempDir links;
  const TempDir dir;
  dir.Write("real.toml", kGood);
  std::filesystem::create_symlink(dir.path() / "real.toml", links.path() / "between");
  std::filesystem::create_symlink("between", links.path() / "array.toml");
  auto array = LoadArrayFile(links.path());
  ASSERT_TRUE(array.ok()) << array.error().message;
  bool locked = false;
  const Status changed = ChangeArrayFile(*array, [&](ArrayFile& now) {
    now.MoveMember("ssd0", "/dev/sdx");
    const FileDescriptor fd(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    locked = ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
  });
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  EXPECT_TRUE(locked);
  EXPECT_TRUE(std::filesystem::is_symlink(links.path() / "array.toml"));
  EXPECT_TRUE(std::filesystem::is_symlink(links.path() / "between"));
  const auto target = LoadArrayFile(dir.path() / "real.toml");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->members.front().path, "/dev/sdx");
  // Also where it leads to nothing now.
  std::filesystem::remove(dir.path() / "real.toml");
  ASSERT_TRUE(ChangeArrayFile(*array, [](ArrayFile&) {}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(links.path() / "array.toml"));
  EXPECT_TRUE(LoadArrayFile(dir.path() / "real.toml").ok());
}

TEST(ArrayFile, WriteIntoNowhereFails) {
  auto array = ParseArrayFile(kGood, "/no/such/directory/array.toml");
  ASSERT_TRUE(array.ok());
  EXPECT_FALSE(WriteArrayFile(*array).ok());
}

TEST(ArrayFile, ArgumentMayBeDirectoryOrFile) {
  const TempDir dir;
  dir.Write("array.toml", kGood);
  dir.Write("other.toml", kGood);
  EXPECT_EQ(ArrayFilePath(dir.path()), dir.path() / "array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path().string() + "/"), dir.path() / "array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "other.toml"), dir.path() / "other.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "new"), dir.path() / "new/array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "new.toml"), dir.path() / "new.toml");
  EXPECT_EQ(LoadArrayFile(dir.path() / "other.toml")->Argument(), dir.path() / "other.toml");
}

TEST(ArrayFile, LinkedDirectoriesAreOneArray) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "real");
  dir.Write("real/array.toml", kGood);
  std::filesystem::create_directory_symlink("real", dir.path() / "link");
  EXPECT_EQ(ArrayFilePath(dir.path() / "link"), dir.path() / "real/array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "link/array.toml"), dir.path() / "real/array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "link/../link/"), dir.path() / "real/array.toml");
}

// A link that leads to itself cannot be followed, as a directory that may not be entered cannot.
TEST(ArrayFile, WhatCannotBeLookedAtIsNotTheWorkingDirectory) {
  const TempDir dir;
  std::filesystem::create_symlink("loop", dir.path() / "loop");
  EXPECT_EQ(ArrayFilePath(dir.path() / "loop/a"), dir.path() / "loop/a/array.toml");
  EXPECT_EQ(ArrayFilePath(dir.path() / "loop/a.toml"), dir.path() / "loop/a.toml");
  EXPECT_EQ(ResolveParent(dir.path() / "loop/a/b"), dir.path() / "loop/a/b");
}

// `link` leads out of the array's directory.
TEST(ArrayFile, AMemberBehindALinkIsWhereTheLinkLeads) {
  namespace fs = std::filesystem;
  const TempDir dir;
  fs::create_directories(dir.path() / "other/sub");
  fs::create_directory(dir.path() / "a");
  fs::create_symlink(dir.path() / "other/sub", dir.path() / "a/link");
  dir.Write("other/ssd0", "");
  dir.Write("a/ssd0", "");
  ArrayFile array;
  array.file = dir.path() / "a/array.toml";
  EXPECT_EQ(fs::canonical(array.LocatePath("link/../ssd0")), dir.path() / "other/ssd0");
  const std::string whole = (dir.path() / "a/link/../ssd0").string();
  EXPECT_EQ(fs::canonical(array.LocatePath(whole)), dir.path() / "other/ssd0");
  // Where no link can be, in writing: nothing needs to be there.
  EXPECT_EQ(array.LocatePath("./../none/ssd0"), dir.path() / "none/ssd0");
  EXPECT_EQ(array.LocatePath("../../x"), dir.path().parent_path() / "x");
  EXPECT_EQ(array.LocatePath("/dev/./sdx"), "/dev/sdx");
}

TEST(ArrayFile, MissingArrayNamesTheMend) {
  const TempDir dir;
  const auto loaded = LoadArrayFile(dir.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_NE(loaded.error().message.find("eplog create"), std::string::npos)
      << loaded.error().message;
}

TEST(ArrayFile, HugeFileIsRefused) {
  const TempDir dir;
  dir.WriteSparse("array.toml", uint64_t{1} << 30);
  EXPECT_FALSE(LoadArrayFile(dir.path()).ok());
}

// ---- members that are not where the file says

ArrayFile Listing(const std::vector<MemberPath>& members, const std::vector<std::string>& spares) {
  ArrayFile array;
  array.file = "/a/array.toml";
  array.members = members;
  array.spares = spares;
  return array;
}

TEST(ArrayFile, MembersThatExchangedPlaces) {
  ArrayFile array = Listing({{"ssd0", "x"}, {"ssd1", "y"}, {"ssd2", "z"}, {"log0", "/dev/l"}}, {});
  EXPECT_TRUE(array.PlaceMembers({{"ssd0", "/a/z"}, {"ssd1", "/a/x"}, {"ssd2", "/a/y"}}));
  EXPECT_EQ(array.members, (std::vector<MemberPath>{
                               {"ssd0", "z"}, {"ssd1", "x"}, {"ssd2", "y"}, {"log0", "/dev/l"}}));
  EXPECT_FALSE(array.PlaceMembers({{"ssd0", "/a/z"}, {"log0", "/dev/l"}}));
}

TEST(ArrayFile, WhoseDeviceIsGoneGetsThePlaceThatIsLeft) {
  // ssd1 is where ssd0 was, ssd2 where ssd1 was; ssd0 is gone.
  ArrayFile array = Listing({{"ssd0", "x"}, {"ssd1", "y"}, {"ssd2", "z"}}, {});
  EXPECT_TRUE(array.PlaceMembers({{"ssd1", "/a/x"}, {"ssd2", "/a/y"}}));
  EXPECT_EQ(array.members, (std::vector<MemberPath>{{"ssd0", "z"}, {"ssd1", "x"}, {"ssd2", "y"}}));
  // Where nothing is left it is not listed: its name is still the array's.
  array = Listing({{"ssd0", "x"}, {"ssd1", "y"}}, {});
  EXPECT_TRUE(array.PlaceMembers({{"ssd0", "/a/y"}, {"ssd1", "/b/new"}}));
  EXPECT_EQ(array.members, (std::vector<MemberPath>{{"ssd0", "y"}, {"ssd1", "/b/new"}}));
}

// However their paths are written, and in whatever order.
// A member was opened by the path that is listed: through "b", should that be a link.
TEST(ArrayFile, WhereNothingMovedNothingIsTouched) {
  const std::vector<MemberPath> listed = {
      {"log0", "../l"}, {"ssd2", "./z"}, {"ssd1", "/a/y"}, {"ssd0", "b/../x"}};
  ArrayFile array = Listing(listed, {"./s"});
  EXPECT_FALSE(array.PlaceMembers(
      {{"ssd0", "/a/b/../x"}, {"ssd1", "/a/y"}, {"ssd2", "/a/z"}, {"log0", "/l"}}));
  EXPECT_EQ(array.members, listed);
  array.MoveMember("ssd2", "/a/z");
  EXPECT_EQ(array.members, listed);
  // Only what moved, each in its line.
  EXPECT_TRUE(array.PlaceMembers({{"ssd0", "/a/b/../x"}, {"ssd2", "/l"}, {"log0", "/a/z"}}));
  EXPECT_EQ(array.members,
            (std::vector<MemberPath>{
                {"log0", "z"}, {"ssd2", "/l"}, {"ssd1", "/a/y"}, {"ssd0", "b/../x"}}));
  EXPECT_EQ(array.spares, std::vector<std::string>{"./s"});
}

// Comments of the owner's are lost only where there is something to write.
TEST(ArrayFile, ChangeOfNothingWritesNothing) {
  const TempDir dir;
  const std::string text = std::string(kGood) + "# mine\n";
  dir.Write("array.toml", text);
  auto array = LoadArrayFile(dir.path());
  ASSERT_TRUE(array.ok());
  const auto ssd0_is_where_it_is = [&](ArrayFile& now) {
    now.PlaceMembers({{"ssd0", (dir.path() / "ssd0").string()}});
  };
  ASSERT_TRUE(ChangeArrayFile(*array, ssd0_is_where_it_is).ok());
  std::ifstream in(dir.path() / "array.toml");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
}

TEST(ArrayFile, OfAnotherArrayByNowItIsNotChanged) {
  const TempDir dir;
  dir.Write("array.toml", kGood);
  auto array = LoadArrayFile(dir.path());
  ASSERT_TRUE(array.ok());
  std::string other = kGood;
  other[other.find('0')] = 'f';
  dir.Write("array.toml", other);
  const Status changed = ChangeArrayFile(*array, [](ArrayFile& now) { now.AddSpare("/dev/sdx"); });
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().code, ErrorCode::kBusy);
  EXPECT_NE(changed.error().message.find("is another array's by now"), std::string::npos)
      << changed.error().message;
  std::ifstream in(dir.path() / "array.toml");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), other);
}

// As a serving process says what stood there: members as they are held, spares as they were listed.
TEST(ArrayFile, WrittenAnewAMemberIsNoSpare) {
  const TempDir dir;
  auto array = ParseArrayFile(kGood, dir.path() / "array.toml");
  ASSERT_TRUE(array.ok());
  array->spares = {"s", "./ssd0"};
  ASSERT_TRUE(ChangeArrayFile(*array, [](ArrayFile&) {}).ok());
  EXPECT_EQ(LoadArrayFile(dir.path())->spares, std::vector<std::string>{"s"});
}

TEST(ArrayFile, ASpareThatBecameAMemberIsNoneAnyMore) {
  ArrayFile array = Listing({{"ssd0", "x"}, {"ssd1", "y"}}, {"s", "t"});
  EXPECT_TRUE(array.PlaceMembers({{"ssd0", "/a/s"}, {"ssd1", "/a/y"}}));
  EXPECT_EQ(array.members, (std::vector<MemberPath>{{"ssd0", "s"}, {"ssd1", "y"}}));
  EXPECT_EQ(array.spares, std::vector<std::string>{"t"});
}

TEST(ArrayFile, WhatIsGoneIsWrittenAnew) {
  const TempDir dir;
  auto array = ParseArrayFile(kGood, dir.path() / "array.toml");
  ASSERT_TRUE(array.ok());
  ASSERT_TRUE(ChangeArrayFile(*array, [](ArrayFile& now) { now.name = "anew"; }).ok());
  EXPECT_EQ(LoadArrayFile(dir.path())->name, "anew");
  // What cannot be read is somebody's work.
  dir.Write("array.toml", "garbled [[[");
  EXPECT_FALSE(ChangeArrayFile(*array, [](ArrayFile& now) { now.name = "other"; }).ok());
  std::ifstream in(dir.path() / "array.toml");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "garbled [[[");
}

}  // namespace
}  // namespace eplog
