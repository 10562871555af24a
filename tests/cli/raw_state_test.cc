#include "cli/inspect/raw_state.h"

#include <gtest/gtest.h>

#include "format/checkpoint.h"
#include "layout/geometry.h"

namespace eplog::cli {
namespace {

// A 2+1 array whose checkpoint holds one volume with one extent, one row in slots and one pending
// chunk.
class RawStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GeometryRequest request;
    request.n = 3;
    request.m = 1;
    request.chunk_bytes = 4096;
    request.ssd_bytes = uint64_t{16} << 20;
    request.log_bytes = uint64_t{4} << 20;
    request.extent_stripes = 4;
    const auto geometry = PlanGeometry(request);
    ASSERT_TRUE(geometry.ok());
    identity_.geometry = *geometry;
    identity_.members.resize(4);
    checkpoint_.root.epoch = Epoch{2, 7};
    checkpoint_.root.sequence = 10;
    std::vector<std::byte> stream;
    RunWriter writer(identity_.geometry, stream);
    std::vector<RowWord> words(size_t{kRowGroupStripes} * 3);
    for (uint32_t i = 0; i < 3; ++i) {
      words[5 * 3 + i] = {SlotWord::At(SlotIndex(100 + i)), 1000 + i};
    }
    writer.RowGroup(0, words);
    writer.LogStripe({8,
                      20,
                      {{Chunk(5, 1), SlotWord::At(SlotIndex(7)), 77, false},
                       {Chunk(6, 0), SlotWord::At(SlotIndex(8)), 88, true}},
                      {1}});
    writer.Volume({VolumeId(1), 100'000, false, "data"});
    writer.Extent({ExtentIndex(1), VolumeId(1), 0});
    writer.End();
    checkpoint_.streams.push_back(std::move(stream));
  }

  ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return identity_.geometry.Chunk(StripeIndex(stripe), index);
  }
  EntryHeader& Append() {
    FoundEntry entry;
    entry.header.epoch = Epoch{3, 9};
    entry.header.sequence = 11 + log_.entries.size();
    log_.entries.push_back(std::move(entry));
    return log_.entries.back().header;
  }
  RawRow Row(uint32_t stripe) const {
    auto row = ReplayRow(identity_, checkpoint_, log_, StripeIndex(stripe));
    EXPECT_TRUE(row.ok()) << row.error().message;
    return std::move(*row);
  }

  Superblock identity_;
  RawCheckpoint checkpoint_;
  JoinedLog log_;
};

TEST_F(RawStateTest, CheckpointIsCounted) {
  const auto content = CountCheckpoint(identity_, checkpoint_);
  ASSERT_TRUE(content.ok()) << content.error().message;
  EXPECT_EQ(content->rows, 1U);
  EXPECT_EQ(content->words_in_slots, 3U);
  EXPECT_EQ(content->log_stripes, 1U);
  EXPECT_EQ(content->pending_chunks, 1U) << "the superseded member does not count";
  EXPECT_EQ(content->volumes.volumes.at(VolumeId(1)).name, "data");
}

TEST_F(RawStateTest, RowOfTheCheckpointWithItsPendingChunk) {
  const RawRow row = Row(5);
  EXPECT_EQ(row.words[2].word, SlotWord::At(SlotIndex(102)));
  ASSERT_EQ(row.pending.size(), 1U);
  EXPECT_EQ(row.pending.at(1).version, 8U);
  EXPECT_EQ(row.pending.at(1).word, SlotWord::At(SlotIndex(7)));
  EXPECT_TRUE(Row(6).pending.empty()) << "superseded";
}

// The newest run says all of what is pending: what an older one said of that is no second time.
TEST_F(RawStateTest, WhatIsPendingIsToldOnce) {
  const std::vector<std::string> once = Row(5).history;
  ASSERT_EQ(once.size(), 1U);
  checkpoint_.streams.push_back(checkpoint_.streams.front());
  EXPECT_EQ(Row(5).history, once);
}

TEST_F(RawStateTest, CommitSupersedesUpToTheVersionItNames) {
  Append().log_stripes.push_back({{{Chunk(5, 0), SlotWord::At(SlotIndex(9)), 99}}, {1}});
  // Covers data 1 as of entry 8, and only the older version of data 0.
  Append().rows.push_back({StripeIndex(5),
                           {{0, SlotWord::At(SlotIndex(50)), 5, 10},
                            {1, SlotWord::At(SlotIndex(7)), 77, 8},
                            {2, SlotWord::At(SlotIndex(200)), 2, 0}}});
  const RawRow row = Row(5);
  EXPECT_EQ(row.words[1], (RowWord{SlotWord::At(SlotIndex(7)), 77}));
  EXPECT_EQ(row.words[2], (RowWord{SlotWord::At(SlotIndex(200)), 2}));
  ASSERT_EQ(row.pending.size(), 1U);
  EXPECT_EQ(row.pending.at(0).version, 11U) << "newer than what the commit covered";
  EXPECT_EQ(row.history.size(), 3U);
}

TEST_F(RawStateTest, FreedExtentsAreZero) {
  Append().volumes.emplace_back(ExtentsFreed{ExtentIndex(1), 1});
  const RawRow row = Row(5);
  EXPECT_TRUE(row.pending.empty());
  EXPECT_TRUE(row.words[0].word.is_zero());
}

TEST_F(RawStateTest, WordsFromBeforeADeviceJoinedAreAbsent) {
  const DeviceIndex ssd = identity_.geometry.SsdOf(StripeIndex(5), 0);
  identity_.members[ssd.value].joined = 3;
  EXPECT_TRUE(Row(5).words[0].word.is_absent());
  Append().rows.push_back({StripeIndex(5), {{0, SlotWord::At(SlotIndex(50)), 5, 0}}});
  EXPECT_EQ(Row(5).words[0].word, SlotWord::At(SlotIndex(50)));
}

TEST_F(RawStateTest, VolumesThroughTheLog) {
  EntryHeader& first = Append();
  first.volumes.emplace_back(VolumeCreated{VolumeId(2), 5, "two"});
  first.volumes.emplace_back(ExtentAssigned{VolumeId(2), 3, ExtentIndex(2)});
  Append().volumes.emplace_back(VolumeRenamed{VolumeId(1), "renamed"});
  Append().volumes.emplace_back(VolumeResized{VolumeId(1), 7});
  auto volumes = ReplayVolumes(identity_, checkpoint_, log_);
  ASSERT_TRUE(volumes.ok());
  EXPECT_EQ(volumes->volumes.at(VolumeId(1)).name, "renamed");
  EXPECT_EQ(volumes->volumes.at(VolumeId(1)).size_bytes, 7U);
  EXPECT_EQ(volumes->extents.at({VolumeId(2), 3}), ExtentIndex(2));

  Append().volumes.emplace_back(VolumeDeleted{VolumeId(2)});
  EXPECT_TRUE(ReplayVolumes(identity_, checkpoint_, log_)->volumes.at(VolumeId(2)).deleting);
  Append().volumes.emplace_back(ExtentsFreed{ExtentIndex(2), 1});
  volumes = ReplayVolumes(identity_, checkpoint_, log_);
  EXPECT_FALSE(volumes->volumes.contains(VolumeId(2))) << "gone with its last extent";
  EXPECT_EQ(volumes->extents.size(), 1U);
}

// A run tells extents in their order, so that the new one comes before the old one is free.
TEST_F(RawStateTest, APlaceMovesToALowerExtent) {
  std::vector<std::byte> stream;
  RunWriter writer(identity_.geometry, stream);
  writer.Extent({ExtentIndex(0), VolumeId(1), 0});
  writer.ExtentFreed(ExtentIndex(1));
  writer.End();
  checkpoint_.streams.insert(checkpoint_.streams.begin(), std::move(stream));  // the newest
  const auto volumes = ReplayVolumes(identity_, checkpoint_, log_);
  ASSERT_TRUE(volumes.ok());
  ASSERT_TRUE(volumes->extents.contains({VolumeId(1), 0}));
  EXPECT_EQ(volumes->extents.at({VolumeId(1), 0}), ExtentIndex(0));
  EXPECT_EQ(volumes->extents.size(), 1U);
}

TEST_F(RawStateTest, DamagedStreamIsAnError) {
  checkpoint_.streams[0].resize(checkpoint_.streams[0].size() / 2);
  EXPECT_FALSE(CountCheckpoint(identity_, checkpoint_).ok());
  EXPECT_FALSE(ReplayRow(identity_, checkpoint_, log_, StripeIndex(0)).ok());
}

}  // namespace
}  // namespace eplog::cli
