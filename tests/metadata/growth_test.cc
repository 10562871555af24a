// Tables that grow: what they say stays true when they are larger than their first piece, against
// ordinary maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "metadata/state.h"
#include "metadata/state_loader.h"

namespace eplog {
namespace {

Geometry Wide(uint32_t stripes) {
  Geometry g;
  g.n = 6;
  g.m = 2;
  g.chunk_bytes = 4096;
  g.stripes = stripes;
  g.slots = stripes + stripes / 2;
  g.extent_stripes = 4;
  g.log_blocks = uint64_t{1} << 20;
  g.ring_blocks = 64;
  return g;
}

// Thousands of pending chunks come, are superseded and come back.
TEST(Growth, PendingChunksAreFoundHoweverMany) {
  const Geometry g = Wide(16'384);
  PendingTable table(g);
  Random random(7);
  struct Known {
    uint64_t sequence = 0;
    uint32_t crc = 0;
  };
  std::map<uint64_t, Known> known;
  const auto died = [](const LogStripeMember&) {};
  const std::vector<uint32_t> crcs(g.m, 1);
  const auto look = [&] {
    ASSERT_EQ(table.pending_chunks(), known.size());
    for (uint64_t c = 0; c < g.data_chunks(); ++c) {
      const auto found = table.Find(ChunkIndex(c));
      const auto expected = known.find(c);
      ASSERT_EQ(found.has_value(), expected != known.end()) << c;
      if (found) {
        ASSERT_EQ(found->version, expected->second.sequence) << c;
        ASSERT_EQ(found->crc, expected->second.crc) << c;
      }
    }
  };
  uint64_t sequence = 0;
  for (const uint64_t most : {900U, 1100U, 5000U, 200U, 30'000U, 0U}) {
    while (known.size() != most) {
      ++sequence;
      const bool add = known.size() < most;
      const uint64_t any = random.Below(g.data_chunks());
      const auto at = known.lower_bound(any);
      if (add && !known.contains(any)) {
        const auto crc = static_cast<uint32_t>(random.Next());
        const std::array<LogStripeMember, 1> member = {
            {{ChunkIndex(any), SlotWord::Absent(), crc}}};
        table.Add(sequence, sequence, member, crcs);
        known[any] = {sequence, crc};
      } else if (!add && at != known.end()) {
        const ChunkIndex chunk(at->first);
        ASSERT_FALSE(table.Supersede(chunk, at->second.sequence - 1, sequence, false, died));
        ASSERT_TRUE(table.Supersede(chunk, at->second.sequence, sequence, false, died));
        known.erase(at);
      }
    }
    table.Stable(sequence);
    ASSERT_NO_FATAL_FAILURE(look());
  }
  EXPECT_EQ(table.live_records(), 0U);
  EXPECT_EQ(table.OldestPlace(), std::nullopt);
}

// A thin volume has extents wherever it was written.
TEST(Growth, ExtentsOfAHugeThinVolumeAreWhereTheyWerePut) {
  ExtentMap map;
  std::map<uint32_t, uint32_t> known;
  Random random(11);
  const std::vector<uint32_t> places = {0,    1,      511,    512,    513,     1023,
                                        1024, 25'000, 25'599, 25'600, 700'000, 700'001};
  for (int step = 0; step < 400; ++step) {
    const uint32_t logical = places[random.Below(places.size())];
    if (random.OneIn(3)) {
      map.Set(logical, std::nullopt);
      known.erase(logical);
    } else {
      const auto extent = static_cast<uint32_t>(random.Below(1'000'000));
      map.Set(logical, ExtentIndex(extent));
      known[logical] = extent;
    }
    ASSERT_EQ(map.count(), known.size());
    for (const uint32_t at : places) {
      const auto expected = known.find(at);
      ASSERT_EQ(map.Get(at), expected == known.end()
                                 ? std::nullopt
                                 : std::optional(ExtentIndex(expected->second)));
    }
    EXPECT_EQ(map.Get(2'000'000), std::nullopt);
    const uint64_t first = places[random.Below(places.size())];
    const uint64_t last = random.OneIn(3) ? UINT64_MAX : places[random.Below(places.size())];
    std::vector<uint32_t> seen;
    map.ForEach(first, last, [&](ExtentIndex extent) { seen.push_back(extent.value); });
    std::vector<uint32_t> expected;
    for (const auto& [at, extent] : known) {
      if (at >= first && at < last) {
        expected.push_back(extent);
      }
    }
    ASSERT_EQ(seen, expected) << first << " " << last;
  }
}

TEST(Growth, WhatHasChangedIsKnownHoweverFarApart) {
  DirtyMap map;
  std::set<uint32_t> known;
  constexpr uint32_t kGroups = 2500;
  const auto look = [&] {
    ASSERT_EQ(map.count(), known.size());
    for (uint32_t group = 0; group < kGroups; ++group) {
      uint64_t mask = 0;
      for (auto at = known.lower_bound(group * 64); at != known.end() && *at < group * 64 + 64;
           ++at) {
        mask |= uint64_t{1} << (*at % 64);
      }
      ASSERT_EQ(map.Group(group), mask) << group;
      const auto next = known.lower_bound(group * 64);
      for (const uint32_t end : {kGroups, group + 1, group + 600}) {
        const uint32_t expected = next == known.end() ? end : std::min(*next / 64, end);
        ASSERT_EQ(map.NextGroup(group, end), expected) << group << " " << end;
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(look());
  for (const uint32_t index : {130'000U, 130'000U, 0U, 63U, 64U, 32'767U, 32'768U, 159'999U}) {
    map.Set(index);
    known.insert(index);
    ASSERT_NO_FATAL_FAILURE(look());
  }
}

// What an SSD lacks is counted anew after loading: a rebuild ends when nothing is.
TEST(Growth, WhatIsAbsentIsCountedAnewAfterLoading) {
  const Geometry g = Wide(200);
  State state(g);
  StateLoader loader(state);
  loader.BeginRun(true);
  std::array<uint32_t, kMaxSsds> absent{};
  std::array<uint32_t, kMaxSsds> owed{};
  Random random(3);
  uint64_t pending_stripes = 0;
  std::vector<RowWord> words(g.n);
  for (uint32_t s = 0; s < g.stripes; s += 1 + s % 3) {
    uint64_t bare = 0;
    for (uint32_t i = 0; i < g.n; ++i) {
      const uint64_t draw = random.Below(3);
      const DeviceIndex ssd = g.SsdOf(StripeIndex(s), i);
      words[i] = {draw == 0   ? SlotWord::Zero()
                  : draw == 1 ? SlotWord::Absent()
                              : SlotWord::At(SlotIndex(s)),
                  draw == 0 ? 0U : 1U};
      absent[ssd.value] += draw == 1 ? 1 : 0;
      bare |= uint64_t{i >= g.k() && draw == 0 ? 1U : 0U} << ssd.value;
    }
    loader.Row(StripeIndex(s), words);
    if (s % 2 == 0) {
      loader.LogStripe(
          {s + 1, s, {{g.Chunk(StripeIndex(s), 1), SlotWord::At(SlotIndex(s)), 1, false}}, {1, 1}});
      ++pending_stripes;
      for (uint32_t ssd = 0; ssd < g.n; ++ssd) {
        owed[ssd] += static_cast<uint32_t>(bare >> ssd & 1);
      }
    }
  }
  ASSERT_TRUE(loader.Finish().ok());
  for (uint8_t ssd = 0; ssd < g.n; ++ssd) {
    EXPECT_EQ(state.absent(DeviceIndex(ssd)), absent[ssd]);
    EXPECT_EQ(state.owed(DeviceIndex(ssd)), owed[ssd]);
  }
  EXPECT_EQ(state.pending_stripes(), pending_stripes);
  EXPECT_TRUE(state.CountsAreRight());
}

// An SSD is whole again when nothing that is pending was described without it.
TEST(Growth, TheNewestEntryThatLackedAnSsdIsKnown) {
  const Geometry g = Wide(16);
  State state(g);
  SlotChanges changes;
  const auto apply = [&](uint64_t epoch, uint64_t sequence, SlotWord first, SlotWord second) {
    EntryHeader entry;
    entry.epoch.number = epoch;
    entry.sequence = sequence;
    entry.place = 2 * sequence;
    entry.log_stripes = {{{{ChunkIndex(0), first, 1}, {ChunkIndex(1), second, 1}}, {1, 1}}};
    state.Apply(entry, changes);
  };
  const DeviceIndex a = g.SsdOf(ChunkIndex(0));
  const DeviceIndex b = g.SsdOf(ChunkIndex(1));
  apply(1, 1, SlotWord::At(SlotIndex(1)), SlotWord::At(SlotIndex(1)));
  EXPECT_EQ(state.newest_absent_member(a), 0U);
  apply(1, 2, SlotWord::Absent(), SlotWord::At(SlotIndex(2)));
  apply(1, 3, SlotWord::At(SlotIndex(3)), SlotWord::At(SlotIndex(3)));
  EXPECT_EQ(state.newest_absent_member(a), 2U);
  EXPECT_EQ(state.newest_absent_member(b), 0U);
  state.SetJoined(b, 5);  // what is older names slots of the one before it
  apply(4, 4, SlotWord::At(SlotIndex(4)), SlotWord::At(SlotIndex(4)));
  EXPECT_EQ(state.newest_absent_member(a), 2U);
  EXPECT_EQ(state.newest_absent_member(b), 4U);
  apply(5, 5, SlotWord::At(SlotIndex(5)), SlotWord::At(SlotIndex(5)));
  EXPECT_EQ(state.newest_absent_member(b), 4U);
  EXPECT_EQ(state.Latest(ChunkIndex(1)).word, SlotWord::At(SlotIndex(5)));
}

}  // namespace
}  // namespace eplog
