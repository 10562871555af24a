// The pace of a rebuild that a status tells is that of the last half minute: neither of the moment,
// nor of all the time that it has taken.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 3 * kChunk;
constexpr uint64_t kRows = 1024;
constexpr uint64_t kSecond = 1'000'000;

class RebuildRate : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::byte> rows = RandomBytes(random_, 64 * kStripe);
    for (uint64_t row = 0; row < kRows; row += 64) {
      ASSERT_TRUE(test_.Write(volume_, row * kStripe, rows).ok());
    }
    ASSERT_TRUE(test_.Commit().ok());
  }
  void SetPace(uint64_t bytes_per_second) {
    test_.array->SetRebuildPace({.yields = false, .bytes_per_second = bytes_per_second});
  }
  [[nodiscard]] uint64_t Told() { return test_.array->GetStatus().rebuild_bytes_per_second; }

  SmallArray test_{SmallShape(4, 1)};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
};

TEST_F(RebuildRate, IsThatOfTheLastHalfMinute) {
  constexpr uint64_t kFast = uint64_t{128} << 10;
  constexpr uint64_t kSlow = uint64_t{16} << 10;
  SetPace(kFast);
  ASSERT_TRUE(test_.Fail(1).ok());
  ASSERT_TRUE(test_.ReplaceByItself(1).ok());
  test_.Sleep(20 * kSecond);
  EXPECT_GE(Told(), kFast * 9 / 10);
  EXPECT_LE(Told(), kFast * 11 / 10);
  SetPace(kSlow);
  test_.Sleep(9 * kSecond);
  // Twenty seconds of the one and nine of the other.
  EXPECT_GE(Told(), kFast * 6 / 10);
  EXPECT_LE(Told(), kFast * 9 / 10);
  test_.Sleep(31 * kSecond);
  ASSERT_EQ(test_.State(1), DeviceState::kRebuilding);
  EXPECT_GE(Told(), kSlow * 7 / 10);
  EXPECT_LE(Told(), kSlow * 13 / 10);
  // The end that is told follows from it.
  const ArrayStatus status = test_.array->GetStatus();
  EXPECT_EQ(status.rebuild_eta_seconds, (status.rebuild_left_bytes + Told() / 2) / Told());
  SetPace(0);
  test_.Sleep(20 * kSecond);
  ASSERT_EQ(test_.State(1), DeviceState::kOk);
  EXPECT_EQ(Told(), 0U);
  EXPECT_EQ(test_.array->GetStatus().rebuild_total_bytes, 0U);
}

// Neither what was done nor when.
TEST_F(RebuildRate, OfTheNextOneHasNothingOfTheOneBefore) {
  constexpr uint64_t kLimit = uint64_t{64} << 10;
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    SetPace(kLimit);
    ASSERT_TRUE(test_.Fail(1).ok());
    ASSERT_TRUE(test_.ReplaceByItself(1).ok());
    test_.Sleep(10 * kSecond);
    EXPECT_GE(Told(), kLimit * 8 / 10);
    EXPECT_LE(Told(), kLimit * 12 / 10);
    // What is on its way has left the one figure and may not have come to the other.
    const uint64_t total = test_.array->GetStatus().rebuild_total_bytes;
    EXPECT_LE(total, kRows * kChunk);
    EXPECT_GE(total, kRows * kChunk - kLimit);
    SetPace(0);
    test_.Sleep(10 * kSecond);
    ASSERT_EQ(test_.State(1), DeviceState::kOk);
  }
}

}  // namespace
}  // namespace eplog
