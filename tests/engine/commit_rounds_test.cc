// A commit by hand says that it is done when all that was pending is: what was in its way meanwhile
// has its turn again.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint64_t kStripe = (kSsdCount - 1) * kChunk;

class CommitRounds : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, 1);
    shape.auto_commit = false;
    return shape;
  }
  void SetUp() override {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, 8 * kStripe)).ok());
    ASSERT_TRUE(test_.Commit().ok());
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Write(volume_, 3 * kStripe, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Flush().ok());
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      test_.delayed(ssd).set_delays({.read_us = 10'000});
    }
  }
  [[nodiscard]] uint64_t Reads() {
    uint64_t reads = 0;
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      reads += test_.counter(ssd).counters().reads;
    }
    return reads;
  }
  void Begin() {
    const uint64_t before = Reads();
    test_.loop.Spawn([](Task<Status> commit, std::optional<Status>* out) -> Task<void> {
      *out = co_await commit;
    }(test_.array->Commit(Progress()), &committed_));
    ASSERT_TRUE(test_.loop.RunUntil([&] { return Reads() != before; }));
    ASSERT_FALSE(committed_);
  }
  [[nodiscard]] uint64_t Pending() { return test_.array->GetStatus().pending_chunks; }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", 100 * kStripe);
  Random random_{5};
  std::optional<Status> committed_;
};

TEST_F(CommitRounds, WhereADeviceIsLostMeanwhileAllIsCommittedWithoutIt) {
  Begin();
  ASSERT_TRUE(test_.Fail(kSsdCount - 1).ok());
  test_.Sleep(1'000'000);
  ASSERT_TRUE(committed_);
  EXPECT_TRUE(committed_->ok()) << committed_->error().ToString();
  EXPECT_EQ(Pending(), 0U);
}

// Only what was there when it was asked for: who writes on does not keep it.
TEST_F(CommitRounds, WhatIsWrittenMeanwhileIsNotWaitedFor) {
  Begin();
  for (int i = 0; i < 1000 && !committed_; ++i) {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Write(volume_, (4 + i % 4) * kStripe, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Flush().ok());
    test_.Sleep(1'000);
  }
  ASSERT_TRUE(committed_);
  EXPECT_TRUE(committed_->ok()) << committed_->error().ToString();
  EXPECT_GT(Pending(), 0U);
  EXPECT_LE(Pending(), 5U) << "the stripe that nobody wrote to is committed";
}

}  // namespace
}  // namespace eplog
