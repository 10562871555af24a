// What a checkpoint says is taken together, or refused where it contradicts itself: it comes from a
// disk, and whoever goes on from a state that cannot be loses data.
#include "metadata/state_loader.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

constexpr uint64_t kSequence = 20;  // as the root says
constexpr uint64_t kPlace = 40;

LogStripeItem::Member Member(uint64_t chunk, uint32_t slot, bool superseded = false) {
  return {ChunkIndex(chunk), SlotWord::At(SlotIndex(slot)), 7, superseded};
}

LogStripeItem LogStripe(uint64_t sequence, uint64_t place,
                        const std::vector<LogStripeItem::Member>& members) {
  return {sequence, place, members, {9}};
}

class Loading : public ::testing::Test {
 protected:
  // Volume 1 "a" with extents 0 and 2; chunk 0 pending in slot 5, chunk 4 in slot 6.
  void Begin() {
    loader_.BeginRun(true);
    loader_.AllVolumes();
    loader_.Volume({VolumeId(1), 1 << 20, false, "a"});
    loader_.Extent({ExtentIndex(0), VolumeId(1), 0});
    loader_.Extent({ExtentIndex(2), VolumeId(1), 1});
    loader_.LogStripe(LogStripe(3, 4, {Member(0, 5)}));
    loader_.LogStripe(LogStripe(9, 12, {Member(4, 6)}));
  }
  Status Finish() { return loader_.Finish(kSequence, kPlace); }

  const Geometry g_ = test::SmallGeometry();
  State state_{g_};
  StateLoader loader_{state_};
};

struct Contradiction {
  std::string what;
  std::function<void(StateLoader&)> say;
};

// Each is one item more than what loads.
TEST(LoadingContradictions, AreRefused) {
  const std::vector<Contradiction> all = {
      {"a volume twice",
       [](auto& to) {
         to.Volume({VolumeId(1), 1, false, "b"});
       }},
      {"a name twice",
       [](auto& to) {
         to.Volume({VolumeId(2), 1, false, "a"});
       }},
      {"a name of those that are being deleted",
       [](auto& to) {
         to.Volume({VolumeId(2), 1, false, "/7"});
       }},
      {"an extent of no volume",
       [](auto& to) {
         to.Extent({ExtentIndex(5), VolumeId(3), 4});
       }},
      {"two extents in one place",
       [](auto& to) {
         to.Extent({ExtentIndex(5), VolumeId(1), 1});
       }},
      {"a log stripe of an entry to come",
       [](auto& to) { to.LogStripe(LogStripe(kSequence + 1, 20, {Member(8, 9)})); }},
      {"a log stripe where the log goes on",
       [](auto& to) { to.LogStripe(LogStripe(kSequence, kPlace, {Member(8, 9)})); }},
      {"zeros of an entry to come",
       [](auto& to) {
         to.Zeros({kSequence + 1, 20, ChunkIndex(8), 1, 0});
       }},
      {"an older log stripe behind a newer one",
       [](auto& to) { to.LogStripe(LogStripe(6, 13, {Member(8, 9)})); }},
      {"a newer log stripe before an older one",
       [](auto& to) { to.LogStripe(LogStripe(10, 11, {Member(8, 9)})); }},
      {"a chunk that is pending twice",
       [](auto& to) { to.LogStripe(LogStripe(10, 14, {Member(0, 9)})); }},
      {"a chunk that is pending twice, as zeros",
       [](auto& to) {
         to.Zeros({10, 14, ChunkIndex(4), 1, 0});
       }},
      {"a slot in two log stripes",
       [](auto& to) {
         to.LogStripe(LogStripe(10, 14, {Member(1, 9), Member(0, 5, true)}));
       }},
      {"a log stripe of which nothing is pending",
       [](auto& to) { to.LogStripe(LogStripe(10, 14, {Member(8, 9, true)})); }},
      {"zeros of which nothing is pending",
       [](auto& to) {
         to.Zeros({10, 14, ChunkIndex(6), 2, 3});
       }},
  };
  for (const auto& [what, say] : all) {
    SCOPED_TRACE(what);
    const Geometry g = test::SmallGeometry();
    for (const bool contradict : {false, true}) {
      State state(g);
      StateLoader loader(state);
      loader.BeginRun(true);
      loader.Volume({VolumeId(1), 1 << 20, false, "a"});
      loader.Extent({ExtentIndex(0), VolumeId(1), 0});
      loader.Extent({ExtentIndex(2), VolumeId(1), 1});
      loader.LogStripe(LogStripe(3, 4, {Member(0, 5)}));
      loader.LogStripe(LogStripe(9, 12, {Member(4, 6)}));
      if (contradict) {
        say(loader);
      }
      const Status loaded = loader.Finish(kSequence, kPlace);
      ASSERT_EQ(loaded.ok(), !contradict);
      if (contradict) {
        EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
        EXPECT_EQ(loaded.error().message, "the checkpoint contradicts itself");
      }
    }
  }
}

TEST_F(Loading, TheNewestEntryOfTheRootIsPartOfIt) {
  Begin();
  loader_.LogStripe(LogStripe(kSequence, kPlace - 1, {Member(8, 9)}));
  ASSERT_TRUE(Finish().ok());
  const auto found = state_.pending.Find(ChunkIndex(8));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->version, kSequence);
  EXPECT_EQ(found->word, SlotWord::At(SlotIndex(9)));
  EXPECT_EQ(state_.pending.PlaceOf(found->log_stripe), kPlace - 1);
}

// What changed while a checkpoint was written stands in it before its turn.
TEST_F(Loading, LogStripesAreInTheOrderOfTheLogWhereverTheyStand) {
  loader_.BeginRun(true);
  loader_.LogStripe(LogStripe(9, 13, {Member(4, 6)}));
  loader_.Zeros({5, 7, ChunkIndex(9), 3, 0b010});
  loader_.LogStripe(LogStripe(9, 12, {Member(8, 9)}));
  loader_.LogStripe(LogStripe(3, 4, {Member(0, 5), Member(1, 5, true)}));
  ASSERT_TRUE(Finish().ok());
  std::vector<uint64_t> places;
  state_.pending.ForEachLive([&](LogStripeId id) {
    places.push_back(state_.pending.PlaceOf(id));
    return true;
  });
  EXPECT_EQ(places, (std::vector<uint64_t>{4, 7, 12, 13}));
  EXPECT_EQ(state_.pending.OldestPlace(), std::optional<uint64_t>(4));
  // What is superseded is held with its log stripe, and not pending.
  EXPECT_TRUE(state_.pending.Holds(g_.SsdOf(ChunkIndex(1)), SlotIndex(5)));
  for (const uint64_t chunk : {0U, 4U, 8U, 9U, 11U}) {
    EXPECT_TRUE(state_.pending.Find(ChunkIndex(chunk)).has_value()) << chunk;
  }
  for (const uint64_t chunk : {1U, 10U}) {
    EXPECT_FALSE(state_.pending.Find(ChunkIndex(chunk)).has_value()) << chunk;
  }
  EXPECT_EQ(state_.pending.pending_chunks(), 5U);
  EXPECT_EQ(state_.pending.zeros(), 3U) << "each is charged while one of them is pending";
  EXPECT_EQ(state_.pending.live_log_stripes(), 3U);
  EXPECT_EQ(state_.pending.live_members(), 7U);
  EXPECT_EQ(state_.pending_stripes(), 4U);
  EXPECT_TRUE(state_.CountsAreRight());
}

TEST_F(Loading, OnlyTheNewestRunSaysWhatIsPending) {
  loader_.BeginRun(false);
  loader_.LogStripe(LogStripe(3, 4, {Member(0, 5)}));
  loader_.Zeros({4, 6, ChunkIndex(6), 3, 0});
  loader_.BeginRun(true);
  loader_.LogStripe(LogStripe(9, 12, {Member(4, 5)}));
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(state_.pending.live_records(), 1U);
  EXPECT_TRUE(state_.pending.Find(ChunkIndex(4)).has_value());
  EXPECT_FALSE(state_.pending.Find(ChunkIndex(0)).has_value());
  EXPECT_FALSE(state_.pending.Find(ChunkIndex(6)).has_value());
}

// Of the rest a run says what has changed since the one before it.
TEST_F(Loading, NewerRunsStandAboveOlderOnes) {
  std::vector<RowWord> row(g_.n, {SlotWord::At(SlotIndex(20)), 3});
  loader_.BeginRun(false);
  loader_.AllVolumes();
  loader_.Volume({VolumeId(1), 1 << 20, false, "a"});
  loader_.Volume({VolumeId(2), 1 << 20, false, "b"});
  for (uint32_t extent = 0; extent < 3; ++extent) {
    loader_.Extent({ExtentIndex(extent), VolumeId(2), extent});
  }
  loader_.Row(StripeIndex(1), row);
  loader_.Row(StripeIndex(2), row);
  loader_.BeginRun(true);
  loader_.AllVolumes();
  loader_.Volume({VolumeId(2), 1 << 21, false, "a"});
  loader_.ExtentFreed(ExtentIndex(1));
  loader_.Extent({ExtentIndex(7), VolumeId(2), 1});
  row.assign(g_.n, {SlotWord::At(SlotIndex(21)), 4});
  loader_.Row(StripeIndex(2), row);
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(state_.volumes.all().size(), 1U);
  EXPECT_EQ(state_.volumes.Find(VolumeId(1)), nullptr);
  const Volume* volume = state_.volumes.FindByName("a");
  ASSERT_NE(volume, nullptr);
  EXPECT_EQ(volume->id, VolumeId(2));
  EXPECT_EQ(volume->size_bytes, uint64_t{1} << 21);
  EXPECT_EQ(volume->extents.Get(0), std::optional(ExtentIndex(0)));
  EXPECT_EQ(volume->extents.Get(1), std::optional(ExtentIndex(7)));
  EXPECT_EQ(volume->extents.Get(2), std::optional(ExtentIndex(2)));
  EXPECT_EQ(volume->extents.count(), 3U);
  EXPECT_EQ(state_.volumes.LowestFree(), std::optional(ExtentIndex(1)));
  EXPECT_EQ(state_.volumes.free_extents(), g_.extents() - 3);
  EXPECT_EQ(state_.volumes.next_id(), 3U);
  for (uint32_t i = 0; i < g_.n; ++i) {
    EXPECT_EQ(state_.rows.Get(StripeIndex(1), i).word, SlotWord::At(SlotIndex(20)));
    EXPECT_EQ(state_.rows.Get(StripeIndex(2), i).word, SlotWord::At(SlotIndex(21)));
  }
}

// A deleted volume is there until its last extent is freed, and its name is anybody's before.
TEST_F(Loading, WhatIsBeingDeletedKeepsItsExtentsAndLeavesItsName) {
  loader_.BeginRun(true);
  loader_.Volume({VolumeId(1), 1 << 20, true, "a"});
  loader_.Volume({VolumeId(2), 1 << 20, true, "a"});
  loader_.Volume({VolumeId(3), 1 << 20, false, "a"});
  loader_.Extent({ExtentIndex(4), VolumeId(1), 6});
  ASSERT_TRUE(Finish().ok());
  const Volume* named = state_.volumes.FindByName("a");
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(named->id, VolumeId(3));
  EXPECT_FALSE(named->deleting);
  const Volume* deleted = state_.volumes.Find(VolumeId(1));
  ASSERT_NE(deleted, nullptr);
  EXPECT_TRUE(deleted->deleting);
  EXPECT_EQ(deleted->extents.Get(6), std::optional(ExtentIndex(4)));
  EXPECT_EQ(state_.volumes.OwnerOf(ExtentIndex(4)).logical, 6U);
  EXPECT_EQ(state_.volumes.Find(VolumeId(2)), nullptr) << "nothing of it is left";
  state_.volumes.Free(ExtentIndex(4));
  EXPECT_EQ(state_.volumes.Find(VolumeId(1)), nullptr);
  EXPECT_EQ(state_.volumes.all().size(), 1U);
  EXPECT_EQ(state_.volumes.free_extents(), g_.extents());
}

}  // namespace
}  // namespace eplog
