#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/types.h"
#include "erasure/erasure.h"
#include "tests/erasure/stripe.h"

namespace eplog {
namespace {

using oracle::Bytes;

void ExpectEncodes(uint32_t d, uint32_t m, size_t bytes, size_t misalignment) {
  Random random(d * 1000 + m + bytes);
  const auto expected = oracle::Encode(RandomData(random, d, bytes), m);
  StripeChunks chunks(d + m, bytes, misalignment);
  for (uint32_t i = 0; i < d; ++i) {
    chunks.Set(i, expected[i]);
  }
  const ErasureCode code(kMaxSsds, m);
  code.Encode(ConstPointers(chunks.first(d)), chunks.from(d), bytes);
  for (uint32_t i = 0; i < d + m; ++i) {
    ASSERT_EQ(chunks.Get(i), expected[i])
        << d << "+" << m << ", chunk " << i << ", " << bytes << " bytes, +" << misalignment;
  }
}

TEST(Encode, EveryWidthAgreesWithTheOracle) {
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    for (uint32_t d = 1; d <= kMaxSsds; ++d) {
      ExpectEncodes(d, m, 256, 0);
      ExpectEncodes(d, m, 256, 1);
    }
  }
}

TEST(Encode, AnySizeAndAlignment) {
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    for (const size_t bytes : {1UL, 15UL, 16UL, 17UL, 31UL, 32UL, 33UL, 63UL, 64UL, 65UL, 96UL,
                               127UL, 128UL, 1000UL, 4095UL, 4097UL}) {
      for (const size_t misalignment : {0UL, 1UL, 8UL, 16UL, 32UL}) {
        ExpectEncodes(5, m, bytes, misalignment);
      }
    }
  }
}

TEST(Encode, ChunksOf4KTo1M) {
  for (size_t bytes = kMinChunkBytes; bytes <= kMaxChunkBytes; bytes *= 4) {
    ExpectEncodes(3, 1, bytes, 0);
    ExpectEncodes(6, 2, bytes, 0);
    ExpectEncodes(4, 4, bytes, 3);
  }
}

TEST(Encode, NoBytesChangeNothing) {
  StripeChunks chunks(4, 64);
  const ErasureCode code(3, 1);
  code.Encode(ConstPointers(chunks.from(1)), chunks.first(1), 0);
  EXPECT_EQ(chunks.Get(0), Bytes(64, kGuard));
}

TEST(Encode, OneParityIsPlainXor) {
  constexpr size_t kBytes = 4096;
  Random random(7);
  StripeChunks chunks(8, kBytes);
  Bytes sum(kBytes, std::byte{0});
  for (size_t i = 0; i < 7; ++i) {
    const Bytes content = RandomBytes(random, kBytes);
    chunks.Set(i, content);
    for (size_t at = 0; at < kBytes; ++at) {
      sum[at] ^= content[at];
    }
  }
  ErasureCode(7, 1).Encode(ConstPointers(chunks.first(7)), chunks.from(7), kBytes);
  EXPECT_EQ(chunks.Get(7), sum);
}

// The first parity chunks are the same whatever m is: the family is one.
TEST(Encode, MoreParityKeepsTheFirst) {
  constexpr size_t kBytes = 320;
  Random random(8);
  const auto data = RandomData(random, 9, kBytes);
  StripeChunks widest(9 + kMaxParity, kBytes);
  widest.SetAll(data);
  const auto inputs = ConstPointers(widest.first(9));
  ErasureCode(9, kMaxParity).Encode(inputs, widest.from(9), kBytes);
  for (uint32_t m = 1; m < kMaxParity; ++m) {
    StripeChunks parity(m, kBytes);
    ErasureCode(9, m).Encode(inputs, parity.from(0), kBytes);
    for (uint32_t j = 0; j < m; ++j) {
      EXPECT_EQ(parity.Get(j), widest.Get(9 + j)) << "m = " << m << ", parity " << j;
    }
  }
}

// Null, a chunk of zeros, and (behind the last other chunk) no chunk at all are the same.
TEST(Encode, NullIsAChunkOfZeros) {
  constexpr uint32_t kWidth = 8;
  for (const size_t bytes : {size_t{192}, size_t{100}}) {
    for (uint32_t m = 1; m <= kMaxParity; ++m) {
      const ErasureCode code(kWidth, m);
      Random random(m);
      for (uint32_t held = 0; held < 1U << kWidth; ++held) {
        StripeChunks chunks(kWidth, bytes);
        std::vector<Bytes> contents(kWidth, Bytes(bytes, std::byte{0}));
        std::vector<const std::byte*> inputs(kWidth, nullptr);
        for (uint32_t i = 0; i < kWidth; ++i) {
          if ((held >> i & 1) != 0) {
            contents[i] = RandomBytes(random, bytes);
            chunks.Set(i, contents[i]);
            inputs[i] = chunks.pointers()[i];
          }
        }
        const auto expected = oracle::Encode(contents, m);
        StripeChunks parity(m, bytes);
        StripeChunks shortened(m, bytes);
        code.Encode(inputs, parity.from(0), bytes);
        while (!inputs.empty() && inputs.back() == nullptr) {
          inputs.pop_back();
        }
        code.Encode(inputs, shortened.from(0), bytes);
        for (uint32_t j = 0; j < m; ++j) {
          ASSERT_EQ(parity.Get(j), expected[kWidth + j]) << "m = " << m << ", held " << held;
          ASSERT_EQ(shortened.Get(j), expected[kWidth + j]) << "m = " << m << ", held " << held;
        }
      }
    }
  }
}

// A log stripe of one member costs no arithmetic: each of its log chunks is a copy.
TEST(Encode, OneMemberIsCopied) {
  constexpr size_t kBytes = 128;
  Random random(9);
  const Bytes content = RandomBytes(random, kBytes);
  StripeChunks chunks(1 + kMaxParity, kBytes);
  chunks.Set(0, content);
  ErasureCode(kMaxSsds, kMaxParity).Encode(ConstPointers(chunks.first(1)), chunks.from(1), kBytes);
  for (uint32_t j = 0; j < kMaxParity; ++j) {
    EXPECT_EQ(chunks.Get(1 + j), content);
  }
}

TEST(Update, TurnsOldParityIntoNew) {
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    for (const size_t bytes : {size_t{40}, size_t{64}, size_t{333}, size_t{4096}}) {
      constexpr uint32_t kWidth = 11;
      const ErasureCode code(kWidth, m);
      Random random(m + bytes);
      auto data = RandomData(random, kWidth, bytes);
      StripeChunks parity(m, bytes, bytes % 2);
      const auto before = oracle::Encode(data, m);
      for (uint32_t j = 0; j < m; ++j) {
        parity.Set(j, before[kWidth + j]);
      }
      for (uint32_t i = 0; i < kWidth; ++i) {
        const Bytes delta = RandomBytes(random, bytes);
        for (size_t at = 0; at < bytes; ++at) {
          data[i][at] ^= delta[at];
        }
        code.Update(i, delta, parity.from(0));
      }
      const auto after = oracle::Encode(data, m);
      for (uint32_t j = 0; j < m; ++j) {
        EXPECT_EQ(parity.Get(j), after[kWidth + j]) << "m = " << m << ", " << bytes << " bytes";
      }
    }
  }
}

TEST(ErasureDeathTest, AWrongShapeStopsTheProgram) {
  const ErasureCode code(4, 2);
  StripeChunks chunks(8, 64);
  EXPECT_DEATH(code.Encode(ConstPointers(chunks.from(3)), chunks.from(6), 64), "shape of a stripe");
  EXPECT_DEATH(code.Encode(ConstPointers(chunks.from(4)), chunks.from(7), 64), "shape of a stripe");
  EXPECT_DEATH(ErasureCode(33, 2), "number of data chunks");
  EXPECT_DEATH(ErasureCode(8, 5), "number of parity chunks");
  EXPECT_DEATH((void)code.Decode(4, chunks.from(0), ~uint64_t{0}, 0, 64), "shape of a stripe");
}

}  // namespace
}  // namespace eplog
