// Exact traffic: what reaches the devices, to the byte, and that the array's own counters say the
// same.

#include <algorithm>
#include <numeric>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

struct Totals {
  uint64_t ssd_written = 0;
  uint64_t ssd_read = 0;
  uint64_t ssd_writes = 0;
  uint64_t log_written = 0;
};

Totals Count(TestArray& test, uint32_t n, uint32_t m) {
  Totals totals;
  for (uint32_t i = 0; i < n + m; ++i) {
    const auto& counters = test.counter(i).counters();
    if (i < n) {
      totals.ssd_written += counters.bytes_written;
      totals.ssd_read += counters.bytes_read;
      totals.ssd_writes += counters.writes;
    } else {
      totals.log_written += counters.bytes_written;
    }
  }
  return totals;
}

// The byte classes add up to what the devices counted.
void ExpectClassesAddUp(TestArray& test, uint32_t n, uint32_t m) {
  const Traffic t = test.array->GetStatus().traffic;
  uint64_t ssd = 0;
  uint64_t log = 0;
  for (const DeviceStatus& device : test.array->GetStatus().devices) {
    (device.role == DeviceRole::kSsd ? ssd : log) += device.bytes_written;
  }
  EXPECT_EQ(t.ssd_data_bytes + t.ssd_parity_bytes + t.ssd_metadata_bytes + t.ssd_repair_bytes, ssd);
  EXPECT_EQ(t.log_chunk_bytes + t.log_header_bytes, log);
  const Totals counted = Count(test, n, m);
  EXPECT_EQ(counted.ssd_written, ssd);
  EXPECT_EQ(counted.log_written, log);
}

void ResetCounters(TestArray& test, uint32_t devices) {
  for (uint32_t i = 0; i < devices; ++i) {
    test.counter(i).Reset();
  }
}

// Random requests; whoever asks between any two steps gets counters that agree with the devices.
Task<void> Scribble(TestArray& test, VolumeId volume, uint64_t size, Random& random,
                    uint64_t& running) {
  Buffer data = test.pool.GetZeroed(uint64_t{96} << 10);
  for (int i = 0; i < 60; ++i) {
    const uint64_t length = 1 + random.Below(random.OneIn(4) ? data.size() : 9000);
    const uint64_t at = random.Below(size - length);
    if (random.OneIn(8)) {
      Task<Status> trim = test.array->Trim(volume, at, length, TrimMode::kPunch);
      EXPECT_TRUE((co_await trim).ok());
    } else if (random.OneIn(10)) {
      Task<Status> flush = test.array->Flush(volume, at, length);
      EXPECT_TRUE((co_await flush).ok());
    } else if (random.OneIn(20)) {
      Task<Status> commit = test.array->Commit({});
      EXPECT_TRUE((co_await commit).ok());
    } else if (random.OneIn(20)) {
      Task<Status> checkpoint = test.array->Checkpoint(CheckpointKind::kAuto);
      EXPECT_TRUE((co_await checkpoint).ok());
    } else {
      Task<Status> write = test.array->Write(volume, at, data.span().first(length));
      EXPECT_TRUE((co_await write).ok());
    }
  }
  --running;
}

TEST(Traffic, ClassesAddUpAtEveryMomentAndLifetimesSurvive) {
  for (const uint32_t device_buffer : {0U, 8U}) {
    ArrayShape shape;
    shape.n = 6;
    shape.m = 2;
    shape.ssd_bytes = uint64_t{12} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.buffers = {.device_chunks = device_buffer, .stripes = device_buffer / 4};
    TestArray test(shape);
    const uint64_t size = uint64_t{4} << 20;
    const VolumeId volume = test.CreateVolume("v", size);
    Random random(device_buffer + 1);
    uint64_t running = 6;
    for (uint64_t i = 0; i < running; ++i) {
      test.loop.Spawn(Scribble(test, volume, size, random, running));
    }
    uint64_t moments = 0;
    const bool ended = test.loop.RunUntil([&] {
      ++moments;
      const ArrayStatus status = test.array->GetStatus();
      const Traffic& t = status.traffic;
      uint64_t ssd = 0;
      uint64_t log = 0;
      for (const DeviceStatus& device : status.devices) {
        (device.role == DeviceRole::kSsd ? ssd : log) += device.bytes_written;
      }
      EXPECT_EQ(t.ssd_data_bytes + t.ssd_parity_bytes + t.ssd_metadata_bytes + t.ssd_repair_bytes,
                ssd);
      EXPECT_EQ(t.log_chunk_bytes + t.log_header_bytes, log);
      EXPECT_EQ(status.pending_bytes, status.pending_chunks * 4096);
      return running == 0 || ::testing::Test::HasFailure();
    });
    ASSERT_TRUE(ended && running == 0);
    EXPECT_GT(moments, 300U);
    // Whatever goes on in the background ends.
    test.Sleep(10'000'000);
    // What a life has written is known to the next to the byte: the devices' own counts went on.
    const Traffic before = test.array->GetStatus().lifetime;
    const Totals counted = Count(test, 6, 2);
    ASSERT_TRUE(test.Close().ok());
    const Totals closed = Count(test, 6, 2);
    test.Open();
    const ArrayStatus after = test.array->GetStatus();
    const auto ssd_bytes = [](const Traffic& t) {
      return t.ssd_data_bytes + t.ssd_parity_bytes + t.ssd_metadata_bytes + t.ssd_repair_bytes;
    };
    EXPECT_EQ(ssd_bytes(after.lifetime) - ssd_bytes(after.traffic) - ssd_bytes(before),
              closed.ssd_written - counted.ssd_written);
    EXPECT_EQ(after.lifetime.log_chunk_bytes + after.lifetime.log_header_bytes -
                  after.traffic.log_chunk_bytes - after.traffic.log_header_bytes -
                  before.log_chunk_bytes - before.log_header_bytes,
              closed.log_written - counted.log_written);
    EXPECT_EQ(after.lifetime.user_writes, before.user_writes);
    EXPECT_EQ(after.lifetime.md_equivalent_ssd_bytes, before.md_equivalent_ssd_bytes);
    EXPECT_EQ(after.lifetime.user_bytes_trimmed, before.user_bytes_trimmed);
    EXPECT_GE(after.lifetime.checkpoints, before.checkpoints);
  }
}

constexpr uint64_t kUpdates = 20'000;
constexpr uint64_t kUpdateBytes = 4096;

Task<void> Updater(Array& array, VolumeId volume, uint64_t size, Random& random,
                   std::span<const std::byte> data, uint64_t& left, uint64_t& running) {
  while (left != 0) {
    --left;
    const uint64_t offset = random.Below(size / kUpdateBytes) * kUpdateBytes;
    Task<Status> write = array.Write(volume, offset, data);
    const Status status = co_await write;
    EXPECT_TRUE(status.ok());
  }
  --running;
}

class RandomUpdates : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomUpdates, WriteJustTheUsersChunksToTheSsdsAndReadNothing) {
  ArrayShape shape;
  shape.ssd_bytes = uint64_t{96} << 20;
  shape.log_bytes = uint64_t{512} << 20;
  shape.journal = JournalMode::kLog;
  shape.auto_commit = false;
  TestArray test(shape);
  constexpr uint64_t kSize = uint64_t{96} << 20;
  const VolumeId volume = test.CreateVolume("v", kSize);
  const Buffer block = test.pool.GetZeroed(24576 * 64);
  for (uint64_t offset = 0; offset < kSize; offset += block.size()) {
    ASSERT_TRUE(test.Write(volume, offset, block.span()).ok());
  }
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  // The counters of the array and of the devices start together.
  ASSERT_TRUE(test.Close().ok());
  ResetCounters(test, 10);
  test.Open();
  ExpectClassesAddUp(test, 8, 2);
  ResetCounters(test, 10);
  const Traffic before = test.array->GetStatus().traffic;

  Random random(11);
  uint64_t left = kUpdates;
  uint64_t running = GetParam();
  for (uint64_t i = 0; i < GetParam(); ++i) {
    test.loop.Spawn(Updater(*test.array, volume, kSize, random, block.span().first(kUpdateBytes),
                            left, running));
  }
  ASSERT_TRUE(test.loop.RunUntil([&] { return running == 0; }));
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());

  const Traffic after = test.array->GetStatus().traffic;
  const Totals totals = Count(test, 8, 2);
  const uint64_t metadata = after.ssd_metadata_bytes - before.ssd_metadata_bytes;
  EXPECT_EQ(after.ssd_data_bytes - before.ssd_data_bytes, 81'920'000U);
  EXPECT_EQ(after.ssd_parity_bytes - before.ssd_parity_bytes, 0U);
  EXPECT_EQ(totals.ssd_read, 0U);
  EXPECT_EQ(totals.ssd_written, 81'920'000U + metadata);
  EXPECT_LT(static_cast<double>(metadata), 0.03 * 81'920'000);
  EXPECT_EQ(after.commits, 0U);
  // Read-modify-write would have written the chunk and two parity chunks for each.
  EXPECT_EQ(after.md_equivalent_ssd_bytes - before.md_equivalent_ssd_bytes, kUpdates * 3 * 4096);
  const double members = static_cast<double>(after.log_stripe_members - before.log_stripe_members) /
                         static_cast<double>(after.log_stripes - before.log_stripes);
  RecordProperty("metadata_bytes", std::to_string(metadata));
  RecordProperty("members_a_log_stripe", std::to_string(members));
  std::printf("depth %lu: metadata %lu bytes (%.2f %%), %.2f members a log stripe, %lu log bytes\n",
              static_cast<unsigned long>(GetParam()), static_cast<unsigned long>(metadata),
              100.0 * static_cast<double>(metadata) / 81'920'000, members,
              static_cast<unsigned long>(totals.log_written));
  if (GetParam() == 32) {
    EXPECT_GE(members, 6.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, RandomUpdates, ::testing::Values(1U, 32U));

TEST(SequentialWrites, AreFullStripesInLargeRequests) {
  ArrayShape shape;
  shape.ssd_bytes = uint64_t{256} << 20;
  shape.auto_commit = false;
  TestArray test(shape);
  constexpr uint64_t kSize = uint64_t{1008} << 20;
  const VolumeId volume = test.CreateVolume("v", kSize);
  Buffer block = test.pool.Get(3 << 19);
  Random random(5);
  for (size_t i = 0; i < block.size(); i += 8) {
    const uint64_t word = random.Next();
    std::memcpy(block.data() + i, &word, 8);
  }
  ResetCounters(test, 10);
  const Traffic before = test.array->GetStatus().traffic;
  for (uint64_t offset = 0; offset < kSize; offset += block.size()) {
    ASSERT_TRUE(test.Write(volume, offset, block.span()).ok());
  }
  const Traffic after = test.array->GetStatus().traffic;
  const Totals totals = Count(test, 8, 2);
  EXPECT_EQ(after.ssd_data_bytes - before.ssd_data_bytes, kSize);
  EXPECT_EQ(after.ssd_parity_bytes - before.ssd_parity_bytes, kSize / 6 * 2);
  EXPECT_EQ(after.log_chunk_bytes, 0U);
  EXPECT_EQ(after.full_stripe_writes, kSize / 24576);
  const uint64_t data_and_parity = kSize / 6 * 8;
  EXPECT_EQ(totals.ssd_written,
            data_and_parity + after.ssd_metadata_bytes - before.ssd_metadata_bytes);
  const uint64_t average = totals.ssd_written / totals.ssd_writes;
  std::printf("average device write %lu bytes\n", static_cast<unsigned long>(average));
  EXPECT_GE(average, 32U << 10);
  EXPECT_TRUE(test.Read(volume, kSize - block.size(), block.size()) ==
              std::vector<std::byte>(block.data(), block.data() + block.size()));
}

TEST(Traffic, ClassesAddUpThroughCommitCheckpointAndReopening) {
  TestArray test({});
  const VolumeId volume = test.CreateVolume("v", 8 << 20);
  Random random(2);
  ASSERT_TRUE(test.Close().ok());
  for (int life = 0; life < 3; ++life) {
    ResetCounters(test, 10);
    test.Open();
    ExpectClassesAddUp(test, 8, 2);
    for (int i = 0; i < 200; ++i) {
      const auto bytes = RandomBytes(random, 1 + random.Below(60000));
      ASSERT_TRUE(test.Write(volume, random.Below((8 << 20) - bytes.size()), bytes).ok());
    }
    ExpectClassesAddUp(test, 8, 2);
    ASSERT_TRUE(RunTask(test.loop, test.array->Commit({})).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->Checkpoint(CheckpointKind::kFull)).ok());
    ExpectClassesAddUp(test, 8, 2);
    if (life == 1) {
      test.Kill();
    } else {
      ASSERT_TRUE(test.Close().ok());
    }
  }
  ResetCounters(test, 10);
  test.Open();
  EXPECT_GT(test.array->GetStatus().lifetime.user_writes, 500U);
}

}  // namespace
}  // namespace eplog
