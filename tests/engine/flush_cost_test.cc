// What a flush costs, who is flushed and when the array does so by itself: section 10's budgets and
// I4, by counting the requests of every device.

#include <algorithm>
#include <vector>

#include "runtime/task_group.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSecond = 1'000'000;

class FlushCost : public ::testing::TestWithParam<JournalMode> {
 protected:
  static constexpr uint32_t kSsds = 6;
  static constexpr uint32_t kLogs = 2;
  static constexpr uint64_t kStripe = 4 * kChunk;
  static constexpr uint64_t kStripes = 300;

  FlushCost() : test_(Shape()), volume_(test_.CreateVolume("v", kStripes * kStripe)) {
    const std::vector<std::byte> data(kStripes * kStripe, std::byte{1});
    EXPECT_TRUE(test_.Write(volume_, 0, data).ok());
    g_ = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    Settle();
  }
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsds;
    shape.m = kLogs;
    shape.journal = GetParam();
    shape.auto_commit = false;
    shape.checkpoint = {.log_bytes = 0, .interval_us = 0};
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  [[nodiscard]] static bool full() { return GetParam() == JournalMode::kFull; }
  // Everything is stable, on the rings too, and nothing more comes by itself.
  void Settle() {
    ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
    test_.Sleep(30 * kSecond);
    for (uint32_t i = 0; i < kSsds + kLogs; ++i) {
      test_.counter(i).Reset();
    }
    traffic_ = test_.array->GetStatus().traffic;
  }
  Status WriteChunk(uint64_t chunk) {
    return test_.Write(volume_, chunk * kChunk, std::span(block_.data(), kChunk));
  }
  Status Flush(uint64_t chunk, uint64_t count = 1) {
    return RunTask(test_.loop, test_.array->Flush(volume_, chunk * kChunk, count * kChunk));
  }
  uint64_t Sum(uint64_t DeviceCounters::*what, uint32_t first, uint32_t last) {
    uint64_t sum = 0;
    for (uint32_t i = first; i < last; ++i) {
      sum += test_.counter(i).counters().*what;
    }
    return sum;
  }
  uint64_t SsdSum(uint64_t DeviceCounters::*what) { return Sum(what, 0, kSsds); }
  uint64_t LogSum(uint64_t DeviceCounters::*what) { return Sum(what, kSsds, kSsds + kLogs); }
  Traffic Since() {
    Traffic now = test_.array->GetStatus().traffic;
    now.ssd_data_bytes -= traffic_.ssd_data_bytes;
    now.ssd_metadata_bytes -= traffic_.ssd_metadata_bytes;
    now.log_header_bytes -= traffic_.log_header_bytes;
    now.log_chunk_bytes -= traffic_.log_chunk_bytes;
    now.log_appends -= traffic_.log_appends;
    now.user_flushes -= traffic_.user_flushes;
    return now;
  }

  TestArray test_;
  VolumeId volume_;
  Geometry g_;
  Buffer block_ = test_.pool.GetZeroed(kChunk);
  Traffic traffic_;
};

TEST_P(FlushCost, ALoneUpdateWritesItsChunkAndAnEntryAndItsFlushARingBlock) {
  std::vector<uint64_t> rings_on(kSsds);
  for (uint64_t chunk = 0; chunk < 24; ++chunk) {
    SCOPED_TRACE(chunk);
    Settle();
    ASSERT_TRUE(WriteChunk(chunk).ok());
    const uint32_t ssd = g_.SsdOf(ChunkIndex(chunk)).value;
    for (uint32_t i = 0; i < kSsds + kLogs; ++i) {
      const DeviceCounters& counters = test_.counter(i).counters();
      EXPECT_EQ(counters.bytes_written, i >= kSsds ? 2 * kChunk : i == ssd ? kChunk : 0) << i;
      EXPECT_EQ(counters.writes, i >= kSsds || i == ssd ? 1U : 0U) << i;
      EXPECT_EQ(counters.flushes, 0U) << i;
    }
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, 2 * kChunk);
    ASSERT_TRUE(Flush(chunk).ok());
    EXPECT_EQ(SsdSum(&DeviceCounters::bytes_written), full() ? 2 * kChunk : kChunk);
    EXPECT_EQ(LogSum(&DeviceCounters::bytes_written), kLogs * 2 * kChunk);
    uint64_t rings = 0;
    for (uint32_t i = 0; i < kSsds; ++i) {
      const DeviceCounters& counters = test_.counter(i).counters();
      const bool ring = counters.writes > (i == ssd ? 1U : 0U);
      rings += ring ? 1 : 0;
      rings_on[i] += ring ? 1 : 0;
      EXPECT_EQ(counters.flushes, i == ssd || ring ? 1U : 0U) << i;
    }
    EXPECT_EQ(rings, full() ? 1U : 0U);
    EXPECT_EQ(LogSum(&DeviceCounters::flushes), kLogs);
    EXPECT_EQ(SsdSum(&DeviceCounters::reads) + LogSum(&DeviceCounters::reads), 0U);
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, full() ? 0 : 2 * kChunk);
    const Traffic since = Since();
    EXPECT_EQ(since.ssd_data_bytes, kChunk);
    EXPECT_EQ(since.ssd_metadata_bytes, full() ? kChunk : 0);
    EXPECT_EQ(since.log_header_bytes, kLogs * kChunk);
    EXPECT_EQ(since.log_chunk_bytes, kLogs * kChunk);
    EXPECT_EQ(since.log_appends, 1U);
    EXPECT_EQ(since.user_flushes, 1U);
    // Again it costs nothing.
    ASSERT_TRUE(Flush(chunk).ok());
    ASSERT_TRUE(Flush(0, kStripes * 4).ok());
    EXPECT_EQ(LogSum(&DeviceCounters::flushes), kLogs);
  }
  EXPECT_EQ(rings_on, std::vector<uint64_t>(kSsds, full() ? 24 / kSsds : 0)) << "each in its turn";
}

// A hundred at once: one round of device flushes for all of them, and what their headers take.
TEST_P(FlushCost, ManyShareOne) {
  TaskGroup writes(test_.loop);
  for (uint64_t chunk = 0; chunk < 100; ++chunk) {
    writes.Start(test_.array->Write(volume_, chunk * kChunk, std::span(block_.data(), kChunk)));
  }
  ASSERT_TRUE(RunTask(test_.loop, writes.Wait()).ok());
  TaskGroup flushes(test_.loop);
  for (uint64_t chunk = 0; chunk < 100; ++chunk) {
    flushes.Start(test_.array->Flush(volume_, chunk * kChunk, kChunk));
  }
  ASSERT_TRUE(RunTask(test_.loop, flushes.Wait()).ok());
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), kLogs);
  EXPECT_LE(SsdSum(&DeviceCounters::flushes), kSsds);
  EXPECT_LE(Since().ssd_metadata_bytes, 3 * kChunk);
  // Those that come while one is at work share the next.
  ASSERT_TRUE(WriteChunk(7).ok());
  TaskGroup more(test_.loop);
  more.Start(test_.array->Flush(volume_, 0, kStripes * kStripe));
  test_.Sleep(1000);
  for (uint64_t chunk = 30; chunk < 60; ++chunk) {
    ASSERT_TRUE(WriteChunk(chunk).ok());
    more.Start(test_.array->Flush(volume_, chunk * kChunk, kChunk));
    if (chunk == 32) {
      test_.Sleep(100);
    }
  }
  ASSERT_TRUE(RunTask(test_.loop, more.Wait()).ok());
  EXPECT_LE(LogSum(&DeviceCounters::flushes), 5 * kLogs);
  EXPECT_EQ(Since().user_flushes, 131U);
}

// A flush goes up to the newest entry that wrote to its range, and leaves alone what came later.
TEST_P(FlushCost, GoesAsFarAsItsRangeNeeds) {
  const uint64_t extent_chunks = g_.extent_data_bytes() / kChunk;
  ASSERT_TRUE(WriteChunk(0).ok());
  ASSERT_TRUE(WriteChunk(10 * extent_chunks).ok());
  ASSERT_TRUE(Flush(0).ok());
  ASSERT_TRUE(Flush(5 * extent_chunks).ok()) << "nothing was written there";
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), kLogs);
  if (full()) {
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, 2 * kChunk) << "of the other one";
  }
  ASSERT_TRUE(Flush(10 * extent_chunks).ok());
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), 2 * kLogs);
  // Trims and whole stripes are writes, too.
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Trim(volume_, 20 * extent_chunks * kChunk, kChunk,
                                                    TrimMode::kZero))
                  .ok());
  ASSERT_TRUE(Flush(20 * extent_chunks).ok());
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), 3 * kLogs);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Trim(volume_, 24 * extent_chunks * kChunk, kStripe,
                                                    TrimMode::kZero))
                  .ok());
  ASSERT_TRUE(Flush(24 * extent_chunks).ok());
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), 4 * kLogs);
  const Buffer whole = test_.pool.GetZeroed(kStripe);
  ASSERT_TRUE(test_.Write(volume_, 28 * extent_chunks * kChunk, whole.span()).ok());
  ASSERT_TRUE(Flush(28 * extent_chunks).ok());
  EXPECT_EQ(LogSum(&DeviceCounters::flushes), 5 * kLogs);
}

// Nothing stays unstable for longer than five seconds, and not much shorter either; an idle array
// falls silent then.
TEST_P(FlushCost, TheArrayFlushesByItselfAfterFiveSeconds) {
  for (int round = 0; round < 3; ++round) {
    Settle();
    ASSERT_TRUE(WriteChunk(static_cast<uint64_t>(round) * 11).ok());
    test_.Sleep(2 * kSecond);
    ASSERT_TRUE(WriteChunk(static_cast<uint64_t>(round) * 11 + 5).ok());
    test_.Sleep(2 * kSecond + kSecond * 9 / 10);
    EXPECT_EQ(LogSum(&DeviceCounters::flushes), 0U);
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, 4 * kChunk);
    EXPECT_EQ(test_.array->GetStatus().state, ArrayState::kActive);
    test_.Sleep(kSecond / 5);
    EXPECT_EQ(test_.array->GetStatus().unstable_bytes, 0U) << "both: the older one is of age";
    EXPECT_EQ(LogSum(&DeviceCounters::flushes), kLogs);
    EXPECT_EQ(Since().ssd_metadata_bytes, kChunk) << "both headers in one block";
  }
  Settle();
  test_.Sleep(1000 * kSecond);
  EXPECT_EQ(SsdSum(&DeviceCounters::writes) + LogSum(&DeviceCounters::writes), 0U);
  EXPECT_EQ(SsdSum(&DeviceCounters::flushes) + LogSum(&DeviceCounters::flushes), 0U);
}

// A mark is appended when a freed slot waits for it, once, and lets go of it.
TEST_P(FlushCost, MarksComeWhenSomebodyGainsAndThenNoMore) {
  const uint64_t used = test_.array->GetStatus().slots_used;
  // A whole stripe written again frees its old slots.
  const Buffer whole = test_.pool.GetZeroed(kStripe);
  ASSERT_TRUE(test_.Write(volume_, 0, whole.span()).ok());
  EXPECT_EQ(test_.array->GetStatus().slots_used, used + kSsds);
  test_.Sleep(11 * kSecond);
  EXPECT_EQ(test_.array->GetStatus().slots_used, used) << "freed, stable, and known to be";
  EXPECT_EQ(Since().log_appends, 2U) << "it, and a mark";
  test_.Sleep(100 * kSecond);
  EXPECT_EQ(Since().log_appends, 2U);
  // Where nothing was freed there is none.
  Settle();
  ASSERT_TRUE(WriteChunk(50).ok());
  test_.Sleep(100 * kSecond);
  EXPECT_EQ(Since().log_appends, 1U);
}

INSTANTIATE_TEST_SUITE_P(Modes, FlushCost, ::testing::Values(JournalMode::kFull, JournalMode::kLog),
                         [](const auto& param) {
                           return std::string(JournalModeName(param.param));
                         });

}  // namespace
}  // namespace eplog
