// What users did is counted to the request and the byte, against a count of the test's own, and
// what an opening did is said as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

// Chunks, and stripes, that a range touches: looked at one by one.
uint64_t Touched(uint64_t offset, uint64_t length, uint64_t unit) {
  uint64_t count = 0;
  for (uint64_t at = offset / unit * unit; at < offset + length; at += unit) {
    ++count;
  }
  return count;
}

struct Case {
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
  uint32_t device_chunks;
};

class UserFigures : public ::testing::TestWithParam<Case> {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = GetParam().n;
    shape.m = GetParam().m;
    shape.chunk_bytes = GetParam().chunk_bytes;
    shape.auto_commit = false;
    shape.buffers = {.device_chunks = GetParam().device_chunks,
                     .stripes = GetParam().device_chunks / 4};
    return shape;
  }
  static void ExpectSame(const Traffic& counted, const Traffic& expected) {
    EXPECT_EQ(counted.user_writes, expected.user_writes);
    EXPECT_EQ(counted.user_bytes_written, expected.user_bytes_written);
    EXPECT_EQ(counted.user_reads, expected.user_reads);
    EXPECT_EQ(counted.user_bytes_read, expected.user_bytes_read);
    EXPECT_EQ(counted.user_flushes, expected.user_flushes);
    EXPECT_EQ(counted.user_trims, expected.user_trims);
    EXPECT_EQ(counted.user_bytes_trimmed, expected.user_bytes_trimmed);
    EXPECT_EQ(counted.md_equivalent_ssd_bytes, expected.md_equivalent_ssd_bytes);
  }

  TestArray test_{Shape()};
  Random random_{5};
};

TEST_P(UserFigures, AreWhatWasAskedForAndDone) {
  const uint64_t chunk = GetParam().chunk_bytes;
  const uint64_t stripe = chunk * (GetParam().n - GetParam().m);
  const uint64_t size = 40 * stripe;
  const VolumeId id = test_.CreateVolume("v", size);
  Traffic expected;
  Traffic before;  // of the lives before this one
  const auto write = [&](uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_.Write(id, offset, RandomBytes(random_, length)).ok());
    ++expected.user_writes;
    expected.user_bytes_written += length;
    expected.md_equivalent_ssd_bytes +=
        (Touched(offset, length, chunk) + GetParam().m * Touched(offset, length, stripe)) * chunk;
  };
  const auto expect_now = [&] {
    const ArrayStatus status = test_.array->GetStatus();
    ExpectSame(status.traffic, expected);
    Traffic lifetime = expected;
    std::vector<uint64_t> earlier;
    ForEachCounter(before, [&](uint64_t value) { earlier.push_back(value); });
    size_t at = 0;
    ForEachCounter(lifetime, [&](uint64_t& value) { value += earlier[at++]; });
    ExpectSame(status.lifetime, lifetime);
  };
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    expect_now();
    for (const auto& [offset, length] :
         std::vector<std::pair<uint64_t, uint64_t>>{{0, 1},
                                                    {0, chunk},
                                                    {chunk - 1, 2},
                                                    {stripe - 1, 1},
                                                    {stripe - 1, 2},
                                                    {stripe, stripe},
                                                    {3 * stripe, 4 * stripe},
                                                    {9 * stripe - chunk, stripe + 2 * chunk},
                                                    {20 * stripe + 5, 3 * stripe},
                                                    {size - chunk - 7, chunk + 7}}) {
      write(offset, length);
      expect_now();
    }
    for (const uint64_t length : {uint64_t{1}, chunk, 3 * stripe + 11}) {
      test_.Read(id, 17, length);
      ++expected.user_reads;
      expected.user_bytes_read += length;
    }
    for (const TrimMode mode : {TrimMode::kPunch, TrimMode::kZero}) {
      for (const uint64_t length : {uint64_t{10}, 2 * chunk, 2 * stripe + 3}) {
        ASSERT_TRUE(RunTask(test_.loop, test_.array->Trim(id, 5 * stripe, length, mode)).ok());
        ++expected.user_trims;
        expected.user_bytes_trimmed += length;
      }
    }
    expect_now();
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Flush(id, 0, 1)).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Flush(id, stripe, 5 * stripe)).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
    expected.user_flushes += 3;
    // What was refused was not done.
    const std::vector<std::byte> data(2);
    EXPECT_FALSE(test_.Write(id, size - 1, data).ok());
    Buffer into = test_.pool.Get(2);
    EXPECT_FALSE(RunTask(test_.loop, test_.array->Read(id, size - 1, into.span().first(2))).ok());
    EXPECT_FALSE(RunTask(test_.loop, test_.array->Trim(id, size - 1, 2, TrimMode::kZero)).ok());
    EXPECT_FALSE(RunTask(test_.loop, test_.array->Flush(VolumeId(77), 0, 1)).ok());
    // Nor is what the array does by itself, or its owner asks for.
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Scrub(true, {})).ok());
    expect_now();
    before = test_.array->GetStatus().lifetime;
    ASSERT_TRUE(test_.Close().ok());
    test_.Open();
    expected = {};
  }
}

// Which chunks of a request go with their parity and which to the log.
class UserFiguresUnbuffered : public UserFigures {};

TEST_P(UserFiguresUnbuffered, WholeStripesHaveTheirParityAndTheRestIsLogged) {
  const uint64_t chunk = GetParam().chunk_bytes;
  const uint64_t k = GetParam().n - GetParam().m;
  const uint64_t stripe = chunk * k;
  const VolumeId id = test_.CreateVolume("v", 40 * stripe);
  for (int round = 0; round < 2; ++round) {  // what lies there already makes no difference
    for (const auto& [offset, length] :
         std::vector<std::pair<uint64_t, uint64_t>>{{0, stripe},
                                                    {0, stripe - 1},
                                                    {1, stripe - 1},
                                                    {2 * stripe, 3 * stripe},
                                                    {6 * stripe - 1, stripe + 2},
                                                    {8 * stripe + chunk, 2 * stripe},
                                                    {12 * stripe + chunk / 2, chunk}}) {
      SCOPED_TRACE(std::to_string(offset) + "+" + std::to_string(length));
      uint64_t whole = 0;
      for (uint64_t at = 0; at < 40 * stripe; at += stripe) {
        whole += at >= offset && at + stripe <= offset + length ? 1 : 0;
      }
      const uint64_t others = Touched(offset, length, chunk) - whole * k;
      const Traffic before = test_.array->GetStatus().traffic;
      ASSERT_TRUE(test_.Write(id, offset, RandomBytes(random_, length)).ok());
      const Traffic after = test_.array->GetStatus().traffic;
      EXPECT_EQ(after.full_stripe_writes - before.full_stripe_writes, whole);
      EXPECT_EQ(after.ssd_parity_bytes - before.ssd_parity_bytes, whole * GetParam().m * chunk);
      EXPECT_EQ(after.ssd_data_bytes - before.ssd_data_bytes, (whole * k + others) * chunk);
      EXPECT_EQ(after.log_stripe_members - before.log_stripe_members, others);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, UserFigures,
                         ::testing::Values(Case{8, 2, 4096, 0}, Case{5, 1, 16384, 0},
                                           Case{6, 2, 4096, 16}, Case{3, 1, 65536, 0}));
INSTANTIATE_TEST_SUITE_P(Shapes, UserFiguresUnbuffered,
                         ::testing::Values(Case{8, 2, 4096, 0}, Case{5, 1, 16384, 0},
                                           Case{3, 1, 65536, 0}));

// For comparing: as the paper has it, what overwrites goes to the log, also whole stripes.
TEST(LogWholeStripes, OnlyWhereSomethingLiesAlready) {
  ArrayShape shape;
  TestArray test(shape);
  const VolumeId id = test.CreateVolume("v", 1 << 20);
  ASSERT_TRUE(test.Close().ok());
  OpenOptions options;
  options.entropy = 99;
  options.auto_commit = false;
  options.log_whole_stripes = true;
  auto opened = RunTask(test.loop, Array::Open(test.loop, test.Devices(), options));
  ASSERT_TRUE(opened.ok());
  test.array = std::move(*opened);
  const auto written = [&](uint64_t at) {
    Random random(at);
    const Traffic before = test.array->GetStatus().traffic;
    const auto bytes = RandomBytes(random, 6 * 4096);
    EXPECT_TRUE(test.Write(id, at, bytes).ok());
    EXPECT_TRUE(test.Read(id, at, bytes.size()) == bytes);
    const Traffic after = test.array->GetStatus().traffic;
    return std::pair(after.full_stripe_writes - before.full_stripe_writes,
                     after.log_stripe_members - before.log_stripe_members);
  };
  EXPECT_EQ(written(0), std::pair(uint64_t{1}, uint64_t{0})) << "nothing lies there";
  EXPECT_EQ(written(0), std::pair(uint64_t{0}, uint64_t{6})) << "committed data does";
  EXPECT_EQ(written(0), std::pair(uint64_t{0}, uint64_t{6})) << "pending data does";
  ASSERT_TRUE(test.Write(id, 7 * 4096, std::vector<std::byte>(4096)).ok());
  EXPECT_EQ(written(6 * 4096), std::pair(uint64_t{0}, uint64_t{6})) << "in one of its chunks";
}

TEST(RecoveryFigures, SayWhatAnOpeningDid) {
  ArrayShape shape;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  shape.auto_commit = false;
  TestArray test(shape);
  const VolumeId id = test.CreateVolume("v", 1 << 20);
  const auto status = [&] { return test.array->GetStatus(); };
  const std::vector<std::byte> data(4096, std::byte{3});
  EXPECT_EQ(status().oldest_pending_seconds, 0);
  EXPECT_EQ(status().pending_chunks, 0U);
  ASSERT_TRUE(test.Write(id, 0, data).ok());
  test.Sleep(2'500'000);
  ASSERT_TRUE(test.Write(id, 7 * 4096, data).ok());
  EXPECT_NEAR(status().oldest_pending_seconds, 2.5, 0.01);
  EXPECT_EQ(status().pending_chunks, 2U);
  // A close leaves nothing to replay, and a kill what was written since.
  const auto open = [&](bool read_only) {
    const uint64_t begun_us = test.loop.NowUs();
    test.Open(read_only);
    const double took = static_cast<double>(test.loop.NowUs() - begun_us) / 1e6;
    EXPECT_GT(status().recovery_seconds, took / 4);
    EXPECT_LE(status().recovery_seconds, took);
  };
  ASSERT_TRUE(test.Close().ok());
  open(true);
  EXPECT_EQ(status().recovery_entries_replayed, 0U);
  EXPECT_EQ(status().pending_chunks, 2U);
  ASSERT_TRUE(test.Close().ok());
  open(false);
  EXPECT_EQ(status().recovery_entries_replayed, 0U);
  const uint64_t before = status().traffic.log_appends;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(test.Write(id, i * 4096, data).ok());
  }
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  const uint64_t appended = status().traffic.log_appends - before;
  EXPECT_GE(appended, 20U);
  for (int look = 0; look < 2; ++look) {
    test.Kill();
    open(look == 0);
    // The epoch's own first entry is one more.
    EXPECT_GE(status().recovery_entries_replayed, appended);
    EXPECT_LE(status().recovery_entries_replayed, appended + 3);
  }
}

}  // namespace
}  // namespace eplog
