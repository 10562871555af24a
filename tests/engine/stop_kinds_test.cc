// The array stops, for want of space below, while requests of every kind are on their way and wait
// in every queue: each of them ends, nothing is acknowledged afterwards, and reads go on. And what
// is counted when requests fail is what reached the devices.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "layout/geometry.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kPatienceUs = 60'000'000;

// Requests of one kind one after the other, by each worker, until one fails.
struct Everything {
  enum Kind : size_t {
    kWriteChunk,
    kWriteInChunk,
    kWriteStripe,
    kWriteLong,
    kTrimChunk,
    kTrimStripes,
    kPunch,
    kVolumes,
    kFlushRange,
    kFlushAll,
    kCommit,
    kCheckpoint,
    kScrub,
    kKinds
  };

  TestArray& test;
  VolumeId volume;
  uint64_t stripes;
  uint64_t stripe_bytes;
  Random random{3};
  uint64_t running = 0;
  std::array<uint64_t, kKinds> done{};
  std::array<uint64_t, kKinds> failed{};

  Task<Status> Volumes(std::string name) {
    Task<Result<VolumeId>> creating = test.array->CreateVolume(name, 3 * stripe_bytes);
    const Result<VolumeId> id = co_await creating;
    if (!id.ok()) {
      Error error = id.error();
      co_return Fail(std::move(error));
    }
    Buffer data = test.pool.GetZeroed(2 * stripe_bytes);
    Task<Status> writing = test.array->Write(*id, 0, data.span());
    Status status = co_await writing;
    EPLOG_CO_TRY(status);
    Task<Status> resizing = test.array->ResizeVolume(*id, stripe_bytes + 100);
    status = co_await resizing;
    EPLOG_CO_TRY(status);
    Task<Status> renaming = test.array->RenameVolume(*id, name + "-renamed", false);
    status = co_await renaming;
    EPLOG_CO_TRY(status);
    Task<Status> deleting = test.array->DeleteVolume(*id);
    co_return co_await deleting;
  }
  Task<Status> Scrub() {
    Task<Result<CheckReport>> scrubbing = test.array->Scrub(false, Progress());
    const Result<CheckReport> report = co_await scrubbing;
    if (!report.ok()) {
      Error error = report.error();
      co_return Fail(std::move(error));
    }
    co_await test.loop.Sleep(1000);
    co_return OkStatus();
  }
  Task<Status> One(Kind kind, std::string name, std::span<const std::byte> data) {
    const uint64_t stripe = random.Below(stripes - 4) * stripe_bytes;
    const uint64_t chunk = random.Below(stripes * stripe_bytes / kChunk - 1) * kChunk;
    switch (kind) {
      case kWriteChunk:
        return test.array->Write(volume, chunk, data.first(kChunk));
      case kWriteInChunk:
        return test.array->Write(volume, chunk + 77, data.first(100));
      case kWriteStripe:
        return test.array->Write(volume, stripe, data.first(stripe_bytes));
      case kWriteLong:
        return test.array->Write(volume, stripe + 100, data.first(2 * stripe_bytes));
      case kTrimChunk:
        return test.array->Trim(volume, chunk, kChunk, TrimMode::kZero);
      case kTrimStripes:
        return test.array->Trim(volume, stripe, 2 * stripe_bytes, TrimMode::kZero);
      case kPunch:
        return test.array->Trim(volume, stripe, 3 * stripe_bytes, TrimMode::kPunch);
      case kVolumes:
        return Volumes(std::move(name));
      case kFlushRange:
        return test.array->Flush(volume, chunk, kChunk);
      case kFlushAll:
        return test.array->FlushAll();
      case kCommit:
        return test.array->Commit(Progress());
      case kCheckpoint:
        return test.array->Checkpoint(CheckpointKind::kAuto);
      default:
        return Scrub();
    }
  }
  Task<void> Work(Kind kind, uint64_t number) {
    const Buffer data = test.pool.GetZeroed(2 * stripe_bytes);
    for (uint64_t i = 0; i < 100'000; ++i) {
      Task<Status> one =
          One(kind, "w" + std::to_string(number) + "." + std::to_string(i), data.span());
      const Status status = co_await one;
      if (!status.ok()) {
        ++failed[kind];
        break;
      }
      ++done[kind];
      co_await test.loop.Sleep(10);
    }
    --running;
  }
  void Start(const std::array<uint64_t, kKinds>& workers) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (uint64_t i = 0; i < workers[kind]; ++i) {
        ++running;
        test.loop.Spawn(Work(static_cast<Kind>(kind), running));
      }
    }
  }
  bool RunUntil(const std::function<bool()>& until) const {
    const uint64_t deadline = test.loop.NowUs() + kPatienceUs;
    static_cast<void>(test.loop.RunUntil([&] { return until() || test.loop.NowUs() > deadline; }));
    return until();
  }
};

// Rings so short that entries wait for checkpoints all the time, and so do requests in all queues.
ArrayShape ShortRings() {
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{6} << 20;
  shape.log_bytes = MinLogBytes(kChunk) + 64 * kChunk;
  shape.ring_bytes = uint64_t{16} * 4096;
  shape.headers_a_ring_block = 1;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  return shape;
}

class StopOf : public ::testing::TestWithParam<BufferSizes> {};

TEST_P(StopOf, EndsRequestsOfEveryKind) {
  const Fault superblock = {.kinds = MaskOf(RequestKind::kWrite),
                            .code = ErrorCode::kNoSpace,
                            .range_length_bytes = kSuperblockAreaBytes};
  const Fault flush = {.kinds = MaskOf(RequestKind::kFlush), .code = ErrorCode::kNoSpace};
  const Fault write = {.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace};
  for (const Fault& kind : {superblock, flush, write}) {
    for (const uint64_t nth : {1U, 3U, 4U, 7U, 20U}) {
      for (const uint32_t device : {1U, 4U}) {
        SCOPED_TRACE(std::to_string(device) + ", request " + std::to_string(nth));
        ArrayShape shape = ShortRings();
        shape.buffers = GetParam();
        TestArray test(shape);
        constexpr uint64_t kStripes = 100;
        constexpr uint64_t kStripe = 3 * kChunk;
        Everything load{test, test.CreateVolume("v", kStripes * kStripe), kStripes, kStripe};
        load.Start({12, 4, 12, 4, 6, 4, 2, 3, 4, 1, 2, 1, 1});
        const uint64_t until = test.loop.NowUs() + 30'000;
        static_cast<void>(test.loop.RunUntil([&] { return test.loop.NowUs() >= until; }));
        Fault fault = kind;
        fault.nth = nth;
        test.faulty(device).Add(fault);
        ASSERT_TRUE(load.RunUntil([&] { return load.running == 0; })) << "somebody waits for ever";
        for (size_t i = 0; i < Everything::kKinds; ++i) {
          EXPECT_NE(load.failed[i], 0U) << "kind " << i;
        }
        const ArrayStatus status = test.array->GetStatus();
        EXPECT_EQ(status.state, ArrayState::kFailed);
        EXPECT_NE(status.stopped_because, "");
        // Whoever comes now is refused at once, and reads what was acknowledged.
        const uint64_t now = test.loop.NowUs();
        const std::vector<std::byte> data(kStripe);
        EXPECT_FALSE(test.Write(load.volume, 0, std::span(data).first(kChunk)).ok());
        EXPECT_FALSE(test.Write(load.volume, 0, data).ok());
        EXPECT_FALSE(RunTask(test.loop, test.array->FlushAll()).ok());
        EXPECT_EQ(test.loop.NowUs(), now);
        EXPECT_EQ(test.Read(load.volume, 0, kStripes * kStripe),
                  std::vector<std::byte>(kStripes * kStripe));
        bool closed = false;
        test.loop.Spawn([](Array* array, bool& out) -> Task<void> {
          Task<Status> closing = array->Close();
          static_cast<void>(co_await closing);
          out = true;
        }(test.array.get(), closed));
        EXPECT_TRUE(load.RunUntil([&] { return closed; })) << "it never closes";
        test.Kill();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, StopOf,
                         ::testing::Values(BufferSizes{},
                                           BufferSizes{.device_chunks = 8, .stripes = 2}));

// ---- what is counted

void ExpectClassesAddUp(TestArray& test) {
  const ArrayStatus status = test.array->GetStatus();
  const Traffic& t = status.traffic;
  uint64_t ssd = 0;
  uint64_t log = 0;
  for (const DeviceStatus& device : status.devices) {
    (device.role == DeviceRole::kSsd ? ssd : log) += device.bytes_written;
  }
  ASSERT_EQ(t.ssd_data_bytes + t.ssd_parity_bytes + t.ssd_metadata_bytes + t.ssd_repair_bytes, ssd);
  ASSERT_EQ(t.log_chunk_bytes + t.log_header_bytes, log);
}

// Whichever write of a device fails, and takes it out: the classes count what reached the devices.
TEST(FailedWrites, AreNotCounted) {
  for (const uint32_t device : {0U, 2U, 5U, 6U}) {
    uint64_t fired = 1;
    uint64_t runs = 0;
    for (uint64_t nth = 1; fired != 0 && !::testing::Test::HasFatalFailure(); nth += 1 + nth / 20) {
      SCOPED_TRACE(std::to_string(device) + ", write " + std::to_string(nth));
      ArrayShape shape;
      shape.n = 5;
      shape.m = 2;
      shape.ssd_bytes = uint64_t{6} << 20;
      shape.log_bytes = uint64_t{1} << 20;
      shape.ssd_delays = kSsdDelays;
      shape.log_delays = kLogDelays;
      TestArray test(shape);
      const VolumeId volume = test.CreateVolume("v", uint64_t{1} << 20);
      Random random(nth);
      test.faulty(device).Add({.kinds = MaskOf(RequestKind::kWrite), .nth = nth});
      for (int i = 0; i < 12; ++i) {
        const auto data = RandomBytes(random, random.Between(1, 40'000));
        ASSERT_TRUE(test.Write(volume, random.Below((1 << 20) - data.size()), data).ok());
        ExpectClassesAddUp(test);
        if (i % 4 == 3) {
          ASSERT_TRUE(RunTask(test.loop, test.array->Commit({})).ok());
          ExpectClassesAddUp(test);
          ASSERT_TRUE(RunTask(test.loop, test.array->Checkpoint(CheckpointKind::kFull)).ok());
          ExpectClassesAddUp(test);
        }
      }
      fired = test.faulty(device).fired();
      EXPECT_EQ(test.array->GetStatus().devices[device].write_errors, fired);
      ++runs;
    }
    EXPECT_GT(runs, 10U);
  }
}

}  // namespace
}  // namespace eplog
