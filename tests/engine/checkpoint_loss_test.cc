// SSDs that are lost and replaced while a checkpoint is written to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint64_t kLongUs = 60'000'000;

Task<void> TakeCheckpoint(Array& array, CheckpointKind kind, std::optional<Status>& ended) {
  Task<Status> checkpoint = array.Checkpoint(kind);
  ended = co_await checkpoint;
}

ArrayShape Shape(uint32_t ssd_count) {
  return SmallShape(ssd_count, 1);
}

// Fails every write and flush of an SSD, and writes until that was met.
testing::AssertionResult BreakSsd(SmallArray& test, uint32_t ssd, VolumeId volume, Random& random) {
  Fault broken;
  broken.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  broken.from_then_on = true;
  test.faulty(ssd).Add(broken);
  const auto failed = [&] { return test.State(ssd) == DeviceState::kFailed; };
  for (uint64_t at = 0; at < 16 && !failed(); ++at) {
    static_cast<void>(test.Write(volume, at * kChunk, RandomBytes(random, kChunk)));
  }
  return failed() ? testing::AssertionSuccess()
                  : testing::AssertionFailure() << "SSD " << ssd << " still serves";
}

// An SSD is lost and replaced while a checkpoint is written, then the next one: the replacement
// holds only what came after it, and so that may be nowhere. Nothing is written down any more, and
// who was only unplugged may come back.
TEST(CheckpointLoss, AnotherSsdBesideAReplacementStopsTheArray) {
  SmallArray test(Shape(kSsdCount));
  const VolumeId volume = test.CreateVolume("v", 64 * kChunk);
  Random random(5);
  const std::vector<std::byte> data = RandomBytes(random, 5 * kChunk);
  ASSERT_TRUE(test.Write(volume, 32 * kChunk, data).ok());
  ASSERT_TRUE(test.Flush().ok());
  for (uint32_t i = 0; i < kSsdCount; ++i) {  // its pages take long
    test.delayed(i).set_delays({.write_us = kLongUs});
  }
  std::optional<Status> ended;
  test.loop.Spawn(TakeCheckpoint(*test.array, CheckpointKind::kFull, ended));
  test.Sleep(1000);
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test.delayed(i).set_delays({});
  }
  ASSERT_TRUE(BreakSsd(test, 0, volume, random));
  test.faulty(0).Clear();
  std::ranges::fill(test.memory(0).bytes(), std::byte{0});  // another one
  ASSERT_TRUE(test.ReplaceByItself(0).ok());
  ASSERT_FALSE(ended) << "it was to be struck while it is written";
  ASSERT_TRUE(BreakSsd(test, 1, volume, random));
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  while (!ended) {
    test.Sleep(10);
  }
  EXPECT_FALSE(ended->ok());
  test.Kill();
  test.faulty(1).Clear();
  test.Open();
  ASSERT_NE(test.array, nullptr);
  EXPECT_EQ(test.Read(volume, 32 * kChunk, data.size()) == data, true);
  test.Kill();
}

// What it would build upon is on an SSD that is lost, the other one was away when that was written:
// the array has stopped, and it ends.
TEST(CheckpointLoss, WhatItBuildsOnMayBeLost) {
  SmallArray test(Shape(2));
  const VolumeId volume = test.CreateVolume("v", 64 * kChunk);
  Random random(5);
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, 64 * kChunk)).ok());
  ASSERT_TRUE(test.Close().ok());
  OpenOptions options;
  options.entropy = 77;
  std::vector<Device*> devices = test.Devices();
  devices.erase(devices.begin() + 1);
  auto alone = RunTask(test.loop, Array::Open(test.loop, devices, options));
  ASSERT_TRUE(alone.ok()) << alone.error().ToString();
  test.array = std::move(*alone);
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, 20 * kChunk)).ok());
  ASSERT_TRUE(test.Checkpoint().ok());
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, kChunk)).ok());
  ASSERT_TRUE(test.Close().ok());

  test.Open();
  ASSERT_EQ(test.State(1), DeviceState::kRebuilding);
  ASSERT_TRUE(BreakSsd(test, 0, volume, random));
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  std::optional<Status> ended;
  test.loop.Spawn(TakeCheckpoint(*test.array, CheckpointKind::kIncremental, ended));
  test.Sleep(1'000'000);
  EXPECT_TRUE(ended && !ended->ok());
  test.Kill();
}

}  // namespace
}  // namespace eplog
