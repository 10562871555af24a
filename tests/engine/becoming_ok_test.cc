// A device that has been rebuilt counts once that is written down: until then it is shown as one
// that is being rebuilt, since a crash would find it as one.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 1;
constexpr uint64_t kSize = uint64_t{1} << 20;

class BecomingOk : public ::testing::TestWithParam<uint32_t> {
 protected:
  ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.on_event = [this](const ArrayEvent& event) {
      told_rebuilt_ += event.kind == EventKind::kRebuildFinished ? 1 : 0;
    };
    return shape;
  }
  void WriteAndReplace(uint32_t device) {
    const VolumeId volume = test_.CreateVolume("v", kSize);
    ASSERT_TRUE(test_.Write(volume, 0, RandomBytes(random_, kSize)).ok());
    ASSERT_TRUE(test_.Write(volume, 0, RandomBytes(random_, 4096)).ok());
    ASSERT_TRUE(test_.Flush().ok());
    ASSERT_TRUE(test_.Fail(device).ok());
    ASSERT_TRUE(test_.ReplaceByItselfBlank(device).ok());
  }
  // By the newest superblock that another device has.
  MemberState WrittenDown(uint32_t device) {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found =
          DecodeSuperblock(test_.memory(1).bytes().subspan(offset, kSuperblockCopyBytes));
      newest = found.ok() && found->generation > newest.generation ? *found : newest;
    }
    return newest.members[device].state;
  }

  uint64_t told_rebuilt_ = 0;
  SmallArray test_{Shape()};
  Random random_{1};
};

TEST_P(BecomingOk, IsShownWhenItIsWrittenDown) {
  const uint32_t device = GetParam();
  WriteAndReplace(device);
  uint64_t looks = 0;
  bool shown = false;
  for (; looks < 100'000 && !shown; ++looks) {
    const ArrayStatus status = test_.array->GetStatus();
    shown = status.devices[device].state == DeviceState::kOk;
    EXPECT_EQ(status.state == ArrayState::kRebuilding, !shown);
    if (shown) {
      EXPECT_EQ(WrittenDown(device), MemberState::kOk);
    }
    test_.Sleep(20);
  }
  EXPECT_TRUE(shown);
  EXPECT_GT(looks, 10U) << "it was looked at while it was being rebuilt";
}

// It is lost while that is written down: of a device that does not count nobody is to hear that it
// does.
TEST_P(BecomingOk, IsNotToldOfOneThatIsLostInThatMoment) {
  const uint32_t device = GetParam();
  WriteAndReplace(device);
  for (int i = 0; i < 1'000'000 && WrittenDown(device) != MemberState::kOk; ++i) {
    test_.Sleep(1);
  }
  ASSERT_EQ(WrittenDown(device), MemberState::kOk);
  ASSERT_NE(test_.State(device), DeviceState::kOk) << "the other copies are still to be written";
  ASSERT_TRUE(test_.Fail(device).ok());
  test_.Sleep(1'000'000);
  EXPECT_EQ(told_rebuilt_, 0U);
  ASSERT_TRUE(test_.ReplaceByItselfBlank(device).ok());
  for (int i = 0; i < 1000 && test_.State(device) != DeviceState::kOk; ++i) {
    test_.Sleep(10'000);
  }
  EXPECT_EQ(told_rebuilt_, 1U);
}

INSTANTIATE_TEST_SUITE_P(AnSsdAndALog, BecomingOk, ::testing::Values(2U, kSsdCount));

}  // namespace
}  // namespace eplog
