// A volume that grows again shows zeros behind its old end, whatever of the unflushed writes a
// power cut takes: its new size is durable after them, not before.
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
constexpr uint64_t kEnd = 5 * kChunk + 512;  // where the volume ends while it is small
constexpr uint64_t kLarge = 96 * kChunk;

// Knows what was there before each write that was not flushed, and may cease to answer flushes.
class Unflushed final : public ForwardingDevice {
 public:
  Unflushed(EventLoop& loop, Device& device, MemoryDevice& memory)
      : ForwardingDevice(device), loop_(loop), memory_(memory) {}

  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    size_t size = 0;
    for (const iovec& part : from) {
      size += part.iov_len;
    }
    const auto there = memory_.bytes().subspan(offset_bytes, size);
    before_.push_back({offset_bytes, {there.begin(), there.end()}});
    return below().Write(offset_bytes, from);
  }
  Task<Status> Flush() override {
    if (flushes == 0) {
      co_await loop_.Sleep(uint64_t{1} << 50);
    }
    --flushes;
    before_.clear();
    Task<Status> flush = below().Flush();
    co_return co_await flush;
  }
  // Power goes: of each such write it is chance whether it has landed.
  void Lose(Random& random) {
    while (!before_.empty()) {
      const auto& [offset, bytes] = before_.back();
      if (random.Below(2) == 0) {
        std::ranges::copy(bytes, memory_.bytes().begin() + static_cast<std::ptrdiff_t>(offset));
      }
      before_.pop_back();
    }
  }

  uint64_t flushes = UINT64_MAX;  // that are still answered

 private:
  EventLoop& loop_;
  MemoryDevice& memory_;
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> before_;
};

class GrowsAgain {
 public:
  explicit GrowsAgain(uint64_t seed) : random_(seed) {
    const std::vector<Device*> below = test_.Devices();
    EXPECT_TRUE(test_.Close().ok());
    for (uint32_t i = 0; i < below.size(); ++i) {
      devices_.push_back(std::make_unique<Unflushed>(test_.loop, *below[i], test_.memory(i)));
    }
  }

  // Whether the new size has outlived the power cut.
  bool Try() {
    Open();
    const auto id = test_.CreateVolume("v", kLarge);
    const std::vector<std::byte> old(kLarge, std::byte{0x5A});
    EXPECT_TRUE(test_.Write(id, 0, old).ok());
    EXPECT_TRUE(RunTask(test_.loop, test_.array->Flush(id, 0, kLarge)).ok());
    EXPECT_TRUE(RunTask(test_.loop, test_.array->ResizeVolume(id, kEnd)).ok());
    for (const auto& device : devices_) {
      device->flushes = random_.Below(3);
    }
    test_.loop.Spawn(Grow(id));
    test_.Sleep(1'000'000);
    test_.Kill();
    for (const auto& device : devices_) {
      device->Lose(random_);
      device->flushes = UINT64_MAX;
    }
    Open();
    const auto volumes = test_.array->Volumes();
    EXPECT_EQ(volumes.size(), 1U);
    const bool grown = volumes.front().size_bytes == kLarge;
    const std::vector<std::byte> now = test_.Read(id, 0, volumes.front().size_bytes);
    const auto end = now.begin() + kEnd;
    EXPECT_TRUE(
        std::all_of(now.begin(), end, [](std::byte byte) { return byte == std::byte{0x5A}; }));
    EXPECT_TRUE(std::all_of(end, now.end(), [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_TRUE(test_.Close().ok());
    return grown;
  }

 private:
  void Open() {
    std::vector<Device*> all;
    for (const auto& device : devices_) {
      all.push_back(device.get());
    }
    OpenOptions options;
    options.entropy = ++entropy_;
    options.auto_commit = false;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, all, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  Task<void> Grow(VolumeId id) {
    Task<Status> growing = test_.array->ResizeVolume(id, kLarge);
    static_cast<void>(co_await growing);
  }

  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    return shape;
  }

  TestArray test_{Shape()};
  Random random_;
  uint64_t entropy_ = 100;
  std::vector<std::unique_ptr<Unflushed>> devices_;
};

TEST(ResizeCrash, WhatIsBehindTheOldEndIsZerosAfterAPowerCut) {
  uint32_t grown = 0;
  for (uint64_t seed = 1; seed <= 128 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    grown += GrowsAgain(seed).Try() ? 1 : 0;
  }
  EXPECT_GT(grown, 0U);
  EXPECT_LT(grown, 128U);
}

}  // namespace
}  // namespace eplog
