// Where things lie: against the rotation written down by hand, and against itself.
#include "baseline/placement.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace eplog {
namespace {

Placement Make(uint32_t n, uint32_t m, uint32_t chunk_bytes, uint64_t ssd_bytes) {
  auto made = Placement::Make({n, m, chunk_bytes, ssd_bytes});
  EXPECT_TRUE(made.ok());
  return *made;
}

// What mdadm creates: RAID-5 of 4, left-symmetric.
//   0 1 2 P
//   4 5 P 3
//   8 P 6 7
//   P 9 10 11
//   12 13 14 P
TEST(Placement, Raid5IsLeftSymmetric) {
  const Placement placement = Make(4, 1, 4096, 5 * 4096);
  const uint32_t kSsdOfChunk[] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2};
  const uint32_t kParitySsd[] = {3, 2, 1, 0, 3};
  for (uint32_t chunk = 0; chunk < 15; ++chunk) {
    EXPECT_EQ(placement.SsdOf(chunk / 3, chunk % 3).value, kSsdOfChunk[chunk]) << chunk;
  }
  for (uint32_t line = 0; line < 5; ++line) {
    EXPECT_EQ(placement.SsdOf(line, 3).value, kParitySsd[line]) << line;
  }
}

// RAID-6 of 5: parity as above, Q behind it, then the data, always round the end.
//   Q 0 1 2 P
//   3 4 5 P Q
//   7 8 P Q 6
//   11 P Q 9 10
//   P Q 12 13 14
TEST(Placement, Raid6IsLeftSymmetric) {
  const Placement placement = Make(5, 2, 4096, 5 * 4096);
  const uint32_t kSsdOfChunk[] = {1, 2, 3, 0, 1, 2, 4, 0, 1, 3, 4, 0, 2, 3, 4};
  const uint32_t kParitySsd[] = {4, 3, 2, 1, 0};
  for (uint32_t chunk = 0; chunk < 15; ++chunk) {
    EXPECT_EQ(placement.SsdOf(chunk / 3, chunk % 3).value, kSsdOfChunk[chunk]) << chunk;
  }
  for (uint32_t line = 0; line < 5; ++line) {
    EXPECT_EQ(placement.SsdOf(line, 3).value, kParitySsd[line]) << line;
    EXPECT_EQ(placement.SsdOf(line, 4).value, (kParitySsd[line] + 1) % 5) << line;
  }
}

TEST(Placement, EveryPageHasAPlaceOfItsOwn) {
  for (const uint32_t chunk_pages : {1U, 4U}) {
    const Placement placement = Make(7, 3, chunk_pages * 4096, 24 * 4096 + 512);
    std::set<std::pair<uint32_t, uint64_t>> taken;
    for (uint64_t at = 0; at < placement.size_bytes(); at += kPageBytes) {
      const auto pieces = placement.CutPages(at, kPageBytes);
      ASSERT_EQ(pieces.size(), 1U);
      EXPECT_EQ(placement.VolumeOffset(pieces[0].line, pieces[0].position), at);
      const uint32_t ssd = placement.SsdOf(pieces[0].line, pieces[0].position).value;
      EXPECT_TRUE(taken.emplace(ssd, Placement::SsdOffset(pieces[0].line)).second);
      const auto chunks = placement.CutChunks(at, kPageBytes);
      ASSERT_EQ(chunks.size(), 1U);
      EXPECT_EQ(chunks[0].ssd.value, ssd);
      EXPECT_EQ(chunks[0].offset_bytes, Placement::SsdOffset(pieces[0].line));
    }
    EXPECT_EQ(taken.size(), placement.lines() * placement.k());
  }
}

// Lines ascend, those of one line are together, and the pieces are the range.
TEST(Placement, ACutRangeIsTheRange) {
  const Placement placement = Make(6, 2, 16384, 1 << 20);
  for (uint64_t offset = 0; offset < 200 * 512; offset += 7 * 512) {
    for (uint64_t length = 512; length < 300 * 512; length += 13 * 512) {
      const auto pieces = placement.CutPages(offset, length);
      std::set<uint64_t> starts;
      uint64_t total = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto& p = pieces[i];
        EXPECT_TRUE(i == 0 || pieces[i - 1].line < p.line ||
                    (pieces[i - 1].line == p.line && pieces[i - 1].position < p.position));
        EXPECT_EQ(placement.VolumeOffset(p.line, p.position) + p.begin_bytes, offset + p.at_bytes);
        EXPECT_LE(p.begin_bytes + p.length_bytes, kPageBytes);
        EXPECT_TRUE(starts.insert(p.at_bytes).second);
        total += p.length_bytes;
      }
      EXPECT_EQ(total, length);
    }
  }
}

TEST(Placement, RefusesWhatMakesNoSense) {
  const PlacementShape good{.n = 4, .m = 1, .chunk_bytes = 4096, .ssd_bytes = 1 << 20};
  EXPECT_TRUE(Placement::Make(good).ok());
  const auto refused = [](PlacementShape shape) { return !Placement::Make(shape).ok(); };
  EXPECT_TRUE(refused({4, 0, 4096, 1 << 20}));
  EXPECT_TRUE(refused({4, 3, 4096, 1 << 20}));
  EXPECT_TRUE(refused({33, 1, 4096, 1 << 20}));
  EXPECT_TRUE(refused({4, 1, 6144, 1 << 20}));
  EXPECT_TRUE(refused({4, 1, 4096, 2048}));
  const Placement placement = *Placement::Make(good);
  EXPECT_TRUE(placement.Check(placement.size_bytes() - 512, 512).ok());
  EXPECT_FALSE(placement.Check(placement.size_bytes(), 512).ok());
  EXPECT_FALSE(placement.Check(UINT64_MAX - 511, 1024).ok());
  EXPECT_FALSE(placement.Check(100, 512).ok());
  EXPECT_FALSE(placement.Check(0, 100).ok());
}

}  // namespace
}  // namespace eplog
