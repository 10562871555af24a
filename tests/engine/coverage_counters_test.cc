// What the engine counts for who tests it: a run that claims to have met something has met it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 6 * kChunk;

class CoverageCounters : public ::testing::Test {
 protected:
  void Make(const ArrayShape& shape) {
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 4 << 20);
    ASSERT_TRUE(test_->Write(volume_, 0, std::vector<std::byte>(40 * kStripe, std::byte{1})).ok());
  }
  void Put(uint64_t chunk) {
    const std::vector<std::byte> data(kChunk, static_cast<std::byte>(chunk));
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, data).ok());
  }
  void Flush(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, offset, length)).ok());
  }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
};

TEST_F(CoverageCounters, BuffersThatAbsorbAndDrain) {
  ArrayShape shape;
  shape.auto_commit = false;
  shape.buffers = {.device_chunks = 64, .stripes = 0};
  Make(shape);
  const EngineHooks& hooks = test_->hooks();
  for (const uint64_t chunk : {0U, 1U, 2U, 2U, 7U}) {
    Put(chunk);
  }
  EXPECT_EQ(hooks.partial_drains, 0U);
  Flush(0, 2 * kChunk);
  EXPECT_EQ(hooks.partial_drains, 1U) << "two of four";
  Flush(20 * kStripe, kChunk);
  EXPECT_EQ(hooks.partial_drains, 1U) << "none of two";
  Flush(0, UINT64_MAX);
  EXPECT_EQ(hooks.partial_drains, 1U) << "all of two";
  EXPECT_EQ(hooks.buffered_stripes, 0U);
  for (uint64_t i = 0; i < 6; ++i) {
    Put(18 + i);
  }
  test_->Sleep(1);
  EXPECT_EQ(hooks.buffered_stripes, 1U);
  ASSERT_TRUE(test_->Close().ok());
  EXPECT_EQ(hooks.buffer_hits, 1U);
}

TEST_F(CoverageCounters, WhatIsDecodedAndWhatDiesEarly) {
  ArrayShape shape;
  shape.auto_commit = false;
  Make(shape);
  const EngineHooks& hooks = test_->hooks();
  for (int i = 0; i < 10; ++i) {
    Put(13);
  }
  EXPECT_EQ(test_->array->GetStatus().traffic.log_stripes_dead_early, 9U);
  EXPECT_EQ(hooks.decoded_chunks, 0U);
  test_->Read(volume_, 0, 40 * kStripe);
  EXPECT_EQ(hooks.decoded_chunks, 0U);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(0, "by hand")).ok());
  test_->Read(volume_, 0, 40 * kStripe);
  EXPECT_EQ(hooks.decoded_chunks, 30U) << "of 40 stripes on 8 SSDs, six of eight";
  ASSERT_TRUE(test_->Close().ok());
  EXPECT_EQ(hooks.early_deaths, 9U);
}

TEST_F(CoverageCounters, RingsThatComeRoundAndSlotsThatAreUsedAgain) {
  ArrayShape shape;
  shape.ring_bytes = 16 * kChunk;
  shape.log_bytes = uint64_t{1} << 20;
  shape.headers_a_ring_block = 1;
  Make(shape);
  ASSERT_TRUE(test_->Close().ok());
  const EngineHooks& hooks = test_->hooks();
  EXPECT_EQ(hooks.ring_wraps, 0U);
  test_->hooks().lowest_slot_first = true;
  test_->Open();
  for (uint64_t i = 0; i < 2000; ++i) {
    Put(i * 7 % 240);
    Flush(0, 40 * kStripe);
  }
  ASSERT_TRUE(test_->Close().ok());
  EXPECT_GT(hooks.ring_wraps, 0U);
  EXPECT_GT(hooks.slot_reuses, 0U);
}

}  // namespace
}  // namespace eplog
