// What an array keeps or makes beside its devices, where something goes wrong on the way; and lines
// of the kernel's that are none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "format/superblock.h"
#include "host/make_file.h"
#include "host/mount_lines.h"
#include "host/scrub_mark.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

class KeptBeside : public testing::Test {
 protected:
  KeptBeside() {
    file_.file = dir_.path() / kArrayFileName;
    file_.uuid = "00000000-0000-4000-8000-000000000001";
    file_.name = "demo";
  }

  TempDir dir_;
  ArrayFile file_;
};

// ---- how far a scrub has come

// Half of a newer one is worth less than the whole of the older one.
TEST_F(KeptBeside, AMarkThatCannotBeWrittenWholeLeavesTheOneBefore) {
  if (::access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "needs /dev/full";
  }
  ScrubMark mark;
  mark.heal = true;
  mark.next_stripe = 5;
  {
    ScrubMarkFile marks(file_);
    marks.Keep(mark);
  }
  const std::string before = ReadText(ScrubMarkPath(file_));
  ASSERT_NE(before, "");
  fs::create_symlink("/dev/full", ScrubMarkPath(file_).string() + ".new");
  {
    ScrubMarkFile marks(file_);
    mark.next_stripe = 6;
    marks.Keep(mark);
  }
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(ScrubMarkPath(file_))));
  EXPECT_EQ(ReadText(ScrubMarkPath(file_)), before);
}

// ---- files that are made for a change

// It may have become a member: what bears a superblock is never removed, whatever became of that.
TEST_F(KeptBeside, AMadeFileStaysWhereItsSuperblockCannotBeReadRight) {
  std::vector<std::byte> torn(kSuperblockCopyBytes);
  EncodeSuperblock(MemberSuperblock(), torn);
  torn.back() ^= std::byte{1};
  std::vector<std::byte> newer(kSuperblockCopyBytes);
  Superblock later = MemberSuperblock();
  later.version = kFormatVersion + 1;
  EncodeSuperblock(later, newer);
  for (const auto& [name, bytes] : {std::pair("torn", torn), std::pair("newer", newer)}) {
    const fs::path path = dir_.path() / name;
    {
      MadeFile made(path);
      ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    EXPECT_TRUE(fs::exists(path)) << name;
  }
}

// ---- what the kernel has mounted

// The first six fields are always there; a dash among them is none that ends the tags.
TEST(MountLinesCutShort, AreNone) {
  for (const char* line : {
           "- 2 0:1 / /a rw",
           "1 - 0:1 / /a rw",
           "1 2 0:1 - t s",
           "1 2 0:1 / - t s o",
           "1 2 0:1 / /a - t s o",
       }) {
    EXPECT_TRUE(ParseMounts(std::string(line) + "\n").empty()) << line;
  }
  const auto mounts = ParseMounts("1 2 0:1 - - - - t s o\n");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].directory, "-");
  EXPECT_EQ(mounts[0].type, "t");
  EXPECT_EQ(mounts[0].source, "s");
  EXPECT_EQ(mounts[0].options, "o");
}

}  // namespace
}  // namespace eplog
