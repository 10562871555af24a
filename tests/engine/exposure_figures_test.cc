// The figures of P8, and what the array counts of its own work, against a count of what was asked:
// chunks that parity does not cover and for how long, log stripes, what is unstable, slots and log
// in use, commits. With chunks of more than a block, since many figures are in blocks.

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kSecond = 1'000'000;
constexpr uint64_t kChunk = 8192;
constexpr uint64_t kData = 3;
constexpr uint32_t kSsds = 4;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kStripes = 60;
constexpr uint64_t kHeader = 4096;

class Figures : public ::testing::Test {
 protected:
  Figures() : test_(Shape()), volume_(test_.CreateVolume("v", kStripes * kStripe)) {
    EXPECT_TRUE(test_.Write(volume_, 0, std::vector<std::byte>(kStripes * kStripe)).ok());
    Flush();
    before_ = Now().traffic;
  }
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsds;
    shape.m = 1;
    shape.chunk_bytes = kChunk;
    shape.ssd_bytes = uint64_t{32} << 20;
    shape.log_bytes = uint64_t{128} << 20;
    shape.auto_commit = false;
    shape.checkpoint = {.log_bytes = 0, .interval_us = 0};
    return shape;
  }
  void Write(uint64_t chunk, uint64_t count = 1) {
    const std::vector<std::byte> data(count * kChunk, static_cast<std::byte>(++stamp_));
    ASSERT_TRUE(test_.Write(volume_, chunk * kChunk, data).ok());
  }
  void Trim(uint64_t chunk, uint64_t count) {
    ASSERT_TRUE(RunTask(test_.loop,
                        test_.array->Trim(volume_, chunk * kChunk, count * kChunk, TrimMode::kZero))
                    .ok());
  }
  void Flush() { ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok()); }
  void Commit() { ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok()); }
  ArrayStatus Now() { return test_.array->GetStatus(); }
  // Two entries that are stable one after the other, the second knowing of the first: what was
  // freed before is free.
  void LetGo() {
    Flush();
    test_.Sleep(20 * kSecond);
  }

  TestArray test_;
  VolumeId volume_;
  Traffic before_;
  uint8_t stamp_ = 0;
};

TEST_F(Figures, OfPendingChunksFollowWritesTrimsAndCommits) {
  std::set<uint64_t> pending;
  Random random(8);
  for (int step = 0; step < 300; ++step) {
    const uint64_t chunk = random.Below(kStripes * kData);
    const uint64_t stripe = chunk / kData;
    if (random.OneIn(10)) {
      Write(stripe * kData, kData);  // whole: covered by its parity
      for (uint64_t i = 0; i < kData; ++i) {
        pending.erase(stripe * kData + i);
      }
    } else if (random.OneIn(40)) {
      Commit();
      pending.clear();
    } else {
      Write(chunk);
      pending.insert(chunk);
    }
    const ArrayStatus now = Now();
    ASSERT_EQ(now.pending_chunks, pending.size()) << step;
    ASSERT_EQ(now.pending_bytes, pending.size() * kChunk) << step;
    ASSERT_EQ(now.pending_entries, pending.size()) << step;
    // Each was written alone: as many log stripes.
    ASSERT_EQ(now.live_log_stripes, pending.size()) << step;
    ASSERT_EQ(now.state == ArrayState::kActive || now.state == ArrayState::kClean, true);
  }
  // Trimmed chunks are pending, and have no log stripe.
  Commit();
  Write(0, kData);
  Trim(0, 2);
  EXPECT_EQ(Now().pending_chunks, 2U);
  EXPECT_EQ(Now().live_log_stripes, 0U);
  Commit();
  EXPECT_EQ(Now().pending_chunks, 0U);
}

TEST_F(Figures, OfTheOldestPendingChunkAreItsAge) {
  EXPECT_EQ(Now().oldest_pending_seconds, 0.0) << "none is pending";
  test_.Sleep(50 * kSecond);
  EXPECT_EQ(Now().oldest_pending_seconds, 0.0);
  Write(1);
  EXPECT_EQ(Now().oldest_pending_seconds, 0.0);
  test_.Sleep(10 * kSecond);
  EXPECT_NEAR(Now().oldest_pending_seconds, 10, 0.2);
  Write(10);
  test_.Sleep(10 * kSecond);
  EXPECT_NEAR(Now().oldest_pending_seconds, 20, 0.2);
  Write(1);  // the oldest is superseded: the other one is the oldest now
  EXPECT_NEAR(Now().oldest_pending_seconds, 10, 0.2);
  test_.Sleep(5 * kSecond);
  Write(10);
  EXPECT_NEAR(Now().oldest_pending_seconds, 5, 0.2);
  Commit();
  EXPECT_EQ(Now().oldest_pending_seconds, 0.0);
  // What an opening finds pending is as old as the opening.
  Write(20);
  test_.Sleep(30 * kSecond);
  ASSERT_TRUE(test_.Close().ok());
  test_.Sleep(100 * kSecond);
  test_.Open();
  EXPECT_NEAR(Now().oldest_pending_seconds, 0, 0.2);
  test_.Sleep(7 * kSecond);
  Write(30);
  EXPECT_NEAR(Now().oldest_pending_seconds, 7, 0.2);
}

// However many have come since: told to a small part of it.
TEST_F(Figures, OfTheOldestPendingChunkHoldForVeryLong) {
  Write(0);
  test_.Sleep(kSecond);
  Write(1);
  for (int i = 0; i < 9000; ++i) {
    Write(2 + static_cast<uint64_t>(i) % 40);
    test_.Sleep(kSecond / 5);
    if (i % 500 == 0) {
      const double age = static_cast<double>(i) / 5 + 1.2;
      ASSERT_NEAR(Now().oldest_pending_seconds, age, 0.2 + age / 100);
    }
  }
  EXPECT_NEAR(Now().oldest_pending_seconds, 1801, 2);
  Write(0);
  EXPECT_NEAR(Now().oldest_pending_seconds, 1800, 2);
  Write(1);
  // Of the others none is older than forty rounds of a fifth of a second, or not by much: their
  // ages are sampled, the more coarsely the longer ago.
  EXPECT_NEAR(Now().oldest_pending_seconds, 8, 2);
}

TEST_F(Figures, OfUnstableBytesAndLogInUseAreWhatEntriesTook) {
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull)).ok());
  LetGo();
  ArrayStatus now = Now();
  EXPECT_EQ(now.unstable_bytes, 0U);
  const uint64_t used = now.log_used_bytes;
  EXPECT_EQ(now.log_size_bytes, (uint64_t{128} << 20) - (uint64_t{64} << 10));
  EXPECT_EQ(now.state, ArrayState::kClean);
  uint64_t bytes = 0;
  for (uint64_t chunk = 0; chunk < 40; ++chunk) {
    Write(chunk);
    bytes += kHeader + kChunk;
    ASSERT_EQ(Now().unstable_bytes, bytes);
    ASSERT_EQ(Now().log_used_bytes, used + bytes);
    ASSERT_EQ(Now().state, ArrayState::kActive);
  }
  Flush();
  EXPECT_EQ(Now().unstable_bytes, 0U);
  EXPECT_EQ(Now().log_used_bytes, used + bytes);
  EXPECT_EQ(Now().traffic.log_chunk_bytes - before_.log_chunk_bytes, 40 * kChunk);
  // Whole stripes take a header.
  Write(20 * kData, kData);
  EXPECT_EQ(Now().unstable_bytes, kHeader);
  EXPECT_EQ(Now().log_used_bytes, used + bytes + kHeader);
  // After commit and checkpoint nothing of it is needed.
  Commit();
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kAuto)).ok());
  EXPECT_EQ(Now().log_used_bytes, 0U);
  LetGo();
  EXPECT_EQ(Now().state, ArrayState::kClean);
}

// Every version that is needed has a slot on its SSD, and no other.
TEST_F(Figures, OfSlotsAreVersionsThatAreNeeded) {
  const auto used = [&] { return Now().slots_used; };
  const uint64_t slots = Now().slots;
  EXPECT_EQ(slots % kSsds, 0U);
  EXPECT_EQ(used(), kStripes * kSsds);
  EXPECT_EQ(Now().slots_free_min, slots / kSsds - kStripes);
  const Geometry g =
      DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
  EXPECT_EQ(Now().slots_reserved, g.slots - g.stripes);
  // Pending versions beside the committed ones: all on one SSD.
  uint64_t written = 0;
  std::vector<uint64_t> on_it;
  for (uint64_t chunk = 0; chunk < kStripes * kData; ++chunk) {
    if (g.SsdOf(ChunkIndex(chunk)).value == 2) {
      on_it.push_back(chunk);
    }
  }
  for (const uint64_t chunk : on_it) {
    Write(chunk);
    ++written;
    ASSERT_EQ(used(), kStripes * kSsds + written);
    ASSERT_EQ(Now().slots_free_min, slots / kSsds - kStripes - written);
  }
  // Again: the pending ones go, once that is known to be stable.
  for (const uint64_t chunk : on_it) {
    Write(chunk);
  }
  LetGo();
  EXPECT_EQ(used(), kStripes * kSsds + written);
  Commit();
  LetGo();
  EXPECT_EQ(used(), kStripes * kSsds);
  EXPECT_EQ(Now().slots_free_min, slots / kSsds - kStripes);
  // A new opening counts the same.
  ASSERT_TRUE(test_.Close().ok());
  test_.Open();
  EXPECT_EQ(used(), kStripes * kSsds);
}

TEST_F(Figures, OfLogStripesThatDiedOfOverwritingAreThoseThatNoCommitEnded) {
  const auto since = [&] {
    Traffic now = Now().traffic;
    now.log_stripes -= before_.log_stripes;
    now.log_stripe_members -= before_.log_stripe_members;
    now.log_stripes_dead_early -= before_.log_stripes_dead_early;
    now.commits -= before_.commits;
    now.committed_stripes -= before_.committed_stripes;
    return now;
  };
  Write(0, 2);  // two members
  Write(4);
  EXPECT_EQ(since().log_stripes, 2U);
  EXPECT_EQ(since().log_stripe_members, 3U);
  Write(0);
  EXPECT_EQ(since().log_stripes_dead_early, 0U) << "one of two";
  Write(1);
  EXPECT_EQ(since().log_stripes_dead_early, 1U);
  Write(4);
  EXPECT_EQ(since().log_stripes_dead_early, 2U);
  Commit();
  EXPECT_EQ(since().commits, 1U);
  EXPECT_EQ(since().committed_stripes, 2U);
  EXPECT_EQ(since().log_stripes_dead_early, 2U);
  EXPECT_EQ(Now().live_log_stripes, 0U);
  Commit();
  EXPECT_EQ(since().committed_stripes, 2U) << "nothing is pending";
}

}  // namespace
}  // namespace eplog
