// New parity by the way that reads less, and by the other where that one cannot be read: always the
// parity of the versions that the row is to name, or an error.
#include "engine/commit/parity_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/engine/commit/commit_fixture.h"

namespace eplog {
namespace {

// 6+2: one changed chunk reads 2 + 2 instead of 6.
class ParityMakers : public CommitTest {
 protected:
  explicit ParityMakers(const PartsShape& shape = {.n = 8, .m = 2}) : CommitTest(shape) {}

  // What a commit of the stripe would take now.
  [[nodiscard]] ParityMaker::Change Taken(uint32_t stripe) const {
    ParityMaker::Change change;
    change.stripe = StripeIndex(stripe);
    change.states = parts_.core.devices().number();
    for (uint32_t i = 0; i < g().n; ++i) {
      change.old_words.push_back(Word(stripe, i));
      change.words.push_back(Word(stripe, i));
    }
    for (uint32_t i = 0; i < g().k(); ++i) {
      if (const auto pending = parts_.core.state->pending.Find(parts_.Chunk(stripe, i))) {
        change.words[i] = {pending->word, pending->crc};
        change.versions[i] = pending->version;
      }
    }
    return change;
  }
  Status Make(const ParityMaker::Change& change) {
    made_.clear();
    parts_.ResetCounters();
    return parts_.Run(maker_.Make(change, made_));
  }
  void ExpectParityOfLatest(uint32_t stripe) {
    const std::vector<Bytes> wanted = parts_.ParityOfLatest(StripeIndex(stripe));
    ASSERT_EQ(made_.size(), wanted.size());
    for (size_t j = 0; j < wanted.size(); ++j) {
      EXPECT_TRUE(std::ranges::equal(made_[j].span(), wanted[j])) << "parity " << j;
    }
  }
  void Write(uint32_t stripe, const std::vector<uint32_t>& indexes) {
    parts_.WriteStripe(StripeIndex(stripe));
    Update(stripe, indexes);
  }
  void Update(uint32_t stripe, const std::vector<uint32_t>& indexes) {
    std::vector<ChunkIndex> chunks;
    for (const uint32_t index : indexes) {
      chunks.push_back(parts_.Chunk(stripe, index));
    }
    parts_.Log(chunks);
  }

  ParityMaker maker_{parts_.core, reader_};
  std::vector<Buffer> made_;
};

TEST_F(ParityMakers, OneChangedChunkIsADeltaOfTheOldParity) {
  Write(0, {2});
  ASSERT_TRUE(Make(Taken(0)).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.hooks.delta_commits, 1U);
  EXPECT_EQ(parts_.ReadsOfSsds(), 4U);
  EXPECT_EQ(parts_.core.traffic.commit_read_bytes, uint64_t{4} * g().chunk_bytes);
}

// Two chunks would read 4 + 2, as many as all data.
TEST_F(ParityMakers, FromAllDataWhereThatReadsNoMore) {
  Write(0, {0, 5});
  ASSERT_TRUE(Make(Taken(0)).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.hooks.delta_commits, 0U);
  EXPECT_EQ(parts_.ReadsOfSsds(), 6U);
}

TEST_F(ParityMakers, OfAStripeThatWasNeverWrittenReadsOnlyWhatIsNew) {
  Update(0, {0, 3});
  ASSERT_TRUE(Make(Taken(0)).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.ReadsOfSsds(), 2U);
}

TEST_F(ParityMakers, AChunkThatWasTrimmedCountsAsZeros) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Trim(parts_.Chunk(0, 4), 1);
  ASSERT_TRUE(Make(Taken(0)).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.ReadsOfSsds(), 3U) << "what it was, and the parity";
}

TEST_F(ParityMakers, WhereADeltaCannotBeReadAllDataIs) {
  Write(0, {2});
  const ParityMaker::Change change = Taken(0);
  parts_.Rot(g().SsdOf(StripeIndex(0), 7), change.old_words[7].word);  // of parity
  ASSERT_TRUE(Make(change).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.hooks.delta_commits, 0U);

  Write(1, {2});
  const ParityMaker::Change other = Taken(1);
  parts_.Rot(g().SsdOf(StripeIndex(1), 2), other.old_words[2].word);  // what the chunk was
  ASSERT_TRUE(Make(other).ok());
  ExpectParityOfLatest(1);
  EXPECT_EQ(parts_.hooks.delta_commits, 0U);
}

// Through the old row, with the old versions of its peers.
TEST_F(ParityMakers, WhatDidNotChangeIsDecodedByTheOldRow) {
  Write(0, {0, 1, 2});
  parts_.RotRow(StripeIndex(0), 4);
  parts_.RotRow(StripeIndex(0), 5);
  ASSERT_TRUE(Make(Taken(0)).ok());
  ExpectParityOfLatest(0);
}

TEST_F(ParityMakers, WhatDidChangeIsDecodedByItsLogStripe) {
  Write(0, {0, 1, 2});
  const ParityMaker::Change change = Taken(0);
  parts_.Rot(g().SsdOf(StripeIndex(0), 0), change.words[0].word);
  parts_.RotRow(StripeIndex(0), 4);
  ASSERT_TRUE(Make(change).ok());
  ExpectParityOfLatest(0);
}

TEST_F(ParityMakers, MoreThanParityReplacesIsAnError) {
  Write(0, {0, 1, 2});
  for (const uint32_t index : {3U, 4U, 5U}) {
    parts_.RotRow(StripeIndex(0), index);
  }
  const Status beyond = Make(Taken(0));
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, ErrorCode::kTooManyFailures);
}

// It can be neither read nor decoded any more, and need not be: the new one is committed next.
TEST_F(ParityMakers, AVersionThatWasOverwrittenMeanwhileIsNoFailure) {
  Write(0, {0});
  const ParityMaker::Change change = Taken(0);
  parts_.Rot(g().SsdOf(StripeIndex(0), 0), change.words[0].word);
  Update(0, {0});
  const Status busy = Make(change);
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
}

// While it can be read, it is the version that was taken, whatever came since.
TEST_F(ParityMakers, AVersionThatWasOverwrittenMeanwhileIsTheOneThatWasTaken) {
  Write(0, {0});
  const ParityMaker::Change change = Taken(0);
  Pins pins(parts_.core);
  pins.Add(g().SsdOf(StripeIndex(0), 0), change.words[0].word);
  const std::vector<Bytes> wanted = parts_.ParityOfLatest(StripeIndex(0));
  Update(0, {0});
  ASSERT_TRUE(Make(change).ok());
  for (size_t j = 0; j < wanted.size(); ++j) {
    EXPECT_TRUE(std::ranges::equal(made_[j].span(), wanted[j]));
  }
}

// Both are `absent` on an SSD that is lost, with one checksum, and are told apart by their versions
// alone (I5).
class ParityMakersOfAlike : public ParityMakers {
 protected:
  ParityMakersOfAlike() : ParityMakers({.n = 8, .m = 2, .alike = true}) {}
};

TEST_F(ParityMakersOfAlike, TwoVersionsThatLookAlikeAreTwo) {
  parts_.Lose(g().SsdOf(StripeIndex(0), 1));
  Write(0, {1});
  const ParityMaker::Change change = Taken(0);
  ASSERT_TRUE(change.words[1].word.is_absent());
  ASSERT_EQ(change.old_words[1], change.words[1]);
  ASSERT_TRUE(Make(change).ok());
  ExpectParityOfLatest(0);
  EXPECT_EQ(parts_.hooks.delta_commits, 0U);
}

}  // namespace
}  // namespace eplog
