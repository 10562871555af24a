#include "engine/log/entry_maker.h"

#include <algorithm>

#include "tests/engine/log/waiting.h"

namespace eplog {
namespace {

class Making : public test::WaitingPieces {
 protected:
  void SetUp() override { maker_.Open(kEpoch, {kOlder, 7, 100}); }

  static constexpr Epoch kOlder{1, 11};
  static constexpr Epoch kEpoch{2, 22};
  EntryMaker maker_{core_, queue_};
};

TEST_F(Making, EntriesFollowEachOther) {
  Submit(0);
  const auto first = maker_.Make(5);
  EXPECT_EQ(first->header.epoch, kEpoch);
  EXPECT_EQ(first->header.sequence, 8U);
  EXPECT_EQ(first->header.mark, 5U);
  EXPECT_EQ(first->header.place, 100U);
  EXPECT_EQ(first->header.length_blocks, 2U);
  EXPECT_FALSE(first->header.first_of_epoch);
  SubmitRecord(true);
  const auto second = maker_.Make(8);
  EXPECT_EQ(second->header.sequence, 9U);
  EXPECT_EQ(second->header.place, 102U);
  EXPECT_EQ(second->header.length_blocks, 1U);
  EXPECT_EQ(maker_.end().sequence, 9U);
  EXPECT_EQ(maker_.end().place, 103U);
  EXPECT_EQ(maker_.newest_mark(), 8U);
}

TEST_F(Making, TheFirstOfAnEpochSaysWhatItFollows) {
  const Epoch newer{3, 33};
  maker_.BeginEpoch(newer);
  SubmitRecord(true);
  const auto first = maker_.Make(7);
  EXPECT_EQ(first->header.epoch, newer);
  EXPECT_TRUE(first->header.first_of_epoch);
  EXPECT_EQ(first->header.follows_epoch, kOlder);
  EXPECT_EQ(first->header.follows_sequence, 7U);
  SubmitRecord(true);
  EXPECT_FALSE(maker_.Make(7)->header.first_of_epoch);
}

TEST_F(Making, ALogStripeHasTheParityOfItsMembers) {
  Submit(3, 2, std::byte{0x0f});
  Submit(1, 4, std::byte{0x35});
  const auto entry = maker_.Make(7);
  ASSERT_EQ(entry->header.log_stripes.size(), 1U);
  const LogStripeRecord& stripe = entry->header.log_stripes[0];
  ASSERT_EQ(stripe.members.size(), 2U);
  EXPECT_EQ(stripe.members[0].chunk, ChunkOn(1, 4));
  EXPECT_EQ(stripe.members[1].chunk, ChunkOn(3, 2));
  ASSERT_EQ(entry->log_chunks.size(), 1U);
  const auto parity = entry->log_chunks[0].span();
  EXPECT_TRUE(
      std::all_of(parity.begin(), parity.end(), [](std::byte b) { return b == std::byte{0x3a}; }));
  EXPECT_EQ(stripe.log_crcs, std::vector{core_.checksum(parity)});
  ASSERT_EQ(entry->slot_writes.size(), 2U);
  EXPECT_EQ(entry->slot_writes[0].ssd, DeviceIndex(1));
  EXPECT_EQ(entry->slot_writes[0].slot, SlotIndex(4));
  EXPECT_EQ(entry->ssd_mask, 0b1010U);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(Making, FurtherLogStripesAreAlmostAsWideAsTheArray) {
  for (uint8_t ssd = 0; ssd < 3; ++ssd) {
    Submit(ssd, 0);
    Submit(ssd, 1);
  }
  Submit(0, 2);
  Submit(1, 2);
  const auto entry = maker_.Make(7);
  EXPECT_EQ(entry->header.log_stripes.size(), 2U);
  EXPECT_EQ(queue_.Width(), 2U);  // for the next entry
}

TEST_F(Making, UrgentRecordsGoAlone) {
  Submit(0);
  SubmitRecord(false, 4);
  SubmitRecord(true);
  const auto urgent = maker_.Make(7);
  EXPECT_EQ(urgent->records.size(), 1U);
  EXPECT_TRUE(urgent->chunk_writes.empty());
  EXPECT_EQ(urgent->held_blocks, 0U);
  const auto other = maker_.Make(7);
  EXPECT_EQ(other->records.size(), 1U);
  EXPECT_EQ(other->chunk_writes.size(), 1U);
  EXPECT_EQ(other->held_blocks, 3U);
}

TEST_F(Making, AnEntryThatIsMadeOfAnOldOneHasNothingOfIt) {
  Submit(0);
  auto entry = maker_.Make(7);
  const LogEntry* old = entry.get();
  entry->written = true;
  maker_.Recycle(std::move(entry));
  SubmitRecord(true);
  const auto made = maker_.Make(7);
  EXPECT_EQ(made.get(), old);
  EXPECT_TRUE(made->chunk_writes.empty());
  EXPECT_TRUE(made->header.log_stripes.empty());
  EXPECT_TRUE(made->slot_writes.empty());
  EXPECT_TRUE(made->log_chunks.empty());
  EXPECT_EQ(made->ssd_mask, 0U);
  EXPECT_FALSE(made->written);
}

}  // namespace
}  // namespace eplog
