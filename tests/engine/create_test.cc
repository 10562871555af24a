// Making an array: what is refused, in words and before anything is written; and what the devices
// bear afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kBytes = uint64_t{8} << 20;

class Create : public ::testing::Test {
 protected:
  Create() {
    for (const char* name : {"a", "b", "c", "d", "log", "log2"}) {
      memory_.push_back(std::make_unique<MemoryDevice>(name, kBytes));
      faulty_.push_back(std::make_unique<FaultDevice>(*memory_.back()));
      counting_.push_back(std::make_unique<CountingDevice>(*faulty_.back()));
    }
    ssds_ = {counting_[0].get(), counting_[1].get(), counting_[2].get()};
    logs_ = {counting_[4].get()};
    options_.parity = 1;
    options_.entropy = 5;
  }
  Status Make() { return RunTask(loop_, Array::Create(loop_, ssds_, logs_, options_)); }
  // And nothing was written.
  void ExpectRefused(ErrorCode code, const std::string& words) {
    uint64_t writes = 0;
    for (auto& device : counting_) {
      writes += device->counters().writes + device->counters().discards;
    }
    const Status made = Make();
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_EQ(made.error().code, code);
    EXPECT_EQ(made.error().message, words);
    for (auto& device : counting_) {
      writes -= device->counters().writes + device->counters().discards;
    }
    EXPECT_EQ(writes, 0U);
  }
  Result<Superblock> Read(size_t device, size_t copy) {
    return DecodeSuperblock(
        memory_[device]->bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes));
  }

  VirtualLoop loop_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<CountingDevice>> counting_;
  std::vector<Device*> ssds_;
  std::vector<Device*> logs_;
  CreateOptions options_;
};

TEST_F(Create, IsRefusedInWords) {
  logs_.clear();
  ExpectRefused(ErrorCode::kInvalidArgument, "parity 1 needs exactly 1 log devices, not 0");
  logs_ = {counting_[4].get(), counting_[5].get()};
  ExpectRefused(ErrorCode::kInvalidArgument, "parity 1 needs exactly 1 log devices, not 2");
  logs_ = {ssds_[1]};
  ExpectRefused(ErrorCode::kInvalidArgument, "b is given twice");
  logs_ = {counting_[4].get()};
  ssds_.push_back(ssds_[0]);
  ExpectRefused(ErrorCode::kInvalidArgument, "a is given twice");
  ssds_.pop_back();
  options_.name = std::string(64, 'x');
  ExpectRefused(ErrorCode::kInvalidArgument, "an array's name has at most 63 bytes");
  options_.name = std::string("a\0b", 3);
  ExpectRefused(ErrorCode::kInvalidArgument, "an array's name has no NUL byte in it");
  options_.name = "1";
  for (const uint32_t format : {0U, kFormatVersion + 1}) {
    options_.format = format;
    ExpectRefused(ErrorCode::kInvalidArgument,
                  "there is no format " + std::to_string(format) + ", only 1 to 2");
  }
  options_.format = 2;
  ASSERT_TRUE(Make().ok());
  const auto superblock = Read(0, 0);
  ASSERT_TRUE(superblock.ok());
  const std::string member = " already is a member of an array (" +
                             UuidToString(superblock->array_uuid) + "); --force overwrites it";
  ExpectRefused(ErrorCode::kExists, "a" + member);
  ssds_[0] = counting_[3].get();
  ExpectRefused(ErrorCode::kExists, "b" + member);
  // Of a newer format nobody knows of which array it is: that it is one is enough.
  for (size_t copy = 0; copy < 2; ++copy) {
    memory_[1]->bytes()[kSuperblockCopyOffset[copy] + 8] = std::byte{kFormatVersion + 1};
    memory_[1]->bytes()[kSuperblockCopyOffset[copy] + 200] ^= std::byte{1};
  }
  ExpectRefused(ErrorCode::kExists, "b already is a member of an array; --force overwrites it");
}

TEST_F(Create, WritesWhatWasAskedFor) {
  for (const uint32_t format : {1U, 2U}) {
    options_.format = format;
    options_.name = std::string(63, 'x');
    options_.journal = format == 1 ? JournalMode::kLog : JournalMode::kFull;
    options_.force = format == 2;
    ASSERT_TRUE(Make().ok());
    std::set<Uuid> uuids;
    const std::vector<size_t> members = {0, 1, 2, 4};
    for (size_t i = 0; i < members.size(); ++i) {
      const auto a = Read(members[i], 0);
      const auto b = Read(members[i], 1);
      ASSERT_TRUE(a.ok() && b.ok()) << "both copies are whole";
      EXPECT_EQ(std::max(a->generation, b->generation), 2U);
      EXPECT_EQ(std::min(a->generation, b->generation), 1U);
      for (const Superblock& superblock : {*a, *b}) {
        EXPECT_EQ(superblock.version, format);
        EXPECT_EQ(superblock.name, options_.name);
        EXPECT_EQ(superblock.journal_mode, static_cast<uint8_t>(options_.journal));
        EXPECT_EQ(superblock.index.value, i);
        EXPECT_EQ(superblock.epoch.number, 1U);
        EXPECT_EQ(superblock.base, superblock.epoch);
        EXPECT_NE(superblock.checkpoint.generation, 0U);
        ASSERT_EQ(superblock.members.size(), 4U);
        EXPECT_EQ(superblock.device_uuid, superblock.members[i].uuid);
        EXPECT_EQ(superblock.array_uuid, Read(0, 0)->array_uuid);
        for (const MemberEntry& member : superblock.members) {
          EXPECT_EQ(member.state, MemberState::kOk);
          EXPECT_EQ(member.joined, 1U);
        }
      }
      uuids.insert(a->device_uuid);
    }
    uuids.insert(Read(0, 0)->array_uuid);
    EXPECT_EQ(uuids.size(), 5U) << "each is another";
    for (const Uuid& uuid : uuids) {  // random ones, RFC 9562: version 4, variant 10
      EXPECT_EQ(uuid[6] >> 4, std::byte{4});
      EXPECT_EQ(uuid[8] >> 6, std::byte{2});
    }
    OpenOptions open;
    open.entropy = 3;
    std::vector<Device*> all = ssds_;
    all.push_back(logs_[0]);
    auto opened = RunTask(loop_, Array::Open(loop_, all, open));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE((*opened)->Volumes().empty());
    EXPECT_EQ((*opened)->GetStatus().name, options_.name);
    EXPECT_EQ((*opened)->GetStatus().journal, options_.journal);
    ASSERT_TRUE(RunTask(loop_, (*opened)->Close()).ok());
  }
}

// The copies of an earlier array have higher generations: they go before anything is written.
TEST_F(Create, OverAnotherArrayLeavesNothingOfIt) {
  ASSERT_TRUE(Make().ok());
  const Uuid before = Read(0, 0)->array_uuid;
  std::vector<Device*> all = ssds_;
  all.push_back(logs_[0]);
  for (uint64_t life = 0; life < 4; ++life) {
    OpenOptions open;
    open.entropy = life;
    auto opened = RunTask(loop_, Array::Open(loop_, all, open));
    ASSERT_TRUE(opened.ok());
    ASSERT_TRUE(RunTask(loop_, (*opened)->Close()).ok());
  }
  EXPECT_GT(Read(0, 0)->generation, 4U);
  options_.force = true;
  options_.entropy = 6;
  std::vector<std::vector<std::byte>> kept;
  for (auto& device : memory_) {
    kept.emplace_back(device->bytes().begin(), device->bytes().end());
  }
  // Cut short at any request: no device is a member of what it was and of what it is to be.
  uint64_t nth = 1;
  for (bool made = false; !made; ++nth) {
    for (size_t i = 0; i < memory_.size(); ++i) {
      std::copy(kept[i].begin(), kept[i].end(), memory_[i]->bytes().begin());
      faulty_[i]->Clear();
      faulty_[i]->Add({.kinds = MaskOf(RequestKind::kWrite), .nth = nth, .from_then_on = true});
    }
    made = Make().ok();
    for (const size_t i : {0U, 1U, 2U, 4U}) {
      const auto a = Read(i, 0);
      const auto b = Read(i, 1);
      EXPECT_TRUE(!a.ok() || !b.ok() || a->array_uuid == b->array_uuid) << nth;
      if (made) {
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_NE(a->array_uuid, before);
        EXPECT_EQ(a->generation + b->generation, 3U);
      }
    }
  }
  EXPECT_GT(nth, 5U);
}

TEST_F(Create, TellsDevicesThatNothingIsNeededIfAskedTo) {
  for (const bool discard : {false, true}) {
    options_.discard = discard;
    options_.force = true;
    for (auto& device : counting_) {
      device->Reset();
    }
    ASSERT_TRUE(Make().ok());
    for (const size_t i : {0U, 1U, 2U, 4U}) {
      EXPECT_EQ(counting_[i]->counters().bytes_discarded, discard ? kBytes : 0U);
    }
  }
  // It is a hint: whoever does not take it is as good without.
  faulty_[1]->Add({.kinds = MaskOf(RequestKind::kDiscard), .from_then_on = true});
  EXPECT_TRUE(Make().ok());
}

// In requests of a GiB at most, and all of it.
TEST_F(Create, TellsALargeDeviceInPieces) {
  MemoryDevice large("large", (uint64_t{5} << 29) + 4096);
  CountingDevice counting(large);
  logs_ = {&counting};
  options_.discard = true;
  ASSERT_TRUE(Make().ok());
  EXPECT_EQ(counting.counters().discards, 3U);
  EXPECT_EQ(counting.counters().bytes_discarded, large.size_bytes());
}

}  // namespace
}  // namespace eplog
