#include "cli/member_name.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "format/superblock.h"
#include "tests/cli/temp_dir.h"

namespace eplog::cli {
namespace {

// A 2+1 array whose array.toml does not list ssd1.
class MemberNames : public ::testing::Test {
 protected:
  void SetUp() override {
    file_.file = dir_.path() / kArrayFileName;
    file_.name = "a";
    file_.members = {{"log0", "log0"}, {"ssd0", "ssd0"}, {"ssd2", "elsewhere"}};
    GeometryRequest request;
    request.n = 3;
    request.m = 1;
    request.chunk_bytes = 4096;
    request.ssd_bytes = uint64_t{16} << 20;
    request.log_bytes = uint64_t{4} << 20;
    superblock_.geometry = *PlanGeometry(request);
    superblock_.index = DeviceIndex(2);
    superblock_.members.resize(4);
    file_.uuid = UuidToString(superblock_.array_uuid);
  }
  void WriteMember() const {
    std::vector<std::byte> bytes(kSuperblockCopyBytes);
    EncodeSuperblock(superblock_, bytes);
    std::ofstream(dir_.path() / "elsewhere", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  uint32_t IndexOf(const std::string& device) const {
    const auto index = MemberIndex(file_, device);
    EXPECT_TRUE(index.ok()) << index.error().message;
    return index.ok() ? *index : 99;
  }

  TempDir dir_;
  ArrayFile file_;
  Superblock superblock_;
};

TEST_F(MemberNames, NumbersAreThoseOfTheArrayWhateverTheFileLists) {
  WriteMember();
  EXPECT_EQ(IndexOf("ssd0"), 0U);
  EXPECT_EQ(IndexOf("ssd1"), 1U);
  EXPECT_EQ(IndexOf("ssd2"), 2U);
  EXPECT_EQ(IndexOf("log0"), 3U);
  EXPECT_EQ(IndexOf((dir_.path() / "elsewhere").string()), 2U);
  EXPECT_EQ(MemberName(file_, 1), "ssd1");
  EXPECT_EQ(MemberName(file_, 3), "log0");
  const auto none = MemberIndex(file_, "ssd3");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "'a' has no member ssd3: there are ssd0 to log0");
}

TEST_F(MemberNames, WithoutASuperblockTheFileIsAllThereIs) {
  EXPECT_EQ(IndexOf("ssd2"), 2U);
  EXPECT_EQ(IndexOf("log0"), 3U);
}

TEST_F(MemberNames, SuperblockOfAnotherArrayIsNotAsked) {
  superblock_.array_uuid[0] ^= std::byte{1};
  WriteMember();
  EXPECT_EQ(GeometryOf(file_).error().code, ErrorCode::kNotFound);
}

TEST_F(MemberNames, APathIsTheMemberThatIsThereByItsSuperblock) {
  WriteMember();
  file_.members = {{"log0", "log0"}, {"ssd0", "elsewhere"}, {"ssd2", "ssd0"}};
  EXPECT_EQ(IndexOf((dir_.path() / "elsewhere").string()), 2U) << "they changed places";
  EXPECT_EQ(IndexOf((dir_.path() / "ssd0").string()), 2U) << "nothing can be read there";
  EXPECT_EQ(IndexOf("ssd0"), 0U);
}

TEST(MemberOrder, SsdsThenLogsByNumber) {
  EXPECT_TRUE(MemberBefore("ssd9", "ssd10"));
  EXPECT_TRUE(MemberBefore("ssd31", "log0"));
  EXPECT_FALSE(MemberBefore("log0", "ssd0"));
  EXPECT_FALSE(MemberBefore("ssd1", "ssd1"));
}

}  // namespace
}  // namespace eplog::cli
