// Who may be taken out and who may come in his place, said in words that name the device and what to
// do; and that a loss leaves nothing unstable behind.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;

class MembershipWords : public ::testing::Test {
 protected:
  // What a plan says is what the change itself says.
  void ExpectRefused(uint32_t device, Device* replacement, const std::string& why) {
    SCOPED_TRACE(why);
    Change change;
    change.kind = Change::Kind::kFailDevice;
    change.device = device;
    if (replacement != nullptr) {
      change.kind = Change::Kind::kReplaceDevice;
      change.replacement = replacement->name();
      change.replacement_identity = replacement->identity();
      change.replacement_bytes = replacement->size_bytes();
    }
    const auto plan = RunTask(test_.loop, test_.array->Plan(change));
    const Status status =
        replacement == nullptr ? test_.Fail(device) : test_.Replace(device, *replacement);
    ASSERT_FALSE(status.ok());
    ASSERT_FALSE(plan.ok());
    for (const Error* error : {&status.error(), &plan.error()}) {
      EXPECT_EQ(error->code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(error->message, why);
    }
  }
  void Stay(uint32_t device) {  // rebuilding
    test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
    ASSERT_TRUE(test_.ReplaceByItself(device).ok());
    ASSERT_EQ(test_.State(device), DeviceState::kRebuilding);
  }

  SmallArray test_{SmallShape(kSsdCount, kParity)};
  VolumeId volume_ = test_.CreateVolume("v", 100 * 3 * kChunk);
  Random random_{7};
};

TEST_F(MembershipWords, OfATakingOut) {
  ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, 90 * kChunk)).ok());
  ASSERT_TRUE(test_.Fail(1).ok());
  ExpectRefused(1, nullptr, "ssd1 is lost already");
  ASSERT_TRUE(test_.Fail(kSsdCount).ok());
  ExpectRefused(kSsdCount, nullptr, "log0 is lost already");
  const std::string end =
      " would be more than 2 devices that are not ok: replace and rebuild first";
  ExpectRefused(0, nullptr, "losing ssd0" + end);
  ExpectRefused(kSsdCount + 1, nullptr, "losing log1" + end);
  // One that is not whole yet counts as lost, so it may be taken out, and nobody else.
  Stay(1);
  ExpectRefused(0, nullptr, "losing ssd0" + end);
  EXPECT_TRUE(test_.Fail(1).ok());
  test_.Kill();
}

TEST_F(MembershipWords, OfAReplacement) {
  ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, 90 * kChunk)).ok());
  MemoryDevice fresh("fresh", test_.memory(0).size_bytes());
  ExpectRefused(0, &fresh, "ssd0 is part of the array: fail it first");
  ExpectRefused(kSsdCount + 1, &fresh, "log1 is part of the array: fail it first");
  ASSERT_TRUE(test_.Fail(2).ok());
  for (const uint32_t other : {0U, 4U, kSsdCount, kSsdCount + 1}) {
    Device* const member = test_.Devices()[other];
    const std::string name = other < kSsdCount ? "ssd" + std::to_string(other)
                                               : "log" + std::to_string(other - kSsdCount);
    ExpectRefused(2, member, member->name() + " is " + name + " and in use");
  }
  Stay(2);
  ExpectRefused(2, &fresh, "ssd2 is part of the array: fail it first");
  test_.Kill();
}

// What lay on a device that is lost has less that it can be had from: it is made stable at once and
// not when its five seconds are over.
TEST_F(MembershipWords, ALossMakesStableWhatIsApplied) {
  for (const uint32_t device : {3U, 1U}) {
    for (uint64_t i = 0; i < 5; ++i) {
      const uint64_t chunk = device + i * 4;
      ASSERT_TRUE(test_.Write(volume_, chunk * kChunk, RandomBytes(random_, kChunk)).ok());
    }
    EXPECT_NE(test_.array->GetStatus().unstable_bytes, 0U);
    ASSERT_TRUE(test_.Fail(device).ok());
    test_.Sleep(500'000);
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, 0U) << device;
  }
  test_.Kill();
}

}  // namespace
}  // namespace eplog
