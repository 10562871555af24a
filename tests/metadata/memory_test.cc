// What the tables cost in RAM, counted by the allocator: 12 bytes a slot for rows and allocation,
// 48 a member of a live log stripe.

#include <gtest/gtest.h>

#include <vector>

#include "metadata/state.h"
#include "tests/support/counting_new.h"

namespace eplog {
namespace {

Geometry GeometryOfSlots(uint64_t slots) {
  Geometry g;
  g.n = 8;
  g.m = 2;
  g.chunk_bytes = 4096;
  g.slots = static_cast<uint32_t>(slots / g.n);
  g.extent_stripes = 1024;
  g.stripes = static_cast<uint32_t>(uint64_t{g.slots} * 9 / 10) / 1024 * 1024;
  g.log_blocks = uint64_t{1} << 22;
  g.ring_blocks = 4096;
  return g;
}

class MemoryOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(MemoryOf, RowsOfAFullArrayStayInTheBudget) {
  const Geometry g = GeometryOfSlots(GetParam());
  const size_t before = HeapBytes();
  State state(g);
  std::vector<RowWord> words(size_t{kRowGroupStripes} * g.n);
  for (uint32_t group = 0; group < state.rows.groups(); ++group) {
    for (uint32_t s = 0; s < kRowGroupStripes; ++s) {
      for (uint32_t i = 0; i < g.n; ++i) {
        words[size_t{s} * g.n + i] = {SlotWord::At(SlotIndex(group * kRowGroupStripes + s)), i};
      }
    }
    state.rows.SetGroup(group, words);
  }
  const double bytes = static_cast<double>(HeapBytes() - before);
  const double a_slot = bytes / static_cast<double>(GetParam());
  RecordProperty("bytes_a_slot", std::to_string(a_slot));
  std::printf("%llu slots: %.2f bytes a slot\n", static_cast<unsigned long long>(GetParam()),
              a_slot);
  EXPECT_LE(a_slot, 12.0 - 0.5) << "the maps of free slots take up to half a byte more";
}

INSTANTIATE_TEST_SUITE_P(Slots, MemoryOf,
                         ::testing::Values(uint64_t{1} << 20, uint64_t{16} << 20,
                                           uint64_t{64} << 20));

// Log stripes of the given width over distinct chunks.
double BytesAMember(uint32_t width, uint64_t members) {
  const Geometry g = GeometryOfSlots(uint64_t{16} << 20);
  PendingTable table(g);
  const size_t before = HeapBytes();
  std::vector<LogStripeMember> record(width);
  const std::vector<uint32_t> crcs(g.m, 7);
  uint32_t stripe = 0;
  for (uint64_t made = 0; made < members; made += width, stripe += 1) {
    // Members of one log stripe come from different stripes, as they do from random updates.
    for (uint32_t i = 0; i < width; ++i) {
      const StripeIndex row((stripe + i * 131'071U) % g.stripes);
      uint32_t index = 0;
      while (g.SsdOf(row, index).value != i) {
        if (++index == g.k()) {
          break;
        }
      }
      if (index == g.k()) {
        record[i] = {};
        record[i].chunk = ChunkIndex(g.data_chunks());
        continue;
      }
      record[i] = {g.Chunk(row, index), SlotWord::At(SlotIndex(stripe % g.slots)), i};
    }
    std::vector<LogStripeMember> good;
    for (const LogStripeMember& member : record) {
      const bool fits = member.chunk.value < g.data_chunks() && !table.Find(member.chunk);
      if (fits && !table.Holds(g.SsdOf(member.chunk), member.word.slot())) {
        good.push_back(member);
      }
    }
    if (!good.empty()) {
      table.Add(made + 1, made * 2, good, crcs);
    }
  }
  return static_cast<double>(HeapBytes() - before) / static_cast<double>(table.live_members());
}

TEST(Memory, MembersOfLogStripesStayInTheBudget) {
  for (const uint32_t width : {1U, 2U, 4U, 8U}) {
    const double bytes = BytesAMember(width, 1'000'000);
    RecordProperty("bytes_a_member_of_" + std::to_string(width), std::to_string(bytes));
    std::printf("log stripes of up to %u members: %.1f bytes a member\n", width, bytes);
    if (width >= 4) {
      EXPECT_LE(bytes, 48.0) << width;
    }
  }
}

}  // namespace
}  // namespace eplog
