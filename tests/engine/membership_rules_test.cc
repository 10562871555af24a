// What a device goes through that takes the place of another, and what is said if it does not get
// through, or if too many are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint64_t kRingBytes = uint64_t{5} << 19;  // two and a half of what is wiped at once
constexpr std::byte kOld{0xA5};

class MembershipRules : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, 1);
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{8} << 20;
    shape.ring_bytes = kRingBytes;
    return shape;
  }
  void SetUp() override {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, 60 * kChunk)).ok());
    ASSERT_TRUE(test_.Flush().ok());
  }
  // In the place of a device that is taken out, one that is full of something else.
  void ReplaceByAnOldOne(uint32_t device) {
    fresh_ = std::make_unique<MemoryDevice>("fresh", test_.memory(device).size_bytes());
    std::ranges::fill(fresh_->bytes(), kOld);
    ASSERT_TRUE(test_.Fail(device).ok());
    ASSERT_TRUE(test_.Replace(device, *fresh_).ok());
  }
  // Blocks of it that are not what they were.
  [[nodiscard]] uint64_t Touched(uint64_t from, uint64_t to) const {
    uint64_t touched = 0;
    for (uint64_t at = from; at < to; at += kBlockBytes) {
      const auto block = fresh_->bytes().subspan(at, kBlockBytes);
      const bool old = std::ranges::all_of(block, [](std::byte byte) { return byte == kOld; });
      touched += old ? 0 : 1;
    }
    return touched;
  }
  [[nodiscard]] std::string Why(uint32_t device) {
    return test_.array->GetStatus().devices[device].failed_because;
  }

  std::unique_ptr<MemoryDevice> fresh_;  // longer than the array
  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", 100 * kChunk);
  Random random_{7};
};

// That would take as long as it is large: but for its superblocks it stays as it is.
TEST_F(MembershipRules, ALogIsTakenInWithoutBeingWiped) {
  ReplaceByAnOldOne(kSsdCount);
  const uint64_t touched = Touched(0, fresh_->size_bytes());
  EXPECT_GE(touched, 2U) << "its superblocks";
  EXPECT_LT(touched, kRingBytes / kBlockBytes / 4);
  test_.Sleep(20'000'000);
  EXPECT_EQ(test_.State(kSsdCount), DeviceState::kOk);
  ASSERT_TRUE(test_.Close().ok());
}

// What lies behind the ring is no business of it: only slots that are written are written.
TEST_F(MembershipRules, AnSsdIsWipedWhereItsRingIsAndNoFurther) {
  const auto superblock = DecodeSuperblock(test_.memory(1).bytes().first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  const uint64_t ring = superblock->geometry.ring_offset_bytes;
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
  ReplaceByAnOldOne(1);
  EXPECT_EQ(Touched(ring, ring + kRingBytes), kRingBytes / kBlockBytes);
  EXPECT_LE(Touched(ring + kRingBytes, fresh_->size_bytes()), 20U);
  ASSERT_EQ(test_.State(1), DeviceState::kRebuilding);
  test_.Kill();
}

// It is wiped well, and fails when its first superblock is written: who gave the order is told of
// it by its own name, and why.
TEST_F(MembershipRules, OneThatFailsAtOnceIsNamedWithItsReason) {
  for (const uint32_t device : {1U, kSsdCount}) {
    SCOPED_TRACE(device);
    // Two copies of its superblock and, of an SSD, its ring; each is flushed.
    const uint64_t wiping = device < kSsdCount ? 8 : 4;
    ASSERT_TRUE(test_.Fail(device).ok());
    FaultDevice broken(std::make_unique<MemoryDevice>("broken", test_.memory(device).size_bytes()));
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
    fault.nth = wiping + 1;
    broken.Add(fault);
    const Status replaced = test_.Replace(device, broken);
    ASSERT_FALSE(replaced.ok());
    EXPECT_EQ(broken.fired(), 1U);
    EXPECT_EQ(replaced.error().code, ErrorCode::kDeviceFailed);
    EXPECT_EQ(test_.State(device), DeviceState::kFailed);
    EXPECT_NE(Why(device), "");
    EXPECT_EQ(replaced.error().message, "broken failed at once: " + Why(device));
    ASSERT_TRUE(test_.ReplaceByItselfBlank(device).ok());
    test_.Sleep(20'000'000);
    ASSERT_EQ(test_.State(device), DeviceState::kOk);
    EXPECT_EQ(Why(device), "") << "that was another one";
  }
}

// Each with its reason, in the order of the devices, and what is left to the owner.
TEST_F(MembershipRules, AStopSaysWhoIsLostAndWhatIsStillServed) {
  ASSERT_TRUE(test_.Fail(2).ok());
  test_.faulty(0).FailDevice();
  EXPECT_FALSE(test_.Write(volume_, 0, RandomBytes(random_, 30 * kChunk)).ok());
  ASSERT_NE(Why(0), "");
  ASSERT_NE(Why(2), "");
  const std::string wanted = "more than 1 devices are lost, or not whole (ssd0: " + Why(0) +
                             "; ssd2: " + Why(2) +
                             "); what can be read is served, nothing is written";
  const std::string why = test_.array->GetStatus().stopped_because;
  EXPECT_TRUE(why.ends_with(wanted)) << why << "\n" << wanted;
  test_.Kill();
}

}  // namespace
}  // namespace eplog
