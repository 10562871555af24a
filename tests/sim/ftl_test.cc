// The translation layer against a map that a child could write, and its invariants.
#include "sim/ftl.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/types.h"

namespace eplog::sim {
namespace {

FtlShape Shape(uint64_t user_pages, uint32_t dies, uint32_t pages_per_block,
               double overprovisioning) {
  FtlShape shape;
  shape.user_pages = user_pages;
  shape.dies = dies;
  shape.pages_per_block = pages_per_block;
  shape.blocks =
      DivideUp(static_cast<uint64_t>(static_cast<double>(user_pages) * (1 + overprovisioning)),
               pages_per_block);
  return shape;
}

struct Case {
  const char* name;
  uint32_t dies;
  uint32_t program_pages;
  Collection collection;
};

class FtlInvariants : public ::testing::TestWithParam<Case> {};

TEST_P(FtlInvariants, HoldUnderRandomWritesTrimsAndPadding) {
  FtlShape shape = Shape(2048, GetParam().dies, 16, 0.3);
  shape.program_pages = GetParam().program_pages;
  shape.collection = GetParam().collection;
  Ftl ftl(shape);
  Random random(7);
  std::set<uint64_t> mapped;
  uint64_t written = 0;
  uint64_t trimmed = 0;
  for (int step = 0; step < 60000; ++step) {
    const uint64_t page = random.OneIn(3) ? random.Below(64) : random.Below(shape.user_pages);
    if (random.OneIn(8)) {
      ASSERT_EQ(ftl.Trim(page), mapped.erase(page) == 1);
      trimmed = ftl.counters().trimmed_pages;
    } else {
      uint32_t die = static_cast<uint32_t>(random.Below(shape.dies));
      while (!ftl.HasRoom(die)) {
        die = (die + 1) % shape.dies;
      }
      ftl.Write(page, die);
      mapped.insert(page);
      ++written;
      ASSERT_EQ(ftl.DieOf(page), die);
      if (random.OneIn(16)) {
        ftl.Pad(die);
      }
    }
    if (step % 500 == 0) {
      ASSERT_EQ(ftl.Fault(), "") << "step " << step;
    }
  }
  ASSERT_EQ(ftl.Fault(), "");
  for (uint64_t page = 0; page < shape.user_pages; ++page) {
    ASSERT_EQ(ftl.IsMapped(page), mapped.contains(page)) << page;
  }
  EXPECT_EQ(ftl.counters().host_pages, written);
  EXPECT_GT(trimmed, 0U);
  EXPECT_GT(ftl.counters().moved_pages, 0U);
  EXPECT_GT(ftl.counters().erases, ftl.counters().gc_runs / 2);
  EXPECT_EQ(ftl.wear().erases, ftl.counters().erases);
  EXPECT_EQ(ftl.counters().padded_pages > 0, shape.program_pages > 1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FtlInvariants,
                         ::testing::Values(Case{"OneDie", 1, 1, Collection::kGreedy},
                                           Case{"FourDies", 4, 1, Collection::kGreedy},
                                           Case{"Units", 4, 8, Collection::kGreedy},
                                           Case{"CostBenefit", 1, 1, Collection::kCostBenefit},
                                           Case{"CostBenefitUnits", 3, 4,
                                                Collection::kCostBenefit}),
                         [](const auto& test_case) { return std::string(test_case.param.name); });

// Whoever always writes what lies on one die fills the others: the turn must pass them by.
TEST(Ftl, ADieThatIsFullIsPassedBy) {
  const FtlShape shape = Shape(1024, 4, 16, 0.15);
  Ftl ftl(shape);
  for (uint64_t page = 0; page < shape.user_pages; ++page) {
    ftl.Write(page);
  }
  Random random(3);
  bool full = false;
  for (int i = 0; i < 20000; ++i) {
    uint64_t page = random.Below(shape.user_pages);
    for (uint64_t tries = 0; ftl.DieOf(page) != 0 && tries < shape.user_pages; ++tries) {
      page = (page + 1) % shape.user_pages;
    }
    ftl.Write(page);
    for (uint32_t die = 1; die < shape.dies; ++die) {
      full = full || !ftl.HasRoom(die);
    }
  }
  EXPECT_TRUE(full);
  EXPECT_EQ(ftl.Fault(), "");
}

// Both choices against a look at every block.
TEST(Victims, AreTheBestOfAllBlocks) {
  constexpr uint32_t kBlocks = 50;
  constexpr uint32_t kPages = 100;
  std::vector<FlashBlock> blocks(kBlocks);
  Victims victims(blocks, kPages);
  std::set<uint32_t> inside;
  Random random(4);
  const auto value = [&](uint32_t block, uint64_t now) {
    const double u = static_cast<double>(blocks[block].valid) / kPages;
    return static_cast<double>(now - blocks[block].changed + 1) * (1 - u) / (2 * u);
  };
  for (uint64_t now = 1; now < 5000; ++now) {
    const auto block = static_cast<uint32_t>(random.Below(kBlocks));
    if (inside.erase(block) == 1) {
      victims.Remove(block);
    }
    if (!random.OneIn(4)) {
      blocks[block].valid = static_cast<uint32_t>(random.Between(1, kPages));
      blocks[block].changed = now;
      victims.Add(block);
      inside.insert(block);
    }
    const uint32_t fewest = victims.FewestValid();
    const uint32_t best = victims.BestValue(now);
    ASSERT_EQ(fewest == kNoBlock, inside.empty());
    for (const uint32_t other : inside) {
      ASSERT_LE(blocks[fewest].valid, blocks[other].valid);
      ASSERT_GE(value(best, now), value(other, now) * (1 - 1e-12));
      if (blocks[fewest].valid == blocks[other].valid) {
        ASSERT_LE(blocks[fewest].changed, blocks[other].changed);
      }
    }
  }
}

TEST(Ftl, PreconditioningMapsEverythingAndCountsNothing) {
  Ftl ftl(Shape(4096, 4, 32, 0.2));
  ftl.Precondition(5, 150);
  EXPECT_EQ(ftl.mapped_pages(), 4096U);
  EXPECT_EQ(ftl.counters().programmed_pages(), 0U);
  EXPECT_EQ(ftl.wear().most, 0U);
  EXPECT_EQ(ftl.Fault(), "");
  // The next writes already need collection.
  Random random(6);
  for (int i = 0; i < 1000; ++i) {
    ftl.Write(random.Below(4096));
  }
  EXPECT_GT(ftl.counters().write_amplification(), 1.5);
  EXPECT_EQ(ftl.Fault(), "");
}

TEST(Ftl, WearTellsEvenFromUneven) {
  Ftl even(Shape(4096, 1, 32, 0.3));
  Ftl uneven(Shape(4096, 1, 32, 0.3));
  even.Precondition(1, 100);
  uneven.Precondition(1, 100);
  Random random(2);
  for (int i = 0; i < 100000; ++i) {
    even.Write(random.Below(4096));
    uneven.Write(random.Below(64));
  }
  EXPECT_GT(uneven.wear().deviation / uneven.wear().mean,
            3 * even.wear().deviation / even.wear().mean);
  EXPECT_EQ(uneven.wear().least, 0U);
  EXPECT_GT(uneven.wear().most, even.wear().most / 2);
}

TEST(ShapeFor, SmallDevicesKeepTheShareOfOverprovisioning) {
  FlashParameters flash;
  flash.channels = 8;
  flash.ways = 4;
  flash.program_pages = 8;
  flash.pages_per_block = 2048;
  flash.overprovisioning_ppm = 73'500;
  for (const uint64_t size : {uint64_t{256} << 20, uint64_t{1} << 30, uint64_t{8} << 30}) {
    const FtlShape shape = ShapeFor(flash, size);
    EXPECT_EQ(shape.user_pages, size / 4096);
    EXPECT_NEAR(shape.spare_factor(), 1.0735, 0.0735 * 0.02) << size;
    EXPECT_EQ(shape.pages_per_block % shape.program_pages, 0U);
    EXPECT_GE(shape.blocks / shape.dies, 64U) << size;
  }
  EXPECT_EQ(ShapeFor(flash, uint64_t{256'000'000'000}).pages_per_block, 2048U);
}

}  // namespace
}  // namespace eplog::sim
