// Compaction keeps order and neighbourhood and leaves no hole.
#include "trace/compact.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "tests/trace/trace_util.h"

namespace eplog {
namespace {

using trace_test::Request;
constexpr uint64_t kMib = Compactor::kExtentBytes;

std::vector<TraceRequest> Scattered(uint64_t seed) {
  Random random(seed);
  std::vector<TraceRequest> out;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t place = random.Below(200) * random.Below(1000) * kMib * 37;
    out.push_back(Request(0, random.OneIn(2) ? TraceOp::kRead : TraceOp::kWrite,
                          place + random.Below(3 * kMib), random.Between(1, 5 * kMib),
                          static_cast<uint32_t>(random.Below(3))));
  }
  return out;
}

class CompactorTest : public ::testing::TestWithParam<bool> {};

TEST_P(CompactorTest, EveryByteMovesWithItsExtentInOrder) {
  const bool merge = GetParam();
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto requests = Scattered(seed);
    Compactor compactor(merge);
    // The oracle: touched extents by volume and number; their ranks are their new places.
    std::set<std::pair<uint32_t, uint64_t>> touched;
    for (const TraceRequest& request : requests) {
      ASSERT_TRUE(compactor.Note(request).ok());
      for (uint64_t at = request.offset_bytes / kMib; at <= (request.end_bytes() - 1) / kMib;
           ++at) {
        touched.insert({request.volume, at});
      }
    }
    compactor.Seal();
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> ranks;
    std::map<uint32_t, uint64_t> next;
    for (const auto& extent : touched) {
      ranks[extent] = next[merge ? 0 : extent.first]++;
    }
    for (const TraceRequest& request : requests) {
      const auto moved = compactor.Map(request);
      ASSERT_TRUE(moved.has_value());
      EXPECT_EQ(moved->length_bytes, request.length_bytes);
      EXPECT_EQ(moved->volume, merge ? 0 : request.volume);
      EXPECT_EQ(moved->offset_bytes,
                ranks.at({request.volume, request.offset_bytes / kMib}) * kMib +
                    request.offset_bytes % kMib);
      EXPECT_LE(moved->end_bytes(), compactor.span_bytes(moved->volume));
    }
    for (const auto& [volume, count] : next) {
      EXPECT_EQ(compactor.span_bytes(volume), count * kMib);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Merge, CompactorTest, ::testing::Bool());

TEST(Compactor, TrimsShrinkToWhatIsUsed) {
  Compactor compactor(false);
  ASSERT_TRUE(compactor.Note(Request(0, TraceOp::kWrite, 10 * kMib, 4096)).ok());
  ASSERT_TRUE(compactor.Note(Request(0, TraceOp::kWrite, 20 * kMib, 4096)).ok());
  ASSERT_TRUE(compactor.Note(Request(0, TraceOp::kTrim, 0, kMaxTraceOffsetBytes)).ok());
  compactor.Seal();
  EXPECT_EQ(compactor.span_bytes(0), 2 * kMib);
  const auto all = compactor.Map(Request(0, TraceOp::kTrim, 0, kMaxTraceOffsetBytes));
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->offset_bytes, 0U);
  EXPECT_EQ(all->length_bytes, 2 * kMib);
  EXPECT_FALSE(compactor.Map(Request(0, TraceOp::kTrim, 12 * kMib, 4 * kMib)).has_value());
  const auto part = compactor.Map(Request(0, TraceOp::kTrim, 10 * kMib + 512, 10 * kMib));
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->offset_bytes, 512U);
  EXPECT_EQ(part->end_bytes(), kMib + 512);
  EXPECT_EQ(compactor.Map(Request(0, TraceOp::kFlush, 0, 0))->op, TraceOp::kFlush);
}

}  // namespace
}  // namespace eplog
