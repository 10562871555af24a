#include "base/buffer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/random.h"

namespace eplog {
namespace {

bool Aligned(const Buffer& buffer) {
  return reinterpret_cast<uintptr_t>(buffer.data()) % kBlockBytes == 0;
}

TEST(BufferPool, BuffersAreAlignedAndOfTheSizeAsked) {
  BufferPool pool;
  for (const size_t size : {0UL, 1UL, 512UL, 4095UL, 4096UL, 4097UL, 1UL << 20UL}) {
    const Buffer buffer = pool.Get(size);
    EXPECT_TRUE(Aligned(buffer)) << size;
    EXPECT_TRUE(static_cast<bool>(buffer));
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.span().size(), size);
    EXPECT_EQ(buffer.span().data(), buffer.data());
    if (size != 0) {
      std::memset(buffer.data(), 1, size);
    }
  }
}

TEST(BufferPool, AReturnedBufferIsUsedAgain) {
  BufferPool pool;
  std::byte* first = pool.Get(4096).data();
  EXPECT_EQ(pool.Get(4096).data(), first);
  EXPECT_EQ(pool.Get(100).data(), first) << "sizes of as many blocks share";
  const Buffer held = pool.Get(1);
  const Buffer other = pool.Get(4096);
  EXPECT_EQ(held.data(), first);
  EXPECT_NE(other.data(), first);
}

TEST(BufferPool, ZeroedEvenWhenUsedBefore) {
  BufferPool pool;
  {
    const Buffer dirty = pool.Get(4096);
    std::memset(dirty.data(), 0xFF, dirty.size());
  }
  const Buffer clean = pool.GetZeroed(4096);
  EXPECT_TRUE(std::ranges::all_of(clean.span(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(BufferPool, CountsWhatIsOut) {
  BufferPool pool;
  EXPECT_EQ(pool.outstanding(), 0U);
  {
    const Buffer a = pool.Get(10);
    const Buffer b = pool.GetZeroed(10);
    EXPECT_EQ(pool.outstanding(), 2U);
  }
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(8192);
  std::vector<Buffer> many;
  many.reserve(4);
  std::vector<std::byte*> addresses(4);
  for (std::byte*& address : addresses) {
    many.push_back(pool.Get(4096));
    address = many.back().data();
  }
  many.clear();  // two are kept, two go back to the heap
  EXPECT_EQ(pool.outstanding(), 0U);
  const Buffer a = pool.Get(4096);
  const Buffer b = pool.Get(4096);
  for (const Buffer* buffer : {&a, &b}) {
    EXPECT_NE(std::ranges::find(addresses, buffer->data()), addresses.end());
  }
  BufferPool none(0);
  static_cast<void>(none.Get(4096));
  EXPECT_EQ(none.outstanding(), 0U);
}

TEST(Buffer, MovingLeavesNothingBehind) {
  BufferPool pool;
  Buffer a = pool.Get(100);
  std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_FALSE(static_cast<bool>(a));  // NOLINT: this is the point
  EXPECT_EQ(a.size(), 0U);             // NOLINT
  EXPECT_EQ(pool.outstanding(), 1U);
}

TEST(Buffer, AssigningReturnsWhatWasHeldAtOnce) {
  BufferPool pool;
  Buffer a = pool.Get(100);
  Buffer b = pool.Get(200);
  std::byte* data = b.data();
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(a.size(), 200U);
  EXPECT_EQ(pool.outstanding(), 1U);
  EXPECT_FALSE(static_cast<bool>(b));  // NOLINT: this is the point
  a = Buffer();
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST(Buffer, AssignedToItselfItStays) {
  BufferPool pool;
  Buffer a = pool.Get(100);
  std::byte* data = a.data();
  Buffer& same = a;
  a = std::move(same);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(a.size(), 100U);
  EXPECT_EQ(pool.outstanding(), 1U);
}

TEST(Buffer, AnEmptyOneBelongsToNoPool) {
  const Buffer none;
  EXPECT_FALSE(static_cast<bool>(none));
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_TRUE(none.span().empty());
}

TEST(BufferDeathTest, NoBufferOutlivesItsPool) {
  EXPECT_DEATH(
      {
        Buffer buffer;
        BufferPool pool;
        buffer = pool.Get(1);
      },
      "outlives its pool");
}

#ifndef __SANITIZE_ADDRESS__  // each stands alone there
TEST(BufferPool, TakesHardlyMoreThanIsInUse) {
  for (const size_t size : {4096UL, 8192UL, 16384UL, 65536UL}) {
    BufferPool pool;
    std::vector<Buffer> held;
    while (held.size() * size < size_t{64} << 20) {
      held.push_back(pool.Get(size));
    }
    EXPECT_LE(pool.memory_bytes(), held.size() * size * 11 / 10) << size;
  }
}

TEST(BufferPool, GivesBackWhatIsBeyondItsKeep) {
  BufferPool pool(size_t{8} << 20);
  std::vector<Buffer> held;
  for (int i = 0; i < 16384; ++i) {  // 64 MiB
    held.push_back(pool.Get(4096));
    std::memset(held.back().data(), i, 4096);
  }
  const size_t most = pool.memory_bytes();
  for (size_t i = 0; i < held.size(); i += 2) {
    held[i] = Buffer();
  }
  EXPECT_EQ(pool.memory_bytes(), most) << "something of each piece is in use";
  for (size_t i = 1; i < held.size(); i += 2) {
    ASSERT_EQ(held[i].data()[4095], static_cast<std::byte>(i));
  }
  for (Buffer& buffer : held) {
    buffer = Buffer();
  }
  EXPECT_LE(pool.memory_bytes(), size_t{9} << 20);
  held.clear();
  for (int i = 0; i < 1000; ++i) {
    held.push_back(pool.Get(4096));
  }
  EXPECT_LE(pool.memory_bytes(), size_t{9} << 20) << "what is kept is used again";
}

TEST(BufferPool, SizesDoNotMixAndNothingOverlaps) {
  BufferPool pool(size_t{1} << 20);
  Random random(1);
  std::vector<std::pair<Buffer, uint8_t>> held;
  for (int i = 0; i < 20000; ++i) {
    if (!held.empty() && random.OneIn(2)) {
      std::swap(held[random.Below(held.size())], held.back());
      const auto& [buffer, fill] = held.back();
      ASSERT_TRUE(std::ranges::all_of(buffer.span(),
                                      [f = fill](std::byte b) { return b == std::byte{f}; }));
      held.pop_back();
    } else {
      const auto fill = static_cast<uint8_t>(random.Next());
      held.emplace_back(pool.Get(4096 * random.Between(1, 20)), fill);
      std::memset(held.back().first.data(), fill, held.back().first.size());
    }
  }
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they take all address space
void TakeFourGiBOfTwo(size_t piece, decltype(RLIMIT_AS) kind = RLIMIT_AS) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = uint64_t{2} << 30;
  ::setrlimit(kind, &limit);
  BufferPool pool;
  std::vector<Buffer> held;
  while (held.size() * piece < uint64_t{4} << 30) {
    held.push_back(pool.Get(piece));
  }
}

TEST(BufferPool, OutOfMemoryIsSaidInOneLine) {
  for (const size_t piece : {size_t{4096}, size_t{1} << 20}) {
    EXPECT_EXIT(TakeFourGiBOfTwo(piece), ::testing::ExitedWithCode(1),
                "^eplog: out of memory for buffers, .*ulimit -v.*\n$");
    EXPECT_EXIT(TakeFourGiBOfTwo(piece, RLIMIT_DATA), ::testing::ExitedWithCode(1),
                "^eplog: out of memory for buffers, .*2048 MiB of data .ulimit -d.*\n$");
  }
}
#endif

}  // namespace
}  // namespace eplog
