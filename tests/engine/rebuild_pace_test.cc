// How fast a rebuild goes: at the pace that was asked for, beside others with rests, alone as fast
// as it can; what it cannot do it looks at again soon when something has changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kData = 3;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kRows = 1024;
constexpr uint64_t kRebuilt = kRows * kChunk;  // of each SSD

class RebuildPaces : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, 1);
    shape.ssd_delays = {.read_us = 1'000, .write_us = 1'000, .flush_us = 1'000};
    return shape;
  }
  void SetUp() override {
    content_ = RandomBytes(random_, kRows * kStripe);
    for (uint64_t at = 0; at < content_.size(); at += 64 * kStripe) {
      ASSERT_TRUE(test_.Write(volume_, at, std::span(content_).subspan(at, 64 * kStripe)).ok());
    }
    ASSERT_TRUE(test_.Flush().ok());
  }
  void Replace(const RebuildPace& pace) {
    test_.array->SetRebuildPace(pace);
    Replace();
  }
  void Replace() {
    ASSERT_TRUE(test_.Fail(1).ok());
    test_.Sleep(1'000'000);  // nobody else is at work
    ASSERT_TRUE(test_.ReplaceByItself(1).ok());
    ASSERT_EQ(Rebuilt(), 0U);
  }
  uint64_t Rebuilt() {
    const ArrayStatus status = test_.array->GetStatus();
    return status.rebuild_total_bytes - status.rebuild_left_bytes;
  }
  bool Whole() { return test_.State(1) == DeviceState::kOk; }
  // How long it takes, while somebody writes, or nobody.
  uint64_t AwaitWhole(bool beside_others) {
    const uint64_t begun = test_.loop.NowUs();
    while (!Whole() && test_.loop.NowUs() < begun + 100'000'000) {
      if (beside_others) {
        EXPECT_TRUE(test_.Write(volume_, 0, std::span(content_).first(kChunk)).ok());
      }
      test_.Sleep(10'000);
    }
    EXPECT_TRUE(Whole());
    return test_.loop.NowUs() - begun;
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
  std::vector<std::byte> content_;
};

// Second by second, and never by more than the step that is under way.
TEST_F(RebuildPaces, ALimitIsKeptFromTheFirstSecondToTheLast) {
  constexpr uint64_t kLimit = uint64_t{256} << 10;
  Replace({.yields = false, .bytes_per_second = kLimit});
  for (uint64_t second = 1; !Whole() && second < 60; ++second) {
    test_.Sleep(1'000'000);
    if (!Whole()) {
      EXPECT_LE(Rebuilt(), (second + 1) * kLimit) << second;
      EXPECT_GE(Rebuilt() + kLimit, second * kLimit) << second;
      EXPECT_LT(second, kRebuilt / kLimit + 3);
    }
  }
  EXPECT_TRUE(Whole());
}

// The pace that counts is the last one that was asked for, from the moment when it was.
TEST_F(RebuildPaces, ChangeAtOnce) {
  constexpr uint64_t kLimit = uint64_t{64} << 10;
  Replace({.yields = false, .bytes_per_second = 1});
  test_.Sleep(100'000'000);
  const uint64_t slow = Rebuilt();
  EXPECT_LE(slow, 2 * kLimit);
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = kLimit});
  test_.Sleep(10'000'000);
  EXPECT_GE(Rebuilt(), slow + 8 * kLimit);
  EXPECT_LE(Rebuilt(), slow + 12 * kLimit) << "what was not done before is not made up for";
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 0});
  test_.Sleep(2'000'000);
  EXPECT_TRUE(Whole());
}

// Time in which there was nothing to do is no credit for what comes.
TEST_F(RebuildPaces, IdleTimeGivesNoCredit) {
  constexpr uint64_t kLimit = uint64_t{64} << 10;
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = kLimit});
  test_.Sleep(3'600'000'000);
  Replace();
  test_.Sleep(5'000'000);
  EXPECT_LE(Rebuilt(), 8 * kLimit);
  EXPECT_GE(Rebuilt(), 3 * kLimit);
}

// 8 rows at a time, a read and a write of a millisecond each, and a rest of the same length, but
// for the first batch of those that go on at full pace.
TEST_F(RebuildPaces, BesideOthersSmallStepsAndRests) {
  Replace({});
  const uint64_t alone = AwaitWhole(false);
  Replace({});
  const uint64_t beside = AwaitWhole(true);
  Replace({.yields = false});
  const uint64_t regardless = AwaitWhole(true);
  EXPECT_LT(alone, 1'000'000U);
  EXPECT_LT(regardless, 1'000'000U);
  const uint64_t steps = kRebuilt / (uint64_t{32} << 10);
  EXPECT_GE(beside, steps * 2 * 2'000 * 3 / 4);
  EXPECT_LE(beside, steps * 2 * 2'000 * 5 / 2);
}

// A device that is back is read through; what is left of that goes down to nothing.
TEST_F(RebuildPaces, WhatIsLeftToVerifyGoesDown) {
  ASSERT_TRUE(test_.Commit().ok());
  ASSERT_TRUE(test_.Close().ok());
  const auto open = [&](std::vector<Device*> devices) {
    OpenOptions options;
    options.entropy = 70 + devices.size();
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, std::move(devices), options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  };
  std::vector<Device*> without = test_.Devices();
  without.erase(without.begin() + 1);
  open(without);
  constexpr uint64_t kMissed = 64;
  ASSERT_TRUE(test_.Write(volume_, 0, std::span(content_).first(kMissed * kStripe)).ok());
  ASSERT_TRUE(test_.Close().ok());
  open(test_.Devices());
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = uint64_t{512} << 10});
  ASSERT_EQ(test_.State(1), DeviceState::kRebuilding);
  uint64_t left = test_.array->GetStatus().rebuild_left_bytes;
  EXPECT_LE(left, kRebuilt);
  EXPECT_GE(left, kRebuilt - (uint64_t{2} << 20)) << "what was read before the pace was asked for";
  uint64_t looks = 0;
  for (; !Whole() && looks < 100; ++looks) {
    test_.Sleep(500'000);
    const ArrayStatus status = test_.array->GetStatus();
    EXPECT_LE(status.rebuild_left_bytes, left);
    EXPECT_LE(status.rebuild_total_bytes, kRebuilt + kMissed * kChunk);
    left = status.rebuild_left_bytes;
  }
  EXPECT_GT(looks, 3U);
  EXPECT_TRUE(Whole());
}

// More of some rows is wrong than parity replaces, for a long time.
class StuckRebuild : public RebuildPaces {
 protected:
  static constexpr uint64_t kWrong = 3;

  void SetUp() override {
    RebuildPaces::SetUp();
    ASSERT_TRUE(test_.Commit().ok());
    uint64_t wrong = 0;
    const auto bytes = test_.memory(2).bytes();
    for (uint64_t chunk = 0; chunk < kRows * kData && wrong < kWrong; ++chunk) {
      const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
      for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          bytes[at] ^= std::byte{1};
          wrong_.push_back(chunk);
          ++wrong;
          break;
        }
      }
    }
    ASSERT_EQ(wrong, kWrong);
    Replace({});
    test_.Sleep(3'600'000'000);
    ASSERT_FALSE(Whole());
    ASSERT_EQ(test_.array->GetStatus().rebuild_left_bytes, kWrong * kChunk);
    ASSERT_EQ(test_.array->GetStatus().rebuild_lost_bytes, kWrong * kChunk);
  }
  std::vector<uint64_t> wrong_;
};

// However seldom they are tried by then: that they were written is seen within seconds.
TEST_F(StuckRebuild, EndsSoonAfterWhatHeldItUpIsWritten) {
  for (uint64_t i = 0; i < kWrong; ++i) {
    const uint64_t row = wrong_[i] / kData * kStripe;
    ASSERT_TRUE(test_.Write(volume_, row, std::span(content_).subspan(row, kStripe)).ok());
    test_.Sleep(3'000'000);
    EXPECT_EQ(test_.array->GetStatus().rebuild_lost_bytes, (kWrong - 1 - i) * kChunk) << i;
  }
  test_.Sleep(5'000'000);
  EXPECT_TRUE(Whole());
  EXPECT_TRUE(test_.Read(volume_, 0, content_.size()) == content_);
}

// It was for the moment only: then the next try, ten minutes later at most, is right.
TEST_F(StuckRebuild, TriesAgainWhatMayHaveBeenForTheMomentOnly) {
  const auto bytes = test_.memory(2).bytes();
  for (const uint64_t chunk : wrong_) {
    const auto rest = std::span(content_).subspan(chunk * kChunk + 1, kChunk - 1);
    const auto found = std::search(bytes.begin(), bytes.end(), rest.begin(), rest.end());
    ASSERT_NE(found, bytes.end());
    *(found - 1) ^= std::byte{1};
  }
  test_.Sleep(610'000'000);
  EXPECT_TRUE(Whole());
  EXPECT_EQ(test_.array->GetStatus().rebuild_lost_bytes, 0U);
}

// Each try reads all of them: after an hour there is one every ten minutes. That is work for nobody,
// and no reason to give up.
TEST_F(StuckRebuild, IsTriedEveryTenMinutesInTheEnd) {
  const uint64_t reads = test_.counter(2).counters().reads;
  test_.Sleep(3'600'000'000);
  EXPECT_GE(test_.counter(2).counters().reads - reads, 3 * kWrong);
  EXPECT_LE(test_.counter(2).counters().reads - reads, 7 * 3 * kWrong);
  EXPECT_EQ(test_.array->GetStatus().rebuild_lost_bytes, kWrong * kChunk);
}

// Trimming the row lets go of it as well as writing it does.
TEST_F(StuckRebuild, EndsSoonAfterWhatHeldItUpIsTrimmed) {
  ASSERT_TRUE(
      RunTask(test_.loop, test_.array->Trim(volume_, 0, content_.size(), TrimMode::kPunch)).ok());
  test_.Sleep(5'000'000);
  EXPECT_TRUE(Whole());
  EXPECT_EQ(test_.array->GetStatus().rebuild_total_bytes, 0U);
}

}  // namespace
}  // namespace eplog
