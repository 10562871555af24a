// The coefficients are a constant of the on-disk format. When a test here fails, arrays in the
// field have become unreadable.
#include <gtest/gtest.h>

#include <bit>

#include "base/types.h"
#include "erasure/erasure.h"
#include "tests/erasure/oracle.h"

namespace eplog {
namespace {

constexpr uint8_t kGolden[kMaxParity][kMaxSsds] = {
    {0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
     0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
     0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01},
    {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1d, 0x3a, 0x74,
     0xe8, 0xcd, 0x87, 0x13, 0x26, 0x4c, 0x98, 0x2d, 0x5a, 0xb4, 0x75,
     0xea, 0xc9, 0x8f, 0x03, 0x06, 0x0c, 0x18, 0x30, 0x60, 0xc0},
    {0x01, 0xf5, 0xd2, 0xc4, 0x9a, 0x71, 0xf1, 0x7f, 0xfc, 0x87, 0xc1,
     0xc6, 0x19, 0x2f, 0x40, 0x55, 0x3d, 0xba, 0x53, 0x04, 0x9c, 0x61,
     0x34, 0x8c, 0x46, 0x68, 0x70, 0x3e, 0xcc, 0x7d, 0x74, 0x75},
    {0x01, 0xbb, 0xa6, 0xd7, 0xc7, 0x07, 0xce, 0x82, 0x4a, 0x2f, 0xa5,
     0x9b, 0xb6, 0x60, 0xf1, 0xad, 0xe7, 0xf4, 0x06, 0xd2, 0xdf, 0x2e,
     0xca, 0x65, 0x5c, 0x48, 0x21, 0xaa, 0xcd, 0x4e, 0xc1, 0x61},
};

TEST(Coefficients, AreTheOnesOnDisk) {
  for (uint32_t j = 0; j < kMaxParity; ++j) {
    for (uint32_t i = 0; i < kMaxSsds; ++i) {
      EXPECT_EQ(ErasureCode::Coefficient(j, i), kGolden[j][i]) << "parity " << j << ", data " << i;
    }
  }
}

TEST(Coefficients, FollowFromTheirDefinition) {
  for (uint32_t j = 0; j < kMaxParity; ++j) {
    for (uint32_t i = 0; i < kMaxSsds; ++i) {
      EXPECT_EQ(ErasureCode::Coefficient(j, i), oracle::Coefficient(j, i));
    }
  }
}

// A code gives all chunks from any d of them exactly if every square part of its parity matrix has
// an inverse. Checked for every choice of rows and of columns, hence for every d up to 32 and every
// m up to 4.
TEST(Coefficients, EverySquarePartHasAnInverse) {
  uint32_t parts = 0;
  for (uint32_t rows = 1; rows < 1U << kMaxParity; ++rows) {
    const int size = std::popcount(rows);
    // Every set of `size` columns, as a mask, in increasing order.
    uint64_t columns = (uint64_t{1} << size) - 1;
    while (columns < uint64_t{1} << kMaxSsds) {
      oracle::Matrix part;
      for (uint32_t j = 0; j < kMaxParity; ++j) {
        if ((rows >> j & 1) == 0) {
          continue;
        }
        oracle::Row row;
        for (uint64_t rest = columns; rest != 0; rest &= rest - 1) {
          row.push_back(ErasureCode::Coefficient(j, static_cast<uint32_t>(std::countr_zero(rest))));
        }
        part.push_back(row);
      }
      ASSERT_TRUE(oracle::Invert(part).has_value()) << "rows " << rows << ", columns " << columns;
      ++parts;
      const uint64_t lowest = columns & (~columns + 1);
      const uint64_t carried = columns + lowest;
      columns = carried | (((columns ^ carried) >> 2) / lowest);
    }
  }
  EXPECT_EQ(parts, 4U * 32 + 6U * 496 + 4U * 4960 + 35960U);
}

// The oracle must be right itself: laws of the field, and an inverse that is one.
TEST(Oracle, MultipliesInTheField) {
  EXPECT_EQ(oracle::Multiply(2, 0x80), 0x1D);
  EXPECT_EQ(oracle::Multiply(0x53, 1), 0x53);
  EXPECT_EQ(oracle::PowerOfTwo(255), 1);
  for (uint32_t exponent = 1; exponent < 255; ++exponent) {
    EXPECT_NE(oracle::PowerOfTwo(exponent), 1) << "2 is no generator";
  }
  for (uint32_t a = 0; a < 256; a += 7) {
    for (uint32_t b = 1; b < 256; b += 5) {
      const auto x = static_cast<uint8_t>(a);
      const auto y = static_cast<uint8_t>(b);
      EXPECT_EQ(oracle::Multiply(x, y), oracle::Multiply(y, x));
      EXPECT_EQ(oracle::Multiply(oracle::Divide(x, y), y), x);
      EXPECT_EQ(oracle::Multiply(x, y ^ 0x35), oracle::Multiply(x, y) ^ oracle::Multiply(x, 0x35));
    }
  }
}

TEST(Oracle, RefusesAMatrixWithoutInverse) {
  EXPECT_FALSE(oracle::Invert({{1, 2}, {2, 4}}).has_value());
  EXPECT_EQ(*oracle::Invert({{0, 1}, {1, 0}}), (oracle::Matrix{{0, 1}, {1, 0}}));
}

}  // namespace
}  // namespace eplog
