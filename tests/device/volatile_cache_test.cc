#include "device/volatile_cache.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <vector>

#include "device/memory_device.h"
#include "device/wrappers.h"
#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"
#include "tests/device/device_util.h"

namespace eplog {
namespace {

using test::Await;
using test::Filled;
using test::Holds;
using test::Pool;

constexpr uint64_t kSize = uint64_t{1} << 20;

class VolatileCache : public ::testing::Test {
 protected:
  VirtualLoop loop_;
  MemoryDevice memory_{"memory", kSize};
  CountingDevice counting_{memory_};
  DelayDevice slow_{loop_, counting_, {.read_us = 50, .write_us = 100, .flush_us = 1000}};
  VolatileCacheDevice device_{loop_, slow_};

  uint64_t WritesBelow() const { return counting_.counters().writes; }
};

TEST_F(VolatileCache, UnflushedWritesAreReadButNotKept) {
  ASSERT_TRUE(test::Write(loop_, device_, 8192, Filled(4096, 1)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 8192, 4096, 1));
  EXPECT_EQ(WritesBelow(), 0U);
  EXPECT_EQ(device_.cached_bytes(), 4096U);
  device_.DropCache();
  EXPECT_FALSE(Holds(loop_, device_, 8192, 4096, 1));
  EXPECT_EQ(device_.cached_bytes(), 0U);
}

TEST_F(VolatileCache, FlushedWritesAreKept) {
  ASSERT_TRUE(test::Write(loop_, device_, 8192, Filled(4096, 1)).ok());
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  EXPECT_EQ(counting_.counters().flushes, 1U);
  EXPECT_EQ(device_.cached_bytes(), 0U);
  device_.DropCache();
  EXPECT_TRUE(Holds(loop_, device_, 8192, 4096, 1));
}

TEST_F(VolatileCache, OfOverlappingWritesTheLastCounts) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(16384, 1)).ok());
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(4096, 2)).ok());
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(4096, 3)).ok());
  EXPECT_TRUE(Holds(loop_, device_, 4096, 4096, 3));
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  EXPECT_TRUE(Holds(loop_, memory_, 4096, 4096, 3));
}

TEST_F(VolatileCache, SectorsOfOnePageAreApart) {
  ASSERT_TRUE(test::Write(loop_, memory_, 0, Filled(8192, 1)).ok());
  const Buffer sector = Filled(512, 2);
  const Buffer pair = Filled(1024, 3);
  ASSERT_TRUE(test::Write(loop_, device_, 1024, sector).ok());
  ASSERT_TRUE(test::Write(loop_, device_, 3584, pair).ok());  // over two pages
  Buffer expected = Filled(8192, 1);
  std::memcpy(expected.data() + 1024, sector.data(), 512);
  std::memcpy(expected.data() + 3584, pair.data(), 1024);
  const Buffer got = Pool().Get(8192);
  ASSERT_TRUE(test::Read(loop_, device_, 0, got).ok());
  EXPECT_TRUE(test::Same(got, expected));
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  ASSERT_TRUE(test::Read(loop_, memory_, 0, got).ok());
  EXPECT_TRUE(test::Same(got, expected));
  EXPECT_EQ(WritesBelow(), 2U) << "one a run of sectors, also over pages";
}

TEST_F(VolatileCache, NeighboursAreWrittenBackTogether) {
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(test::Write(loop_, device_, (63 - i) * 4096, Filled(4096, i)).ok());
  }
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  EXPECT_EQ(WritesBelow(), 1U);
  for (uint64_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(Holds(loop_, memory_, (63 - i) * 4096, 4096, i));
  }
}

Task<void> FlushAndMark(Device& device, bool* done) {
  Task<Status> flush = device.Flush();
  const Status status = co_await flush;
  EXPECT_TRUE(status.ok());
  *done = true;
}

TEST_F(VolatileCache, AWriteDuringAFlushBelongsToTheNext) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(4096, 1)).ok());
  bool done = false;
  loop_.Start(FlushAndMark(device_, &done));
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(4096, 2)).ok());
  EXPECT_FALSE(done);
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 1));
  EXPECT_TRUE(Holds(loop_, device_, 4096, 4096, 2));
  EXPECT_TRUE(loop_.RunUntil([&] { return done; }));
  EXPECT_TRUE(Holds(loop_, device_, 4096, 4096, 2));
  device_.DropCache();
  EXPECT_TRUE(Holds(loop_, device_, 4096, 4096, 1)) << "the flush covered the older";
}

TEST_F(VolatileCache, AnUnfinishedFlushPromisesNothingAndLeavesTheDeviceUsable) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  bool first = false;
  bool second = false;
  loop_.Start(FlushAndMark(device_, &first));
  ASSERT_TRUE(test::Write(loop_, device_, 4096, Filled(4096, 2)).ok());
  loop_.Start(FlushAndMark(device_, &second));
  loop_.Abort();
  device_.DropCache();
  EXPECT_FALSE(first || second);
  EXPECT_FALSE(Holds(loop_, device_, 0, 4096, 1));
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 3)).ok());
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  device_.DropCache();
  EXPECT_TRUE(Holds(loop_, device_, 0, 4096, 3));
}

Task<void> ReadAndMark(Device& device, const Buffer& into, bool* done) {
  Task<Status> read = test::ReadTask(device, 0, into);
  const Status status = co_await read;
  EXPECT_TRUE(status.ok());
  *done = true;
}

// The read below is made before the write-back and returns after it: RAM no longer has what it
// missed.
TEST_F(VolatileCache, AReadThatOutlastsAFlushStillSeesTheCache) {
  slow_.set_delays({.read_us = 0, .write_us = 1, .flush_us = 1});
  MemoryDevice memory("below", kSize);
  // Answers with what is there when the read is made, long before it completes.
  class EarlyReader final : public ForwardingDevice {
   public:
    EarlyReader(EventLoop& loop, Device& below) : ForwardingDevice(below), loop_(loop) {}
    Task<Status> Read(uint64_t offset, std::span<const iovec> into) override {
      Task<Status> read = below().Read(offset, into);
      Status status = co_await read;
      co_await loop_.Sleep(10000);
      co_return status;
    }

   private:
    EventLoop& loop_;
  };
  EarlyReader below(loop_, memory);
  VolatileCacheDevice device(loop_, below);
  const Buffer half = Filled(4096, 1);
  ASSERT_TRUE(test::Write(loop_, device, 4096, half).ok());
  const Buffer got = Pool().Get(8192);
  bool read = false;
  loop_.Start(ReadAndMark(device, got, &read));
  ASSERT_TRUE(Await(loop_, device.Flush()).ok());
  EXPECT_FALSE(read);
  EXPECT_EQ(device.cached_bytes(), 0U);
  EXPECT_TRUE(loop_.RunUntil([&] { return read; }));
  EXPECT_EQ(std::memcmp(got.data() + 4096, half.data(), 4096), 0);
}

TEST_F(VolatileCache, FlushesThatComeTogetherShareOneBelow) {
  ASSERT_TRUE(test::Write(loop_, device_, 0, Filled(4096, 1)).ok());
  bool first = false;
  bool second = false;
  bool third = false;
  loop_.Start(FlushAndMark(device_, &first));
  loop_.Start(FlushAndMark(device_, &second));
  loop_.Start(FlushAndMark(device_, &third));
  EXPECT_TRUE(loop_.RunUntil([&] { return first && second && third; }));
  EXPECT_EQ(counting_.counters().flushes, 1U);
  ASSERT_TRUE(Await(loop_, device_.Flush()).ok());
  EXPECT_EQ(counting_.counters().flushes, 2U) << "one with nothing to do is still passed on";
}

TEST_F(VolatileCache, AFailedFlushStaysFailedUntilTheCacheIsLost) {
  FaultDevice faulty(memory_);
  VolatileCacheDevice device(loop_, faulty);
  ASSERT_TRUE(test::Write(loop_, device, 0, Filled(4096, 1)).ok());
  faulty.Add({.kinds = RequestKind::kWrite | RequestKind::kFlush});
  EXPECT_FALSE(Await(loop_, device.Flush()).ok());
  EXPECT_FALSE(Await(loop_, device.Flush()).ok());
  EXPECT_TRUE(Holds(loop_, device, 0, 4096, 1)) << "reads still see it";
  device.DropCache();
  EXPECT_TRUE(Await(loop_, device.Flush()).ok());
}

TEST_F(VolatileCache, OverItsLimitItWritesOlderDataBelowButPromisesNothing) {
  VolatileCacheDevice device(loop_, slow_, 16 * 4096);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(test::Write(loop_, device, i * 4096, Filled(4096, i)).ok());
    EXPECT_LE(device.cached_bytes(), 17U * 4096);
  }
  EXPECT_GT(WritesBelow(), 0U);
  EXPECT_EQ(counting_.counters().flushes, 0U);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(Holds(loop_, device, i * 4096, 4096, i));
  }
  ASSERT_TRUE(Await(loop_, device.Flush()).ok());
  EXPECT_EQ(counting_.counters().flushes, 1U);
}

TEST_F(VolatileCache, ChecksRequestsLikeADisk) {
  EXPECT_FALSE(test::Write(loop_, device_, 100, Filled(512, 1)).ok());
  EXPECT_FALSE(test::Write(loop_, device_, kSize, Filled(512, 1)).ok());
  EXPECT_FALSE(test::Read(loop_, device_, kSize - 512, Filled(1024, 1)).ok());
}

// Random writes, reads, flushes and power cuts against a model: a sector holds its last flushed
// content or, until the cut, the newest.
struct Model {
  std::vector<uint64_t> now = std::vector<uint64_t>(kSize / 512);
  std::vector<uint64_t> durable = now;
};

class Player {
 public:
  Player(VirtualLoop& loop, VolatileCacheDevice& device, Random& random)
      : loop_(loop), device_(device), random_(random) {}

  void WriteSome() {
    const uint64_t first = random_.Below(200);
    const uint64_t count = random_.Between(1, 24);
    Buffer buffer = Pool().Get(count * 512);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t stamp = ++stamp_;
      std::memcpy(buffer.data() + i * 512, &stamp, 8);
      std::memcpy(buffer.data() + i * 512 + 504, &stamp, 8);
      model_.now[first + i] = stamp;
    }
    ASSERT_TRUE(test::Write(loop_, device_, first * 512, buffer).ok());
  }
  void ReadAll(const std::vector<uint64_t>& expected) {
    const Buffer got = Pool().Get(224 * 512);
    ASSERT_TRUE(test::Read(loop_, device_, 0, got).ok());
    for (uint64_t i = 0; i < 224; ++i) {
      uint64_t head = 0;
      uint64_t tail = 0;
      std::memcpy(&head, got.data() + i * 512, 8);
      std::memcpy(&tail, got.data() + i * 512 + 504, 8);
      ASSERT_EQ(head, expected[i]) << "sector " << i;
      ASSERT_EQ(tail, expected[i]) << "sector " << i;
    }
  }
  // Starts a flush, writes and reads while it runs, and awaits it.
  void FlushMeanwhileWriting() {
    const std::vector<uint64_t> covered = model_.now;
    bool done = false;
    loop_.Start(FlushAndMark(device_, &done));
    for (uint64_t i = random_.Below(4); i > 0; --i) {
      WriteSome();
      ReadAll(model_.now);
    }
    ASSERT_TRUE(loop_.RunUntil([&] { return done; }));
    model_.durable = covered;
    ReadAll(model_.now);
  }
  void PowerCut() {
    loop_.Abort();
    device_.DropCache();
    model_.now = model_.durable;
    ReadAll(model_.now);
  }
  Model& model() { return model_; }

 private:
  VirtualLoop& loop_;
  VolatileCacheDevice& device_;
  Random& random_;
  Model model_;
  uint64_t stamp_ = 0;
};

TEST(VolatileCacheRandom, AgreesWithAModelThroughFlushesAndPowerCuts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    VirtualLoop loop(seed);
    MemoryDevice memory("memory", kSize);
    DelayDevice slow(loop, memory, {.read_us = 7, .write_us = 5, .flush_us = 20});
    VolatileCacheDevice device(loop, slow);
    Player player(loop, device, random);
    for (int step = 0; step < 120 && !::testing::Test::HasFatalFailure(); ++step) {
      switch (random.Below(8)) {
        case 0:
          player.FlushMeanwhileWriting();
          break;
        case 1:
          player.PowerCut();
          break;
        case 2:
          player.ReadAll(player.model().now);
          break;
        default:
          player.WriteSome();
      }
    }
  }
}

}  // namespace
}  // namespace eplog
