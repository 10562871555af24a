// How often the keeper writes a checkpoint to free log: each writes a good deal, so that it is to
// free a good part of the log (section 5). And not at all where nothing of that is asked for.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSecond = 1'000'000;

class KeeperCheckpoints : public ::testing::Test {
 protected:
  void Make(ArrayShape shape, uint64_t rows) {
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    g_ = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    volume_ = test_->CreateVolume("v", rows * g_.stripe_data_bytes());
    const std::vector<std::byte> row(g_.stripe_data_bytes(), std::byte{1});
    for (uint64_t i = 0; i < rows; ++i) {
      ASSERT_TRUE(test_->Write(volume_, i * row.size(), row).ok());
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    test_->Sleep(10 * kSecond);
  }
  void Update(uint64_t row) {
    ASSERT_TRUE(test_->Write(volume_, row * g_.stripe_data_bytes(), block_).ok());
    test_->Sleep(20'000);
  }
  Traffic Now() { return test_->array->GetStatus().traffic; }

  std::unique_ptr<TestArray> test_;
  Geometry g_;
  VolumeId volume_;
  std::vector<std::byte> block_ = std::vector<std::byte>(kChunk, std::byte{2});
};

// Nobody waits here, so that each has a quarter of the log to free.
TEST_F(KeeperCheckpoints, FreeAGoodPartOfTheLogEach) {
  constexpr uint64_t kRows = 2000;
  ArrayShape shape;
  shape.log_bytes = uint64_t{16} << 20;
  shape.ssd_bytes = uint64_t{96} << 20;
  Make(shape, kRows);
  const Traffic before = Now();
  const uint64_t waits = test_->hooks().space_waits;
  const uint64_t logged_before = test_->counter(shape.n).counters().bytes_written;
  for (uint64_t i = 0; i < 3 * kRows; ++i) {
    Update(i % kRows);
  }
  const uint64_t logged = test_->counter(shape.n).counters().bytes_written - logged_before;
  ASSERT_GE(logged, 2 * shape.log_bytes) << "it goes round";
  EXPECT_EQ(test_->hooks().space_waits, waits);
  EXPECT_GT(Now().committed_stripes - before.committed_stripes, kRows);
  EXPECT_GE(Now().checkpoints - before.checkpoints, 2U);
  EXPECT_LE(Now().checkpoints - before.checkpoints, 5 * logged / shape.log_bytes);
}

// Log that is long and time that passes are both no reason where both triggers are off.
TEST_F(KeeperCheckpoints, NoneComesByItselfWhereNoTriggerIsSet) {
  ArrayShape shape;
  shape.checkpoint = {.log_bytes = 0, .interval_us = 0};
  Make(shape, 50);
  const uint64_t checkpoints = Now().checkpoints;
  for (uint64_t i = 0; i < 100; ++i) {
    Update(i % 50);
  }
  test_->Sleep(1000 * kSecond);
  EXPECT_EQ(Now().checkpoints, checkpoints);
}

}  // namespace
}  // namespace eplog
