// What an examination says of each device and array, to the letter: people decide by it what to
// leave out. And that no answer depends on the order in which devices are given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eplog/examine.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr const char* kLeaveOne =
    "; give one of them, or mount with --without and the path of the other";

class ExamineWords : public ::testing::Test {
 protected:
  void SetUp() override { Make(JournalMode::kFull); }
  void Make(JournalMode journal, uint32_t chunk_bytes = 4096) {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.chunk_bytes = chunk_bytes;
    shape.journal = journal;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    status_ = test_->array->GetStatus();
    ASSERT_TRUE(test_->Close().ok());
    devices_ = test_->Devices();
  }
  Examination Look() { return RunTask(test_->loop, ExamineDevices(devices_)); }
  void Reopen() {
    test_->Open();
    ASSERT_TRUE(test_->Close().ok());
  }
  std::span<std::byte> Copy(uint32_t device, size_t copy) {
    return test_->memory(device).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
  }
  Superblock Newest(uint32_t device) {
    const auto a = DecodeSuperblock(Copy(device, 0));
    const auto b = DecodeSuperblock(Copy(device, 1));
    EXPECT_TRUE(a.ok() && b.ok());
    return a->generation > b->generation ? *a : *b;
  }
  void Change(uint32_t device, const std::function<void(Superblock&)>& edit) {
    for (size_t copy = 0; copy < 2; ++copy) {
      auto superblock = DecodeSuperblock(Copy(device, copy));
      ASSERT_TRUE(superblock.ok());
      edit(*superblock);
      EncodeSuperblock(*superblock, Copy(device, copy));
    }
  }
  MemoryDevice& CopyOf(uint32_t device, const std::string& name) {
    const auto bytes = test_->memory(device).bytes();
    others_.push_back(std::make_unique<MemoryDevice>(name, bytes.size()));
    std::memcpy(others_.back()->bytes().data(), bytes.data(), bytes.size());
    return *others_.back();
  }
  static void Expect(const ExaminedDevice& device, MemberVerdict verdict, const std::string& why) {
    EXPECT_EQ(device.verdict, verdict);
    EXPECT_EQ(device.why, why);
  }

  std::unique_ptr<TestArray> test_;
  ArrayStatus status_;
  std::vector<Device*> devices_;
  std::vector<std::unique_ptr<MemoryDevice>> others_;
};

TEST_F(ExamineWords, OfAnArrayAreThoseOfItsStatus) {
  for (const auto& [journal, chunk] :
       {std::pair(JournalMode::kFull, 4096U), std::pair(JournalMode::kLog, 16384U)}) {
    Make(journal, chunk);
    const Examination found = Look();
    ASSERT_EQ(found.arrays.size(), 1U);
    const ExaminedArray& array = found.arrays[0];
    EXPECT_EQ(array.uuid, status_.uuid);
    EXPECT_EQ(array.name, status_.name);
    EXPECT_EQ(array.data_chunks, status_.data_chunks);
    EXPECT_EQ(array.parity_chunks, status_.parity_chunks);
    EXPECT_EQ(array.chunk_bytes, chunk);
    EXPECT_EQ(array.journal, journal);
    EXPECT_EQ(array.capacity_bytes, status_.capacity_bytes);
    EXPECT_EQ(array.epoch, Newest(0).epoch.number);
    EXPECT_EQ(array.why_not, "");
    EXPECT_EQ(array.further_losses_survived, kParity);
    for (uint32_t i = 0; i < kDevices; ++i) {
      EXPECT_EQ(found.devices[i].device, devices_[i]);
      EXPECT_EQ(found.devices[i].array, 0U);
      EXPECT_EQ(found.devices[i].member, status_.devices[i].name);
    }
  }
}

TEST_F(ExamineWords, OfWhatBearsNoSuperblockThatCounts) {
  for (const size_t copy : {0U, 1U}) {
    Copy(0, copy)[100] ^= std::byte{1};
    std::ranges::fill(Copy(1, copy), std::byte{0});
  }
  Copy(2, 1)[8] = std::byte{kFormatVersion + 1};  // docs/format.md, section 3
  Copy(2, 1)[200] ^= std::byte{1};                // or the version alone would be wrong
  Copy(3, 0)[100] ^= std::byte{1};
  test_->faulty(4).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  MemoryDevice tiny("tiny", kSuperblockAreaBytes - 512);
  devices_.push_back(&tiny);
  const Examination found = Look();
  Expect(found.devices[0], MemberVerdict::kDamaged, "no copy of its superblock is whole");
  EXPECT_EQ(found.devices[0].whole_copies, 0U);
  EXPECT_EQ(found.devices[0].array, kNoArray);
  Expect(found.devices[1], MemberVerdict::kNoMember, "it bears no superblock");
  Expect(found.devices[2], MemberVerdict::kNewer,
         "written by a newer version of eplog; use that one");
  Expect(found.devices[3], MemberVerdict::kPart,
         "one of the two copies of its superblock is damaged; the next opening for writing writes "
         "it anew");
  EXPECT_EQ(found.devices[3].whole_copies, 1U);
  EXPECT_EQ(found.devices[4].verdict, MemberVerdict::kUnreadable);
  EXPECT_NE(found.devices[4].why, "");
  Expect(found.devices[5], MemberVerdict::kPart, "");
  Expect(found.devices[6], MemberVerdict::kNoMember, "it bears no superblock");
  EXPECT_EQ(found.devices[6].device, &tiny);
  EXPECT_EQ(found.arrays[0].missing, (std::vector<std::string>{"ssd0", "ssd1", "ssd2", "log0"}));
  EXPECT_EQ(found.arrays[0].further_losses_survived, 0U);
  EXPECT_EQ(found.arrays[0].why_not,
            "more than 2 members are missing: ssd0, ssd1, ssd2, log0; bring back at least 2");
}

TEST_F(ExamineWords, OfASpareAndOfOneThatDisagrees) {
  MemoryDevice spare("spare", 8 << 20);
  EncodeSuperblock(SpareSuperblock(Newest(0), Uuid{std::byte{5}}),
                   spare.bytes().first(kSuperblockCopyBytes));
  devices_.push_back(&spare);
  Change(2, [](Superblock& superblock) { --superblock.geometry.log_blocks; });
  Change(3, [](Superblock& superblock) { superblock.version = 1; });
  const Examination found = Look();
  ASSERT_EQ(found.arrays.size(), 1U);
  Expect(found.devices[6], MemberVerdict::kSpare, "");
  EXPECT_EQ(found.devices[6].member, "spare");
  EXPECT_EQ(found.devices[6].array, 0U);
  for (const uint32_t i : {2U, 3U}) {
    Expect(found.devices[i], MemberVerdict::kDamaged,
           "it disagrees with the others on the geometry or format");
  }
  EXPECT_EQ(found.arrays[0].missing, (std::vector<std::string>{"ssd2", "ssd3"}));
  EXPECT_TRUE(found.arrays[0].opens());
  EXPECT_EQ(found.arrays[0].further_losses_survived, 0U);
  devices_ = {&spare};
  const Examination alone = Look();
  ASSERT_EQ(alone.arrays.size(), 1U);
  EXPECT_EQ(alone.arrays[0].why_not, "none of these devices can be used");
  EXPECT_FALSE(alone.arrays[0].opens());
}

// The older one may be what was put in its place, or what it was copied to: nobody chooses.
TEST_F(ExamineWords, OfCopiesSayWhichIsTheNewerOne) {
  MemoryDevice& copy = CopyOf(1, "copy");
  Reopen();
  devices_.push_back(&copy);
  Examination found = Look();
  Expect(found.devices[1], MemberVerdict::kDoubled,
         std::string("copy says that too, with an older superblock") + kLeaveOne);
  Expect(found.devices[6], MemberVerdict::kDoubled,
         std::string("ssd1 says that too, with a newer superblock") + kLeaveOne);
  devices_.back() = &CopyOf(1, "twin");
  found = Look();
  Expect(found.devices[1], MemberVerdict::kDoubled,
         std::string("twin says that too, with a superblock of the same age") + kLeaveOne);
  EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{"ssd1"});
  EXPECT_EQ(found.arrays[0].further_losses_survived, kParity - 1);
  devices_ = {devices_[1], devices_.back()};
  EXPECT_EQ(Look().arrays[0].why_not, "none of these devices can be used");
}

// The newer copy is damaged, and the other is of an epoch that the others have left: it only looks
// like an older copy of itself.
TEST_F(ExamineWords, OfOneWithADamagedCopyThatLooksOlder) {
  MemoryDevice& old = CopyOf(1, "old");
  Reopen();
  const auto area = test_->memory(1).bytes().first(kSuperblockAreaBytes);
  std::copy_n(old.bytes().begin(), kSuperblockAreaBytes, area.begin());
  Expect(Look().devices[1], MemberVerdict::kStale,
         "it is an older copy of itself: of epoch " + std::to_string(Newest(1).epoch.number) +
             ", while the array has opened " + std::to_string(Newest(0).epoch.number));
  Copy(1, 0)[100] ^= std::byte{1};
  const Examination found = Look();
  Expect(found.devices[1], MemberVerdict::kDamaged,
         "the newer copy of its superblock is damaged, the other too old");
  EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{"ssd1"});
}

// A copy was mounted by itself, as often as the array.
TEST_F(ExamineWords, OfOneThatWentOnByItself) {
  Change(1, [](Superblock& superblock) {
    superblock.epoch.random ^= 1;
    superblock.base = superblock.epoch;
  });
  Expect(Look().devices[1], MemberVerdict::kStale,
         "it is a copy that went on by itself: its epoch " +
             std::to_string(Newest(0).epoch.number) + " is not that of the array");
}

// Within one epoch the checkpoint that it names tells how old a device is.
TEST_F(ExamineWords, OfOneThatNamesAnOlderCheckpoint) {
  const uint64_t newest = Newest(0).checkpoint.generation + 5;
  for (uint32_t i = 0; i < kDevices; ++i) {
    Change(i, [&](Superblock& superblock) { superblock.checkpoint.generation = newest; });
  }
  Change(1, [&](Superblock& superblock) { superblock.checkpoint.generation = newest - 1; });
  EXPECT_EQ(Look().devices[1].verdict, MemberVerdict::kPart) << "a crash leaves that";
  Change(1, [&](Superblock& superblock) { superblock.checkpoint.generation = newest - 2; });
  Expect(Look().devices[1], MemberVerdict::kStale,
         "it is an older copy of itself: it names checkpoint " + std::to_string(newest - 2) +
             ", and the others are at " + std::to_string(newest));
  Copy(1, 0)[100] ^= std::byte{1};
  EXPECT_EQ(Look().devices[1].verdict, MemberVerdict::kPart) << "the newer copy may say more";
}

TEST_F(ExamineWords, OfOneThatWasReplacedOrLeftBehind) {
  for (uint32_t i = 0; i < kDevices; ++i) {
    if (i != 1 && i != 4) {
      Change(i, [](Superblock& superblock) {
        superblock.epoch.number += 7;
        superblock.base = superblock.epoch;
        superblock.members[1].uuid[3] ^= std::byte{1};
        superblock.members[1].joined = 6;
        superblock.members[4].state = MemberState::kLost;
      });
    }
  }
  const Examination found = Look();
  Expect(found.devices[1], MemberVerdict::kStale, "another device has had its place since epoch 6");
  Expect(found.devices[4], MemberVerdict::kStale,
         "it failed or was away while the others went on: it is of epoch " +
             std::to_string(Newest(4).epoch.number) + ", they are at " +
             std::to_string(Newest(0).epoch.number));
  EXPECT_EQ(found.arrays[0].missing, (std::vector<std::string>{"ssd1", "log0"}));
}

TEST_F(ExamineWords, OfThoseThatAreNotWholeYet) {
  for (uint32_t i = 0; i < kDevices; ++i) {
    Change(i, [](Superblock& superblock) {
      superblock.members[0].state = MemberState::kReturning;
      superblock.members[4].state = MemberState::kJoining;
    });
  }
  Examination found = Look();
  EXPECT_EQ(found.arrays[0].joining, (std::vector<std::string>{"ssd0", "log0"}));
  EXPECT_TRUE(found.arrays[0].opens());
  EXPECT_FALSE(found.arrays[0].whole());
  EXPECT_EQ(found.arrays[0].further_losses_survived, 0U);
  devices_.erase(devices_.begin() + 2);
  found = Look();
  EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{"ssd2"});
  EXPECT_EQ(found.arrays[0].why_not,
            "more than 2 members are missing or not rebuilt: ssd0 (there, and not rebuilt yet), "
            "ssd2, log0 (there, and not rebuilt yet); bring back at least 1 of those that are "
            "missing");
}

// Of two epochs that grew from one and have not opened, that of all who are called live counts,
// whoever is given first, and whichever number is higher.
TEST_F(ExamineWords, DoNotDependOnTheOrderOfTheDevices) {
  const Epoch opened = Newest(0).epoch;
  for (const uint32_t away : {0U, 3U, 5U}) {
    for (const bool away_is_higher : {false, true}) {
      SCOPED_TRACE(std::to_string(away) + (away_is_higher ? " higher" : " lower"));
      for (uint32_t i = 0; i < kDevices; ++i) {
        Change(i, [&](Superblock& superblock) {
          superblock.base = opened;
          superblock.epoch = {opened.number + ((i == away) == away_is_higher ? 2 : 1), 1};
          superblock.members[away].state = i == away ? MemberState::kOk : MemberState::kLost;
        });
      }
      for (uint32_t turn = 0; turn < kDevices; ++turn) {
        const Examination found = Look();
        ASSERT_EQ(found.arrays.size(), 1U);
        EXPECT_EQ(found.arrays[0].epoch, opened.number + (away_is_higher ? 1 : 2)) << turn;
        EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{status_.devices[away].name})
            << turn;
        std::rotate(devices_.begin(), devices_.begin() + 1, devices_.end());
      }
      for (uint32_t i = 0; i < kDevices; ++i) {
        Change(i, [&](Superblock& superblock) {
          superblock.base = opened;
          superblock.epoch = opened;
          superblock.members[away].state = MemberState::kOk;
        });
      }
    }
  }
}

// An epoch that has not opened counts before the one that it grew from: who has failed meanwhile is
// called so there alone.
TEST_F(ExamineWords, AnEpochThatAllBearCountsBeforeItHasOpened) {
  const Epoch opened = Newest(0).epoch;
  for (uint32_t i = 0; i < kDevices; ++i) {
    if (i != 1) {
      Change(i, [&](Superblock& superblock) {
        superblock.base = opened;
        superblock.epoch = {opened.number + 1, 1};
        superblock.members[1].state = MemberState::kFailed;
      });
    }
  }
  for (uint32_t turn = 0; turn < kDevices; ++turn) {
    const Examination found = Look();
    EXPECT_EQ(found.arrays[0].epoch, opened.number + 1);
    EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{"ssd1"});
    std::rotate(devices_.begin(), devices_.begin() + 1, devices_.end());
  }
}

}  // namespace
}  // namespace eplog
