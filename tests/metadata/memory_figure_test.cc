// What the tables say that they take, which `status` adds up for people, against what the allocator
// has given them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metadata/state.h"
#include "tests/support/counting_new.h"

namespace eplog {
namespace {

Geometry Large() {
  Geometry g;
  g.n = 6;
  g.m = 2;
  g.chunk_bytes = 4096;
  g.extent_stripes = 4;
  g.stripes = 1U << 18;
  g.slots = g.stripes + g.stripes / 10;
  g.log_blocks = uint64_t{1} << 22;
  g.ring_blocks = 4096;
  return g;
}

// A sanitizer answers calloc itself, and what it gives is not counted.
constexpr bool IsCounted() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return true;
#endif
}

// The figure leaves out what the allocator keeps for itself.
void ExpectAbout(size_t figure, size_t heap) {
  EXPECT_GE(figure, heap * 7 / 10);
  EXPECT_LE(figure, heap * 13 / 10);
}

TEST(MemoryFigure, OfRowsIsWhatTheyTake) {
  if (!IsCounted()) {
    GTEST_SKIP() << "the allocator is not the one that is counted";
  }
  const Geometry g = Large();
  const size_t before = HeapBytes();
  RowTable rows(g);
  const size_t empty = rows.memory_bytes();
  ExpectAbout(empty, HeapBytes() - before);
  for (uint32_t s = 0; s < g.stripes; s += 2 * kRowGroupStripes) {
    rows.Set(StripeIndex(s), 1, {SlotWord::At(SlotIndex(s)), 1});
  }
  ExpectAbout(rows.memory_bytes(), HeapBytes() - before);
  const std::vector<RowWord> words(size_t{kRowGroupStripes} * g.n, {SlotWord::Absent(), 1});
  const size_t half = HeapBytes();
  const size_t figure = rows.memory_bytes();
  for (uint32_t group = 0; group < rows.groups(); ++group) {  // every other one is new
    rows.SetGroup(group, words);
  }
  ExpectAbout(rows.memory_bytes() - figure, HeapBytes() - half);
}

TEST(MemoryFigure, OfPendingChunksIsWhatTheyTake) {
  if (!IsCounted()) {
    GTEST_SKIP() << "the allocator is not the one that is counted";
  }
  const Geometry g = Large();
  const size_t before = HeapBytes();
  PendingTable table(g);
  ExpectAbout(table.memory_bytes(), HeapBytes() - before);
  const std::vector<uint32_t> crcs(g.m, 1);
  const size_t empty = HeapBytes();
  const size_t figure = table.memory_bytes();
  uint64_t sequence = 0;
  for (uint32_t s = 0; s < g.stripes; ++s) {
    const std::vector<LogStripeMember> members = {
        {g.Chunk(StripeIndex(s), 0), SlotWord::At(SlotIndex(s)), 1},
        {g.Chunk(StripeIndex(s), 1), SlotWord::At(SlotIndex(s)), 1}};
    ++sequence;
    table.Add(sequence, sequence * 2, members, crcs);
  }
  ExpectAbout(table.memory_bytes() - figure, HeapBytes() - empty);
}

TEST(MemoryFigure, OfVolumesAndExtentsIsWhatTheyTake) {
  if (!IsCounted()) {
    GTEST_SKIP() << "the allocator is not the one that is counted";
  }
  const Geometry g = Large();
  const size_t before = HeapBytes();
  VolumeTable table(g);
  ExpectAbout(table.memory_bytes(), HeapBytes() - before);
  const size_t empty = HeapBytes();
  const size_t figure = table.memory_bytes();
  for (uint32_t id = 1; id <= 4000; ++id) {
    table.Create(VolumeId(id), "a volume with a name of some length " + std::to_string(id), 1);
  }
  ExpectAbout(table.memory_bytes() - figure, HeapBytes() - empty);
}

TEST(MemoryFigure, OfAStateIsThatOfItsTables) {
  if (!IsCounted()) {
    GTEST_SKIP() << "the allocator is not the one that is counted";
  }
  const Geometry g = Large();
  const size_t before = HeapBytes();
  State state(g);
  ExpectAbout(state.memory_bytes(), HeapBytes() - before);
  EXPECT_GE(state.memory_bytes(), g.stripes + state.rows.memory_bytes() +
                                      state.pending.memory_bytes() + state.volumes.memory_bytes());
}

}  // namespace
}  // namespace eplog
