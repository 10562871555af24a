// Entries that an array at work writes pass; each that stops the program when it is applied, or
// leaves a state that no array can go on from, is named.
#include "metadata/entry_check.h"

#include <gtest/gtest.h>

#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

class EntryCheck : public ::testing::Test {
 protected:
  // Volume 1 "a" with extent 0, in which chunk 0 is pending in slot 5 and chunk 1's row is in
  // slot 6.
  void SetUp() override {
    EntryHeader entry = Next();
    entry.volumes = {VolumeCreated{VolumeId(1), 1 << 20, "a"},
                     ExtentAssigned{VolumeId(1), 0, ExtentIndex(0)}};
    entry.rows = {RowRecord{StripeIndex(0), {{1, SlotWord::At(SlotIndex(6)), 1, 0}}}};
    entry.log_stripes = {Stripe(0, 5)};
    Take(entry);
  }
  static LogStripeRecord Stripe(uint64_t chunk, uint32_t slot) {
    return {{{ChunkIndex(chunk), SlotWord::At(SlotIndex(slot)), 1}}, {1}};
  }
  EntryHeader Next() {
    EntryHeader entry;
    entry.sequence = ++sequence_;
    entry.place = place_;
    return entry;
  }
  void Take(const EntryHeader& entry) {
    const Status possible = CheckEntry(state_, entry);
    ASSERT_TRUE(possible.ok()) << possible.error().message;
    SlotChanges changes;
    state_.Apply(entry, changes);
    place_ += 1 + entry.log_stripes.size();
    const Status whole = CheckState(state_, 0, place_);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
  }
  void Refused(const std::vector<VolumeRecord>& volumes, const std::string& why) {
    EntryHeader entry = Next();
    entry.volumes = volumes;
    Refused(entry, why);
  }
  void Refused(const EntryHeader& entry, const std::string& why) {
    const Status status = CheckEntry(state_, entry);
    ASSERT_FALSE(status.ok()) << why;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(status.error().message.find(why), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("entry " + std::to_string(entry.sequence)),
              std::string::npos);
  }

  const Geometry g_ = test::SmallGeometry();
  State state_{g_};
  uint64_t sequence_ = 0;
  uint64_t place_ = 0;
};

TEST_F(EntryCheck, SlotsOfOtherLogStripesAndSlotsNamedTwiceAreRefused) {
  const DeviceIndex ssd = g_.SsdOf(ChunkIndex(0));
  uint64_t other = 3;  // on the same SSD
  while (g_.SsdOf(ChunkIndex(other)) != ssd) {
    ++other;
  }
  EntryHeader held = Next();
  held.log_stripes = {Stripe(other, 5)};
  Refused(held, "slot 5 belongs to an older log stripe");
  EntryHeader twice = Next();
  twice.log_stripes = {Stripe(other, 9)};
  twice.rows = {RowRecord{StripeIndex(0), {{0, SlotWord::At(SlotIndex(9)), 1, 0}}}};
  Refused(twice, "slot 9 twice");
  EntryHeader fresh = Next();
  fresh.log_stripes = {Stripe(0, 9)};
  Take(fresh);
  EntryHeader again = Next();
  again.log_stripes = {Stripe(0, 5)};
  Take(again);  // that log stripe is dead
}

TEST_F(EntryCheck, VolumesThatAreThereOrAreNot) {
  Refused({VolumeCreated{VolumeId(1), 1, "b"}}, "creates");
  Refused({VolumeCreated{VolumeId(2), 1, "a"}}, "creates");
  Refused({VolumeCreated{VolumeId(2), 1, "b"}, VolumeCreated{VolumeId(3), 1, "b"}}, "creates");
  Refused({VolumeCreated{VolumeId(2), 1, "/1"}}, "names a volume");
  Refused({VolumeRenamed{VolumeId(2), "b"}}, "renames");
  Refused({VolumeRenamed{VolumeId(1), "a"}}, "renames");
  Refused({VolumeDeleted{VolumeId(2)}}, "deletes");
  Refused({VolumeDeleted{VolumeId(1)}, VolumeDeleted{VolumeId(1)}}, "deletes");
  Refused({VolumeDeleted{VolumeId(1)}, VolumeRenamed{VolumeId(1), "b"}}, "renames");
  std::vector<VolumeRecord> many;
  for (uint32_t id = 2; id <= g_.max_volumes() + 1; ++id) {
    many.emplace_back(VolumeCreated{VolumeId(id), 1, "v" + std::to_string(id)});
  }
  Refused(many, "more volumes");
  EntryHeader replace = Next();
  replace.volumes = {VolumeCreated{VolumeId(2), 1, "b"}, VolumeDeleted{VolumeId(1)},
                     VolumeRenamed{VolumeId(2), "a"}};
  Take(replace);
}

TEST_F(EntryCheck, ExtentsHaveOneOwnerAndOnePlace) {
  Refused({ExtentAssigned{VolumeId(2), 0, ExtentIndex(1)}}, "not there");
  Refused({ExtentAssigned{VolumeId(1), 1, ExtentIndex(0)}}, "has an owner");
  Refused({ExtentAssigned{VolumeId(1), 0, ExtentIndex(1)}}, "second one");
  Refused({ExtentAssigned{VolumeId(1), 1, ExtentIndex(1)},
           ExtentAssigned{VolumeId(1), 1, ExtentIndex(2)}},
          "second one");
  Refused({VolumeDeleted{VolumeId(1)}, ExtentAssigned{VolumeId(1), 1, ExtentIndex(1)}},
          "not there");
  EntryHeader moved = Next();
  moved.volumes = {ExtentsFreed{ExtentIndex(0), 2}, ExtentAssigned{VolumeId(1), 0, ExtentIndex(1)},
                   ExtentAssigned{VolumeId(1), 1, ExtentIndex(0)}};
  Take(moved);
}

TEST_F(EntryCheck, StatesThatNoArrayCanGoOnFrom) {
  EXPECT_FALSE(CheckState(state_, place_ + 1, place_).ok()) << "a checkpoint of what is to come";
  EXPECT_FALSE(CheckState(state_, 0, g_.log_blocks + 2).ok()) << "longer than the log";
  EntryHeader stray = Next();
  stray.log_stripes = {Stripe(uint64_t{g_.extent_stripes} * g_.k(), 20)};
  ASSERT_TRUE(CheckEntry(state_, stray).ok());
  SlotChanges changes;
  state_.Apply(stray, changes);
  const Status status = CheckState(state_, 0, place_ + 2);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("stripe 4 has content and belongs to no volume"),
            std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace eplog
