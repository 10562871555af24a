// What a parity commit reads and writes: the new parity comes from all data of the stripe or from
// the old parity and what has changed, whichever reads less (section 8); it is written once, to new
// slots, however often the chunks were; and it is right.

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

struct CommitCase {
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
};

void PrintTo(const CommitCase& c, std::ostream* out) {
  *out << c.n - c.m << "+" << c.m << ", chunk " << c.chunk_bytes;
}

class CommitOf : public ::testing::TestWithParam<CommitCase> {
 protected:
  static constexpr uint64_t kStripes = 24;
  void SetUp() override {
    ArrayShape shape;
    shape.n = GetParam().n;
    shape.m = GetParam().m;
    shape.chunk_bytes = GetParam().chunk_bytes;
    shape.ssd_bytes = uint64_t{GetParam().chunk_bytes} * 400 + (uint64_t{4} << 20);
    shape.auto_commit = false;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kStripes * stripe_bytes());
  }
  [[nodiscard]] uint32_t k() const { return GetParam().n - GetParam().m; }
  [[nodiscard]] uint64_t chunk() const { return GetParam().chunk_bytes; }
  [[nodiscard]] uint64_t stripe_bytes() const { return k() * chunk(); }
  void Write(uint64_t stripe, uint32_t first, uint32_t count) {
    const auto data = RandomBytes(random_, count * chunk());
    ASSERT_TRUE(test_->Write(volume_, stripe * stripe_bytes() + first * chunk(), data).ok());
  }
  void Trim(uint64_t stripe, uint32_t first, uint32_t count) {
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume_, stripe * stripe_bytes() + first * chunk(),
                                                count * chunk(), TrimMode::kZero))
            .ok());
  }
  struct Cost {
    uint64_t reads = 0;
    uint64_t parity_chunks = 0;
    uint64_t deltas = 0;
  };
  // Of a commit of all that is pending, which is of one stripe.
  Cost Commit() {
    EXPECT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    const Traffic before = test_->array->GetStatus().traffic;
    const uint64_t deltas = test_->hooks().delta_commits;
    uint64_t reads = 0;
    for (uint32_t i = 0; i < GetParam().n; ++i) {
      reads -= test_->counter(i).counters().reads;
    }
    EXPECT_TRUE(RunTask(test_->loop, test_->array->Commit({})).ok());
    for (uint32_t i = 0; i < GetParam().n; ++i) {
      reads += test_->counter(i).counters().reads;
    }
    const ArrayStatus now = test_->array->GetStatus();
    EXPECT_EQ(now.pending_chunks, 0U);
    EXPECT_EQ(now.live_log_stripes, 0U);
    EXPECT_EQ(now.traffic.commits - before.commits, 1U);
    EXPECT_EQ(now.traffic.committed_stripes - before.committed_stripes, 1U);
    EXPECT_EQ(now.traffic.ssd_data_bytes, before.ssd_data_bytes) << "no data moves";
    EXPECT_EQ(now.traffic.commit_read_bytes - before.commit_read_bytes, reads * chunk());
    return {reads, (now.traffic.ssd_parity_bytes - before.ssd_parity_bytes) / chunk(),
            test_->hooks().delta_commits - deltas};
  }
  void ExpectSound() {
    const auto report = RunTask(test_->loop, test_->array->Check({}));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U);
  }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Random random_{9};
};

TEST_P(CommitOf, AStripeReadsTheWayThatReadsLess) {
  const uint32_t m = GetParam().m;
  for (uint32_t changed = 1; changed < k(); ++changed) {
    SCOPED_TRACE(changed);
    const uint64_t stripe = changed % kStripes;
    Write(stripe, 0, k());
    const uint32_t first = static_cast<uint32_t>(random_.Below(k() - changed + 1));
    for (int times = 0; times < 3; ++times) {
      Write(stripe, first, changed);
    }
    const Cost cost = Commit();
    EXPECT_EQ(cost.reads, std::min(2 * changed + m, k()));
    EXPECT_EQ(cost.deltas, 2 * changed + m < k() ? 1U : 0U);
    EXPECT_EQ(cost.parity_chunks, m);
  }
  ExpectSound();
}

// A stripe that was never written has nothing old to read.
TEST_P(CommitOf, AFreshStripeReadsWhatWasWritten) {
  for (uint32_t written = 1; written < k(); ++written) {
    SCOPED_TRACE(written);
    const uint64_t stripe = written % kStripes;
    Trim(stripe, 0, k());
    Write(stripe, k() - written, written);
    const Cost cost = Commit();
    EXPECT_EQ(cost.reads, written);
    EXPECT_EQ(cost.parity_chunks, GetParam().m);
    EXPECT_EQ(cost.deltas, 0U);
  }
  ExpectSound();
}

// Of a chunk of zeros nothing is read, neither before nor afterwards.
TEST_P(CommitOf, TrimmedChunksReadWhatTheyWere) {
  const uint32_t m = GetParam().m;
  for (uint32_t trimmed = 1; trimmed < k(); ++trimmed) {
    SCOPED_TRACE(trimmed);
    const uint64_t stripe = trimmed % kStripes;
    Write(stripe, 0, k());
    Trim(stripe, 0, trimmed);
    Cost cost = Commit();
    const uint32_t left = k() - trimmed;
    EXPECT_EQ(cost.reads, std::min(trimmed + m, left));
    EXPECT_EQ(cost.deltas, trimmed + m < left ? 1U : 0U);
    EXPECT_EQ(cost.parity_chunks, m);
    // Written again: from zeros.
    Write(stripe, 0, trimmed);
    cost = Commit();
    EXPECT_EQ(cost.reads, std::min(trimmed + m, k()));
    EXPECT_EQ(cost.deltas, trimmed + m < k() ? 1U : 0U);
    // The last ones that hold anything: the whole stripe is zeros, and has no parity.
    Trim(stripe, 0, trimmed);
    static_cast<void>(Commit());
    Trim(stripe, trimmed, left);
    cost = Commit();
    EXPECT_EQ(cost.reads, 0U);
    EXPECT_EQ(cost.parity_chunks, 0U);
  }
  test_->Sleep(20'000'000);
  EXPECT_EQ(test_->array->GetStatus().slots_used, 0U) << "all is zeros, and nothing waits";
  ExpectSound();
}

// Where anything that delta would read is wrong, all data is read, and what is wrong decoded.
class CommitOfWideStripe : public CommitOf {};  // delta pays

TEST_P(CommitOfWideStripe, WhatCannotBeReadIsDecoded) {
  for (uint32_t ssd = 0; ssd < GetParam().n; ++ssd) {
    const uint64_t stripe = ssd % kStripes;
    Write(stripe, 0, k());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    Write(stripe, 1, 1);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    test_->faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead)});
    const auto committed = RunTask(test_->loop, test_->array->Commit({}));
    EXPECT_TRUE(committed.ok()) << committed.error().ToString();
    test_->faulty(ssd).Clear();
    EXPECT_EQ(test_->array->GetStatus().pending_chunks, 0U);
  }
  test_->Sleep(1'000'000);
  ExpectSound();
}

INSTANTIATE_TEST_SUITE_P(Shapes, CommitOf,
                         ::testing::Values(CommitCase{3, 1, 4096}, CommitCase{5, 1, 16384},
                                           CommitCase{8, 2, 4096}, CommitCase{12, 3, 8192},
                                           CommitCase{16, 4, 4096}, CommitCase{32, 1, 4096}));
INSTANTIATE_TEST_SUITE_P(Shapes, CommitOfWideStripe,
                         ::testing::Values(CommitCase{5, 1, 16384}, CommitCase{8, 2, 4096},
                                           CommitCase{12, 3, 8192}, CommitCase{16, 4, 4096},
                                           CommitCase{32, 1, 4096}));

// Installs of one batch share entries, and a commit of very many goes in batches: what it appends
// does not grow with the number of stripes alone.
TEST(CommitBatches, ShareEntriesAndSayHowFarTheyAre) {
  ArrayShape shape;
  shape.auto_commit = false;
  TestArray test(shape);
  constexpr uint64_t kStripes = 512;
  constexpr uint64_t kStripe = 6 * 4096;
  const VolumeId volume = test.CreateVolume("v", kStripes * kStripe);
  Random random(4);
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, kStripes * kStripe)).ok());
  for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
    ASSERT_TRUE(test.Write(volume, stripe * kStripe, RandomBytes(random, 4096)).ok());
  }
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  const Traffic before = test.array->GetStatus().traffic;
  std::vector<uint64_t> done;
  ASSERT_TRUE(RunTask(test.loop, test.array->Commit([&](uint64_t now, uint64_t total) {
                EXPECT_EQ(total, kStripes);
                done.push_back(now);
              })).ok());
  const Traffic after = test.array->GetStatus().traffic;
  EXPECT_EQ(after.committed_stripes - before.committed_stripes, kStripes);
  EXPECT_EQ(after.ssd_parity_bytes - before.ssd_parity_bytes, kStripes * 2 * 4096);
  // Batches of 64, whose installs take a block or two each, and now and then a mark.
  EXPECT_EQ(done, (std::vector<uint64_t>{64, 128, 192, 256, 320, 384, 448, 512}));
  EXPECT_EQ(after.commits - before.commits, 8U);
  EXPECT_LE(after.log_appends - before.log_appends, 8 * 3U);
}

}  // namespace
}  // namespace eplog
