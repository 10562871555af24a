#include "engine/log/append_queue.h"

#include <array>

#include "tests/engine/log/waiting.h"

namespace eplog {
namespace {

class WaitingForTheLog : public test::WaitingPieces {
 protected:
  // Of the members of the next log stripe, their chunks.
  std::vector<ChunkIndex> TakeStripe() {
    std::array<ChunkWrite*, kMaxSsds> members{};
    std::vector<ChunkIndex> chunks;
    const size_t count = queue_.TakeStripe(members);
    for (size_t i = 0; i < count; ++i) {
      chunks.push_back(members[i]->chunk);
    }
    return chunks;
  }
};

TEST_F(WaitingForTheLog, AStripeTakesTheFirstOfEverySsd) {
  EXPECT_TRUE(queue_.empty());
  Submit(2, 0);
  Submit(2, 1);
  Submit(0, 0);
  EXPECT_EQ(queue_.Width(), 2U);
  EXPECT_EQ(TakeStripe(), (std::vector{ChunkOn(0, 0), ChunkOn(2, 0)}));
  EXPECT_EQ(queue_.Width(), 1U);
  EXPECT_EQ(TakeStripe(), std::vector{ChunkOn(2, 1)});
  EXPECT_FALSE(queue_.has_chunks());
  EXPECT_TRUE(queue_.empty());
}

TEST_F(WaitingForTheLog, TheMoreIsOnItsWayTheWiderAStripeMustBe) {
  EXPECT_FALSE(queue_.WideEnough(0));
  Submit(0);
  EXPECT_TRUE(queue_.WideEnough(0));
  EXPECT_FALSE(queue_.WideEnough(1));
  Submit(1);
  EXPECT_TRUE(queue_.WideEnough(1));
  EXPECT_FALSE(queue_.WideEnough(2));
  Submit(2);
  EXPECT_TRUE(queue_.WideEnough(2));
  EXPECT_TRUE(queue_.WideEnough(3));
}

TEST_F(WaitingForTheLog, ARecordWaitsForNoCompany) {
  SubmitRecord(false);
  EXPECT_TRUE(queue_.WideEnough(3));
}

TEST_F(WaitingForTheLog, PromisesGoWithThePieces) {
  Submit(0);
  Submit(1);
  SubmitRecord(false, 5);
  SubmitRecord(true);
  EXPECT_EQ(queue_.promised_blocks(), 2 * queue_.BlocksForChunk() + 5);
  TakeStripe();
  EXPECT_EQ(queue_.promised_blocks(), 5U);
  EXPECT_EQ(queue_.TakeRecord(false).promised, 5U);
  EXPECT_EQ(queue_.promised_blocks(), 4U);  // the entry's, until it is applied
  queue_.TakeRecord(true);
  EXPECT_EQ(queue_.promised_blocks(), 4U);
}

TEST_F(WaitingForTheLog, RecordsGoInOrderAndUrgentOnesApart) {
  RecordWrite& first = SubmitRecord(false);
  RecordWrite& second = SubmitRecord(false);
  RecordWrite& urgent = SubmitRecord(true);
  EXPECT_EQ(queue_.urgent(), 1U);
  EXPECT_EQ(queue_.NextRecord(true), &urgent);
  EXPECT_EQ(&queue_.TakeRecord(true), &urgent);
  EXPECT_EQ(queue_.NextRecord(true), nullptr);
  EXPECT_EQ(&queue_.TakeRecord(false), &first);
  EXPECT_EQ(queue_.NextRecord(false), &second);
}

TEST_F(WaitingForTheLog, WhatIsOnALostSsdNamesNoSlot) {
  const ChunkWrite& lost = Submit(1);
  const ChunkWrite& there = Submit(2, 7);
  core_.members.Lose(DeviceIndex(1), Error());
  TakeStripe();
  EXPECT_TRUE(lost.word.is_absent());
  EXPECT_EQ(there.word.slot(), SlotIndex(7));
}

TEST_F(WaitingForTheLog, ARecordOfOtherStatesEnds) {
  RecordWrite outdated;
  outdated.states = core_.devices().number() + 1;
  queue_.Submit(outdated, true);
  RecordWrite current;
  current.states = core_.devices().number();
  queue_.Submit(current, true);
  queue_.DropOutdated();
  EXPECT_EQ(outdated.completion.status().error().code, ErrorCode::kBusy);
  EXPECT_EQ(queue_.urgent(), 1U);
  EXPECT_EQ(queue_.NextRecord(true), &current);
}

TEST_F(WaitingForTheLog, EverythingEndsWithTheArray) {
  ChunkWrite& chunk = Submit(0);
  RecordWrite& record = SubmitRecord(false, 3);
  RecordWrite& urgent = SubmitRecord(true);
  Error error;
  error.code = ErrorCode::kNoSpace;
  core_.Stop(error);
  queue_.FailAll();
  for (const Completion* completion : {&chunk.completion, &record.completion, &urgent.completion}) {
    EXPECT_TRUE(completion->await_ready());
    EXPECT_EQ(completion->status().error().code, ErrorCode::kNoSpace);
  }
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.promised_blocks(), 0U);
  // And what comes later at once.
  EXPECT_TRUE(Submit(0).completion.await_ready());
  EXPECT_TRUE(SubmitRecord(false).completion.await_ready());
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.promised_blocks(), 0U);
}

}  // namespace
}  // namespace eplog
