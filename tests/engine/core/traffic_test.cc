// Counters as a checkpoint keeps them: none is lost, none is another's, and one that an older program
// did not know is 0.
#include "engine/core/traffic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace eplog {
namespace {

// No two of them alike, and none 0.
Traffic AllDifferent(uint64_t first) {
  Traffic traffic;
  ForEachCounter(traffic, [&](uint64_t& value) { value = first++; });
  return traffic;
}

TEST(TrafficCounters, AreWrittenInTheOrderOfTheirList) {
  const Traffic traffic = AllDifferent(100);
  const std::vector<uint64_t> counters = TrafficToCounters(traffic);
  ASSERT_EQ(counters.size(), kTrafficCounters.size());
  EXPECT_EQ(counters.front(), traffic.user_writes);
  EXPECT_EQ(counters.back(), traffic.user_bytes_trimmed);
  for (size_t i = 0; i < counters.size(); ++i) {
    EXPECT_EQ(counters[i], 100 + i) << kTrafficCounters[i].name;
  }
}

TEST(TrafficCounters, ComeBackAndThoseThatAreMissingAreZero) {
  const std::vector<uint64_t> all = TrafficToCounters(AllDifferent(100));
  for (size_t known = 0; known <= all.size(); ++known) {
    std::vector<uint64_t> counters = all;
    counters.resize(known);  // what lies behind them in memory is no counter
    const std::vector<uint64_t> back = TrafficToCounters(CountersToTraffic(counters));
    ASSERT_EQ(back.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(back[i], i < known ? all[i] : 0) << i << " of " << known;
    }
  }
}

TEST(TrafficCounters, OfANewerProgramAreLeftOut) {
  const std::vector<uint64_t> all = TrafficToCounters(AllDifferent(100));
  std::vector<uint64_t> more = all;
  more.push_back(7);
  EXPECT_EQ(TrafficToCounters(CountersToTraffic(more)), all);
}

TEST(TrafficCounters, OfTwoLivesAreAddedOneByOne) {
  const Traffic before = AllDifferent(100);
  const std::vector<uint64_t> sum = TrafficToCounters(AddTraffic(before, AllDifferent(5000)));
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i], 5100 + 2 * i) << kTrafficCounters[i].name;
  }
  EXPECT_EQ(TrafficToCounters(AddTraffic(before, Traffic())), TrafficToCounters(before));
}

}  // namespace
}  // namespace eplog
