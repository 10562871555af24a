// A scrub beside the work of others: it takes what changes meanwhile for no damage, leaves the
// devices to them half of the time, and keeps its mark as time goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kData = 3;
constexpr uint64_t kStripe = kData * kChunk;

class ScrubBeside : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.commit = {.every_writes = 50, .idle_us = 0, .age_us = 0, .on_close = false};
    return shape;
  }
  void Fill(uint64_t rows) {
    rows_ = rows;
    for (uint64_t row = 0; row < rows; row += 64) {
      ASSERT_TRUE(test_.Write(volume_, row * kStripe, RandomBytes(random_, 64 * kStripe)).ok());
    }
    ASSERT_TRUE(test_.Flush().ok());
    test_.Sleep(1'000'000);
  }
  Task<void> Scrub(bool heal) {
    Task<Result<CheckReport>> scrubbing = test_.array->Scrub(heal, Progress());
    report_ = co_await scrubbing;
    ended_us_ = test_.loop.NowUs();
  }
  // Until the scrub has ended, with work of others meanwhile; how long it took.
  uint64_t ScrubWhile(bool heal, const std::function<void()>& work) {
    report_.reset();
    const uint64_t begun = test_.loop.NowUs();
    test_.loop.Spawn(Scrub(heal));
    while (!report_ && test_.loop.NowUs() < begun + 1'000'000'000) {
      work();
      test_.Sleep(1'000);
    }
    EXPECT_TRUE(report_ && report_->ok());
    return ended_us_ - begun;
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", 1024 * kStripe);
  Random random_{7};
  uint64_t rows_ = 0;
  std::optional<Result<CheckReport>> report_;
  uint64_t ended_us_ = 0;
};

// Each read takes so long that what it was to find is overwritten, committed and freed meanwhile,
// and freed slots are taken again at once.
TEST_F(ScrubBeside, FindsNothingWrongInWhatIsReplacedWhileItReads) {
  ASSERT_TRUE(test_.Close().ok());
  test_.hooks().lowest_slot_first = true;
  test_.Open();
  Fill(128);
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = 30'000, .write_us = 10, .flush_us = 10});
  }
  const uint64_t commits = test_.array->GetStatus().traffic.commits;
  uint64_t log_stripes = 0;
  for (int round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 30; ++i) {
      const uint64_t at = random_.Below(rows_ * kData) * kChunk;
      ASSERT_TRUE(test_.Write(volume_, at, RandomBytes(random_, kChunk)).ok());
    }
    ScrubWhile(round % 2 == 1, [this] {
      for (int i = 0; i < 4; ++i) {
        const uint64_t at = random_.Below(rows_ * kData) * kChunk;
        ASSERT_TRUE(test_.Write(volume_, at, RandomBytes(random_, kChunk)).ok());
      }
      ASSERT_TRUE(test_.Flush().ok());
    });
    ASSERT_TRUE(report_ && report_->ok());
    EXPECT_EQ((*report_)->problems_found, 0U) << (*report_)->findings.front().Text();
    log_stripes += (*report_)->log_stripes_checked;
  }
  EXPECT_GT(log_stripes, 20U);
  EXPECT_GT(test_.array->GetStatus().traffic.commits - commits, 20U);
  for (const DeviceStatus& device : test_.array->GetStatus().devices) {
    EXPECT_EQ(device.corrupt_chunks, 0U) << device.name;
  }
}

// What was asked of the device before is no word about the one that has come in its place.
TEST_F(ScrubBeside, ADeviceThatIsReplacedWhileItReadsIsNotBlamed) {
  // In an order in which nothing lies side by side: many requests for each batch.
  std::vector<uint64_t> order(512);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[random_.Below(i + 1)]);
  }
  for (const uint64_t row : order) {
    ASSERT_TRUE(test_.Write(volume_, row * kStripe, RandomBytes(random_, kStripe)).ok());
  }
  ASSERT_TRUE(test_.Flush().ok());
  for (const bool heal : {false, true}) {
    SCOPED_TRACE(heal);
    test_.Sleep(1'000'000);
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      test_.delayed(i).set_delays({.read_us = 40'000});
    }
    int turns = 0;
    ScrubWhile(heal, [&] {
      if (++turns == 250) {  // in the middle of large batches
        EXPECT_FALSE(report_);
        ASSERT_TRUE(test_.Fail(1).ok());
        std::ranges::fill(test_.memory(1).bytes(), std::byte{0x5A});
        ASSERT_TRUE(test_.ReplaceByItself(1).ok());
      }
    });
    ASSERT_TRUE(report_ && report_->ok());
    EXPECT_GE(turns, 250);
    EXPECT_EQ((*report_)->problems_found, 0U) << (*report_)->findings.front().Text();
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      test_.delayed(i).set_delays({});
      EXPECT_EQ(test_.array->GetStatus().devices[i].corrupt_chunks, 0U) << i;
    }
    test_.Sleep(30'000'000);
    ASSERT_EQ(test_.State(1), DeviceState::kOk);
  }
}

// Sixteen log stripes at once, or one beside others: each is a member and its log chunk.
TEST_F(ScrubBeside, LogStripesAreReadManyAtOnceUnlessOthersAreAtWork) {
  ASSERT_TRUE(test_.Close().ok());
  test_.shape().commit = {};
  test_.shape().auto_commit = false;
  test_.Open();
  Fill(128);
  constexpr uint64_t kUpdates = 100;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    ASSERT_TRUE(test_.Write(volume_, i * kStripe, RandomBytes(random_, kChunk)).ok());
  }
  ASSERT_TRUE(test_.Flush().ok());
  test_.Sleep(20'000'000);
  constexpr uint64_t kReadUs = 10'000;
  for (uint32_t i = 0; i <= kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = kReadUs});
  }
  const auto flush = [this] { ASSERT_TRUE(test_.Flush().ok()); };
  const uint64_t one_by_one = kUpdates * 2 * kReadUs;
  EXPECT_GE(ScrubWhile(false, flush), one_by_one);
  EXPECT_EQ((*report_)->log_stripes_checked, kUpdates);
  EXPECT_LE(ScrubWhile(false, [] {}), one_by_one / 2);
  EXPECT_EQ((*report_)->log_stripes_checked, kUpdates);
}

// A batch of 32 KiB of each SSD takes one read, and as long again nothing is read.
TEST_F(ScrubBeside, RestsAsLongAsItReads) {
  Fill(1024);
  constexpr uint64_t kReadUs = 4'000;
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = kReadUs, .write_us = 10, .flush_us = 10});
  }
  const uint64_t batches = rows_ * kChunk / (uint64_t{32} << 10);
  const uint64_t beside = ScrubWhile(false, [this] { ASSERT_TRUE(test_.Flush().ok()); });
  const uint64_t alone = ScrubWhile(false, [] {});
  EXPECT_LT(alone, beside / 2);
  EXPECT_GE(beside, batches * kReadUs * 3 / 2);
  EXPECT_LE(beside, batches * kReadUs * 3);
}

// Every ten seconds, and what is before a mark has been read: who goes on there reads the rest.
TEST_F(ScrubBeside, MarksComeEveryTenSeconds) {
  Fill(1024);
  ASSERT_TRUE(test_.Close().ok());
  std::vector<uint64_t> at_us;
  std::vector<uint64_t> next;
  OpenOptions options;
  options.entropy = 77;
  options.scrub_mark.load = [] { return std::optional<ScrubMark>(); };
  options.scrub_mark.save = [&](const std::optional<ScrubMark>& mark) {
    at_us.push_back(test_.loop.NowUs());
    next.push_back(mark ? mark->next_stripe : UINT64_MAX);
  };
  auto opened = RunTask(test_.loop, Array::Open(test_.loop, test_.Devices(), options));
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  test_.array = std::move(*opened);
  constexpr uint64_t kReadUs = 500'000;
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = kReadUs, .write_us = 10, .flush_us = 10});
  }
  const uint64_t begun = test_.loop.NowUs();
  ScrubWhile(false, [this] {
    ASSERT_TRUE(test_.Flush().ok());
    test_.Sleep(20'000);
  });
  ASSERT_TRUE(report_ && report_->ok());
  EXPECT_EQ((*report_)->rows_checked, rows_);
  ASSERT_GT(at_us.size(), 5U);
  EXPECT_EQ(next.back(), UINT64_MAX) << "it has come to its end";
  uint64_t last_us = begun;
  for (size_t i = 0; i + 1 < at_us.size(); ++i) {
    EXPECT_GE(at_us[i] - last_us, 10'000'000U) << i;
    EXPECT_LE(at_us[i] - last_us, 12'500'000U) << i;
    EXPECT_GT(next[i], i == 0 ? 0 : next[i - 1]);
    // Eight rows a second, as it rests half of the time.
    EXPECT_NEAR(static_cast<double>(next[i]), static_cast<double>(at_us[i] - begun) / 1e6 * 8, 16);
    last_us = at_us[i];
  }
}

}  // namespace
}  // namespace eplog
