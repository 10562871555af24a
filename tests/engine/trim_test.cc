// Trim: what reads as zeros afterwards, what it gives back and when, and what it may cost.

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

// 6+2, one extent of 4 stripes is 96 KiB.
constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 6 * kChunk;

class Trim : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.auto_commit = false;
    return shape;
  }
  Status TrimBytes(uint64_t offset, uint64_t length, TrimMode mode = TrimMode::kPunch) {
    return RunTask(test_.loop, test_.array->Trim(volume_, offset, length, mode));
  }
  void Fill(uint64_t bytes) {
    Random random(3);
    model_ = RandomBytes(random, bytes);
    ASSERT_TRUE(test_.Write(volume_, 0, model_).ok());
  }
  void Zero(uint64_t offset, uint64_t length) {
    std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(offset), length, std::byte{0});
  }
  void Verify(const char* when) {
    ASSERT_TRUE(test_.Read(volume_, 0, model_.size()) == model_) << when;
    const auto report = RunTask(test_.loop, test_.array->Check({}));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << when << ": " << report->findings.front().Text();
  }
  void Commit() { ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok()); }
  void Flush() {
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Flush(volume_, 0, model_.size())).ok());
  }
  ArrayStatus Now() { return test_.array->GetStatus(); }

  TestArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", 2 << 20);
  std::vector<std::byte> model_;
};

TEST_F(Trim, PartsChunksAndStripesReadAsZerosAlsoAfterAKill) {
  Fill(40 * kStripe);
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {100, 50},                       // within a chunk
           {kStripe + 1, kChunk},           // across two
           {2 * kStripe, 2 * kChunk},       // whole chunks
           {3 * kStripe + 7, 5 * kStripe},  // whole stripes and both ends
           {10 * kStripe, kStripe},         // one stripe
           {12 * kStripe + 100, 7 * kChunk}}) {
    ASSERT_TRUE(TrimBytes(offset, length).ok());
    Zero(offset, length);
  }
  Verify("at once");
  Flush();
  test_.Kill();
  test_.Open();
  Verify("after a kill");
  Commit();
  EXPECT_EQ(Now().pending_chunks, 0U);
  Verify("after a commit");
  ASSERT_TRUE(test_.Close().ok());
  test_.Open();
  Verify("after a restart");
}

TEST_F(Trim, ChunksStayUntilACommitAndCostNoData) {
  Fill(8 * kStripe);
  Flush();
  const ArrayStatus before = Now();
  ASSERT_TRUE(TrimBytes(0, 2 * kChunk).ok());
  const ArrayStatus after = Now();
  EXPECT_EQ(after.pending_chunks, 2U);
  EXPECT_EQ(after.live_log_stripes, 0U);
  EXPECT_EQ(after.traffic.ssd_data_bytes, before.traffic.ssd_data_bytes);
  EXPECT_EQ(after.traffic.log_chunk_bytes, before.traffic.log_chunk_bytes);
  Commit();
  EXPECT_EQ(Now().pending_chunks, 0U);
  Zero(0, 2 * kChunk);
  Verify("after the commit");
}

TEST_F(Trim, WhatIsZeroAlreadyIsLeftAlone) {
  Fill(kStripe);
  const uint64_t appends = Now().traffic.log_appends;
  ASSERT_TRUE(TrimBytes(1 << 20, 1 << 19).ok());
  EXPECT_EQ(Now().traffic.log_appends, appends);
  ASSERT_TRUE(TrimBytes(0, kChunk).ok());
  EXPECT_EQ(Now().traffic.log_appends, appends + 1);
  ASSERT_TRUE(TrimBytes(0, kChunk).ok());
  EXPECT_EQ(Now().traffic.log_appends, appends + 1);
}

TEST_F(Trim, PunchedExtentsGoBackAndZeroedOnesStay) {
  const uint64_t free = Now().free_bytes;
  Fill(64 * kStripe);
  const uint64_t used = free - Now().free_bytes;
  ASSERT_TRUE(TrimBytes(0, 64 * kStripe, TrimMode::kZero).ok());
  EXPECT_EQ(free - Now().free_bytes, used);
  Fill(64 * kStripe);
  // Piece by piece, unaligned: the last piece of an extent lets go of it.
  for (uint64_t at = 0; at < 64 * kStripe; at += 5000) {
    ASSERT_TRUE(TrimBytes(at, std::min<uint64_t>(5000, 64 * kStripe - at)).ok());
  }
  // Chunks of which only parts were trimmed hold zeros that were written.
  EXPECT_GT(free - Now().free_bytes, 0U);
  ASSERT_TRUE(TrimBytes(0, 64 * kStripe).ok());
  EXPECT_EQ(Now().free_bytes, free);
  Zero(0, 64 * kStripe);
  Flush();
  test_.Kill();
  test_.Open();
  EXPECT_EQ(Now().free_bytes, free) << "a flushed trim is durable although no extent is left";
  Verify("after a kill");
}

TEST_F(Trim, FreedSlotsAreUsedAgain) {
  // Thrice what the array holds, in a volume as large as it.
  const uint64_t capacity = Now().capacity_bytes;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ResizeVolume(volume_, capacity)).ok());
  const std::vector<std::byte> data(1 << 20, std::byte{7});
  for (int round = 0; round < 3; ++round) {
    for (uint64_t at = 0; at + data.size() <= capacity; at += data.size()) {
      ASSERT_TRUE(test_.Write(volume_, at, data).ok());
    }
    ASSERT_TRUE(TrimBytes(0, capacity).ok());
    EXPECT_EQ(Now().allocated_bytes, 0U);
  }
}

TEST(TrimCharge, PendingZerosCannotPileUp) {
  ArrayShape shape;
  shape.log_bytes = uint64_t{1} << 20;
  TestArray test(shape);
  const VolumeId volume = test.CreateVolume("v", 64 << 20);
  const std::vector<std::byte> data(1 << 20, std::byte{7});
  for (uint64_t at = 0; at < 64 << 20; at += data.size()) {
    ASSERT_TRUE(test.Write(volume, at, data).ok());
  }
  // One chunk of each stripe: many fit an entry, each counts like a chunk of log.
  uint64_t most = 0;
  for (uint64_t at = 0; at + kStripe <= 64 << 20; at += kStripe) {
    ASSERT_TRUE(RunTask(test.loop, test.array->Trim(volume, at, kChunk, TrimMode::kPunch)).ok());
    most = std::max(most, test.array->GetStatus().pending_chunks);
  }
  EXPECT_LT(most, (uint64_t{1} << 20) / kChunk);
  EXPECT_GT(test.array->GetStatus().traffic.committed_stripes, 2000U);
}

}  // namespace
}  // namespace eplog
