// A scrub while devices come and go: what is being verified on one that is back is not wrong yet,
// and what was on its way when another was lost leaves no slot behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kData = 3;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kRows = 3000;
constexpr uint32_t kAway = 1;

class ScrubReturning : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{20} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.auto_commit = false;
    return shape;
  }
  void SetUp() override {
    for (uint64_t row = 0; row < kRows; row += 100) {
      ASSERT_TRUE(test_.Write(volume_, row * kStripe, RandomBytes(random_, 100 * kStripe)).ok());
    }
    ASSERT_TRUE(test_.Commit().ok());
    ASSERT_TRUE(test_.Close().ok());
    std::vector<Device*> devices = test_.Devices();
    devices.erase(devices.begin() + kAway);
    Open(devices);
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kStripe)).ok());
    content_ = test_.Read(volume_, 0, kRows * kStripe);
    ASSERT_TRUE(test_.Close().ok());
  }
  void Open(const std::vector<Device*>& devices) {
    OpenOptions options;
    options.entropy = 50 + devices.size();
    options.auto_commit = false;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  // Some chunks of the last rows, which come last: their slots were given in that order.
  void RotLastRows(uint32_t ssd, uint64_t from_row, uint64_t count) {
    const auto bytes = test_.memory(ssd).bytes();
    for (uint64_t slot = from_row; slot < from_row + count; ++slot) {
      bytes[test_.SlotsOffsetBytes() + slot * kChunk + 9] ^= std::byte{1};
    }
  }
  CheckReport Scrub(bool heal) {
    const auto report = test_.Scrub(heal);
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  DeviceStatus Status(uint32_t device) { return test_.array->GetStatus().devices[device]; }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
  std::vector<std::byte> content_;
};

TEST_F(ScrubReturning, WhatIsBeingVerifiedIsNotWrongUnlessItIsLost) {
  constexpr uint64_t kWrong = 40;
  constexpr uint64_t kLost = 5;
  RotLastRows(kAway, kRows - 100, kWrong);
  RotLastRows(2, kRows - 100, kLost);  // of the same rows
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = 1'000, .write_us = 1'000});
  }
  Open(test_.Devices());
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
  ASSERT_EQ(Status(kAway).state, DeviceState::kRebuilding);
  const CheckReport found = Scrub(false);
  uint64_t on_other = 0;
  uint64_t on_returning = 0;
  for (const Finding& finding : found.findings) {
    on_other += finding.device == "ssd2" ? 1 : 0;
    on_returning += finding.device == "ssd1" ? 1 : 0;
    EXPECT_EQ(finding.outcome,
              finding.volume.empty() ? Finding::Outcome::kLeft : Finding::Outcome::kLost)
        << finding.Text();
  }
  EXPECT_EQ(on_other, kLost) << "nobody else has what was on it";
  EXPECT_LE(on_returning, kLost) << "what can be decoded is being seen to";
  EXPECT_EQ(found.problems_found, on_other + on_returning);
  RotLastRows(2, kRows - 100, kLost);  // right again: for the moment only
  EXPECT_EQ(Scrub(true).problems_found, 0U);
  EXPECT_EQ(Status(kAway).state, DeviceState::kRebuilding);
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 0});
  test_.Sleep(700'000'000);
  ASSERT_EQ(Status(kAway).state, DeviceState::kOk);
  EXPECT_EQ(Scrub(false).problems_found, 0U) << "it was written anew before it counted";
  EXPECT_TRUE(test_.Read(volume_, 0, kRows * kStripe) == content_);
}

// Again and again a device is lost in the middle of what is written to it.
TEST(SlotsOfRebuilds, AreGivenBackWhereDevicesChangeMeanwhile) {
  ArrayShape shape = SmallShape(6, 3);
  shape.ssd_delays = {.read_us = 1'000, .write_us = 5'000, .flush_us = 1'000};
  shape.log_delays = {.read_us = 1'000, .write_us = 3'000, .flush_us = 1'000};
  SmallArray test(shape);
  constexpr uint64_t kManyRows = 600;
  const VolumeId volume = test.CreateVolume("v", kManyRows * kStripe);
  Random random(7);
  for (uint64_t row = 0; row < kManyRows; row += 100) {
    ASSERT_TRUE(test.Write(volume, row * kStripe, RandomBytes(random, 100 * kStripe)).ok());
  }
  ASSERT_TRUE(test.Commit().ok());
  const std::vector<std::byte> content = test.Read(volume, 0, kManyRows * kStripe);
  const auto fail = [&](uint32_t device) { ASSERT_TRUE(test.Fail(device).ok()); };
  const auto replace = [&](uint32_t device) { ASSERT_TRUE(test.ReplaceByItself(device).ok()); };
  for (uint32_t round = 0; round < 12; ++round) {
    fail(0);
    fail(1);
    replace(0);
    replace(1);
    test.Sleep(2'000 + round * 3'000);
    fail(2);  // while chunks are on their way to the others
    replace(2);
    for (int i = 0; i < 100 && test.array->GetStatus().state == ArrayState::kRebuilding; ++i) {
      test.Sleep(1'000'000);
    }
    ASSERT_NE(test.array->GetStatus().state, ArrayState::kRebuilding);
  }
  EXPECT_TRUE(test.Read(volume, 0, kManyRows * kStripe) == content);
  test.Sleep(20'000'000);
  EXPECT_EQ(test.array->GetStatus().slots_used, kManyRows * shape.n);
  ASSERT_TRUE(test.Close().ok());
  test.Open();
  EXPECT_EQ(test.array->GetStatus().slots_used, kManyRows * shape.n) << "counted anew";
}

}  // namespace
}  // namespace eplog
