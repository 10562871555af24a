// What one entry says is judged record by record: each follows on what those before it in the same
// entry have changed. And the bounds of a whole state, from both sides.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metadata/entry_check.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

using Records = std::vector<VolumeRecord>;

constexpr VolumeId kA(1);
constexpr VolumeId kB(2);

class EntryFollows : public ::testing::Test {
 protected:
  // Volumes 1 "a" with extents 0 and 1, and 2 "b" with extent 2.
  void SetUp() override {
    EntryHeader entry;
    entry.sequence = 1;
    entry.volumes = {VolumeCreated{kA, 1 << 20, "a"}, VolumeCreated{kB, 1 << 20, "b"},
                     ExtentAssigned{kA, 0, ExtentIndex(0)}, ExtentAssigned{kA, 1, ExtentIndex(1)},
                     ExtentAssigned{kB, 0, ExtentIndex(2)}};
    ASSERT_TRUE(CheckEntry(state_, entry).ok());
    Apply(entry);
  }
  void Apply(const EntryHeader& entry) {
    SlotChanges changes;
    state_.Apply(entry, changes);
  }
  static EntryHeader Entry(const Records& volumes) {
    EntryHeader entry;
    entry.sequence = 2;
    entry.place = 1;
    entry.volumes = volumes;
    return entry;
  }
  // And Apply, which stops the program where it is not so, agrees.
  void Follows(const Records& volumes) {
    const Status status = CheckEntry(state_, Entry(volumes));
    ASSERT_TRUE(status.ok()) << status.error().message;
    State copy(g_);
    SlotChanges changes;
    EntryHeader before;
    before.sequence = 1;
    for (const auto& [id, volume] : state_.volumes.all()) {
      before.volumes.emplace_back(VolumeCreated{volume.id, volume.size_bytes, volume.name});
    }
    for (uint32_t e = 0; e < g_.extents(); ++e) {
      const VolumeTable::Owner owner = state_.volumes.OwnerOf(ExtentIndex(e));
      if (owner.volume.value != 0) {
        before.volumes.emplace_back(ExtentAssigned{owner.volume, owner.logical, ExtentIndex(e)});
      }
    }
    copy.Apply(before, changes);
    copy.Apply(Entry(volumes), changes);
  }
  void Refused(const Records& volumes, const std::string& why) {
    const Status status = CheckEntry(state_, Entry(volumes));
    ASSERT_FALSE(status.ok()) << why;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(status.error().message,
              "the log is damaged: entry 2 cannot follow on those before it: " + why);
  }

  const Geometry g_ = test::SmallGeometry();
  State state_{g_};
};

constexpr const char* kThere = "it creates a volume that is there already";
constexpr const char* kRenames = "it renames a volume that is not there, or to a name in use";
constexpr const char* kDeletes = "it deletes a volume that is not there";
constexpr const char* kAssigns = "it assigns an extent to a volume that is not there";
constexpr const char* kOwned = "it assigns an extent that has an owner, or a second one to a place";
constexpr const char* kNames = "it names a volume as none can be named";

TEST_F(EntryFollows, NamesAreFreeAndInUseAsTheRecordsBeforeLeaveThem) {
  Follows({VolumeRenamed{kA, "c"}, VolumeCreated{VolumeId(3), 1, "a"}});
  Follows({VolumeDeleted{kA}, VolumeCreated{VolumeId(3), 1, "a"}});
  Follows({VolumeDeleted{kA}, VolumeRenamed{kB, "a"}, VolumeCreated{VolumeId(3), 1, "b"}});
  Follows({VolumeRenamed{kA, "c"}, VolumeRenamed{kB, "a"}, VolumeRenamed{kA, "b"}});
  Follows({VolumeCreated{VolumeId(3), 1, "c"}, VolumeRenamed{VolumeId(3), "d"},
           VolumeCreated{VolumeId(4), 1, "c"}});
  Follows({VolumeCreated{VolumeId(3), 1, "c"}, VolumeDeleted{VolumeId(3)},
           VolumeCreated{VolumeId(4), 1, "c"}});
  Refused({VolumeRenamed{kA, "c"}, VolumeCreated{VolumeId(3), 1, "c"}}, kThere);
  Refused({VolumeRenamed{kA, "c"}, VolumeRenamed{kB, "c"}}, kRenames);
  Refused({VolumeRenamed{kB, "a"}}, kRenames);
  Refused({VolumeRenamed{VolumeId(3), "c"}, VolumeCreated{VolumeId(3), 1, "d"}}, kRenames);
  Refused({VolumeDeleted{kA}, VolumeRenamed{kB, "a"}, VolumeCreated{VolumeId(3), 1, "a"}}, kThere);
  Refused({VolumeRenamed{kA, "c/d"}}, kNames);
  Refused({VolumeCreated{VolumeId(3), 1, "/"}}, kNames);
}

TEST_F(EntryFollows, VolumesAreThereFromTheirCreationToTheirEnd) {
  Follows({VolumeCreated{VolumeId(3), 1, "c"}, ExtentAssigned{VolumeId(3), 0, ExtentIndex(3)},
           VolumeDeleted{VolumeId(3)}});
  Refused({ExtentAssigned{VolumeId(3), 0, ExtentIndex(3)}, VolumeCreated{VolumeId(3), 1, "c"}},
          kAssigns);
  Refused({VolumeDeleted{kA}, ExtentAssigned{kA, 5, ExtentIndex(3)}}, kAssigns);
  Refused({VolumeDeleted{kA}, VolumeCreated{kA, 1, "c"}}, kThere);
  Refused({VolumeDeleted{kA}, VolumeDeleted{kA}}, kDeletes);
  Refused({VolumeDeleted{VolumeId(3)}}, kDeletes);
  Refused({VolumeCreated{VolumeId(3), 1, "c"}, VolumeCreated{VolumeId(3), 1, "d"}}, kThere);
  Apply(Entry({VolumeDeleted{kA}}));
  Refused({VolumeDeleted{kA}}, kDeletes);
  Refused({VolumeRenamed{kA, "c"}}, kRenames);
  Refused({ExtentAssigned{kA, 5, ExtentIndex(3)}}, kAssigns);
}

TEST_F(EntryFollows, ExtentsAreFreeAndOwnedAsTheRecordsBeforeLeaveThem) {
  Follows({ExtentsFreed{ExtentIndex(1), 1}, ExtentAssigned{kB, 1, ExtentIndex(1)}});
  Follows({ExtentsFreed{ExtentIndex(0), 3}, ExtentAssigned{kB, 0, ExtentIndex(0)},
           ExtentAssigned{kA, 1, ExtentIndex(2)}});
  Follows({ExtentAssigned{kA, 2, ExtentIndex(3)}, ExtentsFreed{ExtentIndex(3), 1},
           ExtentAssigned{kA, 2, ExtentIndex(4)}, ExtentAssigned{kB, 2, ExtentIndex(3)}});
  Follows({ExtentAssigned{kA, 2, ExtentIndex(3)}, ExtentAssigned{kB, 2, ExtentIndex(4)}});
  Refused({ExtentsFreed{ExtentIndex(1), 1}, ExtentAssigned{kB, 1, ExtentIndex(0)}}, kOwned);
  Refused({ExtentsFreed{ExtentIndex(1), 1}, ExtentAssigned{kB, 1, ExtentIndex(2)}}, kOwned);
  Refused({ExtentsFreed{ExtentIndex(1), 1}, ExtentAssigned{kA, 0, ExtentIndex(1)}}, kOwned);
  Refused({ExtentAssigned{kA, 2, ExtentIndex(3)}, ExtentAssigned{kB, 2, ExtentIndex(3)}}, kOwned);
  Refused({ExtentAssigned{kA, 2, ExtentIndex(3)}, ExtentAssigned{kA, 2, ExtentIndex(4)}}, kOwned);
  Refused({ExtentsFreed{ExtentIndex(0), 1}, ExtentAssigned{kA, 0, ExtentIndex(3)},
           ExtentAssigned{kA, 0, ExtentIndex(0)}},
          kOwned);
}

TEST_F(EntryFollows, AsManyVolumesAsTheArrayCanHoldAndNoMore) {
  Records most;
  for (uint32_t id = 3; id <= g_.max_volumes(); ++id) {
    most.emplace_back(VolumeCreated{VolumeId(id), 1, "v" + std::to_string(id)});
  }
  Follows(most);
  most.emplace_back(VolumeCreated{VolumeId(100), 1, "last"});
  Refused(most, "it creates more volumes than the array can hold");
  most.pop_back();
  Apply(Entry(most));
  EXPECT_TRUE(CheckState(state_, 0, 1).ok());
  Refused({VolumeCreated{VolumeId(100), 1, "last"}},
          "it creates more volumes than the array can hold");
  Apply(Entry({VolumeCreated{VolumeId(100), 1, "last"}}));
  const Status status = CheckState(state_, 0, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "the log or the checkpoint is damaged: there are more volumes than the array can hold");
}

TEST_F(EntryFollows, ASlotIsNamedOnceOnAnSsdAndByWhomItBelongsTo) {
  const uint64_t chunk = 0;
  const StripeIndex stripe(0);
  const DeviceIndex ssd = g_.SsdOf(ChunkIndex(chunk));
  const SlotWord slot = SlotWord::At(SlotIndex(9));
  EntryHeader entry = Entry({});
  entry.rows = {RowRecord{stripe, {{0, slot, 1, 0}, {1, slot, 1, 0}, {3, slot, 1, 0}}}};
  EXPECT_TRUE(CheckEntry(state_, entry).ok()) << "on each SSD one";
  uint32_t other = 1;  // a stripe with the same SSD in the first place
  while (g_.SsdOf(StripeIndex(other), 0) != ssd) {
    ++other;
  }
  entry.rows.push_back(RowRecord{StripeIndex(other), {{0, slot, 1, 0}}});
  const Status twice = CheckEntry(state_, entry);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message,
            "the log is damaged: entry 2 cannot follow on those before it: it describes " +
                g_.DeviceName(ssd) + " slot 9 twice");
  entry.rows.back().changes[0].word = SlotWord::Absent();
  entry.rows[0].changes[1].word = SlotWord::Absent();
  EXPECT_TRUE(CheckEntry(state_, entry).ok());

  // A commit names the slot of the log stripe that it takes it from; another log stripe may not.
  EntryHeader pending = Entry({});
  pending.log_stripes = {{{{ChunkIndex(chunk), slot, 1}}, {1}}};
  ASSERT_TRUE(CheckEntry(state_, pending).ok());
  Apply(pending);
  EntryHeader commit = Entry({});
  commit.rows = {RowRecord{stripe, {{0, slot, 1, 2}}}};
  EXPECT_TRUE(CheckEntry(state_, commit).ok());
  const Status held = CheckEntry(state_, pending);
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error().message,
            "the log is damaged: entry 2 cannot follow on those before it: " + g_.DeviceName(ssd) +
                " slot 9 belongs to an older log stripe");
}

// Written in an epoch before the SSD joined, it is of the one before: its slots mean nothing.
TEST_F(EntryFollows, ASlotOfAReplacedSsdBelongsToNobody) {
  const DeviceIndex ssd = g_.SsdOf(ChunkIndex(0));
  EntryHeader entry = Entry({});
  entry.epoch.number = 4;
  entry.log_stripes = {{{{ChunkIndex(0), SlotWord::At(SlotIndex(9)), 1}}, {1}}};
  Apply(entry);
  EXPECT_FALSE(CheckEntry(state_, entry).ok());
  state_.SetJoined(ssd, 5);
  EXPECT_TRUE(CheckEntry(state_, entry).ok());
  entry.epoch.number = 5;
  EXPECT_FALSE(CheckEntry(state_, entry).ok());
}

TEST(StateBounds, AsMuchLogAsThereIsMayBeNeededAndNoMore) {
  const Geometry g = test::SmallGeometry();
  State state(g);
  EXPECT_TRUE(CheckState(state, 7, 7).ok());
  EXPECT_FALSE(CheckState(state, 8, 7).ok());
  EXPECT_TRUE(CheckState(state, 10, 10 + g.log_blocks).ok());
  const Status longer = CheckState(state, 10, 11 + g.log_blocks);
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(longer.error().message,
            "the log or the checkpoint is damaged: what is still needed of the log is longer than "
            "the log");
  // A log stripe from before the checkpoint holds its log chunks.
  EntryHeader entry;
  entry.sequence = 1;
  entry.place = 10;
  entry.volumes = {VolumeCreated{VolumeId(1), 1, "a"},
                   ExtentAssigned{VolumeId(1), 0, ExtentIndex(0)}};
  entry.log_stripes = {{{{ChunkIndex(0), SlotWord::At(SlotIndex(9)), 1}}, {1}}};
  SlotChanges changes;
  state.Apply(entry, changes);
  EXPECT_TRUE(CheckState(state, 100, 11 + g.log_blocks).ok());
  EXPECT_FALSE(CheckState(state, 100, 12 + g.log_blocks).ok());
}

TEST(StateBounds, AsMuchMayBePendingAsTheLogHoldsAndNoMore) {
  Geometry g = test::SmallGeometry();
  g.chunk_bytes = 4 * kBlockBytes;
  ASSERT_EQ(g.log_blocks / g.chunk_blocks(), 64U);
  State state(g);
  SlotChanges changes;
  EntryHeader entry;
  entry.sequence = 1;
  entry.volumes = {VolumeCreated{VolumeId(1), 1, "a"}};
  for (uint32_t e = 0; e < g.extents(); ++e) {
    entry.volumes.emplace_back(ExtentAssigned{VolumeId(1), e, ExtentIndex(e)});
  }
  for (uint32_t s = 0; s < 20; ++s) {  // sixty zeros
    entry.trims.emplace_back(ChunksTrimmed{g.Chunk(StripeIndex(s), 0), 3});
  }
  state.Apply(entry, changes);
  for (uint32_t i = 0; i < 5; ++i) {  // and log stripes, whatever their width
    EXPECT_TRUE(CheckState(state, 0, 40).ok()) << i;
    EntryHeader next;
    next.sequence = 2 + i;
    next.place = 1 + i * 5;
    const StripeIndex stripe(30 + i);
    next.log_stripes = {{{{g.Chunk(stripe, 0), SlotWord::At(SlotIndex(i)), 1},
                          {g.Chunk(stripe, 1), SlotWord::At(SlotIndex(i)), 1}},
                         {1}}};
    state.Apply(next, changes);
  }
  const Status status = CheckState(state, 0, 40);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "the log or the checkpoint is damaged: more is pending than the log can hold");
}

// Whichever stripe of whichever extent, in its row or pending.
TEST(StateBounds, WhatBelongsToNoVolumeHasNoContent) {
  const Geometry g = test::SmallGeometry();
  for (const uint32_t s : {0U, 3U, 4U, 7U, 41U, 63U}) {
    for (const bool owned : {true, false}) {
      for (const int kind : {0, 1, 2}) {
        State state(g);
        EntryHeader entry;
        entry.sequence = 1;
        entry.volumes = {VolumeCreated{VolumeId(1), 1, "a"}};
        for (uint32_t e = 0; e < g.extents(); ++e) {
          if (owned || e != s / g.extent_stripes) {
            entry.volumes.emplace_back(ExtentAssigned{VolumeId(1), e, ExtentIndex(e)});
          }
        }
        const StripeIndex stripe(s);
        if (kind == 0) {
          entry.rows = {RowRecord{stripe, {{3, SlotWord::At(SlotIndex(1)), 1, 0}}}};
        } else if (kind == 1) {
          entry.log_stripes = {{{{g.Chunk(stripe, 2), SlotWord::At(SlotIndex(1)), 1}}, {1}}};
        } else {
          entry.trims = {ChunksTrimmed{g.Chunk(stripe, 0), 1}};
        }
        SlotChanges changes;
        state.Apply(entry, changes);
        const Status status = CheckState(state, 0, 2);
        ASSERT_EQ(status.ok(), owned) << s << " " << kind;
        if (!owned) {
          EXPECT_EQ(status.error().message, "the log or the checkpoint is damaged: stripe " +
                                                std::to_string(s) +
                                                " has content and belongs to no volume");
        }
      }
    }
  }
}

}  // namespace
}  // namespace eplog
