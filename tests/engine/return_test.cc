// A device that was away while others went on, and is back.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 300 * kStripe;
constexpr uint32_t kAway = 2;

class Returning : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.reserve_percent = reserve_percent_;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
    Write(0, 250 * kStripe);
    for (uint64_t i = 0; i < 30; ++i) {
      Write(i * 7 * kChunk, kChunk);
    }
    Flush();
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_->Write(volume_, offset, data);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Flush() { ASSERT_TRUE(test_->Flush().ok()); }
  void Open(const std::set<uint32_t>& without = {}) {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kDevices; ++i) {
      if (!without.contains(i)) {
        devices.push_back(test_->Devices()[i]);
      }
    }
    OpenOptions options;
    options.entropy = ++lives_ + 1000;
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  // Ten stripes change in different ways while the device is not there.
  void LifeWithout(uint32_t device) {
    test_->Kill();
    Open({device});
    EXPECT_EQ(State(device), DeviceState::kMissing);
    Write(20 * kStripe, 3 * kStripe);
    Write(40 * kStripe + kChunk, 2 * kChunk);
    Write(50 * kStripe, kChunk);
    Write(252 * kStripe, 2 * kStripe + 100);
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume_, 60 * kStripe, kStripe, TrimMode::kZero))
            .ok());
    std::fill_n(model_.begin() + 60 * kStripe, kStripe, std::byte{0});
    ASSERT_TRUE(test_->Commit().ok());
    Write(50 * kStripe + kChunk, kChunk);
    Flush();
    test_->Kill();
  }
  DeviceState State(uint32_t device) { return test_->State(device); }
  void AwaitOk(uint32_t device) {
    for (int i = 0; i < 200 && State(device) != DeviceState::kOk; ++i) {
      test_->Sleep(100'000);
    }
    ASSERT_EQ(State(device), DeviceState::kOk);
  }
  // Two others go, so that everything that this one has is needed.
  void ExpectItHasEverything() {
    ASSERT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
    for (const uint32_t other : {0U, 4U}) {
      const Status failed = test_->Fail(other);
      ASSERT_TRUE(failed.ok()) << failed.error().ToString();
    }
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    test_->Kill();
  }

  uint32_t reserve_percent_ = 10;
  Random random_{17};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
  uint64_t lives_ = 0;
};

TEST_F(Returning, AnSsdGetsOnlyWhatItMissed) {
  LifeWithout(kAway);
  Open();
  EXPECT_EQ(State(kAway), DeviceState::kRebuilding);
  EXPECT_EQ(test_->array->GetStatus().further_ssd_losses_survived, kParity - 1);
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  AwaitOk(kAway);
  // Of some 255 chunks at most ten; the rest are commits.
  const ArrayStatus status = test_->array->GetStatus();
  EXPECT_LT(status.traffic.ssd_data_bytes + status.traffic.ssd_parity_bytes, 60 * kChunk);
  ExpectItHasEverything();
}

// The last that was written to it before it left was not durable there.
TEST_F(Returning, WhatItLostMeanwhileIsFoundAndWrittenAnew) {
  LifeWithout(kAway);
  Superblock newest;
  for (const uint64_t offset : kSuperblockCopyOffset) {
    const auto found =
        DecodeSuperblock(test_->memory(kAway).bytes().subspan(offset, kSuperblockCopyBytes));
    newest = found.ok() && found->generation > newest.generation ? *found : newest;
  }
  for (uint32_t slot = 0; slot < 40; slot += 3) {
    test_->memory(kAway).bytes()[newest.geometry.SlotOffset(SlotIndex(slot)) + 17] ^= std::byte{1};
  }
  Open();
  AwaitOk(kAway);
  ExpectItHasEverything();
}

TEST_F(Returning, ALogDeviceToo) {
  LifeWithout(kSsdCount);
  Open();
  EXPECT_EQ(State(kSsdCount), DeviceState::kRebuilding);
  Write(30 * kStripe, kChunk);
  AwaitOk(kSsdCount);
  Write(31 * kStripe, kChunk);
  Flush();
  ExpectItHasEverything();
}

TEST_F(Returning, ACrashMeanwhileBeginsAnew) {
  LifeWithout(kAway);
  for (uint64_t life = 0; life < 6; ++life) {
    Open();
    ASSERT_EQ(State(kAway), DeviceState::kRebuilding);
    Write((100 + life) * kStripe + life % 4 * kChunk, kChunk);
    if (life % 2 == 0) {
      Flush();
    }
    test_->Sleep(life * 200);
    if (State(kAway) == DeviceState::kOk) {
      break;
    }
    test_->Kill();
    // What was not flushed may be gone or not; here nothing was lost but what RAM had.
    model_ = [&] {
      Open({kAway + 1});
      std::vector<std::byte> content = test_->Read(volume_, 0, kSize);
      test_->Kill();
      return content;
    }();
  }
  if (test_->array == nullptr) {
    Open();
  }
  AwaitOk(kAway);
  AwaitOk(kAway + 1);
  ExpectItHasEverything();
}

TEST_F(Returning, NotWhoWasTakenOutByDecision) {
  ASSERT_TRUE(test_->Fail(kAway).ok());
  Write(5 * kStripe, kChunk);
  Flush();
  for (int life = 0; life < 2; ++life) {
    test_->Kill();
    Open();
    EXPECT_EQ(State(kAway), DeviceState::kFailed);
    test_->Sleep(5'000'000);
    EXPECT_EQ(State(kAway), DeviceState::kFailed);
  }
  // Away in between: it was taken out all the same.
  test_->Kill();
  Open({kAway});
  test_->Kill();
  Open();
  EXPECT_EQ(State(kAway), DeviceState::kFailed);
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  test_->Kill();
}

// What became of others since does not make it one that was only away.
TEST_F(Returning, NotWhoWasTakenOutThoughOthersChangedSince) {
  ASSERT_TRUE(test_->Fail(kAway).ok());
  test_->Kill();
  Open();
  constexpr uint32_t kOther = 4;
  ASSERT_TRUE(test_->Fail(kOther).ok());
  Write(5 * kStripe, kChunk);
  Flush();
  ASSERT_TRUE(test_->ReplaceByItselfBlank(kOther).ok());
  AwaitOk(kOther);
  test_->Kill();
  Open();
  EXPECT_EQ(State(kAway), DeviceState::kFailed);
  test_->Sleep(5'000'000);
  EXPECT_EQ(State(kAway), DeviceState::kFailed);
  EXPECT_EQ(State(kOther), DeviceState::kOk);
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  test_->Kill();
}

// Among what failed may have been a flush (I7).
TEST_F(Returning, NotWhoFailedARequest) {
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kWrite);
  test_->faulty(kAway).Add(fault);
  Write(30 * kStripe, 20 * kStripe);
  Flush();
  ASSERT_EQ(State(kAway), DeviceState::kFailed);
  test_->Kill();
  Open();
  test_->Sleep(5'000'000);
  EXPECT_EQ(State(kAway), DeviceState::kFailed);
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  test_->Kill();
}

// It fails again while it is taken back: the opening goes on without it, and it stays out.
TEST_F(Returning, NotIfItFailsAtOnce) {
  uint64_t stayed_out = 0;
  for (uint64_t nth = 1; nth < 12; ++nth) {
    SCOPED_TRACE(nth);
    SetUp();
    LifeWithout(kAway);
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
    fault.nth = nth;
    test_->faulty(kAway).Add(fault);
    Open();
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    Write(70 * kStripe, kChunk);
    Flush();
    test_->Kill();
    Open();
    if (State(kAway) == DeviceState::kFailed) {
      ++stayed_out;
      ASSERT_TRUE(test_->ReplaceByItself(kAway).ok());
    }
    AwaitOk(kAway);
    ExpectItHasEverything();
  }
  EXPECT_GT(stayed_out, 4U);
}

// Everything that it has is wrong, and the array is full and written to: what is written anew finds
// its room all the same.
TEST_F(Returning, ToAFullArrayThatIsWrittenTo) {
  reserve_percent_ = 1;
  SetUp();
  const uint64_t size =
      test_->array->GetStatus().free_bytes + test_->array->GetVolume(volume_)->allocated_bytes;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->ResizeVolume(volume_, size)).ok());
  model_.resize(size, std::byte{0});
  const uint64_t stripes = size / kStripe;
  for (uint64_t at = 0; at < stripes; at += 50) {
    Write(at * kStripe, std::min<uint64_t>(50, stripes - at) * kStripe);
  }
  LifeWithout(kAway);
  Superblock superblock;
  superblock = *DecodeSuperblock(
      test_->memory(kAway).bytes().subspan(kSuperblockCopyOffset[0], kSuperblockCopyBytes));
  for (uint32_t slot = 0; slot < superblock.geometry.slots; ++slot) {
    test_->memory(kAway).bytes()[superblock.geometry.SlotOffset(SlotIndex(slot)) + 17] ^=
        std::byte{1};
  }
  Open();
  uint64_t writes = 0;
  while (State(kAway) != DeviceState::kOk && writes < 200'000) {
    Write(random_.Below(stripes * kStripe / kChunk) * kChunk, kChunk);
    ++writes;
  }
  EXPECT_EQ(State(kAway), DeviceState::kOk) << "after " << writes << " writes";
  AwaitOk(kAway);
  ASSERT_TRUE(test_->Read(volume_, 0, size) == model_);
}

}  // namespace
}  // namespace eplog
