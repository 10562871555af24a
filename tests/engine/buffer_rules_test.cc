// Which chunks lie in which buffer, which leave when one is full or made smaller, for how long any
// stays, and how much all of them hold at most.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kData = 6;  // chunks of a stripe: 6+2
constexpr uint64_t kSsds = 8;
constexpr uint64_t kStripes = 64;
constexpr uint64_t kFresh = 2 * kStripes;  // the first stripe that was never written

class BufferRules : public ::testing::Test {
 protected:
  void Make(const BufferSizes& sizes) {
    ArrayShape shape;
    shape.auto_commit = false;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 4 * kStripes * kData * kChunk);
    ASSERT_TRUE(
        test_->Write(volume_, 0, std::vector<std::byte>(kStripes * kData * kChunk, std::byte{1}))
            .ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    ASSERT_TRUE(test_->array->SetBuffers(sizes).ok());
    logged_ = Now().log_stripe_members;
  }
  void Put(uint64_t stripe, uint64_t index) {
    const std::vector<std::byte> data(kChunk, static_cast<std::byte>(stripe + index));
    ASSERT_TRUE(test_->Write(volume_, (stripe * kData + index) * kChunk, data).ok());
  }
  // Whether another write of it is absorbed. It lies there afterwards, either way.
  bool Absorbs(uint64_t stripe, uint64_t index) {
    const uint64_t hits = Now().buffer_hits;
    Put(stripe, index);
    return Now().buffer_hits != hits;
  }
  Traffic Now() { return test_->array->GetStatus().traffic; }
  // Chunks that have gone to the log since Make.
  uint64_t Logged() { return Now().log_stripe_members - logged_; }
  uint64_t HeldBytes() { return test_->array->GetStatus().unstable_bytes; }
  // As many on each SSD, and never all of a stripe. The volume's stripes are the array's.
  std::vector<std::pair<uint64_t, uint64_t>> PutOnEach(uint64_t on_each) {
    const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
    EXPECT_TRUE(superblock.ok());
    const Geometry& g = superblock->geometry;
    std::vector<std::pair<uint64_t, uint64_t>> all;
    std::array<uint64_t, kSsds> on{};
    for (uint32_t stripe = 0; stripe < kStripes && all.size() < kSsds * on_each; ++stripe) {
      for (uint32_t index = 0; index < kData; ++index) {
        uint64_t& count = on[g.SsdOf(StripeIndex(stripe), index).value];
        if (count < on_each && index != stripe % kData) {
          ++count;
          Put(stripe, index);
          all.emplace_back(stripe, index);
        }
      }
    }
    EXPECT_EQ(all.size(), kSsds * on_each);
    return all;
  }
  void SlowLog(uint64_t us) {
    DeviceDelays slow;
    slow.write_us = us;
    test_->delayed(8).set_delays(slow);
    test_->delayed(9).set_delays(slow);
  }
  // Until the write is acknowledged.
  uint64_t TimeOf(uint64_t stripe, uint64_t index) {
    const uint64_t begun_us = test_->loop.NowUs();
    Put(stripe, index);
    return test_->loop.NowUs() - begun_us;
  }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  uint64_t logged_ = 0;
};

// Updates and what was never written have buffers of their own, and one may be there without the
// other: what has none is acknowledged when it is in the log.
TEST_F(BufferRules, EachKindIsAcknowledgedInItsBufferOrInTheLog) {
  struct Case {
    BufferSizes sizes;
    bool update_waits;
    bool fresh_waits;
  };
  for (const Case& c : {Case{{.device_chunks = 0, .stripes = 0}, true, true},
                        Case{{.device_chunks = 0, .stripes = 3}, true, false},
                        Case{{.device_chunks = 1, .stripes = 0}, false, false},
                        Case{{.device_chunks = 1, .stripes = 1}, false, false},
                        Case{{.device_chunks = 2, .stripes = 3}, false, false}}) {
    SCOPED_TRACE(std::to_string(c.sizes.device_chunks) + "/" + std::to_string(c.sizes.stripes));
    Make(c.sizes);
    Put(kFresh, 5);  // its extent is there
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    SlowLog(1'000'000);
    EXPECT_EQ(TimeOf(5, 1) >= 1'000'000, c.update_waits);
    EXPECT_EQ(TimeOf(kFresh + 1, 2) >= 1'000'000, c.fresh_waits);
    SlowLog(0);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
}

TEST_F(BufferRules, SmallerDeviceBuffersKeepTheirNewest) {
  Make({.device_chunks = 16, .stripes = 0});
  const auto put = PutOnEach(5);
  EXPECT_EQ(Logged(), 0U);
  EXPECT_EQ(HeldBytes(), 40 * kChunk);
  ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 6, .stripes = 0}).ok());
  EXPECT_EQ(Logged(), 0U);
  // A buffer of that many is drained before it holds as many.
  ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 4, .stripes = 0}).ok());
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 2 * kSsds);
  EXPECT_TRUE(Absorbs(put.back().first, put.back().second)) << "the newest";
  EXPECT_FALSE(Absorbs(put.front().first, put.front().second)) << "the oldest";
  ASSERT_TRUE(test_->array->SetBuffers({}).ok());
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 41U);
  // Nothing is buffered any more, nor after that.
  Put(40, 0);
  EXPECT_EQ(Logged(), 42U);
}

TEST_F(BufferRules, AFullStripeBufferLosesItsOldestStripe) {
  Make({.device_chunks = 0, .stripes = 3});
  for (const uint64_t stripe : {2U, 0U, 1U}) {
    Put(kFresh + stripe, 1);
  }
  Put(kFresh + 2, 4);
  EXPECT_EQ(Logged(), 0U);
  Put(kFresh + 3, 0);
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 2U) << "all of the one whose first chunk came first";
  EXPECT_TRUE(Absorbs(kFresh + 0, 1));
  EXPECT_TRUE(Absorbs(kFresh + 1, 1));
  EXPECT_TRUE(Absorbs(kFresh + 3, 0));
  ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 0, .stripes = 1}).ok());
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 4U);
  EXPECT_TRUE(Absorbs(kFresh + 3, 0)) << "the newest stays";
  ASSERT_TRUE(test_->array->SetBuffers({}).ok());
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 5U);
}

// A stripe of which a part has gone to the log already is no fresh one any more: what is written to
// it then lies in the device buffers, and stays when the rest of it leaves.
TEST_F(BufferRules, AStripeThatLeavesItsBufferLeavesNoOther) {
  Make({.device_chunks = 16, .stripes = 1});
  Put(kFresh, 0);
  Put(kFresh, 1);
  const uint64_t second = (kFresh * kData + 1) * kChunk;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, second, kChunk)).ok());
  EXPECT_EQ(Logged(), 1U);
  Put(kFresh, 2);
  EXPECT_EQ(Logged(), 1U);
  Put(kFresh + 1, 0);
  test_->Sleep(1);
  EXPECT_EQ(Logged(), 2U) << "only what was there when it was fresh";
  EXPECT_TRUE(Absorbs(kFresh, 2));
  EXPECT_TRUE(Absorbs(kFresh + 1, 0));
  EXPECT_FALSE(Absorbs(kFresh, 0));
}

// Each by its own age, in whichever buffer it lies, and nothing else with it.
TEST_F(BufferRules, WhatIsFiveSecondsOldGoesAndTheYoungerStays) {
  struct Step {
    uint64_t stripe;
    uint64_t index;
  };
  for (const std::vector<Step>& steps :
       std::vector<std::vector<Step>>{{{3, 0}, {4, 5}, {3, 5}},
                                      {{3, 5}, {4, 0}, {3, 0}},
                                      {{kFresh, 0}, {kFresh + 1, 3}, {kFresh + 2, 0}},
                                      {{kFresh, 2}, {5, 0}, {kFresh + 4, 1}},
                                      {{5, 0}, {kFresh, 2}, {6, 1}}}) {
    Make({.device_chunks = 64, .stripes = 8});
    for (const Step& step : steps) {
      Put(step.stripe, step.index);
      test_->Sleep(1'500'000);
    }
    for (uint64_t gone = 0; gone < steps.size(); ++gone) {
      EXPECT_EQ(Logged(), gone);  // 4.5 s since the oldest that is left
      test_->Sleep(400'000);
      EXPECT_EQ(Logged(), gone);
      test_->Sleep(1'100'000);
    }
    EXPECT_EQ(Logged(), steps.size());
    EXPECT_EQ(Now().buffer_hits, 0U);
  }
}

// What waits in them, and what four entries of full width have on their way: who comes beyond that
// waits for the log, and everybody is served in the end.
TEST_F(BufferRules, HoldNoMoreThanTheirSizesAndWhatIsOnItsWay) {
  for (const BufferSizes& sizes : {BufferSizes{.device_chunks = 2, .stripes = 0},
                                   BufferSizes{.device_chunks = 1, .stripes = 3},
                                   BufferSizes{.device_chunks = 5, .stripes = 1}}) {
    Make(sizes);
    SlowLog(1'000'000);
    const uint64_t most = kSsds * sizes.device_chunks + kData * sizes.stripes + 4 * kSsds;
    const std::vector<std::byte> data(kChunk, std::byte{9});
    uint64_t done = 0;
    constexpr uint64_t kWrites = 200;
    for (uint64_t i = 0; i < kWrites; ++i) {
      const uint64_t chunk = i / 5 * kData + i % 5;
      test_->loop.Spawn([](Array& array, VolumeId id, uint64_t at, std::span<const std::byte> from,
                           uint64_t& ended) -> Task<void> {
        Task<Status> writing = array.Write(id, at, from);
        EXPECT_TRUE((co_await writing).ok());
        ++ended;
      }(*test_->array, volume_, chunk * kChunk, data, done));
    }
    test_->Sleep(10'000);
    EXPECT_EQ(done, most);
    EXPECT_EQ(HeldBytes(), most * kChunk) << "nothing has come to the log yet";
    ASSERT_TRUE(test_->loop.RunUntil([&] { return done == kWrites; }));
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    EXPECT_EQ(HeldBytes(), 0U);
    EXPECT_EQ(Logged(), kWrites);
  }
}

// What lies in buffers has its room in the log promised. Who finds none left does not wait until it
// is old.
TEST(BufferRoom, ComesBackWhenSomebodyWaitsForIt) {
  ArrayShape shape;
  shape.log_bytes = uint64_t{1} << 20;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  shape.buffers = {.device_chunks = 1000, .stripes = 0};
  TestArray test(shape);
  const VolumeId id = test.CreateVolume("v", 128 * kData * kChunk);
  const std::vector<std::byte> data(128 * kData * kChunk, std::byte{1});
  ASSERT_TRUE(test.Write(id, 0, data).ok());
  uint64_t longest_us = 0;
  for (uint64_t chunk = 0; chunk < 128 * kData; ++chunk) {
    if (chunk % kData != 5) {  // never all of a stripe
      const uint64_t begun_us = test.loop.NowUs();
      ASSERT_TRUE(test.Write(id, chunk * kChunk, std::span(data).first(kChunk)).ok());
      longest_us = std::max(longest_us, test.loop.NowUs() - begun_us);
    }
  }
  EXPECT_GT(longest_us, 0U) << "somebody waited";
  EXPECT_LT(longest_us, 1'000'000U);
  EXPECT_GT(test.hooks().space_waits, 0U);
}

// To the chunk and to the byte, each size by itself and both together.
TEST_F(BufferRules, SizesAreRefusedBeyondTheArrayOrTheirMemory) {
  Make({});
  const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  const uint32_t slots = superblock->geometry.slots;
  const uint32_t stripes = superblock->geometry.stripes;
  const auto takes = [&](uint32_t device_chunks, uint32_t of_stripes) {
    const Status status =
        test_->array->SetBuffers({.device_chunks = device_chunks, .stripes = of_stripes});
    if (!status.ok()) {
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      const std::string& said = status.error().message;
      EXPECT_NE(said.find("buffers of " + std::to_string(device_chunks) + " chunks an SSD and " +
                          std::to_string(of_stripes) + " stripes"),
                std::string::npos)
          << said;
    }
    return status.ok();
  };
  EXPECT_TRUE(takes(slots, stripes));
  EXPECT_FALSE(takes(slots + 1, 0));
  EXPECT_FALSE(takes(0, stripes + 1));
  EXPECT_TRUE(takes(0, 0));
  ASSERT_TRUE(test_->Close().ok());
  test_->shape().max_buffer_bytes = uint64_t{12} << 20;
  test_->Open();
  EXPECT_TRUE(takes(384, 0));  // 8 SSDs
  EXPECT_FALSE(takes(385, 0));
  EXPECT_TRUE(takes(0, 512));  // 6 chunks each
  EXPECT_FALSE(takes(0, 513));
  EXPECT_TRUE(takes(192, 256));
  EXPECT_FALSE(takes(193, 256));
  EXPECT_FALSE(takes(192, 257));
  // What was refused has changed nothing: what it holds now is of the sizes before.
  logged_ = Now().log_stripe_members;
  PutOnEach(5);
  EXPECT_EQ(Logged(), 0U);
}

}  // namespace
}  // namespace eplog
