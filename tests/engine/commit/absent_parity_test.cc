// Chunks that their SSD has not got take no part in a delta: nothing is read in vain, and the new
// parity is that of the versions that the row is to name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/commit/parity_maker.h"
#include "tests/engine/commit/commit_fixture.h"

namespace eplog {
namespace {

// 6+2: of one changed chunk a delta would read less, were all there.
class AbsentParity : public CommitTest {
 protected:
  AbsentParity() : CommitTest({.n = 8, .m = 2}) { parts_.WriteStripe(StripeIndex(0)); }

  // Its parity, of one pending chunk, made as a commit would.
  void Make(uint32_t index) {
    ParityMaker::Change change;
    change.stripe = StripeIndex(0);
    change.states = parts_.core.devices().number();
    for (uint32_t i = 0; i < g().n; ++i) {
      change.old_words.push_back(Word(0, i));
    }
    change.words = change.old_words;
    const auto pending = parts_.core.state->pending.Find(parts_.Chunk(0, index));
    ASSERT_TRUE(pending);
    change.words[index] = {pending->word, pending->crc};
    change.versions[index] = pending->version;
    std::vector<Buffer> made;
    parts_.ResetCounters();
    const Status status = parts_.Run(maker_.Make(change, made));
    ASSERT_TRUE(status.ok()) << status.error().ToString();
    EXPECT_EQ(parts_.hooks.delta_commits, 0U);
    const std::vector<Bytes> wanted = parts_.ParityOfLatest(StripeIndex(0));
    ASSERT_EQ(made.size(), wanted.size());
    for (size_t j = 0; j < wanted.size(); ++j) {
      EXPECT_TRUE(std::ranges::equal(made[j].span(), wanted[j])) << "parity " << j;
    }
  }
  void Replace(uint32_t index) {
    parts_.Lose(g().SsdOf(StripeIndex(0), index));
    parts_.Join(g().SsdOf(StripeIndex(0), index));
    ASSERT_TRUE(Word(0, index).word.is_absent());
  }
  [[nodiscard]] uint64_t ChunksRead() const {
    return parts_.core.traffic.commit_read_bytes / g().chunk_bytes;
  }

  ParityMaker maker_{parts_.core, reader_};
};

// The new version is in its log stripe alone.
TEST_F(AbsentParity, AChunkOfALostSsdIsReadInItsLogStripe) {
  parts_.Lose(g().SsdOf(StripeIndex(0), 1));
  parts_.Log({parts_.Chunk(0, 1)});
  Make(1);
  EXPECT_EQ(parts_.ReadsOfSsds(), 5U) << "the others";
  EXPECT_EQ(ChunksRead(), 5U);
}

// What it was is not there, what it is, is; that one is on a device which nobody counts.
TEST_F(AbsentParity, AChunkThatIsNewOnAReplacementIsReadThere) {
  Replace(1);
  parts_.Log({parts_.Chunk(0, 1)});
  Make(1);
  EXPECT_EQ(parts_.ReadsOfSsds(), 5U);
  EXPECT_EQ(ChunksRead(), 6U);
}

// Each parity chunk by itself.
TEST_F(AbsentParity, WithoutTheOldParityAllDataIsRead) {
  for (const uint32_t index : {6U, 7U}) {
    Replace(index);
    parts_.Log({parts_.Chunk(0, 2)});
    const uint64_t before = ChunksRead();
    Make(2);
    EXPECT_EQ(parts_.ReadsOfSsds(), 6U);
    EXPECT_EQ(ChunksRead() - before, 6U);
    parts_.WriteStripe(StripeIndex(0));
  }
}

}  // namespace
}  // namespace eplog
