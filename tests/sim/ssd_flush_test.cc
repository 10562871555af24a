// What a flush of an SSD waits for, and what not.
#include <gtest/gtest.h>

#include <optional>

#include "base/random.h"
#include "tests/sim/sim_util.h"

namespace eplog::sim::test {
namespace {

class SsdFlush : public ::testing::Test {
 protected:
  void Start(const SsdParameters& parameters) {
    device_.emplace(loop_, "ssd", parameters, 64 * kMiB);
  }
  uint64_t Write(uint64_t page, uint64_t pages = 1) {
    return Elapsed(loop_, eplog::test::WriteTask(*device_, page * kPage, Filled(pages * kPage, 1)));
  }
  uint64_t Flush() { return Elapsed(loop_, device_->Flush()); }
  uint64_t FlushRange(uint64_t page, uint64_t pages = 1) {
    return Elapsed(loop_, device_->FlushRange(page * kPage, pages * kPage));
  }
  [[nodiscard]] const Ftl& ftl() const { return device_->model().ftl(); }

  VirtualLoop loop_;
  std::optional<SimSsd> device_;
};

TEST_F(SsdFlush, ProgramsWhatIsLessThanAUnit) {
  Start(PlainSsd());
  Write(0);
  EXPECT_FALSE(ftl().IsMapped(0));  // it waits for three others
  EXPECT_NEAR(static_cast<double>(Flush()), 1000, 5);
  EXPECT_TRUE(ftl().IsMapped(0));
  EXPECT_EQ(ftl().counters().padded_pages, 3U);
  EXPECT_LE(Flush(), 1U);  // nothing is left
  EXPECT_EQ(ftl().counters().padded_pages, 3U);
}

TEST_F(SsdFlush, WaitsForUnitsThatAreOnTheirWay) {
  Start(PlainSsd());
  Write(0, 4);
  EXPECT_TRUE(ftl().IsMapped(0));  // begun at once
  EXPECT_NEAR(static_cast<double>(Flush()), 1000, 5);
  EXPECT_EQ(ftl().counters().padded_pages, 0U);
}

TEST_F(SsdFlush, DrainsWholeUnitsOnAllDies) {
  Start(PlainSsd());
  Write(0, 8 * 4 * 5);  // five units a die
  EXPECT_NEAR(static_cast<double>(Flush()), 5000, 10);
}

// Somebody writes on and on; a flush covers what was there when it was called.
TEST_F(SsdFlush, DoesNotWaitForWhatComesLater) {
  Start(PlainSsd());
  bool stop = false;
  uint64_t written = 0;
  const auto write_on = [](VirtualLoop* loop, SimSsd* ssd, const bool* end,
                           uint64_t* count) -> Task<void> {
    const Buffer page = Filled(kPage, 1);
    while (!*end) {
      Task<Status> write = eplog::test::WriteTask(*ssd, *count % 8192 * kPage, page);
      const Status status = co_await write;
      EXPECT_TRUE(status.ok());
      ++*count;
      co_await loop->Sleep(20);
    }
  };
  loop_.Spawn(write_on(&loop_, &*device_, &stop, &written));
  Write(9000);
  EXPECT_LE(Flush(), 2100U);
  EXPECT_TRUE(ftl().IsMapped(9000));
  EXPECT_GT(written, 40U);
  EXPECT_GT(device_->model().buffered_pages(), 0U);
  stop = true;
  eplog::test::RunDry(loop_);
}

TEST_F(SsdFlush, CoversAPageThatIsWrittenOverMeanwhile) {
  Start(PlainSsd());
  Write(0, 4);  // on its way
  Write(0);     // a newer version, queued
  EXPECT_GE(Flush(), 1000U);
  EXPECT_EQ(ftl().counters().host_pages, 5U);
  EXPECT_EQ(device_->model().buffered_pages(), 0U);
}

TEST_F(SsdFlush, IsNothingWithCapacitors) {
  SsdParameters parameters = PlainSsd();
  parameters.capacitor = true;
  parameters.link.write_latency_ns = 7 * kUs;
  Start(parameters);
  Write(0, 64);
  Write(100);
  EXPECT_LE(Flush(), 8U);
  EXPECT_LE(FlushRange(100), 8U);
  EXPECT_EQ(ftl().counters().padded_pages, 0U);
  EXPECT_GT(device_->model().buffered_pages(), 0U);
}

TEST_F(SsdFlush, OfARangeGoesFirstAndWaitsForNothingElse) {
  Start(PlainSsd());
  Write(0, 480);  // fifteen units a die
  Write(5000);
  // Its unit is behind the two that its die already has.
  const uint64_t range_us = FlushRange(5000);
  EXPECT_LE(range_us, 3100U);
  EXPECT_TRUE(ftl().IsMapped(5000));
  EXPECT_GT(device_->model().buffered_pages(), 300U);
  const uint64_t rest_us = Flush();
  EXPECT_GE(range_us + rest_us, 15000U);
  EXPECT_EQ(device_->model().buffered_pages(), 0U);
}

TEST_F(SsdFlush, OfARangeFillsItsUnitWithOthers) {
  Start(PlainSsd());
  Write(0);
  Write(100);
  Write(200);
  FlushRange(200);
  EXPECT_EQ(ftl().counters().padded_pages, 1U);
  EXPECT_TRUE(ftl().IsMapped(0) && ftl().IsMapped(100) && ftl().IsMapped(200));
}

TEST_F(SsdFlush, OfARangeThatIsCleanIsNothing) {
  Start(PlainSsd());
  Write(0, 480);
  EXPECT_LE(FlushRange(5000, 100), 1U);
  const auto past = Await(loop_, device_->FlushRange(64 * kMiB, 4096));
  EXPECT_FALSE(past.ok());
}

TEST_F(SsdFlush, OfARangeWaitsForItsPagesThatAreOnTheirWay) {
  Start(PlainSsd());
  Write(0, 4);
  EXPECT_NEAR(static_cast<double>(FlushRange(2)), 1000, 5);
}

// Random writes, flushes of all and of ranges: when one returns, what it covers is mapped and no
// longer in the buffer.
TEST_F(SsdFlush, KeepsItsWordUnderLoad) {
  Start(PlainSsd());
  device_->Precondition(1, 100);
  Random random(3);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t page = random.Below(16000);
    Write(page, random.Between(1, 16));
    if (random.OneIn(20)) {
      FlushRange(page);
      Write(page);
      Flush();
      ASSERT_EQ(device_->model().buffered_pages(), 0U);
    }
  }
  EXPECT_EQ(ftl().Fault(), "");
}

}  // namespace
}  // namespace eplog::sim::test
