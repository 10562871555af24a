// What devices are asked for: aligned memory whatever memory users have, requests that are large
// and not larger, nothing that is not needed, and no discard of what is in use.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/forwarding_device.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsds = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kData = kSsds - kParity;
constexpr uint64_t kStripe = kData * kChunk;

// Holds who uses it to the contract of a device that takes blocks of 4 KiB only, and that forgets
// what is discarded at once.
class Strict final : public ForwardingDevice {
 public:
  Strict(Device& device, MemoryDevice& memory, bool discards)
      : ForwardingDevice(device), memory_(memory) {
    capabilities_.alignment_bytes = 4096;
    capabilities_.discard = discards;
  }

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    Look(offset_bytes, into);
    largest_read = std::max(largest_read, TotalBytes(into));
    bytes_read += TotalBytes(into);
    return below().Read(offset_bytes, into);
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    Look(offset_bytes, from);
    largest_write = std::max(largest_write, TotalBytes(from));
    return below().Write(offset_bytes, from);
  }
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override {
    discarded += length_bytes;
    std::ranges::fill(memory_.bytes().subspan(offset_bytes, length_bytes), std::byte{0xDD});
    co_return OkStatus();
  }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }

  uint64_t misaligned = 0;
  uint64_t largest_read = 0;
  uint64_t largest_write = 0;
  uint64_t bytes_read = 0;
  uint64_t discarded = 0;

 private:
  void Look(uint64_t offset_bytes, std::span<const iovec> parts) {
    misaligned += offset_bytes % 4096 == 0 ? 0 : 1;
    for (const iovec& part : parts) {
      const bool right =
          reinterpret_cast<uintptr_t>(part.iov_base) % 4096 == 0 && part.iov_len % 4096 == 0;
      misaligned += right ? 0 : 1;
    }
  }
  MemoryDevice& memory_;
  DeviceCapabilities capabilities_;
};

class DeviceRequests : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsds;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{16} << 20;
    // For the first tenth of a second a request itself counts as work of others.
    shape.ssd_delays = {.read_us = 20'000};
    return shape;
  }
  void Make(bool discards = false) {
    ASSERT_TRUE(test_.Close().ok());
    const std::vector<Device*> below = test_.Devices();
    for (uint32_t i = 0; i < below.size(); ++i) {
      devices_.push_back(
          std::make_unique<Strict>(*below[i], test_.memory(i), discards && i < kSsds));
    }
    std::vector<Device*> all;
    for (const auto& device : devices_) {
      all.push_back(device.get());
    }
    OpenOptions options;
    options.entropy = 77;
    options.auto_commit = false;
    options.discard = false;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, all, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
    volume_ = test_.CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
  }
  // From memory that begins anywhere.
  void Put(uint64_t offset, uint64_t length, uint64_t skew) {
    Buffer buffer = test_.pool.Get(length + skew);
    const auto data = buffer.span().subspan(skew);
    const std::vector<std::byte> bytes = RandomBytes(random_, length);
    std::ranges::copy(bytes, data.begin());
    ASSERT_TRUE(test_.Write(volume_, offset, data).ok());
    std::ranges::copy(bytes, model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void ExpectContent(uint64_t skew = 0) {
    Buffer buffer = test_.pool.Get(kSize + skew);
    const auto into = buffer.span().subspan(skew);
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Read(volume_, 0, into)).ok());
    EXPECT_TRUE(std::ranges::equal(into, model_));
  }
  uint64_t Sum(uint64_t Strict::*figure) const {
    uint64_t sum = 0;
    for (const auto& device : devices_) {
      sum += *device.*figure;
    }
    return sum;
  }
  void ResetReads() {
    for (const auto& device : devices_) {
      device->bytes_read = device->largest_read = 0;
    }
  }

  static constexpr uint64_t kSize = 512 * kStripe;
  MemoryDevice fresh_{"fresh", uint64_t{16} << 20};
  std::vector<std::unique_ptr<Strict>> devices_;
  TestArray test_{Shape()};
  VolumeId volume_;
  Random random_{8};
  std::vector<std::byte> model_;
};

TEST_F(DeviceRequests, AreAlignedWhateverMemoryUsersHave) {
  Make();
  for (const uint64_t skew : {0U, 1U, 8U, 512U, 2048U, 4095U}) {
    Put(0, kChunk, skew);
    Put(kStripe, kStripe, skew);
    Put(3 * kStripe, 5 * kStripe, skew);
    Put(10 * kStripe + 17, 100, skew);
    Put(12 * kStripe - 5, 2 * kStripe + 10, skew);
    Put(12 * kStripe + 512, kChunk, skew);
    ExpectContent(skew);
  }
  ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = 8, .stripes = 4}).ok());
  Put(20 * kStripe, kStripe, 3);
  Put(21 * kStripe + 5, 3 * kChunk, 9);
  ExpectContent(64);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Scrub(true, {})).ok());
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(1, "by hand")).ok());
  ExpectContent(1);
  ASSERT_TRUE(test_.Close().ok());
  EXPECT_EQ(Sum(&Strict::misaligned), 0U);
}

// All that there is, in requests of a MiB where it lies side by side.
TEST_F(DeviceRequests, AScrubReadsEverythingOnceInLargeOnes) {
  Make();
  Put(0, kSize, 0);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
  test_.Sleep(10'000'000);  // nobody else wants the devices
  ResetReads();
  std::vector<std::pair<uint64_t, uint64_t>> told;
  const auto report =
      RunTask(test_.loop,
              test_.array->Scrub(false, [&](uint64_t a, uint64_t b) { told.emplace_back(a, b); }));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
  EXPECT_EQ(report->rows_checked, 512U);
  EXPECT_EQ(report->chunks_checked, 512 * kSsds);
  EXPECT_EQ(report->parity_checked, 512 * kParity);
  uint64_t read = 0;
  for (uint32_t i = 0; i < kSsds; ++i) {
    EXPECT_EQ(devices_[i]->largest_read, uint64_t{1} << 20) << i;
    read += devices_[i]->bytes_read;
  }
  EXPECT_GE(read, 512 * kSsds * kChunk);
  EXPECT_LT(read, 512 * kSsds * kChunk + (uint64_t{4} << 20)) << "and metadata";
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back().first, told.back().second) << "it has come to its end";
  ASSERT_TRUE(test_.Close().ok());
}

// Of each row as many chunks as decoding takes, from devices that take turns in having rest.
TEST_F(DeviceRequests, ARebuildReadsWhatDecodingTakes) {
  Make();
  Put(0, kSize, 0);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(2, "by hand")).ok());
  test_.Sleep(10'000'000);
  ResetReads();
  const uint64_t repaired = test_.array->GetStatus().traffic.ssd_repair_bytes;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ReplaceDevice(2, fresh_)).ok());
  test_.Sleep(10'000'000);
  ASSERT_EQ(test_.array->GetStatus().devices[2].state, DeviceState::kOk);
  EXPECT_EQ(test_.array->GetStatus().traffic.ssd_repair_bytes - repaired, 512 * kChunk);
  EXPECT_EQ(Sum(&Strict::bytes_read), 512 * kData * kChunk);
  for (uint32_t i = 0; i < kSsds; ++i) {
    if (i != 2) {
      EXPECT_GT(devices_[i]->bytes_read, 0U) << i;
      EXPECT_LE(devices_[i]->largest_read, uint64_t{1} << 20);
    }
  }
  ExpectContent();
  const auto report = RunTask(test_.loop, test_.array->Check({}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
  ASSERT_TRUE(test_.Close().ok());
}

TEST_F(DeviceRequests, AWholeReadOfAnArrayReadsItsDataAlone) {
  Make();
  Put(0, kSize, 0);
  Put(kChunk, kChunk, 0);
  ResetReads();
  ExpectContent();
  EXPECT_EQ(Sum(&Strict::bytes_read), kSize);
  // Of a part of a chunk that chunk, and of what was never written, or is zero, nothing.
  ResetReads();
  test_.Read(volume_, 5 * kChunk + 100, 200);
  EXPECT_EQ(Sum(&Strict::bytes_read), kChunk);
  ASSERT_TRUE(
      RunTask(test_.loop, test_.array->Trim(volume_, 0, 2 * kStripe, TrimMode::kZero)).ok());
  ResetReads();
  test_.Read(volume_, 0, 2 * kStripe);
  EXPECT_EQ(Sum(&Strict::bytes_read), 0U);
  // A part of a chunk reads its own chunk, a whole one nothing.
  Put(20 * kChunk + 1, kChunk - 1, 0);
  EXPECT_EQ(Sum(&Strict::bytes_read), kChunk);
  Put(20 * kChunk, 2 * kStripe, 0);
  EXPECT_EQ(Sum(&Strict::bytes_read), kChunk);
  ASSERT_TRUE(test_.Close().ok());
}

TEST_F(DeviceRequests, AllThatIsFreeIsDiscardedAndNothingElse) {
  Make(true);
  Put(0, 100 * kStripe, 0);
  Put(kChunk, kChunk, 0);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull)).ok());
  const ArrayStatus status = test_.array->GetStatus();
  std::vector<std::pair<uint64_t, uint64_t>> told;
  const auto bytes =
      RunTask(test_.loop,
              test_.array->DiscardFree([&](uint64_t a, uint64_t b) { told.emplace_back(a, b); }));
  ASSERT_TRUE(bytes.ok()) << bytes.error().ToString();
  EXPECT_EQ(*bytes, Sum(&Strict::discarded));
  EXPECT_EQ(*bytes, (status.slots - status.slots_used) * kChunk);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back().second, status.slots);
  EXPECT_LE(told.back().first, told.back().second);
  ExpectContent();
  const auto report = RunTask(test_.loop, test_.array->Check({}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
  ASSERT_TRUE(test_.Close().ok());
}

TEST_F(DeviceRequests, NothingIsDiscardedWhereNobodyTakesIt) {
  Make();
  const auto bytes = RunTask(test_.loop, test_.array->DiscardFree({}));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, 0U);
  EXPECT_EQ(Sum(&Strict::discarded), 0U);
  ASSERT_TRUE(test_.Close().ok());
}

}  // namespace
}  // namespace eplog
