// What goes on beside a parity commit: how much of it is on its way at once, which rows it locks
// and in which order, which slots it holds, whom it waits for, and what becomes of a stripe whose
// devices or chunks change meanwhile (I1, I5, I11).
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "engine/commit/committer.h"
#include "tests/engine/commit/commit_fixture.h"

namespace eplog {
namespace {

using StripeList = std::vector<StripeIndex>;

class CommitBeside : public CommitTest {
 protected:
  // Long enough to read that others can write meanwhile.
  static constexpr uint64_t kReadUs = 1000;

  static PartsShape Slow() {
    PartsShape shape;
    shape.delays = {.read_us = kReadUs, .write_us = 10};
    return shape;
  }
  explicit CommitBeside(const PartsShape& shape = Slow()) : CommitTest(shape) {}
  // While what the frames refer to is there.
  void TearDown() override { parts_.loop.Abort(); }

  // Ends when the test lets time pass.
  std::optional<Status>& Begin(const std::vector<uint32_t>& numbers,
                               std::optional<Committer::Batch> size = std::nullopt) {
    StripeList& stripes = asked_.emplace_back();
    for (const uint32_t number : numbers) {
      stripes.emplace_back(number);
    }
    std::optional<Status>& ended = ended_.emplace_back();
    const uint32_t width = g().commit_width();
    parts_.loop.Spawn([](Task<Status> commit, std::optional<Status>* out) -> Task<void> {
      *out = co_await commit;
    }(committer_.Commit(stripes, size.value_or(Committer::Batch{width, width})), &ended));
    return ended;
  }
  std::optional<Status>& Commit(const std::vector<uint32_t>& numbers) {
    std::optional<Status>& ended = Begin(numbers);
    parts_.Settle();
    return ended;
  }
  void Sleep(uint64_t us) {
    const Status slept = parts_.Run([](EventLoop& loop, uint64_t time) -> Task<Status> {
      co_await loop.Sleep(time);
      co_return OkStatus();
    }(parts_.loop, us));
    EXPECT_TRUE(slept.ok());
  }
  void UntilReadFrom(DeviceIndex ssd) {
    ASSERT_TRUE(parts_.loop.RunUntil([&] { return parts_.delayed(ssd).in_flight() != 0; }));
  }
  // One chunk of it is pending, and stable.
  void Pend(uint32_t stripe) {
    parts_.WriteStripe(StripeIndex(stripe));
    parts_.Log({parts_.Chunk(stripe, 0)});
    parts_.MakeStable();
  }
  void ClaimAll(DeviceIndex ssd) {
    while (parts_.core.space.free(ssd) != 0) {
      static_cast<void>(parts_.core.space.Claim(ssd));
    }
  }
  [[nodiscard]] std::vector<uint32_t> FreeSlots() const {
    std::vector<uint32_t> free;
    for (uint8_t i = 0; i < g().n; ++i) {
      free.push_back(parts_.core.space.free(DeviceIndex(i)));
    }
    return free;
  }
  [[nodiscard]] bool IsUsed(DeviceIndex ssd, SlotWord word) const {
    return parts_.core.space.IsUsed(ssd, word.slot());
  }

  std::deque<StripeList> asked_;
  std::deque<std::optional<Status>> ended_;
};

// ---- how much at once

// Six stripes, four a batch, two of them read at a time: of each all three data chunks.
TEST_F(CommitBeside, NoMoreIsOnItsWayThanWasAskedFor) {
  constexpr uint32_t kStripes = 6;
  for (uint32_t s = 0; s < kStripes; ++s) {
    Pend(s);
  }
  const auto& ended = Begin({0, 1, 2, 3, 4, 5}, Committer::Batch{.stripes = 4, .at_once = 2});
  Sleep(kReadUs / 2);
  uint64_t reads = 0;
  for (uint8_t i = 0; i < g().n; ++i) {
    reads += parts_.delayed(DeviceIndex(i)).in_flight();
  }
  EXPECT_EQ(reads, 2 * g().k());
  for (uint32_t s = 0; s < kStripes; ++s) {
    EXPECT_EQ(writer_.rows.IsLocked(s), s < 4) << s;
  }
  parts_.Settle();
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_EQ(parts_.core.traffic.committed_stripes, kStripes);
  EXPECT_EQ(parts_.core.traffic.commits, 1U);
  for (uint32_t s = 0; s < kStripes; ++s) {
    ExpectCommitted(s);
    EXPECT_FALSE(writer_.rows.IsLocked(s)) << s;
  }
}

// ---- rows

// In ascending order, whichever comes first in the log: who holds one and wants a higher one gets
// it.
TEST_F(CommitBeside, WhoWaitsForARowHasNoneBehindIt) {
  Pend(5);
  Pend(3);
  KeyedLocks::Guard lower = parts_.Run(writer_.rows.Lock(3));
  const auto& ended = Commit({5, 3});
  EXPECT_FALSE(ended);
  ASSERT_FALSE(writer_.rows.IsLocked(5));
  KeyedLocks::Guard higher = parts_.Run(writer_.rows.Lock(5));
  lower.Release();
  parts_.Settle();
  EXPECT_FALSE(ended) << "the rows of both are changed together";
  higher.Release();
  parts_.Settle();
  ASSERT_TRUE(ended && ended->ok());
  ExpectCommitted(3);
  ExpectCommitted(5);
}

// ---- slots

// Of an SSD that is lost no slot is needed, so it does not matter that none is left there.
TEST_F(CommitBeside, ALostSsdNeedsNoSlot) {
  Pend(0);
  const DeviceIndex parity = g().SsdOf(StripeIndex(0), g().k());
  ClaimAll(parity);
  parts_.Lose(parity);
  const auto& ended = Commit({0});
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_TRUE(Word(0, g().k()).word.is_absent());
  ExpectCommitted(0);
}

// The only slot that may become free is one that somebody reads still: no mark frees it, and the
// last of its pins does.
TEST_F(CommitBeside, ASlotThatIsBeingReadIsWaitedFor) {
  Pend(0);
  const DeviceIndex parity = g().SsdOf(StripeIndex(0), g().k());
  uint32_t stripe = 1;
  while (g().IndexOn(StripeIndex(stripe), parity) >= g().k()) {
    ++stripe;
  }
  const ChunkIndex chunk = parts_.Chunk(stripe, g().IndexOn(StripeIndex(stripe), parity));
  parts_.Log({chunk});
  const SlotWord read = parts_.core.state->Latest(chunk).word;
  Pins pins(parts_.core);
  pins.Add(parity, read);
  parts_.Log({chunk});
  parts_.MakeStable();
  ClaimAll(parity);
  ASSERT_TRUE(IsUsed(parity, read));
  const auto& ended = Commit({0});
  EXPECT_FALSE(ended);
  pins.Release();
  parts_.Settle();
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_EQ(Word(0, g().k()).word, read) << "there was no other";
  ExpectCommitted(0);
}

// I1: a version that a commit has taken is what the row will name, also if a newer one comes while
// it is read. Its slot is nobody else's.
TEST_F(CommitBeside, WhatItHasTakenStaysThoughItIsOverwritten) {
  Pend(0);
  const ChunkIndex chunk = parts_.Chunk(0, 0);
  const DeviceIndex ssd = g().SsdOf(chunk);
  const RowWord taken = parts_.core.state->Latest(chunk);
  const auto& ended = Begin({0});
  UntilReadFrom(ssd);
  parts_.Log({chunk});
  parts_.MakeStable();
  ASSERT_FALSE(ended);
  EXPECT_TRUE(IsUsed(ssd, taken.word)) << "it is being read";
  parts_.Settle();
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_EQ(Word(0, 0), taken);
  EXPECT_TRUE(IsUsed(ssd, taken.word)) << "the row names it";
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(0))) << "the newer one";
  const auto& again = Commit({0});
  ASSERT_TRUE(again && again->ok());
  ExpectCommitted(0);
  parts_.MakeStable();
  EXPECT_FALSE(IsUsed(ssd, taken.word));
}

// ---- log

class CommitBesideFullLog : public CommitBeside {
 protected:
  static PartsShape Shape() {
    PartsShape shape;
    shape.n = 8;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    return shape;
  }
  CommitBesideFullLog() : CommitBeside(Shape()) {}
};

// As many as there is log room for go together, and the rest is refused without waiting for more.
TEST_F(CommitBesideFullLog, AsManyAsThereIsRoomForGoTogether) {
  const CommitCost& cost = parts_.core.commit_cost;
  const uint32_t all = g().commit_width();
  const uint64_t room = cost.Blocks(1, g().k());
  uint32_t most = all;
  while (cost.Blocks(most, uint64_t{most} * g().k()) > room) {
    --most;
  }
  ASSERT_LT(most + 1, all);
  ASSERT_GT(most, 1U);
  std::vector<uint32_t> numbers;
  std::vector<ChunkIndex> chunks;
  for (uint32_t s = 0; s < all; ++s) {
    numbers.push_back(s);
    chunks.push_back(parts_.Chunk(s, s % g().k()));
  }
  parts_.Log(chunks);
  parts_.MakeStable();
  const uint64_t promised = parts_.appender.UrgentRoom() - room;
  parts_.appender.Promise(promised);
  const uint64_t place = parts_.appender.next_place();
  const auto& busy = Commit(numbers);
  ASSERT_TRUE(busy && !busy->ok());
  EXPECT_EQ(busy->error().code, ErrorCode::kBusy);
  EXPECT_EQ(parts_.core.traffic.committed_stripes, most);
  EXPECT_LE(parts_.appender.next_place() - place, room);
  EXPECT_TRUE(committer_.failed().empty()) << "the turn of the others comes again";
  parts_.appender.TakeBack(promised);
  const auto& rest = Commit(numbers);
  ASSERT_TRUE(rest && rest->ok());
  for (const uint32_t s : numbers) {
    ExpectCommitted(s);
  }
}

// ---- what changes meanwhile

// It can be neither read nor decoded any more, which is no failure: the turn of what came instead
// comes.
TEST_F(CommitBeside, WhatWasOverwrittenAndCannotBeReadIsNoFailure) {
  Pend(0);
  const ChunkIndex chunk = parts_.Chunk(0, 0);
  parts_.Rot(g().SsdOf(chunk), parts_.core.state->Latest(chunk).word);
  const auto& ended = Begin({0});
  UntilReadFrom(g().SsdOf(chunk));
  parts_.Log({chunk});
  ASSERT_FALSE(ended);
  parts_.Settle();
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok()) << ended->error().ToString();
  EXPECT_TRUE(committer_.failed().empty());
  parts_.MakeStable();
  EXPECT_EQ(committer_.OldestStripes(10).size(), 1U);
  const auto& again = Commit({0});
  ASSERT_TRUE(again && again->ok());
  ExpectCommitted(0);
}

// A loss is no error of the write, but the slots were chosen while the SSD was there: all that are
// left come back, and the stripe is taken anew.
TEST_F(CommitBeside, WhereParityCannotBeWrittenItIsTakenAgainWithout) {
  Pend(0);
  const DeviceIndex lost = g().SsdOf(StripeIndex(0), g().k());
  const DeviceIndex other = g().SsdOf(StripeIndex(0), g().k() + 1);
  const uint32_t free = parts_.core.space.free(other);
  const uint64_t written = parts_.core.traffic.ssd_parity_bytes;
  parts_.faulty(lost).Add({.kinds = MaskOf(RequestKind::kWrite)});
  const auto& busy = Commit({0});
  ASSERT_TRUE(busy && !busy->ok());
  EXPECT_EQ(busy->error().code, ErrorCode::kBusy);
  EXPECT_FALSE(parts_.core.members.live(lost));
  EXPECT_EQ(parts_.core.space.free(other), free);
  EXPECT_EQ(parts_.core.traffic.ssd_parity_bytes - written, g().chunk_bytes) << "that of the other";
  EXPECT_TRUE(committer_.failed().empty());
  const auto& again = Commit({0});
  ASSERT_TRUE(again && again->ok());
  EXPECT_TRUE(Word(0, g().k()).word.is_absent());
  ExpectCommitted(0);
}

// I7: nothing that needed it is described, and whoever asked is told why.
TEST_F(CommitBeside, LackOfSpaceBelowStopsTheArray) {
  Pend(0);
  const RowWord before = Word(0, g().k());
  parts_.faulty(g().SsdOf(StripeIndex(0), g().k()))
      .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  const auto& full = Commit({0});
  ASSERT_TRUE(full && !full->ok());
  EXPECT_EQ(full->error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(parts_.core.stop_error);
  EXPECT_EQ(Word(0, g().k()), before);
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(0)));
  EXPECT_EQ(parts_.core.traffic.committed_stripes, 0U);
}

// By the position in the stripe of what is replaced while new parity is written.
class CommitBesideReplacement : public CommitBeside,
                                public ::testing::WithParamInterface<uint32_t> {};

// I11: it is taken anew. What it claimed comes back where the device is the same, and one that has
// come instead gets no slot back that it never gave.
TEST_P(CommitBesideReplacement, ClaimsOfTheDevicesThatStayedComeBack) {
  Pend(0);
  std::vector<uint32_t> free = FreeSlots();
  const DeviceIndex replaced = g().SsdOf(StripeIndex(0), GetParam());
  const DeviceIndex parity = g().SsdOf(StripeIndex(0), g().n - 1);
  const auto& ended = Begin({0});
  ASSERT_TRUE(
      parts_.loop.RunUntil([&] { return parts_.core.space.free(parity) != free[parity.value]; }));
  ASSERT_FALSE(ended);
  parts_.Lose(replaced);
  parts_.Join(replaced);
  parts_.Settle();
  ASSERT_TRUE(ended && !ended->ok());
  EXPECT_EQ(ended->error().code, ErrorCode::kBusy);
  free[replaced.value] = g().slots;
  EXPECT_EQ(FreeSlots(), free);
  EXPECT_TRUE(committer_.failed().empty());
  EXPECT_TRUE(parts_.core.state->HasPending(StripeIndex(0)));
  const auto& again = Commit({0});
  ASSERT_TRUE(again && again->ok());
  EXPECT_FALSE(parts_.core.state->HasPending(StripeIndex(0)));
}

INSTANTIATE_TEST_SUITE_P(DataAndParity, CommitBesideReplacement, ::testing::Values(1U, 3U, 4U));

}  // namespace
}  // namespace eplog
