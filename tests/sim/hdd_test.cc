// A hard disk against what one can work out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "base/random.h"
#include "sim/drive.h"
#include "tests/sim/sim_util.h"

namespace eplog::sim::test {
namespace {

constexpr uint64_t kGb = 1'000'000'000;
constexpr uint64_t kPages = 10 * kGb / kPage;  // of a disk of 10 GB

HddParameters RealHdd() {
  return *LoadDrive("seagate-st1000dm003")->hdd;
}

TEST(DiskGeometry, SeeksGoThroughTheThreeGivenTimes) {
  const HddParameters hdd = PlainHdd();
  const DiskGeometry disk(hdd, 100 * kGb);
  EXPECT_EQ(disk.SeekNs(77, 77), 0U);
  EXPECT_NEAR(static_cast<double>(disk.SeekNs(77, 78)), static_cast<double>(hdd.seek_track_ns),
              0.05 * static_cast<double>(hdd.seek_track_ns));
  EXPECT_NEAR(static_cast<double>(disk.SeekNs(0, disk.tracks())),
              static_cast<double>(hdd.seek_full_ns), 1000);
  Random random(1);
  double sum = 0;
  constexpr int kPairs = 200000;
  for (int i = 0; i < kPairs; ++i) {
    sum +=
        static_cast<double>(disk.SeekNs(random.Below(disk.tracks()), random.Below(disk.tracks())));
  }
  EXPECT_NEAR(sum / kPairs / static_cast<double>(hdd.seek_average_ns), 1, 0.005);
  for (uint64_t distance = 1; distance < disk.tracks() - 1; distance += 97) {
    ASSERT_LE(disk.SeekNs(0, distance), disk.SeekNs(0, distance + 97));
    ASSERT_EQ(disk.SeekNs(0, distance), disk.SeekNs(distance, 0));
  }
}

TEST(DiskGeometry, BytesComeInOrderAndWithoutGaps) {
  const DiskGeometry disk(RealHdd(), 20 * kGb);
  uint64_t track = 0;
  uint64_t ns = 0;
  for (uint64_t offset = 4096; offset <= 20 * kGb; offset += 500'224) {
    ASSERT_GE(disk.TrackOf(offset), track);
    ASSERT_LE(disk.TrackOf(offset), track + 1);
    ASSERT_GT(disk.StreamNs(offset), ns);
    track = disk.TrackOf(offset);
    ns = disk.StreamNs(offset);
  }
  // Reading on from where a transfer ended waits for nothing.
  EXPECT_EQ(disk.RotationNs(disk.StreamNs(12345 * 512), 12345 * 512), 0U);
  EXPECT_EQ(disk.RotationNs(disk.StreamNs(12345 * 512) + 1000, 12345 * 512),
            RealHdd().revolution_ns - 1000);
}

TEST(DiskGeometry, TheWholeDiskTakesAsLongAsItsAverageRateSays) {
  const uint64_t size = LoadDrive("seagate-st1000dm003")->capacity_bytes;
  const DiskGeometry disk(RealHdd(), size);
  const double rate = static_cast<double>(size) / static_cast<double>(disk.StreamNs(size)) * 1e9;
  std::printf("%.1f MB/s on average, the data sheet has 156\n", rate / 1e6);
  EXPECT_NEAR(rate / 156e6, 1, 0.01);
}

class Hdd {
 public:
  Hdd(const HddParameters& parameters, uint64_t size) : device(loop, "hdd", parameters, size) {}

  double RandomReadRate(uint64_t count) {
    const Buffer buffer = Pool().Get(kPage);
    Random random(5);
    const uint64_t us = Elapsed(loop, 1, count, [&](uint64_t) {
      return eplog::test::ReadTask(device, random.Below(device.size_bytes() / kPage) * kPage,
                                   buffer);
    });
    return PerSecond(count, us);
  }
  double SequentialRate(bool write, uint64_t begin, uint64_t bytes, uint64_t request,
                        uint32_t depth) {
    const Buffer buffer = Filled(request, 1);
    uint64_t us = Elapsed(loop, depth, bytes / request, [&](uint64_t i) {
      return write ? eplog::test::WriteTask(device, begin + i * request, buffer)
                   : eplog::test::ReadTask(device, begin + i * request, buffer);
    });
    us += Elapsed(loop, device.Flush());
    return PerSecond(bytes, us);
  }
  uint64_t Write(uint64_t offset, uint64_t length = kPage) {
    return Elapsed(loop, eplog::test::WriteTask(device, offset, Filled(length, 1)));
  }
  uint64_t Read(uint64_t offset, uint64_t length = kPage) {
    return Elapsed(loop, eplog::test::ReadTask(device, offset, Pool().Get(length)));
  }
  uint64_t Flush() { return Elapsed(loop, device.Flush()); }

  VirtualLoop loop;
  SimHdd device;
};

// 1 / (mean seek + half a revolution + transfer).
double Expected(const HddParameters& p, double bytes_per_s) {
  const double ns = static_cast<double>(p.seek_average_ns + p.revolution_ns / 2 +
                                        p.link.request_ns + p.link.read_latency_ns) +
                    kPage / bytes_per_s * 1e9;
  return 1e9 / ns;
}

TEST(HddRate, RandomReadsTakeSeekHalfARevolutionAndTransfer) {
  Hdd plain(PlainHdd(), 100 * kGb);
  double measured = plain.RandomReadRate(20000);
  double expected = Expected(PlainHdd(), 100e6);
  std::printf("one zone: %.2f reads/s, expected %.2f (%+.2f %%)\n", measured, expected,
              100 * RelativeError(measured, expected));
  EXPECT_NEAR(measured / expected, 1, 0.02);
  // Outer tracks hold more, so that random bytes are somewhat nearer to each other than random
  // tracks.
  Hdd real(RealHdd(), LoadDrive("seagate-st1000dm003")->capacity_bytes);
  measured = real.RandomReadRate(20000);
  expected = Expected(RealHdd(), 156e6);
  std::printf("ST1000DM003: %.2f reads/s, expected %.2f (%+.2f %%)\n", measured, expected,
              100 * RelativeError(measured, expected));
  EXPECT_NEAR(measured / expected, 1, 0.05);
}

TEST(HddRate, ASmallerDiskSeeksLikeTheLargeOne) {
  Hdd small(RealHdd(), 8 * kGb);
  EXPECT_NEAR(small.RandomReadRate(10000) / Expected(RealHdd(), 156e6), 1, 0.05);
}

TEST(HddRate, SequentialReadsAndWritesRunAtTheRateOfTheirZone) {
  constexpr uint64_t kBytes = 256 * kMiB;
  constexpr uint64_t kSize = 100 * kGb;
  for (const bool write : {false, true}) {
    for (const uint64_t request : {64U << 10, 512U << 10}) {
      Hdd outer(RealHdd(), kSize);
      const double at_begin = outer.SequentialRate(write, 0, kBytes, request, 2);
      Hdd inner(RealHdd(), kSize);
      const double at_end =
          inner.SequentialRate(write, kSize / kMiB * kMiB - kBytes, kBytes, request, 2);
      std::printf("%s of %lu KiB: %.1f MB/s outside, %.1f inside\n", write ? "writes" : "reads",
                  request >> 10, at_begin / 1e6, at_end / 1e6);
      // Zones have one rate each: the outermost is half a step below 210.
      EXPECT_NEAR(at_begin / (210e6 - 108e6 / 48), 1, 0.03);
      EXPECT_NEAR(at_end / (102e6 + 108e6 / 48), 1, 0.03);
    }
  }
}

TEST(HddRate, OneReaderAtATimeStreamsByReadAhead) {
  Hdd hdd(RealHdd(), 100 * kGb);
  EXPECT_NEAR(hdd.SequentialRate(false, 0, 64 * kMiB, 64 << 10, 1) / 208e6, 1, 0.03);
  HddParameters without = RealHdd();
  without.read_ahead_bytes = 0;
  Hdd plain(without, 100 * kGb);
  // Each request comes too late for its sector and waits for the next revolution.
  EXPECT_LT(plain.SequentialRate(false, 0, 4 * kMiB, 64 << 10, 1), 10e6);
}

TEST(HddReadAhead, StopsAtItsLimitAndGoesOn) {
  Hdd hdd(PlainHdd(), 10 * kGb);
  hdd.Read(0);
  Await(hdd.loop,
        [](VirtualLoop* loop) -> Task<void> { co_await loop->Sleep(1'000'000); }(&hdd.loop));
  // A mebibyte lies in the cache; what is behind it comes when the disk has turned there.
  EXPECT_LE(hdd.Read(kPage, kMiB - kPage), 50U);
  const uint64_t us = hdd.Read(kMiB, kMiB);
  EXPECT_GE(us, 10'000U);  // a mebibyte at 100 MB/s
  EXPECT_LE(us, 10'500U + 8'334U);
  EXPECT_EQ(hdd.device.model().counters().seeks, 0U);
  // Elsewhere: a seek.
  EXPECT_GE(hdd.Read(5 * kGb), 3'000U);
  EXPECT_EQ(hdd.device.model().counters().seeks, 1U);
}

TEST(HddCache, WritesAreAnsweredAtOnceAndReadFromThere) {
  Hdd hdd(PlainHdd(), 10 * kGb);
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    EXPECT_LE(hdd.Write(random.Below(kPages) * kPage), 5U);
  }
  EXPECT_GT(hdd.device.model().cached_bytes(), 150 * kPage);
  hdd.Write(9 * kGb / kPage * kPage);
  EXPECT_LE(hdd.Read(9 * kGb / kPage * kPage), 5U);
  hdd.Flush();
  EXPECT_EQ(hdd.device.model().cached_bytes(), 0U);
}

TEST(HddCache, DrainsInOneSweep) {
  Hdd hdd(PlainHdd(), 10 * kGb);
  Random random(3);
  for (int i = 0; i < 1000; ++i) {
    hdd.Write(random.Below(kPages) * kPage);
  }
  const uint64_t us = hdd.Flush();
  // Each in itself would take a mean seek: 8 ms and half a revolution. In order it is little more
  // than the next track's.
  EXPECT_LT(us, 1000U * 8'000);
  EXPECT_GT(us, 1000U * 4'000);
  HddParameters through = PlainHdd();
  through.write_back = false;
  Hdd direct(through, 10 * kGb);
  uint64_t each = 0;
  for (int i = 0; i < 1000; ++i) {
    each += direct.Write(random.Below(kPages) * kPage);
  }
  EXPECT_NEAR(static_cast<double>(each) / 1000, 8'000 + 8'333 / 2.0 + 41, 400);
  EXPECT_LE(direct.Flush(), 1U);
}

TEST(HddCache, AFullOneWritesAsFastAsItDrains) {
  Hdd hdd(PlainHdd(), 10 * kGb);
  Random random(3);
  const Buffer page = Filled(kPage, 1);
  // 16 MiB are 4,096 pages; of twice as many, half have to wait.
  const uint64_t us = Elapsed(hdd.loop, 8, 8192, [&](uint64_t) {
    return eplog::test::WriteTask(hdd.device, random.Below(kPages) * kPage, page);
  });
  EXPECT_GE(us, hdd.device.model().counters().drains * 3'000 / 2);
  EXPECT_GE(hdd.device.model().counters().drains, 3500U);
}

// A log that appends and flushes meets its last sector again after each revolution.
TEST(HddFlush, OfAnAppendCostsARevolution) {
  for (const bool write_back : {true, false}) {
    HddParameters parameters = PlainHdd();
    parameters.write_back = write_back;
    Hdd hdd(parameters, 10 * kGb);
    hdd.Write(0);
    hdd.Flush();
    const uint64_t us = Elapsed(hdd.loop, 1, 200, [&](uint64_t i) -> Task<Status> {
      return [](Hdd* disk, uint64_t offset) -> Task<Status> {
        const Buffer page = Filled(kPage, 1);
        Task<Status> write = eplog::test::WriteTask(disk->device, offset, page);
        Status status = co_await write;
        EPLOG_CO_TRY(status);
        Task<Status> flush = disk->device.Flush();
        co_return co_await flush;
      }(&hdd, (i + 1) * kPage);
    });
    const double rate = PerSecond(200, us);
    const double expected = 1e9 / (8'333'333 + kPage * 10.0);
    std::printf("write-back %d: %.1f appends/s, expected %.1f\n", write_back ? 1 : 0, rate,
                expected);
    EXPECT_NEAR(rate / expected, 1, 0.01);
  }
}

// Readers without a pause, everywhere or in sequence: what is in the cache gets its turn when a
// flush waits for it.
TEST(HddFlush, IsNotStarvedByReads) {
  for (const bool sequential : {false, true}) {
    Hdd hdd(PlainHdd(), 10 * kGb);
    bool stop = false;
    uint64_t next = 0;
    const auto read_on = [](Hdd* disk, const bool* end, uint64_t* page, Random random,
                            bool in_order) -> Task<void> {
      const Buffer into = Pool().Get(kPage);
      while (!*end) {
        const uint64_t at = in_order ? (*page)++ : random.Below(kPages);
        Task<Status> read = eplog::test::ReadTask(disk->device, at * kPage, into);
        const Status status = co_await read;
        EXPECT_TRUE(status.ok());
      }
    };
    for (uint64_t i = 0; i < 4; ++i) {
      hdd.loop.Spawn(read_on(&hdd, &stop, &next, Random(i), sequential));
    }
    Random random(9);
    for (int i = 0; i < 10; ++i) {
      hdd.Write(random.Below(kPages) * kPage);
    }
    EXPECT_LE(hdd.Flush(), 1'000'000U) << sequential;
    stop = true;
    eplog::test::RunDry(hdd.loop);
  }
}

TEST(DirtyExtents, AreWhatAMapOfPagesWouldBe) {
  DirtyExtents extents;
  std::map<uint64_t, uint64_t> pages;  // page and the sequence of its oldest write, as a bound
  Random random(2);
  uint64_t position = 0;
  for (uint64_t step = 1; step < 20000; ++step) {
    if (random.OneIn(3) && !extents.empty()) {
      const auto next = extents.Next(position);
      const auto expected = pages.lower_bound(position);
      const uint64_t first = expected == pages.end() ? pages.begin()->first : expected->first;
      // An extent that began in front of the position is met on the next way.
      if (next->begin != first) {
        ASSERT_TRUE(extents.Covers(first, first + 1));
      }
      const auto taken = extents.Take(next->begin, random.Between(1, 8));
      for (uint64_t page = taken.begin; page < taken.end; ++page) {
        ASSERT_EQ(pages.erase(page), 1U);
      }
      position = taken.end;
    } else {
      const uint64_t begin = random.Below(500);
      const uint64_t end = begin + random.Between(1, 10);
      extents.Add({begin, end, step});
      for (uint64_t page = begin; page < end; ++page) {
        pages.emplace(page, step);
      }
    }
    ASSERT_EQ(extents.bytes(), pages.size());
    uint64_t oldest = UINT64_MAX;
    for (const auto& [page, sequence] : pages) {
      oldest = std::min(oldest, sequence);
    }
    ASSERT_LE(extents.oldest_sequence(), oldest);
  }
}

}  // namespace
}  // namespace eplog::sim::test
