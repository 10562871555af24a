// What is moved on in the log so that it can go round: the oldest of what lies in the way, no more
// than pays, and nothing that is lost, newer, or about to be.
#include "engine/upkeep/relogger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "engine/read/chunk_reader.h"
#include "engine/write/buffered_chunks.h"
#include "engine/write/writer.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kMany = 70;  // entries: a little more than its credit lie in the older half

class Reloggers : public ::testing::Test {
 protected:
  // One chunk of each stripe, the last stripe first; each in an entry of its own.
  void Log(uint32_t count) {
    for (uint32_t stripe = count; stripe-- > 0;) {
      parts_.Log({Chunk(stripe)});
    }
    count_ = count;
    for (uint32_t stripe = 0; stripe < count; ++stripe) {
      places_.push_back(Place(stripe));
    }
  }
  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe) const {
    return parts_.Chunk(stripe, stripe % parts_.g().k());
  }
  [[nodiscard]] uint64_t Place(uint32_t stripe) const {
    const auto pending = parts_.core.state->pending.Find(Chunk(stripe));
    return parts_.core.state->pending.PlaceOf(pending->log_stripe);
  }
  [[nodiscard]] uint64_t Cost() const { return parts_.appender.BlocksForChunk(); }
  // How many chunks it may move before the log has gained anything.
  [[nodiscard]] uint64_t FirstCredit() const { return parts_.g().log_blocks / 4 / Cost(); }
  // All stripes are in the way. Which of them were moved since Log or the last call.
  std::set<uint32_t> Move(bool stopped = false) {
    std::vector<StripeIndex> stripes;
    for (uint32_t stripe = 0; stripe < count_; ++stripe) {
      stripes.emplace_back(stripe);
    }
    EXPECT_TRUE(parts_.Run(MoveOn(&relogger_, std::move(stripes), &stopped)).ok());
    std::set<uint32_t> moved;
    for (uint32_t stripe = 0; stripe < count_; ++stripe) {
      const uint64_t place = Place(stripe);
      if (std::exchange(places_[stripe], place) != place) {
        moved.insert(stripe);
      }
    }
    return moved;
  }
  // Those that were logged first, but for these.
  [[nodiscard]] std::set<uint32_t> Oldest(uint64_t count,
                                          const std::set<uint32_t>& without = {}) const {
    std::set<uint32_t> oldest;
    for (uint32_t stripe = count_; stripe-- > 0 && oldest.size() < count;) {
      if (!without.contains(stripe)) {
        oldest.insert(stripe);
      }
    }
    return oldest;
  }
  void ExpectContent(const std::set<uint32_t>& without = {}) {
    for (uint32_t stripe = 0; stripe < count_; ++stripe) {
      EngineParts::Bytes content(parts_.g().chunk_bytes);
      const Status read = parts_.Run(reader_.ReadLatest(Chunk(stripe), content));
      EXPECT_EQ(read.ok(), !without.contains(stripe)) << stripe;
      EXPECT_TRUE(!read.ok() || content == parts_.latest[Chunk(stripe).value]) << stripe;
    }
  }
  // Its member and both of its log chunks are wrong.
  void Spoil(uint32_t stripe) {
    const auto pending = parts_.core.state->pending.Find(Chunk(stripe));
    parts_.Rot(parts_.g().SsdOf(Chunk(stripe)), pending->word);
    for (uint32_t j = 0; j < parts_.g().m; ++j) {
      const uint64_t offset = parts_.g().LogOffset(Place(stripe));
      parts_.memory(parts_.g().LogDevice(j)).bytes()[offset + 100] ^= std::byte{1};
    }
  }

  EngineParts parts_;
  ChunkReader reader_{parts_.core, &parts_.appender};
  BufferedChunks buffered_{parts_.core};
  Writer writer_{parts_.core, parts_.appender, parts_.admission, reader_, buffered_};
  Relogger relogger_{parts_.core, parts_.appender, parts_.admission, reader_, writer_, buffered_};
  uint32_t count_ = 0;
  std::vector<uint64_t> places_;

 private:
  static Task<Status> MoveOn(Relogger* relogger, std::vector<StripeIndex> stripes,
                             const bool* stop) {
    Task<void> moving = relogger->MoveOn(std::move(stripes), *stop);
    co_await moving;
    co_return OkStatus();
  }
};

TEST_F(Reloggers, TheOlderHalfOfTheLogIsInTheWay) {
  Log(20);
  EXPECT_EQ(Move(), Oldest(10));
  ExpectContent();
}

TEST_F(Reloggers, TheOldestAreMovedFirstAndNoMoreThanAQuarterOfTheLog) {
  Log(kMany);
  ASSERT_GT(kMany / 2, FirstCredit());
  EXPECT_EQ(Move(), Oldest(FirstCredit()));
  ExpectContent();
  EXPECT_TRUE(Move().empty()) << "the log has gained nothing since";
}

// Half as much as has become free behind them.
TEST_F(Reloggers, WhatTheLogHasGainedIsWorthMore) {
  Log(kMany);
  const uint64_t tail = parts_.appender.log_tail();
  const std::set<uint32_t> first = Move();
  parts_.MakeStable();
  parts_.appender.CheckpointCounts(parts_.appender.applied().place);
  const uint64_t gained = parts_.appender.log_tail() - tail;
  ASSERT_GE(gained, first.size() * Cost());
  const std::set<uint32_t> second = Move();
  EXPECT_EQ(second.size(), gained / 2 / Cost());
  EXPECT_EQ(second, [&] {
    std::set<uint32_t> next = Oldest(first.size() + second.size(), first);
    while (next.size() > second.size()) {
      next.erase(next.begin());
    }
    return next;
  }());
  ExpectContent();
}

// Neither is moved, and others are instead.
TEST_F(Reloggers, WhatIsLostOrOverwrittenCostsNothing) {
  Log(kMany);
  const std::set<uint32_t> lost = {kMany - 1, kMany - 4};
  for (const uint32_t stripe : lost) {
    Spoil(stripe);
  }
  constexpr uint32_t kBuffered = kMany - 2;
  const BufferedPtr newer = buffered_.Prepare(Chunk(kBuffered));
  buffered_.TakeRam(*newer);
  std::memcpy(newer->data.data(), parts_.latest[Chunk(kBuffered).value].data(), newer->data.size());
  buffered_.Ready(newer);
  std::set<uint32_t> stay = lost;
  stay.insert(kBuffered);
  ASSERT_GE(kMany / 2, FirstCredit() + stay.size());
  EXPECT_EQ(Move(), Oldest(FirstCredit(), stay));
  EXPECT_EQ(parts_.hooks.relogged_chunks, FirstCredit());
  ExpectContent(lost);
}

TEST_F(Reloggers, NoneIsBegunOnceTheCallerStops) {
  Log(kMany);
  EXPECT_TRUE(Move(true).empty());
  EXPECT_EQ(Move(), Oldest(FirstCredit())) << "and that has cost nothing";
}

// They lie in the newer half by now, or are not pending any more.
TEST_F(Reloggers, WhatWasWrittenSinceIsNotInTheWay) {
  Log(20);
  const std::set<uint32_t> again = {19, 15};
  for (const uint32_t stripe : again) {
    parts_.Log({Chunk(stripe)});
    places_[stripe] = Place(stripe);
  }
  std::set<uint32_t> moved = Move();
  EXPECT_EQ(moved, Oldest(9, again)) << "of 22 entries eleven";
  ExpectContent();
}

}  // namespace
}  // namespace eplog
