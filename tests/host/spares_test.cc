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

// ---- what is said of them

TEST_F(Spares, WhatDoesNotFitIsToldWhatWould) {
  EXPECT_EQ(TooSmall(geometry_, "/x", 5),
            "/x is too small for every role: it has 5 bytes, and an SSD needs " +
                std::to_string(geometry_.ssd_bytes()) + ", a log device " +
                std::to_string(geometry_.log_bytes()));
  ProbedDevice probed;
  probed.size_bytes = 6;
  EXPECT_EQ(TooSmallFor("ssd3", 70, "/a b", probed),
            "/a b is too small for ssd3: it has 6 bytes and 70 are needed; give a larger one, or "
            "make it larger: truncate -s 70 '/a b'");
  probed.block = true;
  EXPECT_EQ(TooSmallFor("log0", 70, "/x", probed),
            "/x is too small for log0: it has 6 bytes and 70 are needed; give a larger one");
  const SpareRoles log_only = RolesFor(geometry_, geometry_.ssd_bytes() - 1);
  EXPECT_TRUE(log_only.log && log_only.any() && !log_only.ssd);
}

TEST_F(Spares, APlaceOfAMemberIsNoneForASpare) {
  const auto ssd1 = dir_.path() / "ssd1";
  EXPECT_TRUE(CheckNotListed(file_, dir_.path() / "s").ok());
  const Status listed = CheckNotListed(file_, ssd1);
  ASSERT_FALSE(listed.ok());
  EXPECT_EQ(listed.error().code, ErrorCode::kExists);
  EXPECT_EQ(listed.error().message,
            ssd1.string() + " is where ssd1 of 'demo' is, or was: 'eplog replace " +
                dir_.path().string() + " ssd1 " + ssd1.string() + "' puts another device there");
}

TEST_F(Spares, WhatIsFoundIsSaidInWords) {
  const auto said = [&](const std::string& name) { return Identify(name).what; };
  const std::string at = dir_.path().string() + "/";
  WriteSpare("s");
  dir_.WriteSparse("blank", kSsdBytes);
  dir_.Write("data", "something");
  const std::string no_spare = " is no spare of this array (any more): it holds ";
  const std::string mend = "; 'eplog spare add --force' makes it one";
  EXPECT_EQ(said("s"), "");
  EXPECT_EQ(said("ssd2"), at + "ssd2 bears the superblock of ssd2");
  EXPECT_EQ(said("blank"), at + "blank" + no_spare + "nothing" + mend);
  EXPECT_EQ(said("data"), at + "data" + no_spare + "data" + mend);
  EXPECT_EQ(said("none"), "there is no " + at + "none");
  for (const char* name : {"s", "ssd2", "blank", "data"}) {
    EXPECT_EQ(Identify(name).identity, *IdentifyDevice(at + name)) << name;
  }
  EXPECT_TRUE(BearsMember(file_, at + "ssd2"));
  EXPECT_FALSE(BearsMember(file_, at + "s"));
  EXPECT_FALSE(BearsMember(file_, at + "data"));
}

TEST_F(Spares, AnyMemberIsOneThatCanBeRead) {
  EXPECT_TRUE(AnyMember(file_).ok());
  WriteSpare("ssd0");  // one that lies where a member was
  dir_.Write("ssd1", "something");
  std::filesystem::remove(dir_.path() / "log0");
  EXPECT_EQ(AnyMember(file_)->DeviceName(), "ssd2");
  std::filesystem::remove(dir_.path() / "ssd2");
  std::filesystem::remove(dir_.path() / "ssd0");
  const auto none = AnyMember(file_);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(none.error().message, "no member of 'demo' can be read");
  Superblock foreign = Member(0, 0, MemberState::kOk, 5);
  foreign.array_uuid = UuidOf(0xB);
  Write("ssd1", foreign);
  EXPECT_EQ(AnyMember(file_).error().message, file_.file.string() + " names array " + file_.uuid +
                                                  ", and " + (dir_.path() / "ssd1").string() +
                                                  " belongs to " + UuidToString(UuidOf(0xB)) +
                                                  "; 'eplog assemble' finds what belongs together");
}

TEST_F(Spares, LogOfALongerLifeIsNamed) {
  Write("later", Member(3, 3, MemberState::kOk, 9));
  Write("ssd1", Member(1, 1, MemberState::kOk, 8));  // the newest of all counts
  const auto path = dir_.path() / "later";
  const auto probed = ProbeDevice(path);
  ASSERT_TRUE(probed.ok());
  EXPECT_EQ(CheckNoLaterLog(file_, path, *probed).error().message,
            path.string() +
                " was log0 of a copy of 'demo' that went on longer, and what its log holds could "
                "be taken for this one's: overwrite it with zeros first");
  Write("ssd1", Member(1, 1, MemberState::kOk, 9));
  EXPECT_TRUE(CheckNoLaterLog(file_, path, *probed).ok());
}

// What joined is a member in the table, not a spare; the others are counted anew.
TEST_F(Spares, AreAddedToADocumentThatHasNone) {
  WriteSpare("s");
  Write("joined", Member(1, 0x50, MemberState::kJoining, 7));
  dir_.Write("data", "something");
  file_.spares = {"joined", "s", "data"};
  Json status = {{"devices", {{{"name", "ssd0"}, {"role", "ssd"}}}}};
  AddSpares(file_, status);
  ASSERT_EQ(status["devices"].size(), 3U);
  EXPECT_EQ(status["devices"][0]["name"], "ssd0");
  const Json& spare = status["devices"][1];
  EXPECT_EQ(spare["name"], "spare0");
  EXPECT_EQ(spare["role"], "spare");
  EXPECT_EQ(spare["state"], "ok");
  EXPECT_EQ(spare["path"], (dir_.path() / "s").string());
  EXPECT_EQ(spare["size_bytes"], kSsdBytes);
  EXPECT_FALSE(spare.contains("failed_because"));
  const Json& other = status["devices"][2];
  EXPECT_EQ(other["name"], "spare1");
  EXPECT_EQ(other["state"], "missing");
  EXPECT_EQ(other["failed_because"], Identify("data").what);
  EXPECT_EQ(other["size_bytes"], 9);
  AddSpares(file_, status);
  EXPECT_EQ(status["devices"].size(), 3U) << "whoever serves knows them already";
}

// One that joined in an earlier epoch than what is listed, and one that is of another place.
TEST_F(Spares, TheOneThatJoinedLastIsTheMember) {
  Write("s", Member(1, 0x50, MemberState::kOk, 4));
  file_.spares = {"s"};
  EXPECT_EQ(WithJoinedSpares(file_).members, file_.members);
  Write("s", Member(1, 0x50, MemberState::kOk, 5));
  EXPECT_EQ(WithJoinedSpares(file_).members, file_.members) << "of the same age: as it is listed";
  Write("ssd1", Member(2, 2, MemberState::kOk, 9));  // ssd2 lies there by now
  EXPECT_EQ(WithJoinedSpares(file_).members[1].path, "s");
}

}  // namespace
}  // namespace eplog
