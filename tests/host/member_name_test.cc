#include "host/member_name.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "format/superblock.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

// A 2+1 array whose array.toml does not list ssd1.
class MemberNames : public ::testing::Test {
 protected:
  void SetUp() override {
    file_.file = dir_.path() / kArrayFileName;
    file_.name = "a";
    file_.members = {{"log0", "log0"}, {"ssd0", "ssd0"}, {"ssd2", "elsewhere"}};
    superblock_ = MemberSuperblock();
    superblock_.index = DeviceIndex(2);
    superblock_.device_uuid = UuidOf(2);
    file_.uuid = UuidToString(superblock_.array_uuid);
  }
  void WriteMember() const { Write("elsewhere", superblock_); }
  void Write(const std::string& name, const Superblock& superblock) const {
    std::vector<std::byte> bytes(kSuperblockCopyBytes);
    EncodeSuperblock(superblock, bytes);
    std::ofstream(dir_.path() / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  uint32_t IndexOf(const std::string& device) const {
    const auto index = MemberIndex(file_, device);
    EXPECT_TRUE(index.ok()) << index.error().message;
    return index.ok() ? *index : 99;
  }

  // The device with this uuid, by what it knew in this epoch.
  void Write(const std::string& name, uint8_t index, uint8_t uuid, uint64_t epoch,
             const std::vector<uint8_t>& members) const {
    Superblock superblock = superblock_;
    superblock.index = DeviceIndex(index);
    superblock.device_uuid = UuidOf(uuid);
    superblock.epoch = {epoch, 1};
    for (size_t i = 0; i < members.size(); ++i) {
      superblock.members[i].uuid = UuidOf(members[i]);
    }
    Write(name, superblock);
  }
  std::string Refusal(const std::string& name) const {
    const auto index = MemberIndex(file_, (dir_.path() / name).string());
    EXPECT_FALSE(index.ok()) << *index;
    return index.ok() ? "" : index.error().message;
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
  EXPECT_FALSE(Refusal("ssd0").empty()) << "nothing can be read there, and ssd2 is elsewhere";
  EXPECT_EQ(IndexOf("ssd0"), 0U);
}

// ssd2 was replaced, and its old disk is where ssd0 should be.
TEST_F(MemberNames, APathWithAFormerMemberIsNobody) {
  Write("ssd0", 2, 2, 5, {0, 1, 2, 3});
  Write("elsewhere", 2, 0x22, 7, {0, 1, 0x22, 3});
  EXPECT_NE(Refusal("ssd0").find("was ssd2 of 'a', and is not any more"), std::string::npos)
      << Refusal("ssd0");
  EXPECT_NE(Refusal("ssd0").find("ssd0, as array.toml says"), std::string::npos) << Refusal("ssd0");
  EXPECT_EQ(IndexOf("ssd0"), 0U);
  EXPECT_EQ(IndexOf((dir_.path() / "elsewhere").string()), 2U);
  // A spare that became a member without array.toml knows as well.
  file_.members[2].path = "gone";
  file_.spares = {"elsewhere"};
  EXPECT_FALSE(Refusal("ssd0").empty());
}

// Also in the directory where it is a path too.
TEST_F(MemberNames, ANameIsAName) {
  Write("ssd0", 2, 2, 5, {0, 1, 2, 3});
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  EXPECT_EQ(IndexOf("ssd0"), 0U);
  EXPECT_EQ(IndexOf("./ssd0"), 2U);
  std::filesystem::current_path(before);
}

TEST_F(MemberNames, APathOfAMemberIsOneAlsoUnread) {
  EXPECT_TRUE(CheckMember(file_, "ssd2").ok());
  EXPECT_TRUE(CheckMember(file_, (dir_.path() / "elsewhere").string()).ok());
  EXPECT_FALSE(CheckMember(file_, "ssd3").ok());
  EXPECT_FALSE(CheckMember(file_, (dir_.path() / "nothing").string()).ok());
  file_.spares = {"s"};
  EXPECT_FALSE(CheckMember(file_, (dir_.path() / "s").string()).ok());
  Write("s", 1, 1, 5, {0, 1, 2, 3});
  EXPECT_TRUE(CheckMember(file_, (dir_.path() / "s").string()).ok());
}

// One that was failed, or missed something, still is what it was.
TEST_F(MemberNames, APathWithAMemberThatIsOutIsThatMember) {
  Write("ssd0", 2, 2, 5, {0, 1, 2, 3});
  Write("elsewhere", 0, 0, 7, {0, 1, 2, 3});
  EXPECT_EQ(IndexOf((dir_.path() / "ssd0").string()), 2U);
  EXPECT_EQ(IndexOf((dir_.path() / "elsewhere").string()), 0U);
}

// Nothing is at the path of ssd0, but that is elsewhere.
TEST_F(MemberNames, APathThatTellsNothingIsNobodyWhoIsElsewhere) {
  Write("elsewhere", 0, 0, 5, {0, 1, 2, 3});
  EXPECT_NE(Refusal("ssd0").find("ssd0 is at " + (dir_.path() / "elsewhere").string()),
            std::string::npos)
      << Refusal("ssd0");
  EXPECT_EQ(IndexOf((dir_.path() / "log0").string()), 3U);
}

TEST_F(MemberNames, TwoThatAreTheSameMemberAreNobody) {
  Write("ssd0", 2, 2, 5, {0, 1, 2, 3});
  Write("elsewhere", 2, 2, 5, {0, 1, 2, 3});
  EXPECT_NE(Refusal("ssd0").find("ssd2 is at " + (dir_.path() / "elsewhere").string()),
            std::string::npos)
      << Refusal("ssd0");
}

TEST(MemberOrder, SsdsThenLogsByNumber) {
  EXPECT_TRUE(MemberBefore("ssd9", "ssd10"));
  EXPECT_TRUE(MemberBefore("ssd31", "log0"));
  EXPECT_FALSE(MemberBefore("log0", "ssd0"));
  EXPECT_FALSE(MemberBefore("ssd1", "ssd1"));
}

}  // namespace
}  // namespace eplog
