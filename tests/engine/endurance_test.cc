// A day on an array that is almost full, with the smallest log; and an hour of rewriting a hot set
// with no commit at all. Virtual clock, latencies of real devices.

#include <malloc.h>

#include <algorithm>

#include "layout/geometry.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kSecond = 1'000'000;
constexpr uint64_t kHour = 3600 * kSecond;

// Random requests on one volume until the time is up: writes of all sizes, trims, flushes, reads.
// Each ends; the longest is remembered.
struct MixedLoad {
  MixedLoad(TestArray& test, VolumeId volume, uint64_t size, uint64_t until_us)
      : array(test), id(volume), bytes(size), until(until_us) {}

  TestArray& array;
  VolumeId id;
  uint64_t bytes;
  uint64_t until;
  Random random{11};
  uint64_t running = 0;
  uint64_t requests = 0;
  uint64_t longest_us = 0;
  Status failure;

  Task<Status> One(Buffer& buffer) {
    const uint64_t draw = random.Below(100);
    const uint64_t at = random.Below(bytes / 4096) * 4096;
    const uint64_t length = std::min<uint64_t>(bytes - at, 4096 * (1 + random.Below(4)));
    if (draw < 70) {
      Task<Status> write = array.array->Write(id, at, buffer.span().first(length));
      co_return co_await write;
    }
    if (draw < 75) {
      const uint64_t most = std::min<uint64_t>(bytes - at, buffer.size());
      Task<Status> write = array.array->Write(id, at, buffer.span().first(most));
      co_return co_await write;
    }
    if (draw < 80) {
      // Written again at once: the array stays as full as it was.
      Task<Status> trim = array.array->Trim(id, at, length, TrimMode::kZero);
      Status trimmed = co_await trim;
      EPLOG_CO_TRY(trimmed);
      Task<Status> write = array.array->Write(id, at, buffer.span().first(length));
      co_return co_await write;
    }
    if (draw < 90) {
      Task<Status> flush = array.array->Flush(id, at, length);
      co_return co_await flush;
    }
    Task<Status> read = array.array->Read(id, at, buffer.span().first(length));
    co_return co_await read;
  }
  // In bursts, with pauses between them.
  Task<void> Work() {
    Buffer buffer = array.pool.GetZeroed(uint64_t{128} << 10);
    while (array.loop.NowUs() < until && failure.ok()) {
      const uint64_t begin = array.loop.NowUs();
      Task<Status> one = One(buffer);
      const Status status = co_await one;
      longest_us = std::max(longest_us, array.loop.NowUs() - begin);
      ++requests;
      if (!status.ok() && failure.ok()) {
        failure = status;
      }
      if (random.OneIn(20)) {
        co_await array.loop.Sleep(random.Below(60 * kSecond));
      }
    }
    --running;
  }
  bool Run(uint64_t workers) {
    for (uint64_t i = 0; i < workers; ++i) {
      ++running;
      array.loop.Spawn(Work());
    }
    return array.loop.RunUntil([this] {
      return running == 0 || array.loop.NowUs() > until + kHour;
    }) && running == 0;
  }
};

class AlmostFull : public ::testing::TestWithParam<BufferSizes> {};

TEST_P(AlmostFull, ADayWithTheSmallestLogHasNoStallAndNoGrowth) {
  ArrayShape shape;
  shape.n = 5;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{16} << 20;
  shape.log_bytes = MinLogBytes(4096);
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  shape.buffers = GetParam();
  TestArray test(shape);
  const uint64_t capacity = test.array->GetStatus().capacity_bytes;
  const uint64_t size = capacity * 98 / 100;
  const VolumeId volume = test.CreateVolume("v", size);
  const std::vector<std::byte> data(uint64_t{64} << 10, std::byte{5});
  for (uint64_t at = 0; at < size; at += data.size()) {
    const uint64_t length = std::min<uint64_t>(size - at, data.size());
    ASSERT_TRUE(test.Write(volume, at, std::span(data).first(length)).ok());
  }
  EXPECT_GE(test.array->GetStatus().allocated_bytes * 100, capacity * 97);
  uint64_t longest = 0;
  uint64_t requests = 0;
  std::vector<size_t> heap;
  for (int hours = 0; hours < 24; hours += 2) {
    MixedLoad load(test, volume, size, test.loop.NowUs() + 2 * kHour);
    ASSERT_TRUE(load.Run(8)) << "a request never ends";
    ASSERT_TRUE(load.failure.ok()) << load.failure.error().ToString();
    longest = std::max(longest, load.longest_us);
    requests += load.requests;
    heap.push_back(mallinfo2().uordblks);
  }
  const Traffic traffic = test.array->GetStatus().traffic;
  // Pools and tables have their size by then.
  const size_t settled = heap[2];
  std::printf(
      "24 h, %llu requests, longest %.3f s, %llu commits, %llu checkpoints, heap %.3f MiB "
      "after 6 h, %.3f MiB after 24 h\n",
      static_cast<unsigned long long>(requests), static_cast<double>(longest) / 1e6,
      static_cast<unsigned long long>(traffic.commits),
      static_cast<unsigned long long>(traffic.checkpoints),
      static_cast<double>(settled) / (1 << 20), static_cast<double>(heap.back()) / (1 << 20));
  EXPECT_LE(longest, kSecond);
  EXPECT_LE(heap.back(), settled + settled / 100) << "memory grows";
  const auto report = RunTask(test.loop, test.array->Check({}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
}

INSTANTIATE_TEST_SUITE_P(Buffers, AlmostFull,
                         ::testing::Values(BufferSizes{},
                                           BufferSizes{.device_chunks = 16, .stripes = 4}));

// Early death alone bounds the log: with commits off, an hour of rewriting 64 chunks never needs
// more than what these and the entries since the last checkpoint take.
TEST(HotSet, RewrittenForAnHourKeepsTheLogBoundedByEarlyDeath) {
  ArrayShape shape;
  shape.auto_commit = false;
  shape.log_bytes = uint64_t{8} << 20;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  TestArray test(shape);
  const VolumeId volume = test.CreateVolume("v", 8 << 20);
  const std::vector<std::byte> stripe(6 * 4096 * 64, std::byte{1});
  ASSERT_TRUE(test.Write(volume, 0, stripe).ok());
  Random random(3);
  uint64_t most = 0;
  const Status done = RunTask(
      test.loop, [](TestArray& array, VolumeId id, Random& draw, uint64_t& peak) -> Task<Status> {
        Buffer block = array.pool.GetZeroed(4096);
        const uint64_t until = array.loop.NowUs() + kHour;
        for (uint64_t i = 0; array.loop.NowUs() < until; ++i) {
          std::memcpy(block.data(), &i, sizeof i);
          Task<Status> write = array.array->Write(id, draw.Below(64) * 5 * 4096, block.span());
          Status status = co_await write;
          EPLOG_CO_TRY(status);
          if (i % 16 == 0) {
            peak = std::max(peak, array.array->GetStatus().log_used_bytes);
          }
          co_await array.loop.Sleep(20'000);
        }
        co_return OkStatus();
      }(test, volume, random, most));
  ASSERT_TRUE(done.ok()) << done.error().ToString();
  const ArrayStatus status = test.array->GetStatus();
  std::printf(
      "%llu writes, %llu log stripes, %llu dead early, %llu committed, %llu checkpoints, log "
      "at most %llu of %llu KiB\n",
      static_cast<unsigned long long>(status.traffic.user_writes),
      static_cast<unsigned long long>(status.traffic.log_stripes),
      static_cast<unsigned long long>(status.traffic.log_stripes_dead_early),
      static_cast<unsigned long long>(status.traffic.committed_stripes),
      static_cast<unsigned long long>(status.traffic.checkpoints),
      static_cast<unsigned long long>(most >> 10),
      static_cast<unsigned long long>(status.log_size_bytes >> 10));
  EXPECT_GT(status.traffic.user_writes, 170'000U);
  EXPECT_EQ(status.traffic.committed_stripes, 0U);
  EXPECT_LE(status.pending_chunks, 64U);
  EXPECT_GE(status.traffic.log_stripes_dead_early + 64, status.traffic.log_stripes);
  EXPECT_LE(most, status.log_size_bytes);
}

}  // namespace
}  // namespace eplog
