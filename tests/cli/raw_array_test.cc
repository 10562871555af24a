#include "cli/inspect/raw_array.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/read_text.h"
#include "cli/inspect/words.h"
#include "tests/host/hanging_file.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

constexpr uint64_t kMemberBytes = uint64_t{1} << 20;

class RawArrays : public testing::Test {
 protected:
  RawArrays() {
    for (const char* name : {"ssd0", "ssd1", "log0"}) {
      dir_.WriteSparse(name, kMemberBytes);
    }
    dir_.Write("array.toml",
               "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"a\"\n"
               "[[member]]\nname = \"ssd0\"\npath = \"ssd0\"\n"
               "[[member]]\nname = \"ssd1\"\npath = \"ssd1\"\n"
               "[[member]]\nname = \"log0\"\npath = \"log0\"\n");
  }
  [[nodiscard]] std::string At(const std::string& name) const {
    return (dir_.path() / name).string();
  }
  TempDir dir_;
};

TEST_F(RawArrays, MemberThatHangsIsNamedAndTheOthersAreRead) {
  const HangingFile hangs(At("ssd1"));
  EPLOG_NEEDS_HANGING(hangs);
  const auto array = RawArray::Open(dir_.path().string());
  ASSERT_TRUE(array.ok()) << array.error().message;
  ASSERT_EQ(array->members().size(), 3U);
  EXPECT_EQ(array->members()[0].error, "");
  EXPECT_NE(array->members()[1].error.find(At("ssd1") + " does not answer"), std::string::npos);
  EXPECT_TRUE(ReadBytes(array->members()[2], kMemberBytes - 512, 512).ok());
  EXPECT_FALSE(ReadBytes(array->members()[2], kMemberBytes - 512, 1024).ok());
}

TEST_F(RawArrays, ArrayFileThatHangsIsNamed) {
  const HangingFile hangs(At("array.toml"));
  EPLOG_NEEDS_HANGING(hangs);
  const auto array = RawArray::Open(dir_.path().string());
  ASSERT_FALSE(array.ok());
  EXPECT_NE(array.error().message.find("does not answer"), std::string::npos);
}

TEST_F(RawArrays, WhetherFlushesAreOnTheRingsIsShown) {
  const auto golden = std::filesystem::path(EPLOG_SOURCE_DIR) / "tests/format/golden";
  for (const bool on_rings : {false, true}) {
    std::fstream device(At("ssd0"), std::ios::in | std::ios::out | std::ios::binary);
    device.seekp(static_cast<std::streamoff>(kSuperblockCopyOffset[0]));
    device << ReadText(golden / (on_rings ? "superblock_on_rings.bin" : "superblock.bin"));
    device.close();
    const auto array = RawArray::Open(At("ssd0"));
    ASSERT_TRUE(array.ok()) << array.error().message;
    const Json copy = SuperblocksToJson(*array)[0]["copies"][0];
    EXPECT_EQ(copy.at("base_on_rings"), Json(on_rings)) << copy.dump();
    EXPECT_EQ(SuperblocksText(*array).find("(on the rings)") != std::string::npos, on_rings);
  }
}

TEST_F(RawArrays, OneDevice) {
  const auto array = RawArray::Open(At("ssd0"));
  ASSERT_TRUE(array.ok());
  EXPECT_TRUE(array->one_device());
  EXPECT_EQ(array->Identity().error().message, At("ssd0") + " has no EPLOG superblock");
  EXPECT_EQ(RawArray::Open(At("none")).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace eplog::cli
