// How long an SSD's requests take, against what one can work out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/random.h"
#include "sim/timeline.h"
#include "tests/sim/sim_util.h"

namespace eplog::sim::test {
namespace {

TEST(Timeline, FillsGapsAndPromisesNothingTwice) {
  Timeline line;
  EXPECT_EQ(line.Take(0, 100, 50), 150U);
  EXPECT_EQ(line.Take(0, 0, 100), 100U);  // fits in front
  EXPECT_EQ(line.Take(0, 0, 10), 160U);   // does not
  EXPECT_EQ(line.Take(0, 300, 10), 310U);
  EXPECT_EQ(line.Take(0, 155, 100), 260U);  // between
  EXPECT_EQ(line.Take(0, 155, 100), 410U);  // no gap is wide enough any more
  EXPECT_EQ(line.Take(500, 500, 10), 510U);
}

TEST(DieClock, ReadsWaitForOneOperationOnly) {
  DieClock die;
  EXPECT_EQ(die.Work(0, 1000), 1000U);
  EXPECT_EQ(die.Work(0, 1000), 2000U);
  EXPECT_EQ(die.Read(100, 50, 1000, true), 1050U);
  EXPECT_EQ(die.Work(0, 1000), 3050U);  // the read has delayed what was behind it
  EXPECT_EQ(die.Read(100, 50, 1000, false), 3100U);
}

struct Ssd {
  explicit Ssd(const SsdParameters& parameters, uint64_t size = 64 * kMiB)
      : device(loop, "ssd", parameters, size) {}

  VirtualLoop loop;
  SimSsd device;

  // Sequential writes of 128 KiB, eight at once, and a flush; bytes a second.
  double WriteRate(uint64_t bytes) {
    const Buffer buffer = Filled(128 << 10, 1);
    const uint64_t us = Elapsed(loop, 8, bytes / buffer.size(), [&](uint64_t i) {
      return eplog::test::WriteTask(device, i * buffer.size() % device.size_bytes(), buffer);
    });
    return PerSecond(bytes, us + Elapsed(loop, device.Flush()));
  }

  // Random reads of a page; requests a second.
  double ReadRate(uint32_t depth, uint64_t count) {
    const Buffer buffer = Pool().Get(kPage);
    Random random(5);
    const uint64_t us = Elapsed(loop, depth, count, [&](uint64_t) {
      return eplog::test::ReadTask(device, random.Below(device.size_bytes() / kPage) * kPage,
                                   buffer);
    });
    return PerSecond(count, us);
  }
};

TEST(SsdRate, SequentialWritesAreBoundByTheDies) {
  Ssd ssd(PlainSsd());
  const double measured = ssd.WriteRate(64 * kMiB);
  const double expected = 8 * 4 * kPage / 1e-3;  // dies, pages of a program, time of a program
  std::printf("%.1f MB/s, expected %.1f (%+.2f %%)\n", measured / 1e6, expected / 1e6,
              100 * RelativeError(measured, expected));
  EXPECT_NEAR(measured / expected, 1, 0.02);
}

TEST(SsdRate, SequentialWritesAreBoundByTheLink) {
  SsdParameters slow_link = PlainSsd();
  slow_link.link.write_bytes_per_s = 50'000'000;
  Ssd ssd(slow_link);
  EXPECT_NEAR(ssd.WriteRate(32 * kMiB) / 50e6, 1, 0.01);
}

TEST(SsdRate, SequentialWritesAreBoundByTheChannels) {
  SsdParameters slow_channels = PlainSsd();
  slow_channels.flash.channel_bytes_per_s = 10'000'000;
  Ssd ssd(slow_channels);
  EXPECT_NEAR(ssd.WriteRate(32 * kMiB) / (4 * 10e6), 1, 0.02);
}

TEST(SsdLatency, AReadIsTheSumOfItsParts) {
  SsdParameters parameters = PlainSsd();
  parameters.link.request_ns = 3 * kUs;
  parameters.link.read_latency_ns = 20 * kUs;
  parameters.link.read_bytes_per_s = 409'600'000;      // 10 us a page
  parameters.flash.channel_bytes_per_s = 204'800'000;  // 20 us a page
  Ssd ssd(parameters);
  ssd.device.Precondition(1, 0);
  const Buffer page = Pool().Get(kPage);
  EXPECT_EQ(Elapsed(ssd.loop, eplog::test::ReadTask(ssd.device, 0, page)), 3U + 50 + 20 + 10 + 20);
  // Sixteen pages are two on each of eight dies, two dies on a channel. The last of the four pages
  // that a channel carries has come when both dies have read twice and two transfers more; the link
  // has carried the others by then but for the three that came with it.
  const Buffer pages = Pool().Get(16 * kPage);
  const uint64_t many = Elapsed(ssd.loop, eplog::test::ReadTask(ssd.device, 0, pages));
  EXPECT_GE(many, 3U + 16 * 10 + 20);
  EXPECT_LE(many, 3U + 2 * 50 + 4 * 20 + 16 * 10 + 20);
}

TEST(SsdLatency, WhatWasNeverWrittenNeedsNoFlash) {
  Ssd ssd(PlainSsd());
  const Buffer page = Pool().Get(kPage);
  EXPECT_LE(Elapsed(ssd.loop, eplog::test::ReadTask(ssd.device, 0, page)), 1U);
  EXPECT_EQ(ssd.device.model().counters().flash_reads, 0U);
}

TEST(SsdRate, ManyReadsAreBoundByTheDies) {
  Ssd ssd(PlainSsd());
  ssd.device.Precondition(1, 0);
  EXPECT_NEAR(ssd.ReadRate(1, 2000) / (1 / 51e-6), 1, 0.01);
  const double measured = ssd.ReadRate(512, 100000);
  const double expected = 8 / 50e-6;
  std::printf("%.0f reads/s, expected %.0f (%+.2f %%)\n", measured, expected,
              100 * RelativeError(measured, expected));
  EXPECT_NEAR(measured / expected, 1, 0.03);
}

TEST(SsdRate, ManyReadsAreBoundByTheChannels) {
  SsdParameters slow_channels = PlainSsd();
  slow_channels.flash.channel_bytes_per_s = 40'960'000;  // 100 us a page
  Ssd ssd(slow_channels);
  ssd.device.Precondition(1, 0);
  const double measured = ssd.ReadRate(512, 50000);
  const double expected = 4 / 100e-6;
  std::printf("%.0f reads/s, expected %.0f (%+.2f %%)\n", measured, expected,
              100 * RelativeError(measured, expected));
  EXPECT_NEAR(measured / expected, 1, 0.03);
}

TEST(SsdRate, ManyReadsAreBoundByTheLinkAndTheDepthOfTheQueue) {
  SsdParameters slow_link = PlainSsd();
  slow_link.link.request_ns = 15 * kUs;
  slow_link.link.read_bytes_per_s = 819'200'000;  // 5 us a page
  {
    Ssd ssd(slow_link);
    ssd.device.Precondition(1, 0);
    EXPECT_NEAR(ssd.ReadRate(256, 20000) / (1 / 20e-6), 1, 0.01);
  }
  slow_link.link.read_latency_ns = 1000 * kUs;
  slow_link.link.queue_depth = 4;  // little's law
  Ssd ssd(slow_link);
  ssd.device.Precondition(1, 0);
  const double rate = ssd.ReadRate(256, 5000);
  EXPECT_LT(rate, 4 / 1070e-6);
  EXPECT_GT(rate, 4 / 1070e-6 * 0.95);
}

TEST(SsdBuffer, AcknowledgesAtOnceUntilItIsFull) {
  SsdParameters parameters = PlainSsd();
  parameters.link.write_latency_ns = 5 * kUs;
  Ssd ssd(parameters);
  const Buffer buffer = Filled(64 << 10, 1);
  const auto write = [&](uint64_t i) {
    return Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, i * buffer.size(), buffer));
  };
  uint64_t at_once = 0;
  while (write(at_once) <= 10) {
    ++at_once;
  }
  // 2 MiB, and what has left it in the meantime (next to nothing).
  EXPECT_GE(at_once, 32U);
  EXPECT_LE(at_once, 34U);
  uint64_t us = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    us += write(at_once + 1 + i);
  }
  EXPECT_NEAR(PerSecond(100 * buffer.size(), us) / (8 * 4 * kPage / 1e-3), 1, 0.05);
}

TEST(SsdBuffer, WritesOverWhatHasNotLeft) {
  Ssd ssd(PlainSsd());
  const Buffer page = Filled(kPage, 1);
  for (int i = 0; i < 10; ++i) {
    Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 0, page));
  }
  Elapsed(ssd.loop, ssd.device.Flush());
  EXPECT_EQ(ssd.device.model().counters().absorbed_pages, 9U);
  EXPECT_EQ(ssd.device.model().ftl().counters().host_pages, 1U);
}

TEST(SsdWrite, PartsOfPagesAreMerged) {
  SsdParameters parameters = PlainSsd();
  Ssd ssd(parameters);
  const Buffer sector = Filled(512, 1);
  Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 512, sector));
  Elapsed(ssd.loop, ssd.device.Flush());
  EXPECT_EQ(ssd.device.model().counters().merged_pages, 0U);  // there was nothing to merge with
  Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 1024, sector));
  const uint64_t flush_us = Elapsed(ssd.loop, ssd.device.Flush());
  EXPECT_EQ(ssd.device.model().counters().merged_pages, 1U);
  EXPECT_EQ(ssd.device.model().counters().flash_reads, 1U);
  EXPECT_GE(flush_us, 1050U);                 // a read and a program
  const Buffer pages = Filled(2 * kPage, 2);  // two halves and a whole one
  Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 4096 + 2048, pages));
  EXPECT_EQ(ssd.device.model().ftl().counters().host_pages, 2U);
  Elapsed(ssd.loop, ssd.device.Flush());
  EXPECT_EQ(ssd.device.model().ftl().counters().host_pages, 5U);
  EXPECT_TRUE(Holds(ssd.loop, ssd.device, 1024, 512, 1));
  EXPECT_TRUE(Holds(ssd.loop, ssd.device, 4096 + 2048, 2 * kPage, 2));
}

// With random overwrites the dies' time goes into programs of the host and into collection, to the
// nanosecond: rate = pages / ((programs x time + collection) / dies).
TEST(SsdCollection, TakesTheTimeThatTheHostMisses) {
  Ssd ssd(PlainSsd());
  ssd.device.Precondition(1, 200);
  const Buffer page = Filled(kPage, 1);
  Random random(3);
  constexpr uint64_t kWrites = 30000;
  uint64_t us = Elapsed(ssd.loop, 64, kWrites, [&](uint64_t) {
    return eplog::test::WriteTask(ssd.device, random.Below(64 * kMiB / kPage) * kPage, page);
  });
  us += Elapsed(ssd.loop, ssd.device.Flush());
  const SsdCounters& counters = ssd.device.model().counters();
  const FtlCounters& ftl = ssd.device.model().ftl().counters();
  const double busy_us =
      (static_cast<double>(counters.programs) * 1e6 + static_cast<double>(counters.gc_busy_ns)) /
      8e3;
  std::printf("%.0f writes/s, write amplification %.2f; dies busy %.1f %%\n",
              PerSecond(kWrites, us), ftl.write_amplification(),
              100 * busy_us / static_cast<double>(us));
  EXPECT_GT(ftl.write_amplification(), 2);
  EXPECT_GT(ftl.gc_runs, 100U);
  EXPECT_NEAR(busy_us / static_cast<double>(us), 1, 0.05);
  EXPECT_EQ(counters.gc_programs * 4 / 10, ftl.moved_pages / 10);
  EXPECT_EQ(ssd.device.model().ftl().Fault(), "");
}

// The longest of 2,000 reads while pages are overwritten at random.
uint64_t LongestRead(bool aged, bool reads_first) {
  SsdParameters parameters = PlainSsd();
  parameters.flash.reads_first = reads_first;
  Ssd ssd(parameters);
  ssd.device.Precondition(1, aged ? 200 : 0);
  const Buffer page = Filled(kPage, 1);
  const Buffer into = Pool().Get(kPage);
  Random random(3);
  uint64_t longest = 0;
  for (int i = 0; i < 2000; ++i) {
    for (int j = 0; j < 4; ++j) {
      Elapsed(ssd.loop,
              eplog::test::WriteTask(ssd.device, random.Below(64 * kMiB / kPage) * kPage, page));
    }
    longest = std::max(
        longest, Elapsed(ssd.loop, eplog::test::ReadTask(
                                       ssd.device, random.Below(64 * kMiB / kPage) * kPage, into)));
  }
  return longest;
}

TEST(SsdCollection, ReadsMeetIt) {
  const uint64_t aged = LongestRead(true, false);
  const uint64_t first = LongestRead(true, true);
  std::printf("longest read behind collection %lu us, in front of it %lu us\n", aged, first);
  EXPECT_GT(aged, 10000U);            // dozens of programs and an erase
  EXPECT_LE(first, 1000U + 50 + 10);  // one operation
}

TEST(SsdTrim, ForgetsWholePagesAndReadsZeros) {
  Ssd ssd(PlainSsd());
  const Buffer pages = Filled(8 * kPage, 1);
  Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 0, pages));
  Elapsed(ssd.loop, ssd.device.Flush());
  Elapsed(ssd.loop, ssd.device.Discard(2048, 4 * kPage));
  const Ftl& ftl = ssd.device.model().ftl();
  EXPECT_EQ(ftl.counters().trimmed_pages, 3U);
  EXPECT_TRUE(ftl.IsMapped(0) && ftl.IsMapped(4));
  EXPECT_FALSE(ftl.IsMapped(1) || ftl.IsMapped(3));
  const Buffer got = Filled(kPage, 9);
  Elapsed(ssd.loop, eplog::test::ReadTask(ssd.device, 2 * kPage, got));
  EXPECT_TRUE(eplog::test::Same(got, Pool().GetZeroed(kPage)));
  // What only lay in the buffer never gets to the flash.
  Elapsed(ssd.loop, eplog::test::WriteTask(ssd.device, 32 * kPage, Filled(kPage, 1)));
  Elapsed(ssd.loop, ssd.device.Discard(32 * kPage, kPage));
  Elapsed(ssd.loop, ssd.device.Flush());
  EXPECT_FALSE(ftl.IsMapped(32));
  EXPECT_EQ(ftl.counters().host_pages, 8U);
}

TEST(SsdRequest, IsRefusedWhereADiskWouldRefuseIt) {
  Ssd ssd(PlainSsd());
  const Buffer page = Filled(kPage, 1);
  const auto past = eplog::test::Write(ssd.loop, ssd.device, 64 * kMiB - 512, page);
  ASSERT_FALSE(past.ok());
  EXPECT_EQ(past.error().code, ErrorCode::kIo);
  const auto odd = eplog::test::Write(ssd.loop, ssd.device, 100, page);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(ssd.device.capabilities().discard);
}

}  // namespace
}  // namespace eplog::sim::test
