// A commit that somebody asks for: it says how far it has come, takes what is pending when it is
// called, and leaves nothing of that behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 6 * kChunk;

class CommitProgress : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.auto_commit = false;
    return shape;
  }
  void SetUp() override {
    ASSERT_TRUE(
        test_.Write(volume_, 0, std::vector<std::byte>(kStripes * kStripe, std::byte{1})).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
  }
  // Two of its chunks.
  void Update(uint64_t stripe) {
    const std::vector<std::byte> data(2 * kChunk, static_cast<std::byte>(stripe));
    ASSERT_TRUE(test_.Write(volume_, stripe * kStripe + kChunk, data).ok());
  }
  std::vector<std::pair<uint64_t, uint64_t>> Commit() {
    std::vector<std::pair<uint64_t, uint64_t>> told;
    const Status committed = RunTask(
        test_.loop, test_.array->Commit([&](uint64_t a, uint64_t b) { told.emplace_back(a, b); }));
    EXPECT_TRUE(committed.ok()) << committed.error().ToString();
    return told;
  }

  static constexpr uint64_t kStripes = 300;
  TestArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kStripes* kStripe);
};

TEST_F(CommitProgress, IsToldInStripesUpToTheLast) {
  for (const uint64_t count : {0U, 1U, 64U, 65U, 200U}) {
    SCOPED_TRACE(count);
    for (uint64_t stripe = 0; stripe < count; ++stripe) {
      Update(stripe);
    }
    EXPECT_EQ(test_.array->GetStatus().pending_chunks, 2 * count);
    const uint64_t before = test_.array->GetStatus().traffic.committed_stripes;
    const auto told = Commit();
    EXPECT_EQ(test_.array->GetStatus().pending_chunks, 0U);
    EXPECT_EQ(test_.array->GetStatus().traffic.committed_stripes - before, count);
    EXPECT_EQ(told.empty(), count == 0);
    uint64_t last = 0;
    for (const auto& [done, total] : told) {
      EXPECT_EQ(total, count);
      EXPECT_GT(done, last);
      last = done;
    }
    EXPECT_EQ(last, count);
    // So many at once that somebody is told now and then.
    EXPECT_GE(told.size(), count / 64);
  }
}

// It is durable on return, and what lies in buffers is pending as well.
TEST_F(CommitProgress, TakesWhatLiesInBuffersAndIsDurable) {
  ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = 64, .stripes = 0}).ok());
  for (uint64_t stripe = 0; stripe < 20; ++stripe) {
    Update(stripe);
  }
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 0U) << "in RAM";
  const auto told = Commit();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), std::pair(uint64_t{20}, uint64_t{20}));
  test_.Kill();
  test_.Open();
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 0U);
  for (uint64_t stripe = 0; stripe < 20; ++stripe) {
    EXPECT_EQ(test_.Read(volume_, stripe * kStripe + 2 * kChunk, 1).front(),
              static_cast<std::byte>(stripe));
  }
}

// The same of a checkpoint: the next opening begins with it.
TEST_F(CommitProgress, ACheckpointTakesWhatLiesInBuffers) {
  ASSERT_TRUE(test_.array->SetBuffers({.device_chunks = 64, .stripes = 0}).ok());
  for (uint64_t stripe = 0; stripe < 20; ++stripe) {
    Update(stripe);
  }
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull)).ok());
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 40U);
  test_.Kill();
  test_.Open();
  EXPECT_EQ(test_.array->GetStatus().recovery_entries_replayed, 0U);
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 40U);
  for (uint64_t stripe = 0; stripe < 20; ++stripe) {
    EXPECT_EQ(test_.Read(volume_, stripe * kStripe + 2 * kChunk, 1).front(),
              static_cast<std::byte>(stripe));
  }
}

}  // namespace
}  // namespace eplog
