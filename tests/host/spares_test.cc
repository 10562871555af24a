#include "host/spares.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "layout/geometry.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr uint64_t kSsdBytes = uint64_t{16} << 20;
constexpr uint64_t kLogBytes = uint64_t{8} << 20;

Uuid UuidOf(uint8_t number) {
  Uuid uuid{};
  uuid.fill(std::byte{number});
  return uuid;
}

// A 2+1 array of files.
class Spares : public testing::Test {
 protected:
  Spares() {
    file_.file = dir_.path() / "array.toml";
    file_.uuid = UuidToString(UuidOf(0xA));
    file_.name = "demo";
    GeometryRequest request;
    request.n = 3;
    request.m = 1;
    request.chunk_bytes = 4096;
    request.reserve_percent = 10;
    request.ssd_bytes = kSsdBytes;
    request.log_bytes = kLogBytes;
    const auto geometry = PlanGeometry(request);
    EXPECT_TRUE(geometry.ok());
    geometry_ = *geometry;
    for (uint8_t i = 0; i < 4; ++i) {
      const std::string name = geometry_.DeviceName(DeviceIndex(i));
      file_.members.push_back({name, name});
      Write(name, Member(i, i, MemberState::kOk, 5));
    }
  }

  // Of device `index`, born by the device with this uuid, in this epoch.
  [[nodiscard]] Superblock Member(uint8_t index, uint8_t uuid, MemberState state,
                                  uint64_t epoch) const {
    Superblock superblock;
    superblock.array_uuid = UuidOf(0xA);
    superblock.device_uuid = UuidOf(uuid);
    superblock.index = DeviceIndex(index);
    superblock.geometry = geometry_;
    superblock.name = "demo";
    superblock.generation = 2;
    superblock.epoch = {epoch, 7};
    superblock.base = {epoch - 1, 7};
    for (uint8_t i = 0; i < 4; ++i) {
      superblock.members.push_back({UuidOf(i), MemberState::kOk, 1});
    }
    superblock.members[index] = {UuidOf(uuid), state, epoch};
    return superblock;
  }
  void Write(const std::string& name, const Superblock& superblock) {
    std::string content(kSuperblockAreaBytes, '\0');
    EncodeSuperblock(superblock,
                     std::as_writable_bytes(std::span(content.data(), kSuperblockCopyBytes)));
    dir_.Write(name, content);
    std::filesystem::resize_file(dir_.path() / name, kSsdBytes);
  }
  void WriteSpare(const std::string& name) {
    Write(name, SpareSuperblock(Member(0, 0, MemberState::kOk, 5), UuidOf(0x50)));
  }
  [[nodiscard]] SpareFound Identify(const std::string& name) const {
    return IdentifySpare(file_.uuid, dir_.path() / name);
  }

  TempDir dir_;
  ArrayFile file_;
  Geometry geometry_;
};

TEST_F(Spares, AreKnownByTheirSuperblock) {
  WriteSpare("s");
  EXPECT_EQ(Identify("s").kind, SpareKind::kSpare);
  EXPECT_TRUE(IsSpareOf(file_, dir_.path() / "s"));
  EXPECT_EQ(IdentifySpare(UuidToString(UuidOf(0xB)), dir_.path() / "s").kind, SpareKind::kOther)
      << "of another array";
  EXPECT_EQ(Identify("ssd0").kind, SpareKind::kOther) << "a member";
  EXPECT_EQ(Identify("nothing").kind, SpareKind::kOther);
  EXPECT_NE(Identify("nothing").what.find("there is no"), std::string::npos);
}

TEST_F(Spares, WhatWasCutOffIsTakenBackAndNothingElse) {
  dir_.WriteSparse("blank", kSsdBytes);
  EXPECT_EQ(Identify("blank").kind, SpareKind::kBlank);
  Write("joining", Member(1, 0x50, MemberState::kJoining, 7));
  EXPECT_EQ(Identify("joining").kind, SpareKind::kCutOff);
  // One that was whole once holds data, however old.
  Write("whole", Member(1, 0x50, MemberState::kOk, 7));
  EXPECT_EQ(Identify("whole").kind, SpareKind::kOther);
  // A device that says of another that it is joining in its place.
  Superblock replaced = Member(1, 0x50, MemberState::kJoining, 7);
  replaced.device_uuid = UuidOf(1);
  Write("replaced", replaced);
  EXPECT_EQ(Identify("replaced").kind, SpareKind::kOther);
  dir_.Write("data", "something");
  EXPECT_EQ(Identify("data").kind, SpareKind::kOther);
  EXPECT_NE(Identify("data").what.find("holds data"), std::string::npos);
}

// A copy of the array lived on, and one of its log devices is to be a spare here: its entries would
// be of epochs that this array comes to later.
TEST_F(Spares, LogOfALongerLifeIsRefused) {
  const auto check = [&](const std::string& name) {
    const auto probed = ProbeDevice(dir_.path() / name);
    EXPECT_TRUE(probed.ok());
    return CheckNoLaterLog(file_, dir_.path() / name, *probed);
  };
  Write("later", Member(3, 3, MemberState::kOk, 6));
  EXPECT_EQ(check("later").error().code, ErrorCode::kInvalidArgument);
  Write("same", Member(3, 3, MemberState::kOk, 5));
  EXPECT_TRUE(check("same").ok());
  Write("ssd", Member(1, 1, MemberState::kOk, 6));
  EXPECT_TRUE(check("ssd").ok());
  WriteSpare("spare");
  EXPECT_TRUE(check("spare").ok());
  file_.uuid = UuidToString(UuidOf(0xB));
  EXPECT_TRUE(check("later").ok()) << "another array's, whose entries are never believed";
}

TEST_F(Spares, MembersOfAnotherArrayAreNamed) {
  file_.uuid = UuidToString(UuidOf(0xB));
  const auto member = AnyMember(file_);
  ASSERT_FALSE(member.ok());
  for (const std::string& part : {file_.uuid, UuidToString(UuidOf(0xA)), std::string("ssd0")}) {
    EXPECT_NE(member.error().message.find(part), std::string::npos) << part;
  }
}

TEST_F(Spares, SpareThatJoinedLaterIsTheMember) {
  Write("s", Member(1, 0x50, MemberState::kJoining, 7));
  WriteSpare("t");
  file_.spares = {"t", "s"};
  const ArrayFile settled = WithJoinedSpares(file_);
  EXPECT_EQ(settled.members[1].path, "s");
  EXPECT_EQ(settled.members[0].path, "ssd0");
  EXPECT_EQ(settled.spares, std::vector<std::string>{"t"});
}

TEST_F(Spares, SpareThatJoinedForNothingIsNotTheMember) {
  Write("s", Member(1, 0x50, MemberState::kJoining, 7));
  Write("ssd1", Member(1, 0x51, MemberState::kJoining, 9));  // another came after it
  file_.spares = {"s"};
  EXPECT_EQ(WithJoinedSpares(file_).members, file_.members);
  EXPECT_EQ(WithJoinedSpares(file_).spares, file_.spares);
}

TEST_F(Spares, SpareStandsForAMemberThatIsGoneOrNotListed) {
  Write("s", Member(1, 0x50, MemberState::kOk, 7));
  file_.spares = {"s"};
  std::filesystem::remove(dir_.path() / "ssd1");
  EXPECT_EQ(WithJoinedSpares(file_).members[1].path, "s");
  file_.members.erase(file_.members.begin() + 1);
  const ArrayFile settled = WithJoinedSpares(file_);
  EXPECT_EQ(settled.members.back(), (MemberPath{"ssd1", "s"}));
  EXPECT_TRUE(settled.spares.empty());
}

TEST_F(Spares, OfAnotherArrayIsNoMember) {
  Superblock other = Member(1, 0x50, MemberState::kOk, 7);
  other.array_uuid = UuidOf(0xB);
  Write("s", other);
  file_.spares = {"s"};
  EXPECT_EQ(WithJoinedSpares(file_).members, file_.members);
}

TEST_F(Spares, AreShownAsTheyLie) {
  WriteSpare("s");
  dir_.Write("data", "something");
  file_.spares = {"s", "data", "none"};
  const auto list = LookAtSpares(file_);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].name, "spare0");
  EXPECT_EQ(list[0].state, DeviceState::kOk);
  EXPECT_EQ(list[0].size_bytes, kSsdBytes);
  EXPECT_EQ(list[1].state, DeviceState::kMissing);
  EXPECT_FALSE(list[1].failed_because.empty());
  EXPECT_EQ(list[2].state, DeviceState::kMissing);
  EXPECT_EQ(list[2].path, (dir_.path() / "none").string());
}

TEST_F(Spares, FitBySize) {
  EXPECT_FALSE(RolesFor(geometry_, geometry_.log_bytes() - 1).any());
  EXPECT_TRUE(RolesFor(geometry_, geometry_.log_bytes()).log);
  EXPECT_FALSE(RolesFor(geometry_, geometry_.ssd_bytes() - 1).ssd);
  EXPECT_TRUE(RolesFor(geometry_, geometry_.ssd_bytes()).ssd);
  EXPECT_NE(TooSmall(geometry_, "/x", 5).find("has 5 bytes"), std::string::npos);
}

}  // namespace
}  // namespace eplog
