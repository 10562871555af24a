// What lies in buffers: who sees which version of a chunk from when until when, in which order
// chunks leave, and what a range takes of them, to the chunk.
#include "engine/write/buffered_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class Buffered : public ::testing::Test {
 protected:
  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return parts_.Chunk(stripe, index);
  }
  // Acknowledged, and different from all others.
  BufferedPtr Put(ChunkIndex chunk, bool fresh = false) {
    BufferedPtr put = chunks_.Prepare(chunk);
    put->fresh = fresh;
    chunks_.TakeRam(*put);
    std::memset(put->data.data(), ++stamp_, put->data.size());
    chunks_.Ready(put);
    return put;
  }
  BufferedPtr PutLeaving(ChunkIndex chunk) {
    BufferedPtr put = Put(chunk);
    EXPECT_TRUE(chunks_.Leave(put));
    return put;
  }
  // Ended once nothing in the range is leaving any more.
  void StartWaiting(ChunkIndex first, uint64_t count, std::optional<Status>& ended) {
    parts_.Start(Waited(&chunks_, first, count), ended);
  }
  static Task<Status> Waited(BufferedChunks* chunks, ChunkIndex first, uint64_t count) {
    Task<void> waiting = chunks->WaitLeft(first, count);
    co_await waiting;
    co_return OkStatus();
  }
  void Stop() {
    Error why;
    why.code = ErrorCode::kIo;
    parts_.core.Stop(why);
  }
  [[nodiscard]] std::vector<BufferedPtr> All() const {
    return chunks_.Select([](ChunkIndex) { return true; });
  }
  [[nodiscard]] std::vector<uint32_t> FreshStripes() const {
    std::vector<uint32_t> stripes;
    for (const auto& [order, stripe] : chunks_.FreshStripes()) {
      stripes.push_back(stripe.value);
    }
    return stripes;
  }
  [[nodiscard]] std::vector<BufferedPtr> Queue(ChunkIndex of) const {
    std::vector<BufferedPtr> queue;
    for (const auto& [order, chunk] : chunks_.Queue(parts_.g().SsdOf(of))) {
      queue.push_back(chunk);
    }
    return queue;
  }

  EngineParts parts_;
  BufferedChunks chunks_{parts_.core};
  uint8_t stamp_ = 0;
};

using Chunks = std::vector<BufferedPtr>;
using Stripes = std::vector<uint32_t>;

TEST_F(Buffered, OneIsSeenFromBeingReadyUntilItIsDone) {
  const ChunkIndex at = Chunk(3, 1);
  EXPECT_TRUE(chunks_.empty());
  const BufferedPtr chunk = chunks_.Prepare(at);
  EXPECT_EQ(chunks_.Absorbing(at), chunk);
  EXPECT_EQ(chunks_.held(), 0U);
  chunks_.TakeRam(*chunk);
  EXPECT_EQ(chunks_.held(), 1U);
  EXPECT_EQ(chunks_.Latest(at), nullptr) << "it is not acknowledged yet";
  EXPECT_EQ(chunks_.AbsorbingData(at), nullptr);
  EXPECT_EQ(chunks_.CountReady(StripeIndex(3)), 0U);
  EXPECT_TRUE(All().empty());
  EXPECT_TRUE(chunks_.ReadyOf(StripeIndex(3)).empty());
  EXPECT_EQ(chunks_.size(), 1U);
  chunks_.Ready(chunk);
  EXPECT_EQ(chunks_.Latest(at), chunk->data.data());
  EXPECT_EQ(chunks_.AbsorbingData(at), chunk->data.data());
  EXPECT_EQ(chunks_.Latest(Chunk(3, 0)), nullptr);
  EXPECT_EQ(chunks_.CountReady(StripeIndex(3)), 1U);
  EXPECT_TRUE(chunks_.Leave(chunk));
  EXPECT_EQ(chunks_.Absorbing(at), nullptr) << "later writes go elsewhere";
  EXPECT_EQ(chunks_.AbsorbingData(at), nullptr);
  EXPECT_EQ(chunks_.Latest(at), chunk->data.data()) << "and reads still find it";
  EXPECT_EQ(chunks_.CountReady(StripeIndex(3)), 0U);
  EXPECT_EQ(All(), Chunks{chunk});
  EXPECT_EQ(chunks_.size(), 1U);
  EXPECT_FALSE(chunks_.empty());
  EXPECT_FALSE(chunks_.Leave(chunk)) << "it has left already";
  chunks_.Done(*chunk);
  EXPECT_TRUE(chunk->done);
  EXPECT_FALSE(chunk->data);
  EXPECT_EQ(chunks_.Latest(at), nullptr);
  EXPECT_EQ(chunks_.held(), 0U);
  EXPECT_TRUE(chunks_.empty());
  EXPECT_FALSE(chunks_.Leave(chunk));
}

TEST_F(Buffered, TheNewerVersionIsSeenOnceItIsReady) {
  const ChunkIndex at = Chunk(2, 0);
  const BufferedPtr old = PutLeaving(at);
  const BufferedPtr newer = chunks_.Prepare(at);
  chunks_.TakeRam(*newer);
  EXPECT_EQ(chunks_.Latest(at), old->data.data());
  EXPECT_EQ(chunks_.held(), 2U);
  EXPECT_EQ(chunks_.size(), 2U);
  chunks_.Ready(newer);
  EXPECT_EQ(chunks_.Latest(at), newer->data.data());
  chunks_.Done(*old);
  EXPECT_EQ(chunks_.Latest(at), newer->data.data());
  EXPECT_EQ(chunks_.Absorbing(at), newer);
  EXPECT_FALSE(chunks_.Leave(old)) << "another one absorbs now";
  EXPECT_EQ(chunks_.held(), 1U);
}

TEST_F(Buffered, OneThatIsGivenUpLeavesNothing) {
  const ChunkIndex at = Chunk(1, 2);
  for (const bool with_ram : {false, true}) {
    const BufferedPtr chunk = chunks_.Prepare(at);
    if (with_ram) {
      chunks_.TakeRam(*chunk);
    }
    chunks_.GiveUp(chunk);
    EXPECT_EQ(chunks_.Absorbing(at), nullptr);
    EXPECT_EQ(chunks_.held(), 0U);
    EXPECT_TRUE(chunks_.empty());
  }
}

// Few chunks and large ranges, and the other way round.
TEST_F(Buffered, ARangeHasThoseBetweenItsEnds) {
  for (const bool leaving : {false, true}) {
    for (const uint64_t beside : {0U, 20U}) {
      SCOPED_TRACE(testing::Message() << (leaving ? "leaving, " : "absorbing, ") << beside);
      Chunks put;
      for (uint64_t i = 0; i < beside; ++i) {
        put.push_back(Put(ChunkIndex(1000 + i)));
      }
      put.push_back(leaving ? PutLeaving(ChunkIndex(10)) : Put(ChunkIndex(10)));
      for (uint64_t first = 5; first <= 12; ++first) {
        for (uint64_t count = 0; count <= 8; ++count) {
          const bool inside = first <= 10 && 10 < first + count;
          EXPECT_EQ(chunks_.AnyIn(ChunkIndex(first), count), inside) << first << " " << count;
        }
      }
      EXPECT_TRUE(chunks_.AnyIn(ChunkIndex(0), 11));
      EXPECT_FALSE(chunks_.AnyIn(ChunkIndex(11), 500));
      for (const BufferedPtr& chunk : put) {
        chunks_.Leave(chunk);
        chunks_.Done(*chunk);
      }
    }
  }
}

TEST_F(Buffered, WhoOverwritesARangeTakesWhatIsReadyInIt) {
  const BufferedPtr before = Put(ChunkIndex(9));
  const BufferedPtr first = Put(ChunkIndex(10));
  const BufferedPtr last = Put(ChunkIndex(12));
  const BufferedPtr after = Put(ChunkIndex(13));
  const BufferedPtr prepared = chunks_.Prepare(ChunkIndex(11));
  chunks_.TakeRam(*prepared);
  {
    BufferedChunks::Leaving leaving(chunks_);
    chunks_.Supersede(ChunkIndex(10), 3, leaving);
    EXPECT_EQ(chunks_.Absorbing(ChunkIndex(10)), nullptr);
    EXPECT_EQ(chunks_.Absorbing(ChunkIndex(12)), nullptr);
    EXPECT_EQ(chunks_.Latest(ChunkIndex(10)), first->data.data()) << "until that is applied";
    EXPECT_FALSE(first->done);
    leaving.Overwritten();
  }
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(last->done);
  EXPECT_EQ(chunks_.Latest(ChunkIndex(10)), nullptr);
  EXPECT_EQ(chunks_.Absorbing(ChunkIndex(9)), before);
  EXPECT_EQ(chunks_.Absorbing(ChunkIndex(13)), after);
  EXPECT_EQ(chunks_.Absorbing(ChunkIndex(11)), prepared) << "it comes after what overwrites";
  EXPECT_EQ(chunks_.held(), 3U);
}

// Nothing is written any more, and what was acknowledged is read on.
TEST_F(Buffered, WhatWasAcknowledgedStaysWhenTheArrayStops) {
  const BufferedPtr taken = Put(ChunkIndex(10));
  const BufferedPtr other = Put(ChunkIndex(20));
  {
    BufferedChunks::Leaving leaving(chunks_);
    chunks_.Supersede(ChunkIndex(10), 1, leaving);
    Stop();
    BufferedChunks::Leaving late(chunks_);
    chunks_.Supersede(ChunkIndex(20), 1, late);
  }
  EXPECT_EQ(chunks_.Latest(ChunkIndex(10)), taken->data.data());
  EXPECT_EQ(chunks_.Latest(ChunkIndex(20)), other->data.data());
  EXPECT_EQ(chunks_.Absorbing(ChunkIndex(20)), other);
}

// The array stopped for something else, just after it was applied.
TEST_F(Buffered, WhatWasOverwrittenIsNotReadOnWhenTheArrayStops) {
  const BufferedPtr taken = Put(ChunkIndex(10));
  BufferedChunks::Leaving leaving(chunks_);
  chunks_.Supersede(ChunkIndex(10), 1, leaving);
  Stop();
  leaving.Overwritten();
  EXPECT_TRUE(taken->done);
  EXPECT_EQ(chunks_.Latest(ChunkIndex(10)), nullptr);
}

TEST_F(Buffered, WhoWaitsForARangeWaitsForWhatLeavesInIt) {
  for (const uint64_t at : {10U, 11U, 12U}) {
    const BufferedPtr before = PutLeaving(ChunkIndex(9));
    const BufferedPtr after = PutLeaving(ChunkIndex(13));
    const BufferedPtr absorbing = Put(ChunkIndex(at == 10 ? 11 : 10));
    const BufferedPtr chunk = PutLeaving(ChunkIndex(at));
    std::optional<Status> ended;
    StartWaiting(ChunkIndex(10), 3, ended);
    EXPECT_FALSE(ended) << at;
    chunks_.Done(*chunk);
    parts_.Settle();
    EXPECT_TRUE(ended) << at << ": its neighbours and what absorbs need not go";
    for (const BufferedPtr& rest : {before, after, absorbing}) {
      chunks_.Leave(rest);
      chunks_.Done(*rest);
    }
  }
  const BufferedPtr stays = PutLeaving(ChunkIndex(10));
  std::optional<Status> ended;
  StartWaiting(ChunkIndex(10), 1, ended);
  EXPECT_FALSE(ended);
  Stop();
  parts_.Settle();
  EXPECT_TRUE(ended) << "nobody submits it any more";
}

TEST_F(Buffered, ADeviceBufferIsInTheOrderOfBecomingReady) {
  const ChunkIndex at = Chunk(0, 0);
  Chunks same_ssd;
  for (uint32_t stripe = 40; stripe > 0 && same_ssd.size() < 4; --stripe) {
    for (uint32_t i = 0; i < parts_.g().k(); ++i) {
      if (parts_.g().SsdOf(Chunk(stripe, i)) == parts_.g().SsdOf(at)) {
        same_ssd.push_back(Put(Chunk(stripe, i)));
      }
    }
  }
  EXPECT_EQ(Queue(at), same_ssd);
  EXPECT_TRUE(FreshStripes().empty());
  chunks_.Dequeue(*same_ssd[1]);
  EXPECT_TRUE(same_ssd[1]->draining);
  EXPECT_EQ(Queue(at), (Chunks{same_ssd[0], same_ssd[2], same_ssd[3]}));
  EXPECT_EQ(chunks_.Absorbing(same_ssd[1]->chunk), same_ssd[1]) << "it absorbs until it leaves";
  chunks_.Dequeue(*same_ssd[1]);
  EXPECT_TRUE(chunks_.Leave(same_ssd[2]));
  EXPECT_EQ(Queue(at), (Chunks{same_ssd[0], same_ssd[3]}));
}

TEST_F(Buffered, TheStripeBufferIsInTheOrderOfEachStripesFirstChunk) {
  const BufferedPtr seven = Put(Chunk(7, 0), true);
  const BufferedPtr two = Put(Chunk(2, 1), true);
  const BufferedPtr seven_too = Put(Chunk(7, 2), true);
  const BufferedPtr five = Put(Chunk(5, 0), true);
  EXPECT_EQ(FreshStripes(), (Stripes{7, 2, 5}));
  EXPECT_TRUE(Queue(Chunk(7, 0)).empty());
  chunks_.Dequeue(*seven);
  chunks_.Dequeue(*seven);
  EXPECT_EQ(FreshStripes(), (Stripes{7, 2, 5})) << "the other one is still there";
  EXPECT_TRUE(chunks_.Leave(two));
  EXPECT_EQ(FreshStripes(), (Stripes{7, 5}));
  EXPECT_TRUE(chunks_.Leave(seven_too));
  EXPECT_EQ(FreshStripes(), Stripes{5});
  // Written once more it stands behind the others.
  EXPECT_TRUE(chunks_.Leave(seven));
  chunks_.Done(*seven);
  Put(Chunk(7, 0), true);
  EXPECT_EQ(FreshStripes(), (Stripes{5, 7}));
}

// Of both kinds, whoever is about to be drained among them.
TEST_F(Buffered, AStripeKnowsWhatOfItIsReady) {
  const StripeIndex at(4);
  const BufferedPtr last = Put(Chunk(4, 2));
  const BufferedPtr first = Put(Chunk(4, 0), true);
  Put(Chunk(5, 0));
  EXPECT_EQ(chunks_.CountReady(at), 2U);
  EXPECT_EQ(chunks_.ReadyOf(at), (Chunks{first, last}));
  chunks_.Dequeue(*first);
  EXPECT_TRUE(FreshStripes().empty());
  EXPECT_EQ(chunks_.CountReady(at), 2U);
  EXPECT_EQ(chunks_.ReadyOf(at), (Chunks{first, last}));
  EXPECT_TRUE(chunks_.Leave(first));
  EXPECT_EQ(chunks_.CountReady(at), 1U);
  EXPECT_EQ(chunks_.ReadyOf(at), Chunks{last});
  EXPECT_TRUE(chunks_.Leave(last));
  EXPECT_EQ(chunks_.CountReady(at), 0U);
  EXPECT_TRUE(chunks_.ReadyOf(at).empty());
  EXPECT_EQ(chunks_.CountReady(StripeIndex(5)), 1U);
}

TEST_F(Buffered, ThoseThatAreWantedComeInTheOrderOfBecomingReady) {
  Chunks put;
  for (const uint64_t at : {17U, 3U, 90U, 41U, 8U, 60U}) {
    put.push_back(Put(ChunkIndex(at), at == 8));
  }
  EXPECT_TRUE(chunks_.Leave(put[1]));
  EXPECT_TRUE(chunks_.Leave(put[4]));
  chunks_.TakeRam(*chunks_.Prepare(ChunkIndex(5)));
  EXPECT_EQ(All(), put);
  const auto some = chunks_.Select([](ChunkIndex chunk) { return chunk.value < 42; });
  EXPECT_EQ(some, (Chunks{put[0], put[1], put[3], put[4]}));
}

TEST_F(Buffered, EachRemembersSinceWhenItLiesThere) {
  const auto wait = [](EventLoop& on) -> Task<Status> {
    co_await on.Sleep(1234);
    co_return OkStatus();
  };
  const BufferedPtr first = Put(Chunk(1, 0));
  EXPECT_TRUE(parts_.Run(wait(parts_.loop)).ok());
  const BufferedPtr second = Put(Chunk(1, 1), true);
  EXPECT_EQ(second->since_us, first->since_us + 1234);
}

}  // namespace
}  // namespace eplog
