// Numbers that nothing is counted up to, though their checksums are right: nothing is gone on from
// them, since no reader would believe what came next. Who bears them is named, and nothing written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "format/wire.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 3;
constexpr uint32_t kLog = kSsdCount;
constexpr uint64_t kSize = 64 * 4096;
constexpr uint64_t kFar = wire::kMostNumber - 2;

class FarNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    volume_ = test_.CreateVolume("v", kSize);
    Random random(3);
    content_ = RandomBytes(random, kSize);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_.Flush().ok());
    ASSERT_TRUE(test_.Close().ok());
  }
  std::span<std::byte> Copy(uint32_t device, size_t copy) {
    return test_.memory(device).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
  }
  template <typename Edit>
  void Change(uint32_t device, const Edit& edit) {
    for (size_t copy = 0; copy < 2; ++copy) {
      auto superblock = DecodeSuperblock(Copy(device, copy));
      ASSERT_TRUE(superblock.ok());
      edit(*superblock);
      EncodeSuperblock(*superblock, Copy(device, copy));
    }
  }
  void ExpectContent() { EXPECT_TRUE(test_.Read(volume_, 0, kSize) == content_); }
  void ExpectRefused(const std::string& who) {
    std::vector<std::vector<std::byte>> before;
    for (uint32_t i = 0; i <= kSsdCount; ++i) {
      before.emplace_back(test_.memory(i).bytes().begin(), test_.memory(i).bytes().end());
    }
    const auto refused = test_.TryOpen();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(refused.error().message.rfind(who, 0), 0U) << refused.error().message;
    for (uint32_t i = 0; i <= kSsdCount; ++i) {
      EXPECT_TRUE(std::ranges::equal(before[i], test_.memory(i).bytes())) << i;
    }
    test_.Open(true);
    ExpectContent();
    ASSERT_TRUE(test_.Close().ok());
  }
  void ExpectOpensWithout(uint32_t device) {
    for (int life = 0; life < 3; ++life) {
      std::vector<Device*> devices = test_.Devices();
      devices.erase(devices.begin() + device);
      OpenOptions options;
      options.entropy = 99 + static_cast<uint64_t>(life);
      auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
      ASSERT_TRUE(opened.ok()) << opened.error().ToString();
      test_.array = std::move(*opened);
      ExpectContent();
      ASSERT_TRUE(test_.Close().ok());
    }
  }

  std::vector<std::unique_ptr<MemoryDevice>> kept_;  // longer than the array
  SmallArray test_{SmallShape(kSsdCount, 1)};
  VolumeId volume_;
  std::vector<std::byte> content_;
};

TEST_F(FarNumbers, OfAGeneration) {
  Change(1,
         [](Superblock& superblock) { superblock.generation = kFar + superblock.generation % 2; });
  ExpectRefused("ssd1");
  ExpectOpensWithout(1);
}

TEST_F(FarNumbers, OfTheEpochOfAll) {
  for (uint32_t device = 0; device <= kSsdCount; ++device) {
    Change(device, [](Superblock& superblock) {
      superblock.base = {kFar, 1};
      superblock.epoch = {kFar + 1, 1};
    });
  }
  ExpectRefused("");
}

TEST_F(FarNumbers, OfARingBlock) {
  const Superblock superblock = *DecodeSuperblock(Copy(2, 0));
  const Geometry& g = superblock.geometry;
  uint64_t changed = 0;
  for (uint64_t at = 0; at < g.ring_blocks; ++at) {
    const auto block = test_.memory(2).bytes().subspan(g.RingOffset(at), kBlockBytes);
    if (!DecodeRingBlock(block, superblock.array_uuid, g, DeviceIndex(2)).ok()) {
      continue;
    }
    auto head = wire::Load<wire::RingBytes>(block);
    head.number = kFar - kFar % g.ring_blocks - g.ring_blocks + at;
    wire::Store(head, block);
    head.crc = wire::CrcAround(block, offsetof(wire::RingBytes, crc));
    wire::Store(head, block);
    changed += DecodeRingBlock(block, superblock.array_uuid, g, DeviceIndex(2)).ok() ? 1 : 0;
  }
  ASSERT_GT(changed, 0U);
  ExpectRefused("ssd2");
  ExpectOpensWithout(2);
}

// Of a device that another has replaced nothing is gone on from. Both grew from one epoch, and all
// others bear that of those that go on.
TEST_F(FarNumbers, OfOneThatWasReplaced) {
  const Epoch opened = DecodeSuperblock(Copy(0, 0))->base;
  for (uint32_t device = 0; device < kSsdCount; ++device) {
    Change(device, [&](Superblock& superblock) {
      superblock.base = opened;
      superblock.epoch = {opened.number + 1, 1};
    });
  }
  Change(kLog, [&](Superblock& superblock) {
    superblock.device_uuid[3] ^= std::byte{1};
    superblock.members[kLog].uuid = superblock.device_uuid;
    superblock.base = opened;
    superblock.epoch = {kFar + 1, 1};
  });
  for (int life = 0; life < 3; ++life) {
    test_.Open();
    ASSERT_NE(test_.array, nullptr);
    EXPECT_EQ(test_.array->GetStatus().devices[kLog].state, DeviceState::kFailed);
    ExpectContent();
    ASSERT_TRUE(test_.Close().ok());
  }
}

TEST_F(FarNumbers, OfAReplacement) {
  test_.Open();
  ASSERT_TRUE(test_.Fail(1).ok());
  kept_.push_back(std::make_unique<MemoryDevice>("other", test_.memory(1).size_bytes()));
  MemoryDevice& other = *kept_.back();
  Superblock superblock = *DecodeSuperblock(Copy(1, 0));
  superblock.epoch = {kFar + 1, 1};
  superblock.generation = 2;
  EncodeSuperblock(superblock, other.bytes().first(kSuperblockCopyBytes));
  const std::vector<std::byte> before(other.bytes().begin(), other.bytes().end());
  const Status refused = test_.Replace(1, other);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refused.error().message.find("wipe it first"), std::string::npos);
  EXPECT_TRUE(std::ranges::equal(before, other.bytes()));
  std::ranges::fill(other.bytes(), std::byte{0});
  EXPECT_TRUE(test_.Replace(1, other).ok());
  ExpectContent();
  ASSERT_TRUE(test_.Close().ok());
}

}  // namespace
}  // namespace eplog
