#include <gtest/gtest.h>

#include <bit>

#include "base/types.h"
#include "erasure/erasure.h"
#include "tests/erasure/stripe.h"

namespace eplog {
namespace {

using oracle::Bytes;

// A stripe as it should be, and a working copy of it of which chunks are erased and decoded.
class Decoding {
 public:
  Decoding(uint32_t d, uint32_t m, size_t bytes, size_t misalignment = 0)
      : d_(d), bytes_(bytes), code_(kMaxSsds, m), chunks_(d + m, bytes, misalignment) {
    Random random(d * 100 + m);
    expected_ = oracle::Encode(RandomData(random, d, bytes), m);
    chunks_.SetAll(expected_);
  }
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(expected_.size()); }
  [[nodiscard]] uint64_t all() const { return (uint64_t{1} << count()) - 1; }
  [[nodiscard]] const std::vector<Bytes>& expected() const { return expected_; }
  StripeChunks& chunks() { return chunks_; }
  const ErasureCode& code() { return code_; }

  // Erases `erased`, decodes `wanted` of them (no pointers for the rest), expects those right and
  // all else untouched.
  void Expect(uint64_t erased, uint64_t wanted) {
    auto pointers = chunks_.pointers();
    for (uint64_t rest = erased; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(rest));
      chunks_.Set(i, Bytes(bytes_, std::byte{0xEE}));
      if ((wanted >> i & 1) == 0) {
        pointers[i] = nullptr;
      }
    }
    const Status status = code_.Decode(d_, pointers, all() & ~erased, wanted, bytes_);
    ASSERT_TRUE(status.ok()) << status.error().ToString();
    for (uint32_t i = 0; i < count(); ++i) {
      const bool left = (erased >> i & 1) != 0 && (wanted >> i & 1) == 0;
      ASSERT_EQ(chunks_.Get(i), left ? Bytes(bytes_, std::byte{0xEE}) : expected_[i])
          << d_ << "+" << code_.parity() << ", chunk " << i << ", erased " << std::hex << erased
          << ", wanted " << wanted;
      if (left) {
        chunks_.Set(i, expected_[i]);
      }
    }
  }

 private:
  uint32_t d_;
  size_t bytes_;
  ErasureCode code_;
  StripeChunks chunks_;
  std::vector<Bytes> expected_;
};

class DecodeByParity : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Parity, DecodeByParity, testing::Range(1U, kMaxParity + 1));

// Calls visit(erased) for every pattern of 1 ... most erased chunks of `count`.
template <typename Visit>
void EveryPattern(uint32_t count, int most, Visit&& visit) {
  for (uint64_t erased = 1; erased < uint64_t{1} << count; ++erased) {
    if (std::popcount(erased) <= most) {
      visit(erased);
    }
  }
}

TEST_P(DecodeByParity, EveryPatternUpTo12) {
  const uint32_t m = GetParam();
  for (uint32_t d = 1; d <= 12; ++d) {
    Decoding aligned(d, m, 128);
    Decoding odd(d, m, 71, 1);
    EveryPattern(d + m, static_cast<int>(m), [&](uint64_t erased) {
      aligned.Expect(erased, erased);
      odd.Expect(erased, erased);
    });
  }
}

// Every pattern of every width, over a few bytes: a word of the vector unit and a rest.
TEST_P(DecodeByParity, EveryPatternOfEveryWidth) {
  const uint32_t m = GetParam();
  uint64_t patterns = 0;
  for (uint32_t d = 13; d <= kMaxSsds; ++d) {
    Decoding decoding(d, m, 37);
    const auto lose = [&](const auto& self, uint64_t erased, uint32_t from) -> void {
      for (uint32_t chunk = from; chunk < d + m; ++chunk) {
        const uint64_t more = erased | uint64_t{1} << chunk;
        decoding.Expect(more, more);
        ++patterns;
        if (std::popcount(more) < static_cast<int>(m)) {
          self(self, more, chunk + 1);
        }
      }
    };
    lose(lose, 0, 0);
    ASSERT_FALSE(HasFatalFailure());
  }
  RecordProperty("patterns", std::to_string(patterns));
}

TEST_P(DecodeByParity, EverySubsetOfTheErased) {
  const uint32_t m = GetParam();
  for (const uint32_t d : {1U, 2U, 5U, 8U}) {
    Decoding decoding(d, m, 64);
    EveryPattern(d + m, static_cast<int>(m), [&](uint64_t erased) {
      for (uint64_t wanted = erased;; wanted = (wanted - 1) & erased) {
        decoding.Expect(erased, wanted);
        if (wanted == 0) {
          break;
        }
      }
    });
  }
}

TEST_P(DecodeByParity, SampledPatternsUpTo32AgreeWithTheOracle) {
  const uint32_t m = GetParam();
  Random random(m);
  for (uint32_t d = 13; d <= kMaxSsds; ++d) {
    Decoding decoding(d, m, 192, d % 3);
    for (int sample = 0; sample < 60; ++sample) {
      uint64_t erased = 0;
      const uint64_t lost = random.Between(1, m);
      while (static_cast<uint64_t>(std::popcount(erased)) < lost) {
        erased |= uint64_t{1} << random.Below(d + m);
      }
      decoding.Expect(erased, erased & (random.OneIn(2) ? ~uint64_t{0} : random.Next()));
      if (sample % 30 == 0) {
        auto damaged = decoding.expected();
        for (uint64_t rest = erased; rest != 0; rest &= rest - 1) {
          damaged[static_cast<size_t>(std::countr_zero(rest))].assign(192, std::byte{0x11});
        }
        ASSERT_EQ(oracle::Decode(damaged, d, decoding.all() & ~erased), decoding.expected());
      }
    }
  }
}

TEST_P(DecodeByParity, ChunksOf4KTo1M) {
  const uint32_t m = GetParam();
  for (size_t bytes = kMinChunkBytes; bytes <= kMaxChunkBytes; bytes *= 4) {
    Decoding decoding(4, m, bytes);
    decoding.Expect(1, 1);
    const uint64_t first = (uint64_t{1} << m) - 1;
    decoding.Expect(first, first);
    decoding.Expect(first << 4, first << 4);
    const uint64_t mixed = first << (4 - m / 2);
    decoding.Expect(mixed, mixed);
  }
}

TEST_P(DecodeByParity, OneTooManyIsRefusedAndNothingIsWritten) {
  const uint32_t m = GetParam();
  for (uint32_t d = 1; d <= 8; ++d) {
    Decoding decoding(d, m, 64);
    for (uint64_t present = 0; present <= decoding.all(); ++present) {
      if (static_cast<uint32_t>(std::popcount(present)) >= d) {
        continue;
      }
      const Status status =
          decoding.code().Decode(d, decoding.chunks().pointers(), present, decoding.all(), 64);
      ASSERT_FALSE(status.ok());
      ASSERT_EQ(status.error().code, ErrorCode::kTooManyFailures);
    }
    for (uint32_t i = 0; i < decoding.count(); ++i) {
      EXPECT_EQ(decoding.chunks().Get(i), decoding.expected()[i]);
    }
  }
}

TEST(Decode, TheRefusalSaysHowManyAreLost) {
  Decoding decoding(6, 2, 64);
  const Status status = decoding.code().Decode(6, decoding.chunks().pointers(), 0x1F, 0x20, 64);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().ToString(), "3 of 8 chunks are lost, 2 can be rebuilt");
}

// Bits of chunks that are present, or beyond the stripe, are no requests and no sources.
TEST(Decode, OnlyErasedChunksOfTheStripeAreWritten) {
  Decoding decoding(5, 2, 64);
  auto pointers = decoding.chunks().pointers();
  ASSERT_TRUE(decoding.code().Decode(5, pointers, ~uint64_t{4}, ~uint64_t{0}, 64).ok());
  for (uint32_t i = 0; i < decoding.count(); ++i) {
    EXPECT_EQ(decoding.chunks().Get(i), decoding.expected()[i]);
  }
  EXPECT_FALSE(decoding.code().Decode(5, pointers, ~uint64_t{7}, 4, 64).ok());
}

// Zero chunks are not read, present or not: every set of zero chunks with every erasure, data and
// parity.
TEST_P(DecodeByParity, APresentNullIsAChunkOfZeros) {
  const uint32_t m = GetParam();
  constexpr uint32_t kData = 4;
  constexpr size_t kBytes = 64;
  const ErasureCode code(kMaxSsds, m);
  for (uint32_t held = 0; held < 1U << kData; ++held) {
    Random random(held);
    auto data = RandomData(random, kData, kBytes);
    for (uint32_t i = 0; i < kData; ++i) {
      if ((held >> i & 1) == 0) {
        data[i].assign(kBytes, std::byte{0});
      }
    }
    const auto expected = oracle::Encode(data, m);
    EveryPattern(kData + m, static_cast<int>(m), [&](uint64_t erased) {
      StripeChunks chunks(kData + m, kBytes);
      chunks.SetAll(expected);
      auto pointers = chunks.pointers();
      for (uint32_t i = 0; i < kData + m; ++i) {
        if ((erased >> i & 1) != 0) {
          chunks.Set(i, Bytes(kBytes, std::byte{0xEE}));
        } else if (expected[i] == Bytes(kBytes, std::byte{0})) {
          pointers[i] = nullptr;
        }
      }
      ASSERT_TRUE(code.Decode(kData, pointers, ~erased, erased, kBytes).ok());
      for (uint32_t i = 0; i < kData + m; ++i) {
        ASSERT_EQ(chunks.Get(i), expected[i]) << "held " << held << ", erased " << erased;
      }
    });
  }
}

// A log stripe written over few members is decoded by a code made for many, and as a stripe of many
// with zero chunks.
TEST(Decode, AShortenedStripeIsAWideOneWithZeros) {
  constexpr size_t kBytes = 96;
  for (uint32_t d = 1; d <= 6; ++d) {
    Decoding narrow(d, 2, kBytes);
    const ErasureCode wide(8, 2);
    std::vector<std::byte*> pointers(10, nullptr);
    for (uint32_t i = 0; i < d; ++i) {
      pointers[i] = narrow.chunks().pointers()[i];
    }
    pointers[8] = narrow.chunks().pointers()[d];
    pointers[9] = narrow.chunks().pointers()[d + 1];
    narrow.chunks().Set(0, Bytes(kBytes, std::byte{0xEE}));
    narrow.chunks().Set(d, Bytes(kBytes, std::byte{0xEE}));
    const uint64_t erased = 1 | 1 << 8;
    ASSERT_TRUE(wide.Decode(8, pointers, ~erased, erased, kBytes).ok());
    for (uint32_t i = 0; i < d + 2; ++i) {
      EXPECT_EQ(narrow.chunks().Get(i), narrow.expected()[i]) << "d = " << d << ", chunk " << i;
    }
  }
}

TEST(DecodeDeathTest, AWantedChunkNeedsAPlace) {
  Decoding decoding(3, 1, 64);
  auto pointers = decoding.chunks().pointers();
  pointers[1] = nullptr;
  EXPECT_DEATH((void)decoding.code().Decode(3, pointers, ~uint64_t{2}, 2, 64), "nowhere to put");
}

}  // namespace
}  // namespace eplog
