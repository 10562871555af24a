// A rebuild that meets more wrong chunks than parity replaces: it does what it can, says what it
// cannot, and neither reads nor counts that again and again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kChunks = 90;
constexpr uint64_t kRotten = 5;

using Bytes = std::vector<std::byte>;

class RebuildLost : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{2} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    shape.auto_commit = false;
    shape.on_event = [this](const ArrayEvent& event) {
      if (event.kind == EventKind::kCorruptionLost) {
        lost_.push_back(event);
      }
    };
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", kChunks * kChunk);
    Random random(7);
    content_ = RandomBytes(random, kChunks * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_->Close().ok());
    Rot(1);
    test_->Open();
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(0, "failed by hand")).ok());
    auto bytes = test_->memory(0).bytes();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    ASSERT_TRUE(test_->ReplaceByItself(0).ok());
  }
  // The first chunks of the volume that lie on this SSD.
  void Rot(uint32_t ssd) {
    auto bytes = test_->memory(ssd).bytes();
    uint64_t rotten = 0;
    for (uint64_t chunk = 0; chunk < kChunks && rotten < kRotten; ++chunk) {
      const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
      for (uint64_t at = 0; at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          bytes[at + 5] ^= std::byte{1};
          ++rotten;
        }
      }
    }
    ASSERT_EQ(rotten, kRotten);
  }

  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  Bytes content_;
  std::vector<ArrayEvent> lost_;
};

TEST_F(RebuildLost, EndsAndNamesWhatIsLost) {
  test_->Sleep(10'000'000);
  const ArrayStatus then = test_->array->GetStatus();
  EXPECT_EQ(then.rebuild_lost_bytes, kRotten * kChunk);
  EXPECT_EQ(then.rebuild_left_bytes, then.rebuild_lost_bytes) << "all else is rebuilt";
  EXPECT_EQ(then.devices[0].state, DeviceState::kRebuilding);
  EXPECT_EQ(lost_.size(), kRotten);
  for (const ArrayEvent& event : lost_) {
    EXPECT_EQ(event.device, "ssd0");
    EXPECT_NE(event.text.find("cannot be rebuilt"), std::string::npos) << event.text;
  }

  // An hour more costs a handful of looks at each of these rows, and not one event.
  test_->Sleep(3'600'000'000);
  const ArrayStatus now = test_->array->GetStatus();
  EXPECT_LE(now.devices[1].corrupt_chunks, 30 * kRotten);
  EXPECT_LE(now.devices[1].reads - then.devices[1].reads, 30 * kRotten);
  EXPECT_EQ(lost_.size(), kRotten);
}

TEST_F(RebuildLost, WhatIsWrittenAnewIsWholeAgain) {
  test_->Sleep(10'000'000);
  ASSERT_NE(test_->array->GetStatus().rebuild_lost_bytes, 0U);
  Random random(8);
  const Bytes anew = RandomBytes(random, content_.size());
  ASSERT_TRUE(test_->Write(volume_, 0, anew).ok());
  ASSERT_TRUE(test_->Flush().ok());
  ASSERT_TRUE(test_->Commit().ok());
  test_->Sleep(60'000'000);
  const ArrayStatus status = test_->array->GetStatus();
  EXPECT_EQ(status.devices[0].state, DeviceState::kOk);
  EXPECT_EQ(status.rebuild_lost_bytes, 0U);
  EXPECT_TRUE(test_->Read(volume_, 0, anew.size()) == anew);
}

// A device is back whose chunk is wrong, in a stripe that cannot be decoded only because another
// device is away. It is not ok before that one is back, however often the stripe was looked at:
// nobody would look at what it holds any more.
class RebuildWhileAnotherIsAway : public ::testing::Test {
 protected:
  static constexpr uint32_t kSsdCount = 6;
  static constexpr uint32_t kDataChunks = 4;

  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = 2;
    shape.ssd_bytes = uint64_t{2} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    test_ = std::make_unique<SmallArray>(shape);
    const VolumeId volume = test_->CreateVolume("v", kChunks * kChunk);
    Random random(7);
    content_ = RandomBytes(random, kChunks * kChunk);
    ASSERT_TRUE(test_->Write(volume, 0, content_).ok());
    ASSERT_TRUE(test_->Flush().ok());
    ASSERT_TRUE(test_->Commit().ok());
    ASSERT_TRUE(test_->Close().ok());
  }
  void OpenWithout(std::optional<uint32_t> away) {
    std::vector<Device*> devices = test_->Devices();
    if (away) {
      devices.erase(devices.begin() + *away);
    }
    OpenOptions options;
    options.entropy = ++lives_ + 1000;
    options.on_event = [this](const ArrayEvent& event) {
      if (event.kind == EventKind::kCorruptionLost) {
        lost_.push_back(event);
      }
    };
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  // Where this SSD has a chunk of the volume's stripe; null if it has parity of it.
  std::byte* Find(uint32_t ssd, uint64_t stripe) {
    auto bytes = test_->memory(ssd).bytes();
    for (uint64_t i = 0; i < kDataChunks; ++i) {
      const auto content = std::span(content_).subspan((stripe * kDataChunks + i) * kChunk, kChunk);
      for (uint64_t at = 0; at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          return &bytes[at];
        }
      }
    }
    return nullptr;
  }
  DeviceState StateOf(uint32_t device) { return test_->State(device); }

  std::unique_ptr<SmallArray> test_;
  Bytes content_;
  std::vector<ArrayEvent> lost_;
  uint64_t lives_ = 0;
};

TEST_F(RebuildWhileAnotherIsAway, WhatCannotBeVerifiedYetKeepsADeviceFromBeingOk) {
  OpenWithout(0);
  ASSERT_TRUE(test_->Close().ok());
  uint64_t stripe = 0;
  while (Find(0, stripe) == nullptr || Find(2, stripe) == nullptr) {
    ASSERT_LT(++stripe, kChunks / kDataChunks);
  }
  std::byte* const unreadable = Find(2, stripe);
  *Find(0, stripe) ^= std::byte{1};
  *unreadable ^= std::byte{1};

  OpenWithout(1);
  ASSERT_EQ(StateOf(0), DeviceState::kRebuilding);
  test_->Sleep(60'000'000);
  EXPECT_EQ(StateOf(0), DeviceState::kRebuilding);
  // Who waits for the rebuild is told that this is all that is left, and which chunk it is.
  const ArrayStatus status = test_->array->GetStatus();
  EXPECT_EQ(status.rebuild_left_bytes, kChunk);
  EXPECT_EQ(status.rebuild_lost_bytes, kChunk);
  ASSERT_EQ(lost_.size(), 1U);
  EXPECT_EQ(lost_[0].device, "ssd0");
  // It is looked for now and then, not all the time, and without what was seen to be right.
  const uint64_t before = test_->counter(0).counters().bytes_read;
  test_->Sleep(3'600'000'000);
  EXPECT_LT(test_->counter(0).counters().bytes_read - before, kChunks / kDataChunks * kChunk);
  EXPECT_EQ(StateOf(0), DeviceState::kRebuilding);
  ASSERT_TRUE(test_->Close().ok());

  *unreadable ^= std::byte{1};  // for the moment only
  OpenWithout(std::nullopt);
  test_->Sleep(60'000'000);
  EXPECT_EQ(StateOf(0), DeviceState::kOk);
  EXPECT_EQ(StateOf(1), DeviceState::kOk);
  const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
}

}  // namespace
}  // namespace eplog
