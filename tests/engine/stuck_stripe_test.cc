// A stripe that has lost more than its parity replaces cannot be committed. What is written to it
// all the same is kept, and keeps nobody else from anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/task_group.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 3 * kChunk;
constexpr uint64_t kStripes = 400;
constexpr uint64_t kSize = kStripes * kStripe;

class StuckStripe : public ::testing::Test {
 protected:
  // 3+1, all of it committed, and everything on ssd1 of the first `count` stripes wrong.
  StuckStripe() : test_(Shape()) {}
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.max_corrupt_chunks = 0;
    return shape;
  }
  void SetUp() override {
    for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
      Write(stripe * kStripe, kStripe);
    }
    ASSERT_TRUE(test_.Commit().ok());
  }
  void Spoil(uint64_t slots) {
    const auto bytes = test_.memory(1).bytes();
    for (uint64_t slot = 0; slot < slots; ++slot) {
      bytes[test_.SlotsOffsetBytes() + slot * kChunk + 100] ^= std::byte{1};
    }
  }
  // Of the stripes that lie first on each SSD, what is on ssd1; and ssd2 is lost.
  void LoseStripes(uint64_t count) {
    Spoil(count);
    ASSERT_TRUE(test_.Fail(2).ok());
    const Buffer buffer = test_.pool.Get(kChunk);
    for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
      if (!RunTask(test_.loop, test_.array->Read(volume_, chunk * kChunk, buffer.span())).ok()) {
        lost_.insert(chunk);
      }
    }
    ASSERT_GE(lost_.size(), count);
  }
  // A chunk of each stripe that has lost something, where that is not lost itself.
  void WriteIntoThem(bool last_first = false) {
    for (uint64_t at = 0; at < kStripes; ++at) {
      const uint64_t stripe = last_first ? kStripes - 1 - at : at;
      const auto is_lost = [&](uint64_t i) { return lost_.contains(stripe * 3 + i); };
      for (uint64_t i = 0; i < 3; ++i) {
        if (!is_lost(i) && (is_lost((i + 1) % 3) || is_lost((i + 2) % 3))) {
          Write((stripe * 3 + i) * kChunk, kChunk);
          break;
        }
      }
    }
    ASSERT_TRUE(test_.Flush().ok());
  }
  bool HasLost(uint64_t stripe) const {
    const auto first = lost_.lower_bound(stripe * 3);
    return first != lost_.end() && *first < stripe * 3 + 3;
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_.Write(volume_, offset, data);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    std::ranges::copy(data, model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  // At once.
  Task<Status> WriteAll(const std::map<uint64_t, std::vector<std::byte>>& writes) {
    TaskGroup group(test_.loop);
    for (const auto& [chunk, data] : writes) {
      group.Start(test_.array->Write(volume_, chunk * kChunk, data));
    }
    Task<Status> all = group.Wait();
    co_return co_await all;
  }
  // Chunks of all other stripes, so many at once.
  void Burst(size_t count) {
    std::map<uint64_t, std::vector<std::byte>> writes;
    while (writes.size() < count) {
      const uint64_t chunk = random_.Below(kSize / kChunk);
      if (!HasLost(chunk / 3)) {
        writes[chunk] = RandomBytes(random_, kChunk);
      }
    }
    const Status written = RunTask(test_.loop, WriteAll(writes));
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    for (const auto& [chunk, data] : writes) {
      std::ranges::copy(data, model_.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk));
    }
  }
  // To all other stripes.
  void WriteElsewhere(uint64_t count) {
    for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) {
      const uint64_t chunk = random_.Below(kSize / kChunk);
      if (!HasLost(chunk / 3)) {
        Write(chunk * kChunk, kChunk);
      }
    }
  }
  void ExpectContent() {
    const Buffer buffer = test_.pool.Get(kChunk);
    for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
      const Status read =
          RunTask(test_.loop, test_.array->Read(volume_, chunk * kChunk, buffer.span()));
      ASSERT_EQ(read.ok(), !lost_.contains(chunk)) << chunk;
      if (read.ok()) {
        ASSERT_EQ(std::memcmp(buffer.data(), model_.data() + chunk * kChunk, kChunk), 0) << chunk;
      }
    }
  }

  SmallArray test_;
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  std::vector<std::byte> model_ = std::vector<std::byte>(kSize);
  std::set<uint64_t> lost_;
  Random random_{3};
};

TEST_F(StuckStripe, TheLogGoesRoundBehindIt) {
  LoseStripes(3);
  WriteIntoThem();
  WriteElsewhere(5000);  // many times the log
  ExpectContent();
  // A crash takes nothing of what was moved on.
  ASSERT_TRUE(test_.Flush().ok());
  test_.Kill();
  test_.Open();
  ExpectContent();
}

// Also where others take all the log that they may have before anybody looks.
TEST_F(StuckStripe, TheLogGoesRoundUnderABurst) {
  LoseStripes(3);
  WriteIntoThem();
  for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
    Burst(300);
  }
  ExpectContent();
}

// A good part of the log, and whichever of them lies at its tail.
class StuckStripes : public StuckStripe,
                     public ::testing::WithParamInterface<std::pair<uint64_t, bool>> {};

TEST_P(StuckStripes, TheLogGoesRoundBehindThem) {
  LoseStripes(GetParam().first);
  WriteIntoThem(GetParam().second);
  for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
    WriteElsewhere(300);
    Burst(150);
  }
  ExpectContent();
}

INSTANTIATE_TEST_SUITE_P(, StuckStripes,
                         ::testing::Values(std::pair(20, false), std::pair(20, true),
                                           std::pair(40, true), std::pair(70, false),
                                           std::pair(70, true)));

TEST_F(StuckStripe, ARebuildEndsWithAllElse) {
  LoseStripes(3);
  WriteIntoThem();
  WriteElsewhere(2000);
  ASSERT_TRUE(test_.ReplaceByItself(2).ok());
  test_.Sleep(20'000'000);
  const ArrayStatus status = test_.array->GetStatus();
  EXPECT_EQ(status.rebuild_left_bytes, status.rebuild_lost_bytes);
  EXPECT_LE(status.rebuild_lost_bytes, 3 * kChunk);
  WriteElsewhere(5000);
  ExpectContent();
  // Written anew as a whole it is well again, and so is the array.
  const std::set<uint64_t> lost = std::exchange(lost_, {});
  for (const uint64_t chunk : lost) {
    Write(chunk / 3 * kStripe, kStripe);
  }
  for (int i = 0; i < 200 && test_.State(2) != DeviceState::kOk; ++i) {
    test_.Sleep(500'000);
  }
  EXPECT_EQ(test_.State(2), DeviceState::kOk);
  ExpectContent();
}

// Where they are as many as the log has room for, who waits is refused, and not kept waiting while
// the same stripes are read again and again.
TEST_F(StuckStripe, SoManyThatNothingHelpsAreNoWork) {
  LoseStripes(350);
  uint64_t refused_first = 0;
  for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
    if (HasLost(chunk / 3) && !lost_.contains(chunk)) {
      const std::vector<std::byte> data = RandomBytes(random_, kChunk);
      refused_first += test_.Write(volume_, chunk * kChunk, data).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused_first, 0U);
  const uint64_t reads = test_.counter(0).counters().reads;
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::vector<std::byte> data = RandomBytes(random_, kChunk);
    EXPECT_FALSE(test_.Write(volume_, random_.Below(kSize / kChunk) * kChunk, data).ok());
    test_.Sleep(5'000);
  }
  EXPECT_LT(test_.counter(0).counters().reads - reads, 2000U);
  // What lets go of them is taken at any time.
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(volume_)).ok());
  volume_ = test_.CreateVolume("w", kSize);
  std::ranges::fill(model_, std::byte{0});
  lost_.clear();
  WriteElsewhere(2000);
  ExpectContent();
}

// What was deleted and could not be freed then, for want of log, is freed when somebody lets go of
// what holds that.
TEST_F(StuckStripe, WhatIsDeletedUnderThemComesBack) {
  const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  const uint64_t extent = superblock->geometry.extent_data_bytes();
  const std::vector<std::byte> chunk = RandomBytes(random_, kChunk);
  const uint64_t room = test_.array->GetStatus().free_bytes / extent;
  const VolumeId gone = test_.CreateVolume("gone", room * extent);
  const VolumeId stays = test_.CreateVolume("stays", room * extent);
  for (uint64_t i = 0; i < room; ++i) {  // each of its extents stands alone
    ASSERT_TRUE(test_.Write(i % 2 == 0 ? gone : stays, i * extent, chunk).ok());
  }
  ASSERT_TRUE(test_.Commit().ok());
  LoseStripes(350);
  uint64_t refused = 0;
  for (uint64_t at = 0; at < kSize / kChunk; ++at) {
    if (HasLost(at / 3) && !lost_.contains(at)) {
      refused += test_.Write(volume_, at * kChunk, RandomBytes(random_, kChunk)).ok() ? 0 : 1;
    }
  }
  ASSERT_GT(refused, 0U);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(gone)).ok());
  test_.Sleep(60'000'000);
  Spoil(350);  // back to what it was
  test_.Sleep(60'000'000);
  const uint64_t free = test_.array->GetStatus().free_bytes / extent;
  EXPECT_EQ(free, (room + 1) / 2);
  const VolumeId anew = test_.CreateVolume("anew", free * extent);
  for (uint64_t i = 0; i < free; ++i) {
    const Status written = test_.Write(anew, i * extent, chunk);
    ASSERT_TRUE(written.ok()) << i << " of " << free << ": " << written.error().ToString();
  }
}

class StuckCut : public StuckStripe, public ::testing::WithParamInterface<bool> {};

// It is done by asking for the same size once more, or for whoever needs its room.
TEST_P(StuckCut, WhatIsCutOffUnderThemComesBack) {
  const bool by_hand = GetParam();
  const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  const uint64_t extent = superblock->geometry.extent_data_bytes();
  const std::vector<std::byte> chunk = RandomBytes(random_, kChunk);
  const uint64_t room = test_.array->GetStatus().free_bytes / extent;
  const VolumeId cut = test_.CreateVolume("cut", room * extent);
  const VolumeId stays = test_.CreateVolume("stays", room * extent);
  for (uint64_t i = 0; i < room; ++i) {
    ASSERT_TRUE(test_.Write(i % 2 == 0 ? cut : stays, i * extent, chunk).ok());
  }
  ASSERT_TRUE(test_.Commit().ok());
  LoseStripes(350);
  for (uint64_t at = 0; at < kSize / kChunk; ++at) {
    if (HasLost(at / 3) && !lost_.contains(at)) {
      static_cast<void>(test_.Write(volume_, at * kChunk, RandomBytes(random_, kChunk)));
    }
  }
  const auto resize = [&] { return RunTask(test_.loop, test_.array->ResizeVolume(cut, kChunk)); };
  if (resize().ok()) {
    GTEST_SKIP() << "it was not refused";
  }
  EXPECT_FALSE(resize().ok()) << "nothing has changed";
  Spoil(350);  // back to what it was
  test_.Sleep(60'000'000);
  if (by_hand) {
    EXPECT_TRUE(resize().ok());
  } else {
    const uint64_t free = test_.array->GetStatus().free_bytes / extent;
    const VolumeId needs = test_.CreateVolume("needs", free * extent);
    for (uint64_t i = 0; i < free; ++i) {
      const Status written = test_.Write(needs, i * extent, chunk);
      ASSERT_TRUE(written.ok()) << i << " of " << free << ": " << written.error().ToString();
    }
  }
  EXPECT_LE(test_.array->GetVolume(cut)->allocated_bytes, extent);
}

INSTANTIATE_TEST_SUITE_P(, StuckCut, ::testing::Bool(),
                         [](const auto& by) { return by.param ? "ByHand" : "ByNeed"; });

// What nobody waits for is tried once a second, and the idle array has rest in between.
TEST_F(StuckStripe, IsCommittedInVainOnceASecond) {
  ASSERT_TRUE(test_.Close().ok());
  test_.shape().commit = {.idle_us = 1'000'000};
  test_.Open();
  LoseStripes(3);
  WriteIntoThem();
  test_.Sleep(10'000'000);
  ASSERT_NE(test_.array->GetStatus().pending_chunks, 0U);
  const uint64_t reads = test_.counter(0).counters().reads;
  test_.Sleep(100'000'000);
  EXPECT_GE(test_.counter(0).counters().reads - reads, 50U);
  EXPECT_LE(test_.counter(0).counters().reads - reads, 100 * 30U);
}

// Who is refused is told which stripe it is, and the owner what to do: once, however many are.
TEST_F(StuckStripe, WhoIsRefusedIsToldWhy) {
  ASSERT_TRUE(test_.Close().ok());
  std::vector<std::string> told;
  test_.shape().on_event = [&told](const ArrayEvent& event) {
    if (event.kind == EventKind::kCommitBehind && event.text.starts_with("writes are refused")) {
      told.push_back(event.text);
    }
  };
  test_.Open();
  LoseStripes(350);
  uint64_t refused = 0;
  for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
    if (HasLost(chunk / 3) && !lost_.contains(chunk)) {
      const Status written = test_.Write(volume_, chunk * kChunk, RandomBytes(random_, kChunk));
      if (!written.ok()) {
        ++refused;
        EXPECT_NE(written.error().message.find("parity commit of stripe "), std::string::npos)
            << written.error().message;
      }
    }
  }
  EXPECT_GT(refused, 1U);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("for want of log: parity commit of stripe "), std::string::npos)
      << told[0];
  EXPECT_TRUE(
      told[0].ends_with("; write such stripes anew as a whole, or punch them, and it goes on"))
      << told[0];
  test_.Kill();
}

}  // namespace
}  // namespace eplog
