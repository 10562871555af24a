// Pending chunks of arrays as wide as they can be, where several chunks of one stripe may meet in
// one place of the table, and several log devices have a checksum each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "metadata/pending_table.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

Geometry Widest() {
  Geometry g = test::SmallGeometry();
  g.n = kMaxSsds;
  g.m = kMaxParity;
  g.stripes = 4096;
  g.slots = 8192;
  return g;
}

class WidePending : public ::testing::Test {
 protected:
  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return g_.Chunk(StripeIndex(stripe), index);
  }
  // One out of `step` of a stripe's, from `first` on; of every other stripe from the last to the
  // first of them.
  [[nodiscard]] std::vector<uint32_t> Indexes(uint32_t stripe, uint32_t first,
                                              uint32_t step) const {
    std::vector<uint32_t> indexes;
    for (uint32_t i = first; i < g_.k(); i += step) {
      indexes.push_back(i);
    }
    if (stripe % 2 != 0) {
      std::ranges::reverse(indexes);
    }
    return indexes;
  }
  void Add(uint32_t stripe) {
    std::vector<LogStripeMember> members;
    for (const uint32_t i : Indexes(stripe, 0, 1)) {
      members.push_back({Chunk(stripe, i), SlotWord::At(SlotIndex(stripe)), 100 + i});
    }
    ++sequence_;
    table_.Add(sequence_, 2 * sequence_, members, std::vector<uint32_t>(g_.m, 1));
  }
  void Supersede(ChunkIndex chunk) {
    ASSERT_TRUE(table_.Supersede(chunk, sequence_, sequence_ + 1, false,
                                 [this](const LogStripeMember&) { ++died_; }));
  }
  // These and no others.
  void ExpectPending(uint32_t stripe, uint32_t first, uint32_t step) {
    for (uint32_t i = 0; i < g_.k(); ++i) {
      const auto found = table_.Find(Chunk(stripe, i));
      ASSERT_EQ(found.has_value(), i >= first && (i - first) % step == 0) << stripe << ", " << i;
      if (found) {
        ASSERT_EQ(found->crc, 100 + i) << stripe;
        ASSERT_EQ(found->version, sequence_);
      }
    }
  }

  const Geometry g_ = Widest();
  PendingTable table_{g_};
  uint64_t sequence_ = 0;
  uint32_t died_ = 0;
};

// Some of so many stripes have two of their chunks in the same place.
TEST_F(WidePending, ChunksOfOneStripeAreToldApart) {
  for (uint32_t stripe = 0; stripe < g_.stripes; ++stripe) {
    Add(stripe);
    ASSERT_NO_FATAL_FAILURE(ExpectPending(stripe, 0, 1));
    for (const uint32_t i : Indexes(stripe, 0, 2)) {
      ASSERT_NO_FATAL_FAILURE(Supersede(Chunk(stripe, i)));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectPending(stripe, 1, 2));
    ASSERT_EQ(died_, 0U);
    for (const uint32_t i : Indexes(stripe, 1, 2)) {
      ASSERT_NO_FATAL_FAILURE(Supersede(Chunk(stripe, i)));
    }
    ASSERT_EQ(died_, g_.k());
    died_ = 0;
    table_.Stable(++sequence_);
  }
  EXPECT_EQ(table_.pending_chunks(), 0U);
}

TEST(PendingChecksums, OfLogChunksAreThoseOfTheirOwnLogStripe) {
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    SCOPED_TRACE(m);
    Geometry g = test::SmallGeometry();
    g.n = 8;
    g.m = m;
    PendingTable table(g);
    std::map<LogStripeId, std::vector<uint32_t>> given;
    uint64_t sequence = 0;
    uint32_t crc = 0;
    const auto add = [&](uint64_t chunk) {
      std::vector<uint32_t> crcs(m);
      std::ranges::generate(crcs, [&crc] { return ++crc; });
      const std::vector<LogStripeMember> members = {{ChunkIndex(chunk), SlotWord::Absent(), 1}};
      ++sequence;
      given[table.Add(sequence, sequence, members, crcs)] = crcs;
    };
    const auto look = [&] {
      for (const auto& [id, crcs] : given) {
        const LogStripeView view = table.View(id);
        for (uint32_t j = 0; j < m; ++j) {
          EXPECT_EQ(view.log_crcs[j], crcs[j]) << "log stripe " << id << ", log" << j;
        }
      }
    };
    for (uint64_t chunk = 0; chunk < 5; ++chunk) {
      add(chunk);
    }
    look();
    for (const uint64_t chunk : {1U, 3U}) {  // others take their numbers
      const LogStripeId id = table.Find(ChunkIndex(chunk))->log_stripe;
      ++sequence;
      ASSERT_TRUE(table.Supersede(ChunkIndex(chunk), sequence, sequence, false,
                                  [](const LogStripeMember&) {}));
      table.Stable(sequence);
      given.erase(id);
      add(10 + chunk);
    }
    EXPECT_EQ(given.size(), 5U);
    look();
  }
}

}  // namespace
}  // namespace eplog
