#include "replay/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace eplog {
namespace {

TEST(Histogram, PercentilesAreWithinAFewPercentOfTheSortedTruth) {
  Random random(3);
  Histogram histogram;
  std::vector<uint64_t> all;
  for (int i = 0; i < 50'000; ++i) {
    const uint64_t value = random.Below(uint64_t{1} << random.Below(36));
    histogram.Add(value);
    all.push_back(value);
  }
  std::sort(all.begin(), all.end());
  for (const uint64_t ppm : {1ULL, 10'000ULL, 500'000ULL, 990'000ULL, 999'900ULL, 1'000'000ULL}) {
    const size_t rank = (all.size() * ppm + 999'999) / 1'000'000;
    const uint64_t truth = all[rank - 1];
    const uint64_t said = histogram.Percentile(ppm);
    EXPECT_GE(said, truth);
    EXPECT_LE(said, truth + truth / 64 + 1) << ppm;
  }
  EXPECT_EQ(histogram.count(), all.size());
  EXPECT_EQ(histogram.largest(), all.back());
  EXPECT_EQ(histogram.Cumulative().back().second, all.size());
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  EXPECT_EQ(histogram.Percentile(500'000), 0U);
  for (uint64_t i = 1; i <= 100; ++i) {
    histogram.Add(i);
  }
  EXPECT_EQ(histogram.Percentile(500'000), 50U);
  EXPECT_EQ(histogram.Percentile(990'000), 99U);
  EXPECT_DOUBLE_EQ(histogram.mean(), 50.5);
}

}  // namespace
}  // namespace eplog
