#include "cli/assemble/report.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/memory_device.h"

namespace eplog::cli {
namespace {

class AssembleReport : public ::testing::Test {
 protected:
  void AddArray(const std::string& uuid, const std::string& name) {
    ExaminedArray array;
    array.uuid = uuid;
    array.name = name;
    array.data_chunks = 2;
    array.parity_chunks = 1;
    array.chunk_bytes = 4096;
    array.epoch = 4;
    array.further_losses_survived = 1;
    findings_.found.arrays.push_back(array);
  }
  ExaminedDevice& AddDevice(const std::string& path, MemberVerdict verdict,
                            const std::string& member = "", size_t array = kNoArray) {
    devices_.push_back(std::make_unique<MemoryDevice>(path, 4096));
    ExaminedDevice device;
    device.device = devices_.back().get();
    device.verdict = verdict;
    device.member = member;
    device.array = array;
    device.epoch = 4;
    device.whole_copies = 2;
    findings_.found.devices.push_back(device);
    return findings_.found.devices.back();
  }
  void AddWhole(size_t array) {
    AddDevice("/a/second", MemberVerdict::kPart, "ssd1", array);
    AddDevice("/b/log", MemberVerdict::kPart, "log0", array);
    AddDevice("/a/third", MemberVerdict::kPart, "ssd2", array);
    AddDevice("/a/first", MemberVerdict::kPart, "ssd0", array);
  }
  void Choose(const std::string& prefix = "") {
    const auto chosen = ChooseArray(findings_.found, prefix);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    findings_.chosen = *chosen;
  }
  std::string Text() { return FindingsText(FindingsToJson(findings_)); }
  int ExitStatus() { return FindingsStatus(FindingsToJson(findings_)); }

  AssembleFindings findings_;
  std::vector<std::unique_ptr<MemoryDevice>> devices_;
};

TEST_F(AssembleReport, WholeArrayInTheOrderOfItsMembers) {
  AddArray("aaaa-1", "one");
  AddWhole(0);
  Choose();
  EXPECT_EQ(ExitStatus(), 0);
  EXPECT_EQ(Text(),
            "array 'one' (aaaa-1): RAID-5 of 3 SSDs (2 data + 1 parity), 1 log device, chunk 4K, "
            "capacity 0 B\n"
            "  whole, survives 1 more loss\n"
            "  ssd0   part       /a/first\n"
            "  ssd1   part       /a/second\n"
            "  ssd2   part       /a/third\n"
            "  log0   part       /b/log");
  const auto file = FileOf(findings_, "/a/array.toml");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->uuid, "aaaa-1");
  EXPECT_EQ(file->members,
            (std::vector<MemberPath>{
                {"ssd0", "first"}, {"ssd1", "second"}, {"ssd2", "third"}, {"log0", "/b/log"}}));
}

TEST_F(AssembleReport, StaleOneIsNotWrittenDown) {
  AddArray("aaaa-1", "one");
  AddWhole(0);
  findings_.found.devices[0].verdict = MemberVerdict::kStale;
  findings_.found.devices[0].why = "it was away";
  findings_.found.arrays[0].missing = {"ssd1"};
  findings_.found.arrays[0].further_losses_survived = 0;
  Choose();
  EXPECT_EQ(ExitStatus(), 3);
  EXPECT_NE(Text().find("  degraded, without ssd1; survives 0 more losses"), std::string::npos);
  EXPECT_NE(Text().find("  ssd1   stale      /a/second: it was away"), std::string::npos) << Text();
  const auto file = FileOf(findings_, "/x/array.toml");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->members.size(), 3U);
  EXPECT_EQ(file->members[1].name, "ssd2");
}

TEST_F(AssembleReport, StaleBesideItsSuccessorIsAFindingThoughTheArrayIsWhole) {
  AddArray("aaaa-1", "one");
  AddWhole(0);
  AddDevice("/old", MemberVerdict::kStale, "ssd1", 0);
  Choose();
  EXPECT_EQ(ExitStatus(), 3);
}

TEST_F(AssembleReport, DoubledOnesAreTheOwnersChoice) {
  AddArray("aaaa-1", "one");
  AddWhole(0);
  findings_.found.devices[0].verdict = MemberVerdict::kDoubled;
  findings_.found.devices[0].why = "/copy says that too";
  Choose();
  const auto file = FileOf(findings_, "/x/array.toml");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("/a/second says that it is ssd1, and /copy says that too"),
            std::string::npos);
}

TEST_F(AssembleReport, OfSeveralArraysTheOnlyOneThatOpensIsMeant) {
  AddArray("aaaa-1", "one");
  AddArray("bbbb-2", "two");
  AddWhole(1);
  AddDevice("/stray", MemberVerdict::kPart, "ssd0", 0);
  findings_.found.arrays[0].why_not = "more than 1 members are missing";
  Choose();
  EXPECT_EQ(findings_.chosen, 1U);
  EXPECT_EQ(ExitStatus(), 3);
  const Json document = FindingsToJson(findings_);
  EXPECT_EQ(document["arrays"][0]["name"], "two");
  EXPECT_EQ(document["arrays"][0]["chosen"], true);
  const Json& stray = document["devices"].back();
  EXPECT_EQ(stray["path"], "/stray");
  EXPECT_EQ(stray["verdict"], "foreign");
  EXPECT_EQ(stray["why"], "it is of the array 'one'");
  Choose("aaaa");
  EXPECT_EQ(findings_.chosen, 0U);
  EXPECT_EQ(ExitStatus(), 1);
}

TEST_F(AssembleReport, SeveralThatOpenAreLeftToTheOwner) {
  AddArray("aaaa-1", "one");
  AddArray("aaab-2", "two");
  AddWhole(0);
  AddWhole(1);
  Choose();
  EXPECT_EQ(findings_.chosen, kNoArray);
  EXPECT_EQ(ExitStatus(), 0);
  EXPECT_EQ(ChooseArray(findings_.found, "aaa").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ChooseArray(findings_.found, "c").error().code, ErrorCode::kNotFound);
  Choose("aaab");
  EXPECT_EQ(findings_.chosen, 1U);
}

TEST_F(AssembleReport, WhatIsOfNoArrayStandsAtTheEnd) {
  AddArray("aaaa-1", "one");
  AddDevice("/empty", MemberVerdict::kNoMember).why = "it bears no superblock";
  AddWhole(0);
  findings_.unopened.push_back({"/locked", "permission denied"});
  findings_.in_use.insert("/a/first");
  Choose();
  EXPECT_EQ(ExitStatus(), 0);
  const std::string text = Text();
  EXPECT_NE(text.find("/a/first (in use)"), std::string::npos) << text;
  EXPECT_NE(text.find("\nof no array\n  -      no member  /empty   : it bears no superblock\n"
                      "  -      unreadable /locked  : permission denied"),
            std::string::npos)
      << text;
}

TEST_F(AssembleReport, NoArrayAtAllCannotBeOpened) {
  AddDevice("/empty", MemberVerdict::kNoMember);
  Choose();
  EXPECT_EQ(ExitStatus(), 1);
}

}  // namespace
}  // namespace eplog::cli
