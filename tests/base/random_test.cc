#include "base/random.h"

#include <gtest/gtest.h>

#include <array>

namespace eplog {
namespace {

// A seed printed by a failed run must repeat that run for ever.
TEST(Random, GoldenValues) {
  constexpr std::array<uint64_t, 4> kSeed0 = {0x99ec5f36cb75f2b4ULL, 0xbf6e1f784956452aULL,
                                              0x1a5f849d4933e6e0ULL, 0x6aa594f1262d2d2cULL};
  constexpr std::array<uint64_t, 4> kSeed42 = {0x15780b2e0c2ec716ULL, 0x6104d9866d113a7eULL,
                                               0xae17533239e499a1ULL, 0xecb8ad4703b360a1ULL};
  Random zero(0);
  Random other(42);
  for (size_t i = 0; i < kSeed0.size(); ++i) {
    EXPECT_EQ(zero.Next(), kSeed0[i]);
    EXPECT_EQ(other.Next(), kSeed42[i]);
  }
}

TEST(Random, SameSeedSameSequence) {
  Random a(99);
  Random b(99);
  Random c(100);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = a.Next();
    ASSERT_EQ(value, b.Next());
    differs = differs || value != c.Next();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, ACopyGoesItsOwnWay) {
  Random a(5);
  a.Next();
  Random b = a;
  EXPECT_EQ(a.Next(), b.Next());
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(1);
  for (const uint64_t bound : {1ULL, 2ULL, 3ULL, 10ULL, 1000ULL, 1ULL << 40, ~0ULL}) {
    for (int i = 0; i < 1000; ++i) {
      ASSERT_LT(random.Below(bound), bound);
    }
  }
  std::array<int, 10> counts{};
  for (int i = 0; i < 10000; ++i) {
    ++counts[random.Below(10)];
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, 1000, 200);
  }
}

TEST(Random, BetweenIncludesBothEnds) {
  Random random(2);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random.Between(7, 9);
    ASSERT_GE(value, 7U);
    ASSERT_LE(value, 9U);
    low = low || value == 7;
    high = high || value == 9;
  }
  EXPECT_TRUE(low && high);
  EXPECT_EQ(random.Between(5, 5), 5U);
  EXPECT_EQ(random.Between(UINT64_MAX, UINT64_MAX), UINT64_MAX);
}

TEST(Random, BetweenMayBeEverything) {
  Random random(3);
  uint64_t seen = 0;
  for (int i = 0; i < 100; ++i) {
    seen |= random.Between(0, UINT64_MAX);
  }
  EXPECT_EQ(seen, UINT64_MAX);
}

TEST(Random, UnitAndChance) {
  Random random(4);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.Unit();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  int often = 0;
  int one_in_four = 0;
  for (int i = 0; i < 10000; ++i) {
    often += random.Chance(0.9) ? 1 : 0;
    one_in_four += random.OneIn(4) ? 1 : 0;
    ASSERT_FALSE(random.Chance(0.0));
    ASSERT_TRUE(random.Chance(1.0));
    ASSERT_TRUE(random.OneIn(1));
  }
  EXPECT_NEAR(often, 9000, 200);
  EXPECT_NEAR(one_in_four, 2500, 200);
}

}  // namespace
}  // namespace eplog
