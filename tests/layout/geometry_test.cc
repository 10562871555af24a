// Chunks, stripes, devices and places: pure arithmetic, checked over every shape of array.
#include "layout/geometry.h"

#include <gtest/gtest.h>

#include <set>

namespace eplog {
namespace {

// Where rotation is at its edges: the first stripes, and the last that an index can name.
std::vector<StripeIndex> Stripes(uint32_t n) {
  std::vector<StripeIndex> stripes;
  for (uint32_t i = 0; i < 2 * n; ++i) {
    stripes.emplace_back(i);
    stripes.emplace_back(UINT32_MAX - i);
    stripes.emplace_back((1U << 31) + i);
  }
  return stripes;
}

template <typename Visit>
void EveryShape(Visit&& visit) {
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    for (uint32_t n = m + 1; n <= kMaxSsds; ++n) {
      Geometry g;
      g.n = n;
      g.m = m;
      visit(g);
    }
  }
}

TEST(Geometry, EveryStripeHasOneChunkOnEverySsd) {
  EveryShape([](const Geometry& g) {
    for (const StripeIndex stripe : Stripes(g.n)) {
      uint64_t seen = 0;
      for (uint32_t index = 0; index < g.n; ++index) {
        const DeviceIndex ssd = g.SsdOf(stripe, index);
        ASSERT_LT(ssd.value, g.n);
        seen |= uint64_t{1} << ssd.value;
      }
      ASSERT_EQ(seen, (uint64_t{1} << g.n) - 1) << "n = " << g.n << ", stripe " << stripe.value;
    }
  });
}

TEST(Geometry, IndexOnIsTheInverseOfSsdOf) {
  EveryShape([](const Geometry& g) {
    for (const StripeIndex stripe : Stripes(g.n)) {
      for (uint32_t index = 0; index < g.n; ++index) {
        ASSERT_EQ(g.IndexOn(stripe, g.SsdOf(stripe, index)), index)
            << "n = " << g.n << ", stripe " << stripe.value;
      }
    }
  });
}

TEST(Geometry, ParityMovesOneSsdDownEachStripeAndDataFillsTheOthersInOrder) {
  EveryShape([](const Geometry& g) {
    for (uint32_t s = 0; s < 3 * g.n; ++s) {
      std::vector<bool> parity(g.n, false);
      for (uint32_t j = 0; j < g.m; ++j) {
        const uint32_t ssd = (4 * g.n - g.m + j - s) % g.n;
        parity[ssd] = true;
        ASSERT_EQ(g.SsdOf(StripeIndex(s), g.k() + j).value, ssd);
      }
      uint32_t index = 0;
      for (uint32_t ssd = 0; ssd < g.n; ++ssd) {
        if (!parity[ssd]) {
          ASSERT_EQ(g.SsdOf(StripeIndex(s), index).value, ssd);
          ++index;
        }
      }
    }
  });
}

// The array of figure 1 of the supplement: A0 B0 C0 P, A1 B1 P C1, A2 P B2 C2, P A3 B3 C3.
TEST(Geometry, LiesAsFigure1OfTheSupplement) {
  Geometry g;
  g.n = 4;
  g.m = 1;
  const std::vector<std::vector<uint32_t>> ssds = {
      {0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 3, 1}, {1, 2, 3, 0}};
  for (uint32_t s = 0; s < 4; ++s) {
    for (uint32_t index = 0; index < 4; ++index) {
      EXPECT_EQ(g.SsdOf(StripeIndex(s), index).value, ssds[s][index]) << s << " " << index;
    }
  }
}

TEST(Geometry, EverySsdHoldsAsMuchParityAsTheNext) {
  EveryShape([](const Geometry& g) {
    std::vector<uint32_t> parity(g.n, 0);
    for (uint32_t s = 0; s < g.n; ++s) {
      for (uint32_t j = g.k(); j < g.n; ++j) {
        ++parity[g.SsdOf(StripeIndex(s), j).value];
      }
    }
    ASSERT_EQ(parity, std::vector<uint32_t>(g.n, g.m));
  });
}

TEST(Geometry, AChunkKnowsItsStripeAndItsIndex) {
  EveryShape([](const Geometry& g) {
    for (const StripeIndex stripe : Stripes(g.n)) {
      for (uint32_t index = 0; index < g.k(); ++index) {
        const ChunkIndex chunk = g.Chunk(stripe, index);
        ASSERT_EQ(g.StripeOf(chunk), stripe);
        ASSERT_EQ(g.IndexInStripe(chunk), index);
        ASSERT_EQ(g.SsdOf(chunk), g.SsdOf(stripe, index));
      }
    }
    ASSERT_EQ(g.Chunk(StripeIndex(1), 0).value, g.Chunk(StripeIndex(0), g.k() - 1).value + 1);
  });
}

TEST(Geometry, LogDevicesFollowTheSsds) {
  EveryShape([](const Geometry& g) {
    ASSERT_EQ(g.devices(), g.n + g.m);
    for (uint32_t i = 0; i < g.n; ++i) {
      ASSERT_FALSE(g.IsLog(DeviceIndex(static_cast<uint8_t>(i))));
    }
    for (uint32_t j = 0; j < g.m; ++j) {
      ASSERT_EQ(g.LogDevice(j).value, g.n + j);
      ASSERT_TRUE(g.IsLog(g.LogDevice(j)));
    }
  });
}

Geometry Example() {
  GeometryRequest request;
  request.n = 6;
  request.m = 2;
  request.chunk_bytes = 16384;
  request.ssd_bytes = uint64_t{1} << 30;
  request.log_bytes = uint64_t{1} << 28;
  return *PlanGeometry(request);
}

TEST(Geometry, SizesFollowFromStripes) {
  const Geometry g = Example();
  EXPECT_EQ(g.k(), 4U);
  EXPECT_EQ(g.chunk_blocks(), 4U);
  EXPECT_EQ(g.stripe_data_bytes(), 65536U);
  EXPECT_EQ(g.extent_data_bytes() * g.extents(), g.capacity_bytes());
  EXPECT_EQ(g.data_chunks() * g.chunk_bytes, g.capacity_bytes());
  EXPECT_EQ(g.reserve_slots() + g.stripes, g.slots);
  EXPECT_GE(g.row_groups() * kRowGroupStripes, g.stripes);
  EXPECT_LT((g.row_groups() - 1) * kRowGroupStripes, g.stripes);
}

TEST(Geometry, PlacesInRingsComeRound) {
  const Geometry g = Example();
  EXPECT_EQ(g.LogOffset(0), g.log_offset_bytes);
  EXPECT_EQ(g.LogOffset(g.log_blocks - 1) + kBlockBytes, g.log_bytes());
  EXPECT_EQ(g.LogOffset(g.log_blocks), g.log_offset_bytes);
  EXPECT_EQ(g.LogOffset(7 * g.log_blocks + 3), g.log_offset_bytes + 12288);
  EXPECT_EQ(g.RingOffset(0), g.ring_offset_bytes);
  EXPECT_EQ(g.RingOffset(5 * g.ring_blocks + 2), g.ring_offset_bytes + 8192);
  EXPECT_LE(g.RingOffset(g.ring_blocks - 1) + kBlockBytes, g.slots_offset_bytes);
  EXPECT_EQ(g.MetadataOffset(0), g.metadata_offset_bytes);
  EXPECT_LE(g.MetadataOffset(g.metadata_blocks - 1) + kBlockBytes, g.ring_offset_bytes);
}

TEST(Geometry, SlotsLieOneBehindTheOther) {
  const Geometry g = Example();
  EXPECT_EQ(g.SlotOffset(SlotIndex(0)), g.slots_offset_bytes);
  EXPECT_EQ(g.SlotOffset(SlotIndex(1)), g.slots_offset_bytes + g.chunk_bytes);
  EXPECT_EQ(g.SlotOffset(SlotIndex(g.slots - 1)) + g.chunk_bytes, g.ssd_bytes());
}

TEST(Superblocks, TheCopiesAreApartAndInsideTheirArea) {
  EXPECT_GE(kSuperblockCopyOffset[1] - kSuperblockCopyOffset[0], kSuperblockCopyBytes);
  EXPECT_LE(kSuperblockCopyOffset[1] + kSuperblockCopyBytes, kSuperblockAreaBytes);
}

}  // namespace
}  // namespace eplog
