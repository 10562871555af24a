// Where files are made for devices, and which of them stay.
#include "host/make_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "device/file_device.h"
#include "format/superblock.h"
#include "runtime/io_uring_loop.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

class MadeFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!IoUringLoop::Create().ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    file_.file = dir_.path() / "array.toml";
    file_.name = "demo";
  }
  [[nodiscard]] std::string MayMake(const fs::path& path, bool asked) const {
    const Status may = MadeFile(path).MayMake(file_, asked);
    return may.ok() ? "ok"
                    : std::string(ErrorCodeName(may.error().code)) + ": " + may.error().message;
  }
  [[nodiscard]] fs::path At(const std::string& name) const { return dir_.path() / name; }

  TempDir dir_;
  ArrayFile file_;
};

TEST(AmongDevices, IsWhatLiesInTheirDirectory) {
  const TempDir dir;
  fs::create_symlink("/dev", dir.path() / "link");
  const struct {
    fs::path path;
    bool among;
  } cases[] = {
      {"/dev/sdx", true},
      {"/dev/none/below/x", true},
      {dir.path() / "link/x", true},
      {"/dev/shm/x", false},
      {"/dev/shm/a/x", false},
      {"/devices/x", false},
      {dir.path() / "x", false},
      {"/x", false},
  };
  for (const auto& each : cases) {
    const auto among = IsAmongDevices(each.path);
    ASSERT_TRUE(among.ok());
    EXPECT_EQ(*among, each.among) << each.path;
  }
}

TEST_F(MadeFiles, AreNotMadeWhereNobodyWantsThem) {
  const TempDir other;
  fs::create_symlink("nothing", At("link"));
  EXPECT_EQ(MayMake(At("new"), false), "ok");
  EXPECT_EQ(MayMake(At("link"), true), "not found: " + At("link").string() +
                                           " is a link to nothing; give what it should lead to");
  EXPECT_EQ(MayMake("/dev/nothing", true),
            "not found: there is no /dev/nothing, and files are not made in /dev");
  const std::string elsewhere = other.path() / "new";
  EXPECT_EQ(MayMake(elsewhere, false),
            "not found: there is no " + elsewhere + "; --make-file makes a file there");
  EXPECT_EQ(MayMake(elsewhere, true), "ok");
  EXPECT_EQ(MayMake(dir_.path().parent_path() / "new", false).rfind("not found: there is no ", 0),
            0U)
      << "above the array's directory";
  MadeFile made(elsewhere);
  EXPECT_FALSE(made.Make("test", file_, 4096, false).ok());
  EXPECT_FALSE(fs::exists(elsewhere));
}

TEST_F(MadeFiles, AreAsLargeAsAskedAndKnown) {
  MadeFile made(At("new"));
  ASSERT_TRUE(made.Make("test", file_, 8192, false).ok());
  EXPECT_EQ(fs::file_size(At("new")), 8192U);
  EXPECT_EQ(made.probed().size_bytes, 8192U);
  EXPECT_EQ(made.probed().identity, *IdentifyDevice(At("new")));
}

TEST_F(MadeFiles, WhatIsThereAlreadyIsLeftAlone) {
  dir_.Write("mine", "text");
  {
    MadeFile made(At("mine"));
    EXPECT_FALSE(made.Make("test", file_, 4096, true).ok());
  }
  EXPECT_EQ(fs::file_size(At("mine")), 4U);
  EXPECT_FALSE(MadeFile(At("none/new")).Make("test", file_, 4096, false).ok());
}

TEST_F(MadeFiles, StayWhereSomebodyUsesThem) {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  Result<std::unique_ptr<FileDevice>> user = std::unique_ptr<FileDevice>();
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    user = FileDevice::Open(**loop, At("new"));
    ASSERT_TRUE(user.ok());
  }
  EXPECT_TRUE(fs::exists(At("new")));
}

TEST_F(MadeFiles, StayOnceTheyAreOfAnArray) {
  std::vector<std::byte> bytes(kSuperblockCopyBytes);
  EncodeSuperblock(MemberSuperblock(), bytes);
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    std::fstream(At("new"), std::ios::in | std::ios::out | std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  EXPECT_TRUE(fs::exists(At("new")));
}

}  // namespace
}  // namespace eplog
