// Statistics and reuse distances against counting by hand and by brute force.
#include "trace/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "base/random.h"
#include "tests/trace/trace_util.h"
#include "trace/picture.h"
#include "trace/zipf.h"

namespace eplog {
namespace {

using trace_test::Request;

TEST(TraceStatistics, CountsByHand) {
  TraceStatistics statistics{StatOptions{}};
  statistics.Add(Request(0, TraceOp::kWrite, 0, 4096));
  statistics.Add(Request(10, TraceOp::kWrite, 4096, 4097));          // chunks 1, 2; goes on
  statistics.Add(Request(20, TraceOp::kWrite, 5 * 4096, 2 * 4096));  // chunks 5, 6
  statistics.Add(Request(30, TraceOp::kRead, 4095, 2));              // chunks 0, 1
  statistics.Add(Request(40, TraceOp::kFlush, 0, 0));
  statistics.Add(Request(50, TraceOp::kWrite, 0, 4096, 1));  // another volume: no update
  statistics.Add(Request(60, TraceOp::kWrite, 100, 50));     // chunk 0: an update
  const TraceSummary got = statistics.Summarise();
  EXPECT_EQ(got.requests, 7U);
  EXPECT_EQ(got.volumes, 2U);
  EXPECT_EQ(got.duration_us, 60U);
  EXPECT_EQ(got.chunk_writes, 7U);
  EXPECT_EQ(got.chunk_updates, 1U);
  EXPECT_EQ(got.footprint_chunks, 6U);
  EXPECT_EQ(got.begin_bytes, 0U);
  EXPECT_EQ(got.end_bytes, 7U * 4096);
  const OpSummary& writes = got.ops[static_cast<size_t>(TraceOp::kWrite)];
  EXPECT_EQ(writes.requests, 5U);
  EXPECT_EQ(writes.random, 4U);
  EXPECT_EQ(writes.min_bytes, 50U);
  EXPECT_EQ(writes.max_bytes, 8192U);
  EXPECT_EQ(writes.Quantile(0.5), 4096U);
  EXPECT_EQ(writes.footprint_chunks, 6U);
  const LayoutSummary& k6 = got.layouts[0];
  EXPECT_EQ(k6.stripe_touches, 6U) << "chunks 5 and 6 lie in two stripes";
  EXPECT_EQ(k6.md_ssd_bytes, (7U + 2 * 6U) * 4096);
  EXPECT_EQ(k6.windows[0].complete, 0U);
  EXPECT_EQ(k6.windows[0].partial, 3U) << "stripes 0 and 1, and stripe 0 of the other volume";
}

TEST(TraceStatistics, WindowsCountWriteRequestsOnly) {
  TraceStatistics statistics{StatOptions{}};
  std::set<uint64_t> stripes;
  std::vector<uint64_t> counts;
  Random random(5);
  for (int i = 1; i <= 2500; ++i) {
    const uint64_t chunk = random.Below(3000);
    statistics.Add(Request(0, TraceOp::kWrite, chunk * 4096, 4096));
    statistics.Add(Request(0, TraceOp::kRead, random.Below(1 << 30), 4096));
    stripes.insert(chunk / 6);
    if (i % 1000 == 0) {
      counts.push_back(stripes.size());
      stripes.clear();
    }
  }
  const WindowStripes window = statistics.Summarise().layouts[0].windows[0];
  EXPECT_EQ(window.complete, 2U);
  EXPECT_EQ(window.sum, counts[0] + counts[1]);
  EXPECT_EQ(window.min, std::min(counts[0], counts[1]));
  EXPECT_EQ(window.max, std::max(counts[0], counts[1]));
  EXPECT_EQ(window.partial, stripes.size());
}

TEST(ChunkSet, AgreesWithASet) {
  ChunkSet set;
  std::set<uint64_t> oracle;
  Random random(9);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t number = random.OneIn(2) ? random.Below(10'000) : random.Next() >> 1;
    ASSERT_EQ(set.Insert(number), oracle.insert(number).second);
    const uint64_t asked = random.OneIn(2) ? random.Below(20'000) : random.Next() >> 1;
    ASSERT_EQ(set.Contains(asked), oracle.contains(asked));
  }
  EXPECT_EQ(set.size(), oracle.size());
  set.Clear();
  EXPECT_EQ(set.size(), 0U);
  EXPECT_FALSE(set.Contains(*oracle.begin()));
}

// Distances by a list of chunks in order of their last touch.
class SlowReuse {
 public:
  void Touch(uint64_t chunk) {
    ++touches_;
    const auto found = std::find(order_.rbegin(), order_.rend(), chunk);
    if (found == order_.rend()) {
      ++first_;
    } else {
      const auto distance = static_cast<uint64_t>(found - order_.rbegin());
      ++repeated_[static_cast<size_t>(std::bit_width(distance))];
      order_.erase(std::next(found).base());
    }
    order_.push_back(chunk);
  }
  [[nodiscard]] double First() const { return Part(first_); }
  [[nodiscard]] double Repeated(size_t bucket) const { return Part(repeated_[bucket]); }

 private:
  [[nodiscard]] double Part(uint64_t count) const {
    return static_cast<double>(count) / static_cast<double>(touches_);
  }
  std::vector<uint64_t> order_;
  uint64_t touches_ = 0;
  uint64_t first_ = 0;
  std::array<uint64_t, ReuseDistances::kBuckets> repeated_{};
};

TEST(ReuseDistances, ExactUpToTheWatchedLimit) {
  ReuseDistances reuse;
  SlowReuse slow;
  Random random(1);
  const ZipfTable zipf(3000, 900);
  // Enough touches for the moments to be numbered anew.
  for (int i = 0; i < 300'000; ++i) {
    const uint64_t chunk = random.OneIn(50) ? 5000 + random.Below(100) : zipf.Draw(random);
    reuse.Touch(chunk);
    slow.Touch(chunk);
  }
  const auto got = reuse.Summarise();
  EXPECT_TRUE(got.exact);
  EXPECT_DOUBLE_EQ(got.first, slow.First());
  for (size_t i = 0; i < ReuseDistances::kBuckets; ++i) {
    EXPECT_DOUBLE_EQ(got.repeated[i], slow.Repeated(i)) << i;
  }
}

TEST(ReuseDistances, SampledStaysNearTheTruth) {
  // Every chunk of a million in turn, twice: all distances are a million.
  constexpr uint64_t kChunks = 1'000'000;
  ReuseDistances reuse;
  for (uint64_t i = 0; i < 2 * kChunks; ++i) {
    reuse.Touch(i % kChunks);
  }
  const auto got = reuse.Summarise();
  EXPECT_FALSE(got.exact);
  EXPECT_NEAR(got.watched_share, 65536.0 / kChunks, 0.002);
  EXPECT_NEAR(got.first, 0.5, 0.01);
  // 999,999 lies in [2^19, 2^20).
  EXPECT_NEAR(got.repeated[20] + got.repeated[21], 0.5, 0.01);
  EXPECT_GT(got.repeated[20], 0.4);
}

TEST(TracePicture, HoldsEveryPanelAndEscapesItsTitle) {
  TraceStatistics statistics{StatOptions{}};
  EXPECT_NE(TracePicture(statistics.Summarise(), "empty").find("</svg>"), std::string::npos);
  Random random(4);
  for (uint64_t i = 0; i < 5000; ++i) {
    statistics.Add(Request(i, random.OneIn(3) ? TraceOp::kRead : TraceOp::kWrite,
                           random.Below(uint64_t{1} << 33), random.Between(1, 100'000)));
  }
  const std::string picture = TracePicture(statistics.Summarise(), "a<b>&\"c\"");
  EXPECT_EQ(picture.find("a<b>"), std::string::npos);
  EXPECT_NE(picture.find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
  for (const char* title : {"Sizes of requests", "Footprint", "Reuse", "Where writes go"}) {
    EXPECT_NE(picture.find(title), std::string::npos) << title;
  }
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_EQ(picture.find("inf"), std::string::npos);
  EXPECT_LT(picture.size(), 3'000'000U);
}

TEST(StripeLayout, IsWrittenWithAPlus) {
  EXPECT_EQ(ParseStripeLayout("6+2")->data_chunks, 6U);
  EXPECT_EQ(ParseStripeLayout("6+2")->parity_chunks, 2U);
  for (const char* text : {"6", "+", "6+", "0+2", "6-2", "6+2+1", "99999+1"}) {
    EXPECT_FALSE(ParseStripeLayout(text).ok()) << text;
  }
}

}  // namespace
}  // namespace eplog
