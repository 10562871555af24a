// Superblocks on all live devices: copies in turn, each durable before the next, those that were
// away first (I8, I9, I11).
#include "engine/checkpoint/superblocks.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class WrittenSuperblocks : public CheckpointTest {
 protected:
  Status Write() { return parts_.Run(superblocks_.Write()); }
  uint32_t Damaged(DeviceIndex device) { return parts_.Run(superblocks_.DamagedCopies(device)); }
  void RotCopy(DeviceIndex device, size_t copy) {
    parts_.memory(device).bytes()[kSuperblockCopyOffset[copy] + 200] ^= std::byte{1};
  }
};

TEST_F(WrittenSuperblocks, EachDeviceBearsItsOwn) {
  for (uint8_t i = 0; i < g().devices(); ++i) {
    const Superblock newest = NewestOn(DeviceIndex(i));
    EXPECT_EQ(newest.index, DeviceIndex(i));
    EXPECT_EQ(newest.device_uuid, parts_.core.identity.members[i].uuid);
    EXPECT_EQ(newest.generation, 2U);
    EXPECT_EQ(newest.geometry, g());
  }
}

TEST_F(WrittenSuperblocks, CopiesTakeTurnsAndTheOtherOneStays) {
  for (uint64_t generation = 3; generation <= 6; ++generation) {
    const auto before = CopiesOn(DeviceIndex(0));
    superblocks_.SetEpoch({generation, 0}, superblocks_.current().members);
    ASSERT_TRUE(Write().ok());
    const auto after = CopiesOn(DeviceIndex(0));
    const size_t written = generation % 2;
    ASSERT_TRUE(after[written].ok());
    EXPECT_EQ(after[written]->generation, generation);
    EXPECT_EQ(after[written]->epoch.number, generation);
    EXPECT_EQ(*after[1 - written], *before[1 - written]);
  }
}

TEST_F(WrittenSuperblocks, AreDurableOnReturn) {
  parts_.ResetCounters();
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(parts_.Flushed(), (uint64_t{1} << g().devices()) - 1);
}

TEST_F(WrittenSuperblocks, WhoIsLostGetsNoneAndIsNoError) {
  parts_.Lose(DeviceIndex(1));
  parts_.faulty(g().LogDevice(0)).Add({.kinds = MaskOf(RequestKind::kWrite)});  // is lost now
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(NewestOn(DeviceIndex(0)).generation, 3U);
  EXPECT_EQ(NewestOn(DeviceIndex(1)).generation, 2U);
  EXPECT_EQ(NewestOn(g().LogDevice(0)).generation, 2U);
  EXPECT_FALSE(parts_.core.members.live(g().LogDevice(0)));
}

TEST_F(WrittenSuperblocks, LackOfSpaceBelowIsAnError) {
  parts_.faulty(DeviceIndex(2))
      .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  const Status full = Write();
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kNoSpace);
}

// What was not written whole lies over the older copy: until it is, the newer one is the only one.
TEST_F(WrittenSuperblocks, WhatWasNotWrittenIsWrittenToTheSameCopy) {
  const DeviceIndex device(2);
  const uint64_t newest = NewestOn(device).generation;
  for (const uint64_t nth : {1U, 1U, 2U}) {  // the second time on it comes after a filler
    parts_.faulty(device).Add(
        {.kinds = MaskOf(RequestKind::kWrite), .nth = nth, .code = ErrorCode::kNoSpace});
    ASSERT_FALSE(Write().ok());
    const auto copies = CopiesOn(device);
    ASSERT_TRUE(copies[newest % 2].ok());
    EXPECT_EQ(copies[newest % 2]->generation, newest);
  }
  parts_.ResetCounters();
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(parts_.counted(device).writes, 2U) << "nothing of what came half may be left";
  const auto copies = CopiesOn(device);
  ASSERT_TRUE(copies[0].ok() && copies[1].ok());
  EXPECT_EQ(copies[newest % 2]->generation, newest);
  EXPECT_EQ(copies[1 - newest % 2]->generation, newest + 1);
  EXPECT_EQ(Damaged(device), 0U);
}

// I11: while one that is back bears an older epoch, no other may bear the one that calls it live.
TEST_F(WrittenSuperblocks, ThoseThatWereAwayGetTheirsBeforeAllOthers) {
  superblocks_.Return(DeviceIndex(3), 9, false);
  superblocks_.Return(g().LogDevice(1), 4, false);
  EXPECT_EQ(superblocks_.returning(),
            EngineParts::MaskOf(DeviceIndex(3)) | EngineParts::MaskOf(g().LogDevice(1)));
  EXPECT_EQ(superblocks_.current().members[3].state, MemberState::kReturning);
  EXPECT_EQ(superblocks_.current().members[g().LogDevice(1).value].state, MemberState::kJoining)
      << "a log device has nothing to be looked at";
  std::vector<std::pair<uint8_t, IoKind>> requests;
  parts_.core.members.set_before_io(
      [&](DeviceIndex device, IoKind kind) { requests.emplace_back(device.value, kind); });
  ASSERT_TRUE(Write().ok());
  ASSERT_EQ(requests.size(), 2U * g().devices());
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool back = requests[i].first == 3 || requests[i].first == g().LogDevice(1).value;
    EXPECT_EQ(back, i < 4) << i << ": writes and flushes of both come first";
  }
  EXPECT_EQ(superblocks_.returning(), 0U);
  EXPECT_EQ(NewestOn(DeviceIndex(3)).generation, 10U) << "newer than what it bore";
}

// I8: or the second one, torn as well, might make it whole.
TEST_F(WrittenSuperblocks, ATornCopyIsMadeNothingBeforeAnotherIsWrittenThere) {
  const DeviceIndex device(2);
  superblocks_.Return(device, 2, true);
  parts_.ResetCounters();
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(parts_.counted(device).writes, 2U);
  EXPECT_EQ(parts_.counted(device).flushes, 2U) << "the filler is durable before";
  EXPECT_EQ(parts_.counted(DeviceIndex(1)).writes, 1U);
  parts_.ResetCounters();
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(parts_.counted(device).writes, 1U) << "once";
}

TEST_F(WrittenSuperblocks, AReplacementBeginsAnew) {
  const DeviceIndex device(2);
  parts_.Lose(device);
  superblocks_.Join(device);
  parts_.Join(device);
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Damaged(device), 0U) << "there was none before it";
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Damaged(device), 0U);
}

TEST_F(WrittenSuperblocks, DamagedCopiesAreFound) {
  const DeviceIndex device(0);
  EXPECT_EQ(Damaged(device), 0U);
  RotCopy(device, 0);
  EXPECT_EQ(Damaged(device), 1U);
  RotCopy(device, 1);
  EXPECT_EQ(Damaged(device), 3U);
  RotCopy(device, 0);
  EXPECT_EQ(Damaged(device), 2U);
  RotCopy(device, 1);
  // One that is right, and older than what was written last, or another device's.
  const auto copy = [&](DeviceIndex of, size_t which) {
    return parts_.memory(of).bytes().subspan(kSuperblockCopyOffset[which], kSuperblockCopyBytes);
  };
  const std::vector<std::byte> older(copy(device, 1).begin(), copy(device, 1).end());
  ASSERT_TRUE(Write().ok());
  ASSERT_EQ(Damaged(device), 0U);
  std::ranges::copy(older, copy(device, 1).begin());
  EXPECT_EQ(Damaged(device), 2U);
  std::ranges::copy(copy(DeviceIndex(1), 1), copy(device, 1).begin());
  EXPECT_EQ(Damaged(device), 2U);
  parts_.faulty(device).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  EXPECT_EQ(Damaged(device), 3U);
  parts_.Lose(device);
  EXPECT_EQ(Damaged(device), 0U) << "of what is not there nothing is damaged";
}

// What mode log may open without.
TEST_F(WrittenSuperblocks, SayWhetherFlushesWaitedForTheRings) {
  superblocks_.SetBase({1, 99}, true);
  EXPECT_TRUE(superblocks_.current().base_on_rings) << "mode full";
  superblocks_.SetBase({1, 99}, false);
  EXPECT_FALSE(superblocks_.current().base_on_rings) << "not where the rings had no room";
  Superblock in_mode_log = superblocks_.current();
  in_mode_log.journal_mode = static_cast<uint8_t>(JournalMode::kLog);
  Superblocks superblocks(parts_.core, in_mode_log, std::vector<uint64_t>(g().devices(), 2), 0);
  superblocks.SetBase({1, 99}, true);
  EXPECT_FALSE(superblocks.current().base_on_rings) << "all log devices are there";
  std::vector<MemberEntry> members = in_mode_log.members;
  members[0].state = MemberState::kLost;
  superblocks.SetEpoch({2, 0}, members);
  superblocks.SetBase({2, 0}, true);
  EXPECT_FALSE(superblocks.current().base_on_rings) << "an SSD is none";
  members[g().n].state = MemberState::kJoining;
  superblocks.SetEpoch({3, 0}, members);
  superblocks.SetBase({3, 0}, true);
  EXPECT_TRUE(superblocks.current().base_on_rings);
}

}  // namespace
}  // namespace eplog
