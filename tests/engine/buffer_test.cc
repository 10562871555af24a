// Buffers: what they absorb, what a flush drains, how long anything stays, and that reads see it.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

ArrayShape Shape(uint32_t device_chunks, uint32_t stripes = 0) {
  ArrayShape shape;
  shape.buffers = {.device_chunks = device_chunks, .stripes = stripes};
  shape.auto_commit = false;
  return shape;
}

class BufferTest : public ::testing::Test {
 protected:
  void Make(const ArrayShape& shape) {
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 8 << 20);
    other_ = test_->CreateVolume("w", 8 << 20);
    Random random(1);
    model_ = RandomBytes(random, 6 * kChunk * 40);
    ASSERT_TRUE(test_->Write(volume_, 0, model_).ok());
    ASSERT_TRUE(test_->Write(other_, 0, model_).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  void Update(VolumeId volume, uint64_t chunk) {
    Random random(chunk + 77);
    const auto bytes = RandomBytes(random, kChunk);
    ASSERT_TRUE(test_->Write(volume, chunk * kChunk, bytes).ok());
    if (volume == volume_) {
      std::copy(bytes.begin(), bytes.end(),
                model_.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk));
    }
  }
  void Sleep(uint64_t us) { test_->Sleep(us); }
  Traffic Now() { return test_->array->GetStatus().traffic; }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  VolumeId other_;
  std::vector<std::byte> model_;
};

TEST_F(BufferTest, AFlushOfARangeDrainsThatRangeOfThatVolume) {
  Make(Shape(64));
  for (const uint64_t chunk : {0U, 1U, 2U, 5U, 6U, 13U, 20U}) {
    Update(volume_, chunk);
    Update(other_, chunk);
  }
  const uint64_t before = Now().log_stripe_members;
  // Bytes 100 ... 2 chunks + 100: three chunks.
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, 100, 2 * kChunk)).ok());
  EXPECT_EQ(Now().log_stripe_members - before, 3U);
  // The others absorb as before.
  const uint64_t hits = Now().buffer_hits;
  Update(volume_, 5);
  Update(other_, 0);
  EXPECT_EQ(Now().buffer_hits - hits, 2U);
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
  test_->Kill();
  test_->Open();
  const auto found = test_->Read(volume_, 0, 3 * kChunk);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), model_.begin()));
}

TEST_F(BufferTest, NothingStaysLongerThanFiveSeconds) {
  Make(Shape(64, 2));
  Update(volume_, 3);
  ASSERT_TRUE(test_->Write(volume_, 7 << 20, std::vector<std::byte>(kChunk, std::byte{1})).ok());
  const uint64_t before = Now().log_stripe_members;
  Sleep(4'900'000);
  EXPECT_EQ(Now().log_stripe_members, before);
  // Hits do not make it younger.
  Update(volume_, 3);
  Sleep(200'000);
  EXPECT_EQ(Now().log_stripe_members, before + 2);
}

TEST_F(BufferTest, WholeStripesAreRecognisedWhateverRequestsTheyCameFrom) {
  Make(Shape(64));
  const uint64_t before = Now().full_stripe_writes;
  const uint64_t logged = Now().log_stripes;
  for (const uint64_t chunk : {11U, 6U, 9U, 7U, 10U, 8U}) {  // stripe 1
    Update(volume_, chunk);
  }
  EXPECT_EQ(Now().full_stripe_writes, before + 1);
  EXPECT_EQ(Now().log_stripes, logged);
  EXPECT_EQ(test_->array->GetStatus().pending_chunks, 0U);
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
}

TEST_F(BufferTest, SizesChangeWhileRunning) {
  Make(Shape(0));
  Update(volume_, 0);
  uint64_t members = Now().log_stripe_members;
  ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 32, .stripes = 0}).ok());
  for (uint64_t chunk = 0; chunk < 100; chunk += 3) {
    Update(volume_, chunk);
  }
  EXPECT_EQ(Now().log_stripe_members, members);
  ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 4, .stripes = 0}).ok());
  members = Now().log_stripe_members;
  ASSERT_TRUE(test_->array->SetBuffers({}).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, 0, 1)).ok());
  EXPECT_GT(Now().log_stripe_members, members);
  EXPECT_EQ(test_->array->GetStatus().pending_chunks, 34U);
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
}

// One write has the chunk, another waits for it, and meanwhile buffers are given and a third write
// goes there: the one that waited comes to lie on it, now and after a kill.
TEST_F(BufferTest, AWriteThatWaitsForItsChunkFindsItBuffered) {
  ArrayShape shape = Shape(0);
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  for (const bool flushed : {true, false}) {
    Make(shape);
    Random random(9);
    const auto first = RandomBytes(random, kChunk);
    const auto waiting = RandomBytes(random, kChunk / 2);
    const auto third = RandomBytes(random, kChunk);
    uint64_t done = 0;
    const auto write = [&](std::span<const std::byte> bytes) {
      test_->loop.Spawn([](Array& array, VolumeId volume, std::span<const std::byte> from,
                           uint64_t* ended) -> Task<void> {
        Task<Status> writing = array.Write(volume, 5 * kChunk, from);
        const Status status = co_await writing;
        EXPECT_TRUE(status.ok());
        ++*ended;
      }(*test_->array, volume_, bytes, &done));
      test_->Sleep(1);
    };
    write(first);
    write(waiting);
    EXPECT_EQ(done, 0U);
    ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 8, .stripes = 0}).ok());
    const uint64_t members = Now().log_stripe_members;
    write(third);
    EXPECT_EQ(done, 1U) << "the third is in its buffer";
    ASSERT_TRUE(test_->loop.RunUntil([&] { return done == 3; }));
    EXPECT_LE(Now().log_stripe_members, members + 1) << "the second went there, too";
    std::copy(third.begin(), third.end(), model_.begin() + 5 * kChunk);
    std::copy(waiting.begin(), waiting.end(), model_.begin() + 5 * kChunk);
    EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
    if (flushed) {
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
      test_->Kill();
    } else {
      ASSERT_TRUE(test_->Close().ok());
    }
    test_->Open();
    EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
    test_.reset();
  }
}

TEST_F(BufferTest, PartsOfChunksMergeWithWhatLiesThereAndTrimsTakeItAway) {
  Make(Shape(16, 2));
  const auto put = [&](uint64_t at, size_t size, int value) {
    ASSERT_TRUE(
        test_->Write(volume_, at, std::vector<std::byte>(size, static_cast<std::byte>(value)))
            .ok());
    std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(at), size,
                static_cast<std::byte>(value));
  };
  put(100, 50, 1);
  put(120, 50, 2);
  put(3 * kChunk + 5, 2 * kChunk, 3);
  ASSERT_TRUE(
      RunTask(test_->loop, test_->array->Trim(volume_, 3 * kChunk, kChunk, TrimMode::kZero)).ok());
  std::fill_n(model_.begin() + 3 * kChunk, kChunk, std::byte{0});
  put(3 * kChunk + 9, 1, 4);
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Commit({})).ok());
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
  ASSERT_TRUE(test_->Close().ok());
  test_->Open();
  EXPECT_TRUE(test_->Read(volume_, 0, model_.size()) == model_);
}

// A log device that answers nothing for 20 s: what is old waits for its turn, and the loop goes on.
TEST_F(BufferTest, WhatIsOldWaitsForWhatIsOnItsWay) {
  Make(Shape(4, 4));
  DeviceDelays slow;
  slow.write_us = 20'000'000;
  test_->delayed(8).set_delays(slow);
  const std::vector<std::byte> data(kChunk, std::byte{9});
  const uint64_t fresh = uint64_t{4} << 20;
  ASSERT_TRUE(test_->Write(volume_, fresh, data).ok());
  bool flushed = false;
  test_->loop.Spawn([](TestArray& test, VolumeId id, uint64_t at, bool& done) -> Task<void> {
    Task<Status> flush = test.array->Flush(id, at, kChunk);
    done = (co_await flush).ok();
  }(*test_, volume_, fresh, flushed));
  Sleep(100'000);
  ASSERT_TRUE(test_->Write(volume_, fresh, data).ok());
  Sleep(900'000);
  ASSERT_TRUE(test_->Write(volume_, fresh + kChunk, data).ok());
  Sleep(6'000'000);
  EXPECT_FALSE(flushed);
  EXPECT_EQ(test_->Read(volume_, fresh, kChunk), data);
  Sleep(40'000'000);
  EXPECT_TRUE(flushed);
}

// The array stops while a version is on its way, another absorbs, and something that overwrites
// both waits: an error for whoever writes, and reads go on.
TEST_F(BufferTest, AStopWhileSomethingOverwritesIsAnErrorAndNoMore) {
  for (const int overwriting : {0, 1, 2}) {
    Make(Shape(8));
    DeviceDelays slow;
    slow.write_us = 1'000'000;
    test_->delayed(8).set_delays(slow);
    Update(volume_, 0);
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite);
    fault.code = ErrorCode::kNoSpace;
    test_->faulty(8).Add(fault);
    bool flushed = true;
    test_->loop.Spawn([](TestArray& test, VolumeId id, bool& ok) -> Task<void> {
      Task<Status> flush = test.array->Flush(id, 0, kChunk);
      ok = (co_await flush).ok();
    }(*test_, volume_, flushed));
    Sleep(1000);
    Update(volume_, 0);
    bool overwritten = true;
    test_->loop.Spawn([](TestArray& test, VolumeId id, int how, bool& ok) -> Task<void> {
      const Buffer stripe = test.pool.GetZeroed(6 * kChunk);
      Task<Status> task = how == 0   ? test.array->Write(id, 0, stripe.span())
                          : how == 1 ? test.array->Trim(id, 0, 6 * kChunk, TrimMode::kZero)
                                     : test.array->Trim(id, 0, 2 * kChunk, TrimMode::kZero);
      ok = (co_await task).ok();
    }(*test_, volume_, overwriting, overwritten));
    Sleep(5'000'000);
    EXPECT_FALSE(flushed);
    EXPECT_FALSE(overwritten);
    EXPECT_FALSE(test_->array->GetStatus().stopped_because.empty());
    const auto found = test_->Read(volume_, 0, kChunk);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), model_.begin()));
    test_->Kill();
    test_.reset();
  }
}

// Draws 0 ... n - 1 with probabilities that fall as 1 / (rank + 1).
class Zipf {
 public:
  explicit Zipf(uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; ++i) {
      sum += 1.0 / static_cast<double>(i + 1);
      sums_.push_back(sum);
    }
  }
  uint64_t Draw(Random& random) const {
    const double at = random.Unit() * sums_.back();
    return static_cast<uint64_t>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

struct BufferedTraffic {
  uint64_t ssd_bytes = 0;
  uint64_t log_chunk_bytes = 0;
};

// 6+2, 40,000 single chunks of 8,192, one at a time, drained in the end, nothing committed.
BufferedTraffic RunZipf(uint32_t device_chunks) {
  ArrayShape shape = Shape(device_chunks);
  shape.ssd_bytes = uint64_t{128} << 20;
  shape.log_bytes = uint64_t{512} << 20;
  shape.reserve_percent = 50;
  TestArray test(shape);
  constexpr uint64_t kChunks = 8190;  // whole stripes
  const VolumeId volume = test.CreateVolume("v", kChunks * kChunk);
  for (uint64_t at = 0; at < kChunks; at += 6) {
    const std::vector<std::byte> stripe(6 * kChunk, std::byte{1});
    EXPECT_TRUE(test.Write(volume, at * kChunk, stripe).ok());
  }
  const Zipf zipf(kChunks);
  Random random(42);
  std::vector<uint64_t> places(kChunks);
  for (uint64_t i = 0; i < kChunks; ++i) {
    places[i] = i;
    std::swap(places[i], places[random.Below(i + 1)]);
  }
  const Traffic before = test.array->GetStatus().traffic;
  std::vector<std::byte> data(kChunk);
  for (int i = 0; i < 40'000; ++i) {
    data[0] = static_cast<std::byte>(i);
    EXPECT_TRUE(test.Write(volume, places[zipf.Draw(random)] * kChunk, data).ok());
  }
  EXPECT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  const Traffic after = test.array->GetStatus().traffic;
  return {after.ssd_data_bytes + after.ssd_parity_bytes - before.ssd_data_bytes -
              before.ssd_parity_bytes,
          (after.log_chunk_bytes - before.log_chunk_bytes) / 2};
}

TEST(BufferZipf, TrafficFallsWithTheSizeOfTheBuffers) {
  const BufferedTraffic none = RunZipf(0);
  EXPECT_EQ(none.ssd_bytes, 40'000 * kChunk);
  BufferedTraffic last = none;
  for (uint32_t size = 1; size <= 64; size *= 2) {
    const BufferedTraffic now = RunZipf(size);
    const double ssd =
        100.0 * static_cast<double>(now.ssd_bytes) / static_cast<double>(none.ssd_bytes);
    const double log = 100.0 * static_cast<double>(now.log_chunk_bytes) /
                       static_cast<double>(none.log_chunk_bytes);
    RecordProperty("ssd_percent_at_" + std::to_string(size), std::to_string(ssd));
    std::printf("device buffers of %2u chunks: SSD bytes %6.2f %%, log chunk bytes %6.2f %%\n",
                size, ssd, log);
    EXPECT_LE(now.ssd_bytes, last.ssd_bytes) << size;
    EXPECT_LE(now.log_chunk_bytes, last.log_chunk_bytes) << size;
    last = now;
  }
  EXPECT_LE(last.ssd_bytes * 100, none.ssd_bytes * 50);
  EXPECT_LE(last.log_chunk_bytes * 100, none.log_chunk_bytes * 20);
}

// A shape whose SSDs have some 16,000 slots.
TEST(BufferSizesTest, BeyondTheArrayAreRefusedByTheFigure) {
  TestArray test{ArrayShape()};
  const Status chunks = test.array->SetBuffers({.device_chunks = 1U << 20, .stripes = 0});
  ASSERT_FALSE(chunks.ok());
  EXPECT_EQ(chunks.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(chunks.error().message.find("slots an SSD"), std::string::npos)
      << chunks.error().message;
  EXPECT_FALSE(test.array->SetBuffers({.device_chunks = 0, .stripes = 1U << 20}).ok());
  EXPECT_TRUE(test.array->SetBuffers({.device_chunks = 1000, .stripes = 1000}).ok());
}

TEST(BufferSizesTest, BeyondTheMemoryThatTheyMayTakeAreRefusedByTheFigure) {
  ArrayShape shape;
  shape.max_buffer_bytes = uint64_t{32} << 20;
  TestArray test(shape);
  EXPECT_TRUE(test.array->SetBuffers({.device_chunks = 1024, .stripes = 0}).ok());  // 32 MiB
  const Status status = test.array->SetBuffers({.device_chunks = 1025, .stripes = 0});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("33 MiB in memory, of which they may take 32 MiB"),
            std::string::npos)
      << status.error().message;
}

TEST(BufferSizesTest, AnOpeningRefusesThemBeforeAnythingIsWritten) {
  ArrayShape shape;
  TestArray test(shape);
  ASSERT_TRUE(test.Close().ok());
  test.shape().buffers = {.device_chunks = 1U << 20, .stripes = 0};
  const uint64_t before = test.counter(0).counters().writes;
  const auto opened = test.TryOpen();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(test.counter(0).counters().writes, before);
}

uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(BufferSizesTest, MemoryIsTakenAsTheyFill) {
  TestArray test{ArrayShape()};
  const uint64_t before = ResidentBytes();
  ASSERT_TRUE(test.array->SetBuffers({.device_chunks = 12000, .stripes = 0}).ok());  // 375 MiB
  const VolumeId volume = test.CreateVolume("v", 1 << 20);
  const auto block = test.pool.GetZeroed(4096);
  ASSERT_TRUE(test.Write(volume, 0, block.span()).ok());
  EXPECT_LT(ResidentBytes(), before + (uint64_t{64} << 20));
}

}  // namespace
}  // namespace eplog
