// When parity is committed and checkpoints are written without anybody asking, and that it leaves
// the foreground its share of the devices.

#include <algorithm>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

class Trigger : public ::testing::Test {
 protected:
  void Make(const CommitTriggers& commit, const CheckpointTriggers& checkpoint = {}) {
    ArrayShape shape;
    shape.commit = commit;
    shape.checkpoint = checkpoint;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 8 << 20);
    const std::vector<std::byte> data(6 * kChunk * 40, std::byte{3});
    ASSERT_TRUE(test_->Write(volume_, 0, data).ok());
  }
  void Update(uint64_t chunk) {
    const std::vector<std::byte> data(kChunk, static_cast<std::byte>(chunk));
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, data).ok());
  }
  void Sleep(uint64_t us) { test_->Sleep(us); }
  ArrayStatus Now() { return test_->array->GetStatus(); }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
};

TEST_F(Trigger, EverySoManyWrites) {
  Make({.every_writes = 10});
  for (uint64_t chunk = 1; chunk <= 9; ++chunk) {
    Update(7 * chunk);
    Sleep(1000);
  }
  // With the one that filled the volume that makes ten.
  Sleep(100'000);
  EXPECT_EQ(Now().pending_chunks, 0U);
  EXPECT_EQ(Now().traffic.committed_stripes, 9U);
  Update(1);
  Sleep(10'000'000);
  EXPECT_EQ(Now().pending_chunks, 1U);
}

TEST_F(Trigger, AfterIdleTime) {
  Make({.idle_us = 2'000'000});
  for (int i = 0; i < 8; ++i) {
    Update(13);
    Sleep(1'000'000);
  }
  EXPECT_EQ(Now().pending_chunks, 1U) << "it was never idle for so long";
  Sleep(1'500'000);
  EXPECT_EQ(Now().pending_chunks, 0U);
  EXPECT_EQ(Now().traffic.committed_stripes, 1U) << "eight updates, one commit";
}

TEST_F(Trigger, WhenTheOldestIsOfAge) {
  Make({.age_us = 3'000'000});
  Update(13);
  Sleep(2'000'000);
  Update(50);
  Sleep(1'200'000);
  EXPECT_EQ(Now().pending_chunks, 1U) << "the older of the two";
  EXPECT_LT(Now().oldest_pending_seconds, 1.5);
  Sleep(2'000'000);
  EXPECT_EQ(Now().pending_chunks, 0U);
}

TEST_F(Trigger, AtClosing) {
  Make({.on_close = true});
  Update(13);
  ASSERT_TRUE(test_->Close().ok());
  test_->Open(true);
  EXPECT_EQ(Now().pending_chunks, 0U);
}

TEST_F(Trigger, NoneLeavesThemPending) {
  Make({});
  Update(13);
  Sleep(1'000'000'000);
  EXPECT_EQ(Now().pending_chunks, 1U);
  ASSERT_TRUE(test_->Close().ok());
  test_->Open();
  EXPECT_EQ(Now().pending_chunks, 1U);
}

TEST_F(Trigger, CheckpointsBoundWhatRecoveryReads) {
  Make({}, {.log_bytes = 1 << 20, .interval_us = 0});
  for (uint64_t i = 0; i < 600; ++i) {  // two blocks each
    Update(i * 7 % 240);
    Sleep(100);
  }
  Sleep(1000);
  EXPECT_GE(Now().traffic.checkpoints, 4U);
  test_->Kill();
  test_->Open();
  EXPECT_LE(Now().recovery_entries_replayed, 140U);
}

TEST_F(Trigger, CheckpointsComeByTimeAndStopWhenNothingHappens) {
  Make({}, {.log_bytes = 0, .interval_us = 60'000'000});
  Update(13);
  Sleep(61'000'000);
  EXPECT_EQ(Now().traffic.checkpoints, 1U);
  Sleep(1'000'000'000);
  EXPECT_EQ(Now().traffic.checkpoints, 1U);
}

// ---- what commits in the background cost the foreground

// Updates at a steady rate over devices that serve so many requests at once; latencies in
// microseconds.
struct Latencies {
  std::vector<uint64_t> us;
  uint64_t committed = 0;
  [[nodiscard]] uint64_t Quantile(double q) {
    std::sort(us.begin(), us.end());
    return us[static_cast<size_t>(static_cast<double>(us.size() - 1) * q)];
  }
};

Task<void> OneUpdate(TestArray& test, VolumeId volume, uint64_t chunk, Latencies& out) {
  const uint64_t start = test.loop.NowUs();
  const Buffer block = test.pool.GetZeroed(kChunk);
  Task<Status> write = test.array->Write(volume, chunk * kChunk, block.span());
  const Status status = co_await write;
  EXPECT_TRUE(status.ok());
  out.us.push_back(test.loop.NowUs() - start);
}

Task<Status> SteadyUpdates(TestArray& test, VolumeId volume, uint64_t chunks, uint64_t count,
                           uint64_t every_us, Latencies& out) {
  Random random(5);
  for (uint64_t i = 0; i < count; ++i) {
    test.loop.Spawn(OneUpdate(test, volume, random.Below(chunks), out));
    co_await test.loop.Sleep(every_us);
  }
  while (out.us.size() < count) {
    co_await test.loop.Sleep(1000);
  }
  co_return OkStatus();
}

Latencies MeasureUpdates(uint64_t log_bytes) {
  ArrayShape shape;
  shape.ssd_bytes = uint64_t{96} << 20;
  shape.log_bytes = log_bytes;
  shape.ssd_delays = {.read_us = 90, .write_us = 30, .flush_us = 300, .channels = 4};
  shape.log_delays = {.read_us = 100, .write_us = 60, .flush_us = 2000, .channels = 8};
  TestArray test(shape);
  constexpr uint64_t kChunks = 60'000;
  const VolumeId volume = test.CreateVolume("v", kChunks * kChunk);
  const std::vector<std::byte> stripe(6 * kChunk, std::byte{1});
  for (uint64_t at = 0; at < kChunks; at += 6) {
    EXPECT_TRUE(test.Write(volume, at * kChunk, stripe).ok());
  }
  Latencies latencies;
  const Status done =
      RunTask(test.loop, SteadyUpdates(test, volume, kChunks, 40'000, 150, latencies));
  EXPECT_TRUE(done.ok());
  latencies.committed = test.array->GetStatus().traffic.committed_stripes;
  return latencies;
}

TEST(Pacing, CommitsLeaveTheForegroundItsLatency) {
  Latencies without = MeasureUpdates(uint64_t{1} << 30);
  Latencies with = MeasureUpdates(uint64_t{48} << 20);
  EXPECT_EQ(without.committed, 0U);
  EXPECT_GT(with.committed, 5000U);
  EXPECT_LE(with.Quantile(0.99), 2 * without.Quantile(0.99));
  std::printf(
      "without commits p50 %llu p99 %llu p99.9 %llu us; with %llu stripes committed p50 %llu "
      "p99 %llu p99.9 %llu us\n",
      static_cast<unsigned long long>(without.Quantile(0.5)),
      static_cast<unsigned long long>(without.Quantile(0.99)),
      static_cast<unsigned long long>(without.Quantile(0.999)),
      static_cast<unsigned long long>(with.committed),
      static_cast<unsigned long long>(with.Quantile(0.5)),
      static_cast<unsigned long long>(with.Quantile(0.99)),
      static_cast<unsigned long long>(with.Quantile(0.999)));
}

}  // namespace
}  // namespace eplog
