// Extents that change hands within one entry: what a place of a volume has is what the records
// before it have left there, whoever has the extent by then. And extents without an owner that lie
// beside others that are full.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "metadata/entry_check.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

constexpr VolumeId kOne(1);
constexpr VolumeId kTwo(2);

ExtentIndex Extent(uint32_t extent) {
  return ExtentIndex(extent);
}

class EntryMoves : public ::testing::Test {
 protected:
  using Records = std::vector<VolumeRecord>;
  // Volume 1 has extents 0 and 1, volume 2 extent 2, each in the first places of it.
  EntryMoves() { Apply(state_, Before()); }
  static Records Before() {
    return {VolumeCreated{kOne, 1 << 20, "a"}, VolumeCreated{kTwo, 1 << 20, "b"},
            ExtentAssigned{kOne, 0, Extent(0)}, ExtentAssigned{kOne, 1, Extent(1)},
            ExtentAssigned{kTwo, 0, Extent(2)}};
  }
  static EntryHeader Entry(const Records& records) {
    EntryHeader entry;
    entry.sequence = 2;
    entry.volumes = records;
    return entry;
  }
  static void Apply(State& state, const Records& records) {
    SlotChanges changes;
    state.Apply(Entry(records), changes);
  }
  // And who applies it, which ends the program where it cannot be, agrees.
  void Follows(const Records& records, const std::string& what) {
    const Status status = CheckEntry(state_, Entry(records));
    ASSERT_TRUE(status.ok()) << what << ": " << status.error().message;
    State copy(g_);
    Apply(copy, Before());
    Apply(copy, records);
  }
  void Refused(const Records& records, const std::string& what) {
    const Status status = CheckEntry(state_, Entry(records));
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(status.error().message.find("entry 2"), std::string::npos);
    EXPECT_NE(status.error().message.find("has an owner, or a second one to a place"),
              std::string::npos)
        << status.error().message;
  }

  const Geometry g_ = test::SmallGeometry();
  State state_{g_};
};

TEST_F(EntryMoves, APlaceIsFreeWhoeverHasItsExtentNow) {
  Follows({ExtentsFreed{Extent(0), 3}, ExtentAssigned{kTwo, 0, Extent(0)},
           ExtentAssigned{kOne, 0, Extent(3)}},
          "the other volume, in the same place");
  Follows({ExtentsFreed{Extent(0), 3}, ExtentAssigned{kOne, 0, Extent(2)},
           ExtentAssigned{kTwo, 0, Extent(3)}},
          "the other way round");
  Follows({ExtentsFreed{Extent(0), 1}, ExtentAssigned{kOne, 5, Extent(0)},
           ExtentAssigned{kOne, 0, Extent(3)}},
          "the volume itself, in a later place");
  Follows({ExtentsFreed{Extent(0), 2}, ExtentAssigned{kOne, 0, Extent(1)},
           ExtentAssigned{kOne, 1, Extent(3)}},
          "the volume itself, in an earlier place");
}

// The same of what the entry itself has assigned before.
TEST_F(EntryMoves, APlaceOfTheEntryIsFreeWhoeverHasItsExtentNow) {
  for (const auto& [volume, logical] :
       {std::pair(kTwo, 2U), std::pair(kOne, 6U), std::pair(kTwo, 9U)}) {
    Follows({ExtentAssigned{kOne, 2, Extent(3)}, ExtentsFreed{Extent(3), 1},
             ExtentAssigned{volume, logical, Extent(3)}, ExtentAssigned{kOne, 2, Extent(4)}},
            std::to_string(volume.value) + ", " + std::to_string(logical));
  }
  Follows({ExtentAssigned{kTwo, 6, Extent(3)}, ExtentsFreed{Extent(3), 1},
           ExtentAssigned{kOne, 6, Extent(3)}, ExtentAssigned{kTwo, 6, Extent(4)}},
          "to the volume before it");
  Follows({ExtentAssigned{kOne, 6, Extent(3)}, ExtentsFreed{Extent(3), 1},
           ExtentAssigned{kOne, 2, Extent(3)}, ExtentAssigned{kOne, 6, Extent(4)}},
          "to an earlier place");
}

// What others get meanwhile, or the volume elsewhere, says nothing of a place that is taken.
TEST_F(EntryMoves, APlaceIsTakenWhateverElseIsAssigned) {
  Refused({ExtentAssigned{kTwo, 1, Extent(3)}, ExtentAssigned{kOne, 1, Extent(4)}},
          "the same place of the volume behind it");
  Refused({ExtentsFreed{Extent(0), 1}, ExtentAssigned{kOne, 0, Extent(3)},
           ExtentAssigned{kTwo, 0, Extent(4)}},
          "the same place of the volume before it");
  Refused({ExtentAssigned{kOne, 5, Extent(3)}, ExtentAssigned{kOne, 1, Extent(4)}},
          "a later place");
  Refused({ExtentsFreed{Extent(0), 1}, ExtentAssigned{kOne, 0, Extent(3)},
           ExtentAssigned{kOne, 1, Extent(4)}},
          "an earlier place");
  Refused({ExtentsFreed{Extent(0), 1}, ExtentAssigned{kOne, 5, Extent(0)},
           ExtentAssigned{kOne, 5, Extent(3)}},
          "where the extent has come from elsewhere");
  Refused(
      {ExtentsFreed{Extent(0), 3}, ExtentAssigned{kTwo, 1, Extent(0)}, ExtentsFreed{Extent(0), 1},
       ExtentAssigned{kOne, 1, Extent(0)}, ExtentAssigned{kOne, 1, Extent(1)}},
      "by the last of several");
}

// The stripes of an extent end where the next one's begin.
TEST(OwnersBeside, AnExtentWithoutOwnerLiesBetweenFullOnes) {
  Geometry g = test::SmallGeometry();
  g.stripes = 2 * kRowGroupStripes;
  for (uint32_t none = 0; none < g.extents(); ++none) {
    State state(g);
    EntryHeader entry;
    entry.sequence = 1;
    entry.volumes = {VolumeCreated{kOne, 1 << 20, "a"}};
    for (uint32_t e = 0; e < g.extents(); ++e) {
      if (e == none) {
        continue;
      }
      entry.volumes.emplace_back(ExtentAssigned{kOne, e, Extent(e)});
      const StripeIndex first(e * g.extent_stripes);
      const StripeIndex last(first.value + g.extent_stripes - 1);
      const SlotWord slot = SlotWord::At(SlotIndex(e));
      entry.rows.push_back({first, {{0, slot, 1, 0}}});
      entry.trims.emplace_back(ChunksTrimmed{g.Chunk(first, 1), 1});
      entry.rows.push_back({last, {{0, slot, 1, 0}}});
      entry.trims.emplace_back(ChunksTrimmed{g.Chunk(last, 1), 1});
    }
    SlotChanges changes;
    state.Apply(entry, changes);
    const Status whole = CheckState(state, 0, 1);
    EXPECT_TRUE(whole.ok()) << none << ": " << whole.error().message;
  }
}

}  // namespace
}  // namespace eplog
