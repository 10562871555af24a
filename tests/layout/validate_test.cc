// A geometry comes from a superblock: any bytes with the right CRC. Validate must refuse what
// arithmetic would choke on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/random.h"
#include "layout/geometry.h"

namespace eplog {
namespace {

Geometry Good() {
  GeometryRequest r;
  r.n = 8;
  r.m = 2;
  r.chunk_bytes = 4096;
  r.ssd_bytes = uint64_t{1} << 30;
  r.log_bytes = uint64_t{1} << 28;
  return *PlanGeometry(r);
}

TEST(Validate, APlanIsGood) {
  EXPECT_TRUE(Good().Validate().ok());
}

TEST(Validate, EveryBrokenRuleIsCorruption) {
  const std::function<void(Geometry&)> breaks[] = {
      [](Geometry& g) { g.n = 0; },
      [](Geometry& g) { g.n = g.m; },
      [](Geometry& g) { g.n = kMaxSsds + 1; },
      [](Geometry& g) { g.m = 0; },
      [](Geometry& g) { g.m = kMaxParity + 1; },
      [](Geometry& g) { g.chunk_bytes = 0; },
      [](Geometry& g) { g.chunk_bytes = 2048; },
      [](Geometry& g) { g.chunk_bytes = 5000; },
      [](Geometry& g) { g.chunk_bytes = kMaxChunkBytes * 2; },
      [](Geometry& g) { g.stripes = 0; },
      [](Geometry& g) { g.extent_stripes = 0; },
      [](Geometry& g) { ++g.stripes; },
      [](Geometry& g) { g.slots = g.stripes + kMinReserveSlots - 1; },
      [](Geometry& g) { g.slots = g.stripes - 1; },
      [](Geometry& g) { g.slots = std::numeric_limits<uint32_t>::max(); },
      // Where a sum in 32 bits would come round.
      [](Geometry& g) {
        g.extent_stripes = 1;
        g.stripes = std::numeric_limits<uint32_t>::max() - 3;
        g.slots = 1000;
      },
      [](Geometry& g) { g.log_blocks = kMinLogBlocks - 1; },
      [](Geometry& g) { g.log_blocks = std::numeric_limits<uint64_t>::max(); },
      [](Geometry& g) { g.ring_blocks = kMinRingBlocks - 1; },
      [](Geometry& g) { g.ring_blocks = std::numeric_limits<uint64_t>::max(); },
      [](Geometry& g) { g.metadata_blocks = 2 * g.CheckpointBlocks(g.LeastVolumes()) - 1; },
      [](Geometry& g) { g.metadata_blocks = std::numeric_limits<uint64_t>::max(); },
      [](Geometry& g) { g.metadata_offset_bytes = 0; },
      [](Geometry& g) { g.metadata_offset_bytes += kBlockBytes; },
      [](Geometry& g) { g.log_offset_bytes = 0; },
      [](Geometry& g) { g.log_offset_bytes += 1; },
      [](Geometry& g) { g.log_offset_bytes = std::numeric_limits<uint64_t>::max() - 4095; },
      [](Geometry& g) { g.ring_offset_bytes -= kBlockBytes; },
      [](Geometry& g) { g.ring_offset_bytes += 512; },
      [](Geometry& g) { g.slots_offset_bytes -= kSlotsAlignment; },
      [](Geometry& g) { g.slots_offset_bytes += kBlockBytes; },
      [](Geometry& g) { g.slots_offset_bytes = uint64_t{1} << 60; },
  };
  int number = 0;
  for (const auto& break_it : breaks) {
    Geometry g = Good();
    break_it(g);
    const Status status = g.Validate();
    ASSERT_FALSE(status.ok()) << "rule " << number;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt) << "rule " << number;
    ++number;
  }
}

// Whatever Validate lets through, the arithmetic stays in range: this runs under the sanitizers,
// too.
TEST(Validate, WhatPassesIsInRange) {
  Random random(21);
  uint32_t passed = 0;
  for (int i = 0; i < 200000; ++i) {
    Geometry g = Good();
    for (uint64_t changes = random.Between(1, 2); changes > 0; --changes) {
      const uint64_t any = random.Next() >> random.Below(64);
      const auto any32 = static_cast<uint32_t>(any);
      switch (random.Below(12)) {
        case 0:
          g.n = any32;
          break;
        case 1:
          g.m = any32;
          break;
        case 2:
          g.chunk_bytes = any32;
          break;
        case 3:
          g.stripes = any32;
          break;
        case 4:
          g.slots = any32;
          break;
        case 5:
          g.extent_stripes = any32;
          break;
        case 6:
          g.metadata_offset_bytes = any;
          break;
        case 7:
          g.metadata_blocks = any;
          break;
        case 8:
          g.ring_offset_bytes = any;
          break;
        case 9:
          g.ring_blocks = any;
          break;
        case 10:
          g.slots_offset_bytes = any;
          break;
        default:
          g.log_blocks = any;
          break;
      }
    }
    if (!g.Validate().ok()) {
      continue;
    }
    ++passed;
    ASSERT_GE(g.SlotOffset(SlotIndex(0)), g.RingOffset(g.ring_blocks - 1) + kBlockBytes);
    ASSERT_GT(g.ssd_bytes(), g.slots_offset_bytes);
    ASSERT_GT(g.log_bytes(), g.log_offset_bytes);
    ASSERT_GE(g.reserve_slots(), kMinReserveSlots);
    ASSERT_LT(g.reserve_slots(), g.slots);
    ASSERT_GE(g.extents(), 1U);
    ASSERT_LE(g.max_volumes(), kMaxVolumes);
  }
  EXPECT_GT(passed, 100U);
}

// The metadata area says how many volumes an array was laid out for.
TEST(Volumes, LargeArraysHoldSixtyFiveThousand) {
  GeometryRequest r;
  r.n = 8;
  r.m = 2;
  r.chunk_bytes = 4096;
  r.ssd_bytes = uint64_t{64} << 30;
  r.log_bytes = uint64_t{1} << 30;
  const Geometry g = *PlanGeometry(r);
  EXPECT_EQ(g.max_volumes(), 65536U);
  EXPECT_GE(g.metadata_blocks, 2 * g.max_checkpoint_blocks());
  r.ssd_bytes = uint64_t{1} << 30;
  const uint32_t stripes = PlanGeometry(r)->stripes;
  EXPECT_EQ(PlanGeometry(r)->max_volumes(), stripes / 64);
}

TEST(Volumes, ArraysThatWereLaidOutForFewerKeepTheirLimit) {
  for (const uint64_t ssd_mib : {32U, 256U, 1024U, 16384U, 1U << 20}) {
    GeometryRequest r;
    r.n = 8;
    r.m = 2;
    r.chunk_bytes = 4096;
    r.ssd_bytes = ssd_mib << 20;
    r.log_bytes = uint64_t{1} << 28;
    Geometry g = *PlanGeometry(r);
    const uint32_t then = std::clamp<uint32_t>(g.extents(), 16, 1024);
    g.metadata_blocks = g.MetadataBlocks(then);
    EXPECT_TRUE(g.Validate().ok());
    // Some more where the same blocks have room, but a checkpoint never has more of them.
    EXPECT_GE(g.max_volumes(), then);
    EXPECT_LE(g.max_volumes(), then + 32);
    EXPECT_EQ(g.max_checkpoint_blocks(), g.CheckpointBlocks(then));
  }
}

}  // namespace
}  // namespace eplog
