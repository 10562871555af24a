// Superblocks that went to the wrong device.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "eplog/examine.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kSize = 64 * 4096;

class Assembling : public ::testing::Test {
 protected:
  void SetUp() override {
    test_ = std::make_unique<SmallArray>(SmallShape(3, 1));
    volume_ = test_->CreateVolume("v", kSize);
    Random random(3);
    content_ = RandomBytes(random, kSize);
    ASSERT_TRUE(test_->Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_->Close().ok());
  }
  std::span<std::byte> Copy(uint32_t device, size_t copy) {
    return test_->memory(device).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
  }
  // The newer copy of one is found where the newer, or older, copy of the other should be.
  void Misdirect(uint32_t from, uint32_t to, bool over_newer) {
    const auto newer = [this](uint32_t device) {
      return DecodeSuperblock(Copy(device, 0))->generation >
                     DecodeSuperblock(Copy(device, 1))->generation
                 ? 0U
                 : 1U;
    };
    const auto source = Copy(from, newer(from));
    std::copy(source.begin(), source.end(),
              Copy(to, over_newer ? newer(to) : 1 - newer(to)).begin());
  }
  void ExpectWhole() {
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    for (const DeviceStatus& device : test_->array->GetStatus().devices) {
      EXPECT_EQ(device.state, DeviceState::kOk) << device.name;
    }
    EXPECT_EQ(test_->Read(volume_, 0, kSize) == content_, true);
    EXPECT_TRUE(test_->Close().ok());
  }

  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> content_;
};

TEST_F(Assembling, StraySuperblockIsNotWhoTheDeviceIs) {
  for (const bool over_newer : {true, false}) {
    for (uint32_t from = 0; from < 4; ++from) {
      const uint32_t to = (from + 3) % 4;
      SCOPED_TRACE(std::to_string(from) + " on " + std::to_string(to));
      SetUp();
      Misdirect(from, to, over_newer);
      ExpectWhole();
      ExpectWhole();  // and nothing of it is left to mislead the next opening
    }
  }
}

// Whose content it has, nobody can tell: it is left alone, and the others do without.
TEST_F(Assembling, DeviceThatMayBeEitherCountsAsMissing) {
  Misdirect(0, 1, true);
  std::vector<Device*> devices = test_->Devices();
  devices.erase(devices.begin());
  OpenOptions options;
  options.entropy = 99;
  const auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kTooManyFailures);
  EXPECT_NE(opened.error().message.find("ssd0, ssd1"), std::string::npos) << opened.error().message;
}

// Two openings were struck when only the log device bore their epoch; then it was away, and the
// others all bore the next one, under which they may have written. Both grew from the same epoch.
TEST_F(Assembling, AnEpochThatAllBearBeatsAHigherOneThatNobodyElseKnows) {
  const auto change = [this](uint32_t device, const std::function<void(Superblock&)>& edit) {
    for (size_t copy = 0; copy < 2; ++copy) {
      auto superblock = DecodeSuperblock(Copy(device, copy));
      ASSERT_TRUE(superblock.ok());
      edit(*superblock);
      EncodeSuperblock(*superblock, Copy(device, copy));
    }
  };
  const Epoch opened = DecodeSuperblock(Copy(0, 0))->epoch;
  for (uint32_t device = 0; device < 3; ++device) {
    change(device, [&](Superblock& superblock) {
      superblock.base = opened;
      superblock.epoch = {opened.number + 1, 1};
      superblock.members[3].state = MemberState::kLost;
    });
  }
  change(3, [&](Superblock& superblock) {
    superblock.base = opened;
    superblock.epoch = {opened.number + 2, 1};
  });
  const Examination found = RunTask(test_->loop, ExamineDevices(test_->Devices()));
  ASSERT_EQ(found.arrays.size(), 1U);
  EXPECT_EQ(found.arrays[0].epoch, opened.number + 1);
  EXPECT_EQ(found.arrays[0].missing, std::vector<std::string>{"log0"});
}

}  // namespace
}  // namespace eplog
