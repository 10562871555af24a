// Planning over a grid of arrays: what is planned fits, is sane, and could not be larger.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/random.h"
#include "layout/geometry.h"

namespace eplog {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

std::string Describe(const GeometryRequest& r) {
  return std::to_string(r.n) + " SSDs of " + std::to_string(r.ssd_bytes) + ", parity " +
         std::to_string(r.m) + ", chunk " + std::to_string(r.chunk_bytes) + ", log " +
         std::to_string(r.log_bytes) + ", ring " + std::to_string(r.ring_bytes) + ", reserve " +
         std::to_string(r.reserve_percent) + "%, extent " + std::to_string(r.extent_stripes);
}

// Everything that must hold of a plan by itself.
void ExpectSane(const GeometryRequest& r, const Geometry& g) {
  ASSERT_TRUE(g.Validate().ok()) << Describe(r);
  ASSERT_EQ(g.n, r.n);
  ASSERT_EQ(g.m, r.m);
  ASSERT_EQ(g.chunk_bytes, r.chunk_bytes);
  // In order, whole blocks, inside the devices.
  ASSERT_GE(g.metadata_offset_bytes, kSuperblockAreaBytes);
  ASSERT_GE(g.ring_offset_bytes, g.metadata_offset_bytes + g.metadata_blocks * kBlockBytes);
  ASSERT_GE(g.slots_offset_bytes, g.ring_offset_bytes + g.ring_blocks * kBlockBytes);
  ASSERT_EQ(g.metadata_offset_bytes % kBlockBytes, 0U);
  ASSERT_EQ(g.ring_offset_bytes % kBlockBytes, 0U);
  ASSERT_EQ(g.slots_offset_bytes % kSlotsAlignment, 0U);
  ASSERT_EQ(g.slots_offset_bytes % g.chunk_bytes, 0U);
  ASSERT_LE(g.ssd_bytes(), r.ssd_bytes) << Describe(r);
  ASSERT_GE(g.log_offset_bytes, kSuperblockAreaBytes);
  ASSERT_LE(g.log_bytes(), r.log_bytes);
  ASSERT_LT(r.log_bytes - g.log_bytes(), kBlockBytes);
  // Room for what must fit.
  ASSERT_GE(g.metadata_blocks, 2 * g.max_checkpoint_blocks()) << Describe(r);
  ASSERT_GE(g.ring_blocks, kMinRingBlocks);
  if (r.ring_bytes != 0) {
    ASSERT_EQ(g.ring_blocks, r.ring_bytes / kBlockBytes);
  }
  ASSERT_GT(g.stripes, 0U) << Describe(r);
  ASSERT_EQ(g.stripes % g.extent_stripes, 0U);
  if (r.extent_stripes != 0) {
    ASSERT_EQ(g.extent_stripes, r.extent_stripes);
  }
  // The reserve is what was asked for, at least, and the rounding to extents is all that it is
  // above it.
  const uint64_t asked =
      std::max<uint64_t>(DivideUp(uint64_t{g.slots} * r.reserve_percent, 100), kMinReserveSlots);
  ASSERT_GE(g.reserve_slots(), asked) << Describe(r);
  ASSERT_LT(g.reserve_slots(), asked + g.extent_stripes) << Describe(r);
  ASSERT_GE(g.commit_width(), 1U);
  ASSERT_LT(g.commit_width(), g.reserve_slots()) << "foreground writes need reserve, too";
}

// Exactly as many slots as fit, and no SSD of this size has more stripes.
void ExpectMaximal(const GeometryRequest& r, const Geometry& g) {
  GeometryRequest exact = r;
  exact.ssd_bytes = g.ssd_bytes();
  const auto same = PlanGeometry(exact);
  ASSERT_TRUE(same.ok()) << Describe(r);
  ASSERT_EQ(*same, g) << Describe(r);
  --exact.ssd_bytes;
  const auto less = PlanGeometry(exact);
  if (less.ok()) {
    ASSERT_EQ(less->slots, g.slots - 1) << Describe(r);
  }
  const auto next = SsdBytesForStripes(r, g.stripes + 1);
  ASSERT_TRUE(next.ok());
  ASSERT_GT(*next, r.ssd_bytes) << Describe(r);
}

class Grid : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Chunk, Grid, testing::Values(4096, 8192, 16384, 65536, 262144, 1 << 20));

TEST_P(Grid, EveryPlanIsSaneAndMaximal) {
  GeometryRequest r;
  r.chunk_bytes = GetParam();
  uint32_t plans = 0;
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    for (const uint32_t n : {m + 1, m + 2, 6U, 8U, 17U, 32U}) {
      for (const uint64_t ssd_mib : {2UL, 5UL, 64UL, 1000UL, 100'000UL, 4'000'000UL}) {
        for (const uint64_t log_mib : {17UL, 1000UL, 8'000'000UL}) {
          r.m = m;
          r.n = n;
          r.ssd_bytes = ssd_mib * kMib + 12345;
          r.log_bytes = log_mib * kMib + 777;
          const auto g = PlanGeometry(r);
          if (!g.ok()) {
            ASSERT_LE(ssd_mib, 64U) << Describe(r) << ": " << g.error().ToString();
            continue;
          }
          ++plans;
          ASSERT_NO_FATAL_FAILURE(ExpectSane(r, *g));
          ASSERT_NO_FATAL_FAILURE(ExpectMaximal(r, *g));
        }
      }
    }
  }
  EXPECT_GE(plans, 200U);
}

GeometryRequest AnyRequest(Random& random) {
  GeometryRequest r;
  r.m = static_cast<uint32_t>(random.Between(1, kMaxParity));
  r.n = static_cast<uint32_t>(random.Between(r.m + 1, kMaxSsds));
  r.chunk_bytes = kMinChunkBytes << random.Below(9);
  r.reserve_percent = static_cast<uint32_t>(random.Between(1, 50));
  r.log_bytes = MinLogBytes(r.chunk_bytes) + random.Below(uint64_t{1} << random.Between(1, 44));
  if (random.OneIn(3)) {
    r.ring_bytes = kMinRingBlocks * kBlockBytes + random.Below(64 * kMib);
  }
  if (random.OneIn(3)) {
    r.extent_stripes = static_cast<uint32_t>(random.Between(1, 5000));
  }
  return r;
}

TEST(Plan, AnyRequestIsPlannedSanelyOrRefused) {
  Random random(11);
  uint32_t plans = 0;
  for (int i = 0; i < 20000; ++i) {
    GeometryRequest r = AnyRequest(random);
    r.ssd_bytes = random.Below(uint64_t{1} << random.Between(12, 50));
    const auto g = PlanGeometry(r);
    if (g.ok()) {
      ++plans;
      ASSERT_NO_FATAL_FAILURE(ExpectSane(r, *g));
    } else {
      ASSERT_EQ(g.error().code, ErrorCode::kInvalidArgument) << Describe(r);
    }
  }
  EXPECT_GT(plans, 10000U);
}

TEST(Plan, ALargerSsdNeverGivesFewerSlots) {
  Random random(12);
  for (int i = 0; i < 3000; ++i) {
    GeometryRequest r = AnyRequest(random);
    r.ssd_bytes = *SsdBytesForStripes(r, 1) + random.Below(uint64_t{1} << random.Between(12, 45));
    const auto small = PlanGeometry(r);
    r.ssd_bytes += random.Below(uint64_t{1} << random.Between(1, 23));
    const auto large = PlanGeometry(r);
    ASSERT_TRUE(small.ok() && large.ok()) << Describe(r);
    ASSERT_GE(large->slots, small->slots) << Describe(r);
    ASSERT_GE(large->stripes, small->stripes) << Describe(r);
  }
}

// Through the sizes at which extents double, where areas are apt to shrink.
TEST(SsdBytes, NeverFallWithMoreStripes) {
  for (const uint32_t n : {3U, 8U, 32U}) {
    GeometryRequest r;
    r.n = n;
    r.m = 2;
    r.chunk_bytes = kMinChunkBytes;
    r.log_bytes = 100 * kMib;
    for (const uint32_t around : {20U, 1024U, 2048U, 4096U, 8192U}) {
      std::optional<uint64_t> before;
      for (uint32_t stripes = around > 40 ? around - 40 : 1; stripes < around + 40; ++stripes) {
        const uint64_t bytes = *SsdBytesForStripes(r, stripes);
        ASSERT_GE(bytes, before.value_or(0)) << n << ", " << stripes;
        before = bytes;
      }
    }
  }
}

TEST(SsdBytes, AreEnoughAndAByteLessIsNot) {
  Random random(13);
  for (int i = 0; i < 10000; ++i) {
    GeometryRequest r = AnyRequest(random);
    r.ssd_bytes = random.Next();  // does not matter
    const auto stripes = static_cast<uint32_t>(random.Between(1, uint64_t{1} << random.Below(32)));
    const auto bytes = SsdBytesForStripes(r, stripes);
    if (!bytes.ok()) {
      ASSERT_GT(stripes, 1U << 30);
      continue;
    }
    r.ssd_bytes = *bytes;
    const auto g = PlanGeometry(r);
    ASSERT_TRUE(g.ok()) << Describe(r) << ": " << g.error().ToString();
    ASSERT_GE(g->stripes, stripes) << Describe(r);
    ASSERT_EQ(g->ssd_bytes(), *bytes) << Describe(r);
    --r.ssd_bytes;
    const auto less = PlanGeometry(r);
    ASSERT_TRUE(!less.ok() || less->stripes < stripes) << Describe(r);
  }
}

TEST(SsdBytes, OfNoStripesAreThoseOfTheSmallestArray) {
  Random random(14);
  GeometryRequest r = AnyRequest(random);
  EXPECT_EQ(*SsdBytesForStripes(r, 0), *SsdBytesForStripes(r, 1));
  r.extent_stripes = 64;
  EXPECT_EQ(*SsdBytesForStripes(r, 1), *SsdBytesForStripes(r, 64));
  EXPECT_LT(*SsdBytesForStripes(r, 64), *SsdBytesForStripes(r, 65));
}

TEST(SsdBytes, MoreStripesThanSlotWordsAreRefused) {
  GeometryRequest r;
  r.n = 4;
  r.m = 1;
  r.chunk_bytes = kMinChunkBytes;
  r.log_bytes = kMib;
  const auto bytes = SsdBytesForStripes(r, UINT32_MAX);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bytes.error().message, "too many stripes for one array");
}

GeometryRequest Good() {
  GeometryRequest r;
  r.n = 6;
  r.m = 2;
  r.chunk_bytes = 4096;
  r.ssd_bytes = 64 * kMib;
  r.log_bytes = 64 * kMib;
  return r;
}

std::string Refusal(const GeometryRequest& r) {
  const auto g = PlanGeometry(r);
  if (g.ok()) {
    return "planned";
  }
  EXPECT_EQ(g.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(g.error().message.find('\n'), std::string::npos);
  return g.error().message;
}

TEST(Refusal, SaysInOneLineWhatWouldDo) {
  EXPECT_EQ(Refusal(Good()), "planned");
  GeometryRequest r = Good();
  r.m = 0;
  EXPECT_EQ(Refusal(r), "parity must be 1 to 4");
  r.m = 5;
  EXPECT_EQ(Refusal(r), "parity must be 1 to 4");
  r = Good();
  r.n = 2;
  EXPECT_EQ(Refusal(r), "with parity 2 an array needs 3 to 32 SSDs, not 2");
  r.n = 33;
  EXPECT_EQ(Refusal(r), "with parity 2 an array needs 3 to 32 SSDs, not 33");
  for (const uint32_t chunk : {0U, 2048U, 12288U, 2U << 20}) {
    r = Good();
    r.chunk_bytes = chunk;
    EXPECT_EQ(Refusal(r), "chunk must be a power of two from 4K to 1M");
  }
  for (const uint32_t percent : {0U, 51U, 1000U}) {
    r = Good();
    r.reserve_percent = percent;
    EXPECT_EQ(Refusal(r), "reserve must be 1% to 50%");
  }
  r = Good();
  r.ring_bytes = 4096;
  EXPECT_EQ(Refusal(r), "the journal ring needs at least " +
                            std::to_string(kMinRingBlocks * kBlockBytes / 1024) + "K");
  r.ring_bytes = UINT64_MAX;
  EXPECT_EQ(Refusal(r), "the journal ring and a log device may have at most 4398046511104K");
  r = Good();
  r.log_bytes = UINT64_MAX;
  EXPECT_EQ(Refusal(r), "the journal ring and a log device may have at most 4398046511104K");
}

TEST(Refusal, TheLeastLogDeviceNamedIsEnough) {
  for (uint32_t chunk = kMinChunkBytes; chunk <= kMaxChunkBytes; chunk *= 2) {
    GeometryRequest r = Good();
    r.chunk_bytes = chunk;
    r.ssd_bytes = 1000 * kMib;
    r.log_bytes = MinLogBytes(chunk);
    EXPECT_EQ(Refusal(r), "planned");
    const std::string least = std::to_string(r.log_bytes / 1024) + "K";
    --r.log_bytes;
    EXPECT_EQ(Refusal(r), "a log device of " + std::to_string(r.log_bytes / 1024) +
                              "K is too small; it needs at least " + least);
  }
}

// The size named in the refusal is the smallest whole KiB that is planned.
TEST(Refusal, TheLeastSsdNamedIsEnough) {
  Random random(15);
  for (int i = 0; i < 2000; ++i) {
    GeometryRequest r = AnyRequest(random);
    r.ssd_bytes = random.Below(*SsdBytesForStripes(r, 1));
    const std::string line = Refusal(r);
    const std::string words = " is too small; it needs at least ";
    const size_t at = line.find(words);
    ASSERT_NE(at, std::string::npos) << line;
    ASSERT_EQ(line.substr(0, at), "an SSD of " + std::to_string(r.ssd_bytes / 1024) + "K");
    const uint64_t least = std::stoull(line.substr(at + words.size())) * 1024;
    r.ssd_bytes = least;
    ASSERT_EQ(Refusal(r), "planned") << Describe(r);
    r.ssd_bytes = least - 1024;
    ASSERT_NE(Refusal(r), "planned") << Describe(r);
  }
}

TEST(Refusal, AHugeExtentSaysWhatItNeeds) {
  GeometryRequest r = Good();
  r.extent_stripes = 1 << 20;
  EXPECT_NE(Refusal(r).find("it needs at least"), std::string::npos);
  r.extent_stripes = UINT32_MAX;
  EXPECT_EQ(Refusal(r), "an SSD of 65536K is too small");
}

}  // namespace
}  // namespace eplog
