// Whom a list of what is lost names: volumes that are there, and each device of which nobody knows
// what it lacks.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "eplog/report.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

class LostNames : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m) {
    ArrayShape shape = SmallShape(n, m);
    // So that a kill comes before what follows in the background.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    stripe_ = (n - m) * kChunk;
    test_ = std::make_unique<SmallArray>(shape);
  }
  VolumeId Fill(const std::string& name, uint64_t stripes) {
    const VolumeId id = test_->CreateVolume(name, stripes * stripe_);
    EXPECT_TRUE(test_->Write(id, 0, RandomBytes(random_, stripes * stripe_)).ok());
    return id;
  }
  void OpenByForceWithout(const std::set<uint32_t>& missing) {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < test_->Devices().size(); ++i) {
      if (!missing.contains(i)) {
        devices.push_back(test_->Devices()[i]);
      }
    }
    OpenOptions options;
    options.read_only = options.force = true;
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  LossReport FindLost() {
    const auto report = RunTask(test_->loop, test_->array->FindLost());
    EXPECT_TRUE(report.ok());
    return report.ok() ? *report : LossReport();
  }

  Random random_{37};
  uint64_t stripe_ = 0;
  std::unique_ptr<SmallArray> test_;
};

// Its rows are not free yet, and nobody can read it any more: there is nothing to lose.
TEST_F(LostNames, AVolumeThatIsBeingDeletedIsNoVolume) {
  Make(5, 1);
  static_cast<void>(Fill("kept", 12));
  const VolumeId gone = Fill("gone", 36);
  ASSERT_TRUE(test_->Flush().ok());
  const uint64_t slots = test_->array->GetStatus().slots_used;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->DeleteVolume(gone)).ok());
  test_->Kill();
  ASSERT_NO_FATAL_FAILURE(OpenByForceWithout({0, 1}));
  ASSERT_EQ(test_->array->Volumes().size(), 1U);
  ASSERT_GE(test_->array->GetStatus().slots_used, slots) << "it was to be killed before";
  const LossReport report = FindLost();
  EXPECT_FALSE(report.ranges.empty());
  for (const LostRange& range : report.ranges) {
    EXPECT_EQ(range.volume, "kept") << range.offset_bytes;
  }
  EXPECT_GT(report.lost_bytes, 0U);
  EXPECT_LE(report.lost_bytes, 12 * stripe_);
  EXPECT_TRUE(RunTask(test_->loop, test_->array->Close()).ok());
  test_->array.reset();
}

TEST_F(LostNames, EachSsdThatMissedSomethingIsNamed) {
  Make(6, 2);
  const VolumeId volume = Fill("v", 20);
  for (const uint32_t ssd : {1U, 4U}) {
    ASSERT_TRUE(test_->Fail(ssd).ok());
  }
  ASSERT_TRUE(test_->Write(volume, stripe_, RandomBytes(random_, 2 * stripe_)).ok());
  ASSERT_TRUE(test_->Flush().ok());
  test_->Kill();
  ASSERT_NO_FATAL_FAILURE(OpenByForceWithout({2}));
  EXPECT_EQ(FindLost().unsure, "ssd1, ssd4");
  EXPECT_TRUE(RunTask(test_->loop, test_->array->Close()).ok());
  test_->array.reset();
  ASSERT_NO_FATAL_FAILURE(OpenByForceWithout({2, 4}));
  EXPECT_EQ(FindLost().unsure, "ssd1");
  EXPECT_TRUE(RunTask(test_->loop, test_->array->Close()).ok());
  test_->array.reset();
  // With no more than parity replaces there is no question of that.
  ASSERT_NO_FATAL_FAILURE(OpenByForceWithout({}));
  const LossReport report = FindLost();
  EXPECT_EQ(report.unsure, "");
  EXPECT_EQ(report.lost_bytes, 0U);
  EXPECT_TRUE(RunTask(test_->loop, test_->array->Close()).ok());
  test_->array.reset();
}

}  // namespace
}  // namespace eplog
