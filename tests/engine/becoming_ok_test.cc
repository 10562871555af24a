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
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
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

  SmallArray test_{Shape()};
  Random random_{1};
};

TEST_P(BecomingOk, IsShownWhenItIsWrittenDown) {
  const uint32_t device = GetParam();
  const VolumeId volume = test_.CreateVolume("v", kSize);
  ASSERT_TRUE(test_.Write(volume, 0, RandomBytes(random_, kSize)).ok());
  ASSERT_TRUE(test_.Write(volume, 0, RandomBytes(random_, 4096)).ok());
  ASSERT_TRUE(test_.Flush().ok());
  ASSERT_TRUE(test_.Fail(device).ok());
  ASSERT_TRUE(test_.ReplaceByItselfBlank(device).ok());
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

INSTANTIATE_TEST_SUITE_P(AnSsdAndALog, BecomingOk, ::testing::Values(2U, kSsdCount));

}  // namespace
}  // namespace eplog
