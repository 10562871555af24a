// Group commit (section 6): what leaves when in which entry, how much may be on its way or
// unstable, and how few requests it takes.

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/task_group.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kEntryUs = 10'000;  // that an entry is on its way

class GroupCommit : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m) {
    ArrayShape shape;
    shape.n = n;
    shape.m = m;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.auto_commit = false;
    test_ = std::make_unique<TestArray>(shape);
    g_ = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    volume_ = test_->CreateVolume("v", kStripes * g_.stripe_data_bytes());
    const std::vector<std::byte> data(kStripes * g_.stripe_data_bytes(), std::byte{1});
    ASSERT_TRUE(test_->Write(volume_, 0, data).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    for (uint32_t j = 0; j < m; ++j) {
      test_->delayed(n + j).set_delays({.write_us = kEntryUs});
    }
    group_ = std::make_unique<TaskGroup>(test_->loop);
    log_writes_ = LogWrites();
  }
  void TearDown() override {
    if (group_) {
      Drain();
    }
  }
  void Drain() {
    EXPECT_TRUE(RunTask(test_->loop, group_->Wait()).ok());
    static_cast<void>(NewEntries());
  }
  // Four entries on their way.
  void FillFlight() {
    for (int entry = 0; entry < 4; ++entry) {
      uint32_t ssd = 0;
      do {
        WriteOn(ssd++);
      } while (NewEntries() == 0);
    }
  }
  uint64_t LogWrites() { return test_->counter(g_.n).counters().writes; }
  // Since the last time.
  uint64_t NewEntries() { return LogWrites() - std::exchange(log_writes_, LogWrites()); }
  // A chunk on that SSD that is on its way nowhere.
  void WriteOn(uint32_t ssd) {
    while (g_.SsdOf(ChunkIndex(next_[ssd])).value != ssd) {
      ++next_[ssd];
    }
    group_->Start(test_->array->Write(volume_, next_[ssd]++ * kChunk, block_.span()));
    test_->Sleep(1);
  }
  Traffic Now() { return test_->array->GetStatus().traffic; }

  static constexpr uint64_t kStripes = 200;
  std::unique_ptr<TestArray> test_;
  Geometry g_;
  VolumeId volume_;
  std::unique_ptr<TaskGroup> group_;
  BufferPool pool_;
  Buffer block_ = pool_.GetZeroed(kChunk);
  std::map<uint32_t, uint64_t> next_;
  uint64_t log_writes_ = 0;
};

// With 0, 1, 2, 3 entries on their way a log stripe leaves with 1, n/2, 3n/4, n-1 members; with
// four it waits until one of them has ended.
TEST_F(GroupCommit, NarrowLogStripesWaitForCompanyWhileEntriesAreOnTheirWay) {
  for (const uint32_t n : {4U, 7U, 8U, 13U}) {
    Make(n, 2);
    const std::array<uint32_t, 4> least = {1, (n + 1) / 2, 3 * n / 4, n - 1};
    for (uint32_t in_flight = 0; in_flight < least.size(); ++in_flight) {
      SCOPED_TRACE(std::to_string(n) + " SSDs, " + std::to_string(in_flight) + " on their way");
      const Traffic before = Now();
      uint64_t members = 0;
      for (uint32_t entry = 0; entry < in_flight; ++entry) {
        for (uint32_t ssd = 0; ssd < least[entry]; ++ssd) {
          WriteOn(ssd);
          ++members;
        }
        ASSERT_EQ(NewEntries(), 1U);
      }
      for (uint32_t ssd = 0; ssd + 1 < least[in_flight]; ++ssd) {
        // Two on an SSD are no wider than one.
        WriteOn(ssd);
        WriteOn(ssd);
        members += 2;
        ASSERT_EQ(NewEntries(), 0U) << "with " << ssd + 1 << " members";
      }
      WriteOn(n - 1);
      ++members;
      ASSERT_EQ(NewEntries(), 1U);
      Drain();
      const Traffic after = Now();
      EXPECT_EQ(after.log_stripe_members - before.log_stripe_members, members);
      EXPECT_EQ(after.log_stripes - before.log_stripes, after.log_appends - before.log_appends);
    }
  }
}

TEST_F(GroupCommit, FourEntriesAreOnTheirWayAndWhatCameMeanwhileLeavesTogether) {
  Make(8, 2);
  FillFlight();
  // Twice as many on each SSD, and whole stripes: they wait, and then share one entry.
  for (uint32_t ssd = 0; ssd < 8; ++ssd) {
    WriteOn(ssd);
    WriteOn(ssd);
  }
  const Buffer whole = pool_.GetZeroed(g_.stripe_data_bytes());
  for (uint64_t stripe = 150; stripe < 153; ++stripe) {
    group_->Start(test_->array->Write(volume_, stripe * whole.size(), whole.span()));
    test_->Sleep(1);
  }
  EXPECT_EQ(NewEntries(), 0U);
  const Traffic before = Now();
  Drain();
  const Traffic after = Now();
  EXPECT_EQ(after.log_appends - before.log_appends, 5U) << "four, and one more";
  EXPECT_EQ(after.log_stripes - before.log_stripes, 4 + 2U);
  EXPECT_EQ(after.full_stripe_writes - before.full_stripe_writes, 3U);
}

// Records wait for nobody, and take along what is there.
TEST_F(GroupCommit, ARecordTakesANarrowLogStripeAlong) {
  Make(8, 2);
  WriteOn(0);
  EXPECT_EQ(NewEntries(), 1U);
  WriteOn(1);
  EXPECT_EQ(NewEntries(), 0U);
  const Buffer whole = pool_.GetZeroed(g_.stripe_data_bytes());
  group_->Start(test_->array->Write(volume_, 150 * whole.size(), whole.span()));
  test_->Sleep(1);
  EXPECT_EQ(NewEntries(), 1U);
  const Traffic before = Now();
  Drain();
  EXPECT_EQ(Now().log_stripes - before.log_stripes, 2U);
  EXPECT_EQ(Now().log_appends - before.log_appends, 2U);
}

// Nobody waits for a timer: the completion of an entry looks again, however narrow it is.
TEST_F(GroupCommit, ALoneWriterIsNotDelayedLongerThanAnEntry) {
  Make(8, 2);
  for (int i = 0; i < 20; ++i) {
    const uint64_t begin_us = test_->loop.NowUs();
    ASSERT_TRUE(test_->Write(volume_, static_cast<uint64_t>(i) * kChunk, block_.span()).ok());
    EXPECT_EQ(test_->loop.NowUs() - begin_us, kEntryUs);
  }
  WriteOn(0);
  WriteOn(1);
  const uint64_t begin_us = test_->loop.NowUs();
  Drain();
  EXPECT_LE(test_->loop.NowUs() - begin_us, 2 * kEntryUs);
}

// Neighbours on an SSD go in one request of up to 1 MiB, parity and data alike.
TEST(Merging, WholeStripesAreWrittenInRequestsOfAMebibyte) {
  ArrayShape shape;
  shape.n = 5;
  shape.m = 1;
  shape.chunk_bytes = 65'536;
  shape.ssd_bytes = uint64_t{96} << 20;
  shape.reserve_percent = 50;
  TestArray test(shape);
  const uint64_t size = uint64_t{256} * 4 * 65'536;
  const VolumeId volume = test.CreateVolume("v", size);
  const Buffer data = test.pool.GetZeroed(size);
  // Once its extents are there, the stripes of a request come all at once.
  ASSERT_TRUE(test.Write(volume, 0, data.span()).ok());
  const Traffic before = test.array->GetStatus().traffic;
  for (uint32_t i = 0; i < 5; ++i) {
    test.counter(i).Reset();
  }
  ASSERT_TRUE(test.Write(volume, 0, data.span()).ok());
  for (uint32_t i = 0; i < 5; ++i) {
    const DeviceCounters& counters = test.counter(i).counters();
    EXPECT_GE(counters.writes_by_size[20], 8U) << i;
    EXPECT_EQ(std::accumulate(counters.writes_by_size.begin() + 21, counters.writes_by_size.end(),
                              uint64_t{0}),
              0U)
        << i;
    EXPECT_GE(counters.MeanWriteBytes(), 524'288) << i;
  }
  const Traffic after = test.array->GetStatus().traffic;
  EXPECT_EQ(after.ssd_data_bytes - before.ssd_data_bytes, size);
  EXPECT_EQ(after.ssd_parity_bytes - before.ssd_parity_bytes, size / 4);
}

// What is not stable is bounded, also where a flush does not come to an end: at 64 MiB of log
// appends wait for it.
TEST(Unstable, IsNeverMoreThanTheLimit) {
  constexpr uint64_t kMebibyte = uint64_t{1} << 20;
  ArrayShape shape;
  shape.n = 3;
  shape.m = 1;
  shape.chunk_bytes = kMebibyte;
  shape.ssd_bytes = 300 * kMebibyte;
  shape.log_bytes = 300 * kMebibyte;
  TestArray test(shape);
  const VolumeId volume = test.CreateVolume("v", 240 * kMebibyte);
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  test.delayed(3).set_delays({.flush_us = 4'000'000});
  const Buffer data = test.pool.GetZeroed(kMebibyte);
  TaskGroup group(test.loop);
  uint64_t done = 0;
  const auto write = [&test, &done, volume](uint64_t at,
                                            std::span<const std::byte> bytes) -> Task<Status> {
    Task<Status> writing = test.array->Write(volume, at, bytes);
    const Status status = co_await writing;
    ++done;
    co_return status;
  };
  // One after the other: a log stripe each.
  constexpr uint64_t kBegun = 80;
  uint64_t unstable = 0;
  for (uint64_t i = 0; i < kBegun; ++i) {
    group.Start(write(2 * i * kMebibyte, data.span()));
    test.Sleep(10);
    const uint64_t now = test.array->GetStatus().unstable_bytes;
    EXPECT_EQ(now == unstable, unstable >= 64 * kMebibyte) << i;
    unstable = now;
  }
  EXPECT_GE(unstable, 64 * kMebibyte);
  EXPECT_LE(unstable, 65 * kMebibyte + 2 * 4096);
  EXPECT_EQ(done, 64U);
  EXPECT_TRUE(RunTask(test.loop, group.Wait()).ok());
  EXPECT_EQ(done, kBegun);
  test.delayed(3).set_delays({});
}

}  // namespace
}  // namespace eplog
