// Reads beside those who write: what is read or decoded stays where it is until that is over (I1),
// and a newer version that came meanwhile is an answer where the old one has none. And of what is
// wrong, exactly that is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "engine/read/chunk_reader.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Bytes = EngineParts::Bytes;

class ReadsBeside : public ::testing::Test {
 protected:
  // Long enough to read that others can write meanwhile.
  static PartsShape Slow() {
    PartsShape shape;
    shape.delays = {.read_us = 1000, .write_us = 10};
    return shape;
  }
  struct Reading {
    Buffer into;
    std::optional<Status> ended;
  };
  // Ends when the test lets time pass.
  Reading& Begin(ChunkIndex chunk) {
    Reading& reading = readings_.emplace_back();
    reading.into = parts_.core.pool.Get(parts_.g().chunk_bytes);
    parts_.loop.Spawn([](Task<Status> read, std::optional<Status>* out) -> Task<void> {
      *out = co_await read;
    }(reader_.ReadLatest(chunk, reading.into.span()), &reading.ended));
    return reading;
  }
  void UntilReadFrom(DeviceIndex device) {
    ASSERT_TRUE(parts_.loop.RunUntil([&] { return parts_.delayed(device).in_flight() != 0; }));
  }
  static void ExpectRead(const Reading& reading, const Bytes& wanted) {
    ASSERT_TRUE(reading.ended);
    ASSERT_TRUE(reading.ended->ok()) << reading.ended->error().ToString();
    EXPECT_TRUE(std::ranges::equal(reading.into.span(), wanted));
  }
  [[nodiscard]] bool IsUsed(DeviceIndex ssd, SlotWord word) const {
    return parts_.core.space.IsUsed(ssd, word.slot());
  }
  [[nodiscard]] SlotWord LatestWord(ChunkIndex chunk) const {
    return parts_.core.state->Latest(chunk).word;
  }
  [[nodiscard]] uint64_t PlaceOf(ChunkIndex chunk) const {
    const PendingTable& pending = parts_.core.state->pending;
    return pending.PlaceOf(pending.Find(chunk)->log_stripe);
  }
  void RotLatest(ChunkIndex chunk) { parts_.Rot(parts_.g().SsdOf(chunk), LatestWord(chunk)); }
  void RotLogChunks(ChunkIndex chunk) {
    for (uint32_t j = 0; j < parts_.g().m; ++j) {
      parts_.memory(parts_.g().LogDevice(j)).bytes()[parts_.g().LogOffset(PlaceOf(chunk))] ^=
          std::byte{1};
    }
  }

  EngineParts parts_{Slow()};  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
  std::deque<Reading> readings_;
};

// ---- what is being read stays

TEST_F(ReadsBeside, ASlotThatIsReadStaysUntilThatIsOver) {
  const ChunkIndex chunk = parts_.Chunk(0, 0);
  const DeviceIndex ssd = parts_.g().SsdOf(chunk);
  parts_.Log({chunk});
  const SlotWord old = LatestWord(chunk);
  const Bytes content = parts_.latest.at(chunk.value);
  const Reading& reading = Begin(chunk);
  UntilReadFrom(ssd);
  parts_.Log({chunk});
  parts_.MakeStable();
  ASSERT_FALSE(reading.ended);
  EXPECT_TRUE(IsUsed(ssd, old));
  parts_.Settle();
  ExpectRead(reading, content);
  EXPECT_FALSE(IsUsed(ssd, old));
}

// All members, those that are not asked for too, and the log chunks: of each the content is needed.
TEST_F(ReadsBeside, ALogStripeThatIsDecodedStaysUntilThatIsOver) {
  const ChunkIndex wrong = parts_.Chunk(0, 0);
  const ChunkIndex peer = parts_.Chunk(0, 1);
  parts_.Log({wrong, peer});
  const uint64_t place = PlaceOf(wrong);
  ASSERT_EQ(PlaceOf(peer), place) << "in one log stripe";
  const SlotWord old_wrong = LatestWord(wrong);
  const SlotWord old_peer = LatestWord(peer);
  const Bytes content = parts_.latest.at(wrong.value);
  RotLatest(wrong);
  const Reading& reading = Begin(wrong);
  UntilReadFrom(parts_.g().LogDevice(0));
  parts_.Log({wrong, peer});
  parts_.MakeStable();
  parts_.appender.CheckpointCounts(parts_.appender.applied().place);
  ASSERT_FALSE(reading.ended);
  EXPECT_EQ(parts_.appender.log_tail(), place);
  EXPECT_TRUE(IsUsed(parts_.g().SsdOf(wrong), old_wrong));
  EXPECT_TRUE(IsUsed(parts_.g().SsdOf(peer), old_peer));
  parts_.Settle();
  ExpectRead(reading, content);
  EXPECT_GT(parts_.appender.log_tail(), place);
  EXPECT_FALSE(IsUsed(parts_.g().SsdOf(wrong), old_wrong));
  EXPECT_FALSE(IsUsed(parts_.g().SsdOf(peer), old_peer));
}

TEST_F(ReadsBeside, ARowThatIsDecodedStaysUntilThatIsOver) {
  const StripeIndex stripe(0);
  const ChunkIndex wrong = parts_.Chunk(0, 0);
  parts_.WriteStripe(stripe);
  std::vector<SlotWord> old;
  for (uint32_t i = 0; i < parts_.g().n; ++i) {
    old.push_back(parts_.core.state->rows.Get(stripe, i).word);
  }
  const Bytes content = parts_.latest.at(wrong.value);
  RotLatest(wrong);
  const Reading& reading = Begin(wrong);
  UntilReadFrom(parts_.g().SsdOf(stripe, 1));
  parts_.WriteStripe(stripe);
  parts_.MakeStable();
  ASSERT_FALSE(reading.ended);
  for (uint32_t i = 0; i < parts_.g().n; ++i) {
    EXPECT_TRUE(IsUsed(parts_.g().SsdOf(stripe, i), old[i])) << i;
  }
  parts_.Settle();
  ExpectRead(reading, content);
  for (uint32_t i = 0; i < parts_.g().n; ++i) {
    EXPECT_FALSE(IsUsed(parts_.g().SsdOf(stripe, i), old[i])) << i;
  }
}

// ---- what came meanwhile is an answer

TEST_F(ReadsBeside, WhatWasLoggedWhileTheOldOneWasDecodedInVainIsRead) {
  const ChunkIndex chunk = parts_.Chunk(0, 0);
  parts_.Log({chunk});
  RotLatest(chunk);
  RotLogChunks(chunk);
  const Reading& reading = Begin(chunk);
  UntilReadFrom(parts_.g().LogDevice(0));
  parts_.Log({chunk});
  ASSERT_FALSE(reading.ended);
  parts_.Settle();
  ExpectRead(reading, parts_.latest.at(chunk.value));
  EXPECT_EQ(parts_.hooks.decoded_chunks, 1U);
}

TEST_F(ReadsBeside, WhatWasWrittenWithItsStripeWhileTheOldOneWasDecodedInVainIsRead) {
  const StripeIndex stripe(0);
  const ChunkIndex chunk = parts_.Chunk(0, 0);
  parts_.WriteStripe(stripe);
  for (uint32_t i = 0; i <= parts_.g().m; ++i) {
    parts_.RotRow(stripe, i);
  }
  const Reading& reading = Begin(chunk);
  UntilReadFrom(parts_.g().SsdOf(stripe, 1));
  parts_.WriteStripe(stripe);
  ASSERT_FALSE(reading.ended);
  parts_.Settle();
  ExpectRead(reading, parts_.latest.at(chunk.value));
  EXPECT_EQ(parts_.hooks.decoded_chunks, 1U);
}

// ---- what is told of what is wrong

class ReportsOfWrong : public ::testing::Test {
 protected:
  ReportsOfWrong() {
    reader_.set_on_wrong([this](StripeIndex stripe) { wrong_.push_back(stripe.value); });
  }
  void RotLatest(ChunkIndex chunk) {
    parts_.Rot(parts_.g().SsdOf(chunk), parts_.core.state->Latest(chunk).word);
  }
  void ExpectLatest(ChunkIndex chunk) {
    const Buffer into = parts_.core.pool.Get(parts_.g().chunk_bytes);
    const Status status = parts_.Run(reader_.ReadLatest(chunk, into.span()));
    ASSERT_TRUE(status.ok()) << status.error().ToString();
    EXPECT_TRUE(std::ranges::equal(into.span(), parts_.latest.at(chunk.value)));
  }

  EngineParts parts_;  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
  std::vector<uint32_t> wrong_;
};

// What is missing is known; of what decodes it, only what is wrong itself is news.
TEST_F(ReportsOfWrong, AreOfThePeerThatIsWrongAndNotOfTheOneThatIsMissing) {
  for (uint32_t s = 0; s < 3; ++s) {
    parts_.WriteStripe(StripeIndex(s));
  }
  parts_.Lose(parts_.g().SsdOf(StripeIndex(1), 0));
  ExpectLatest(parts_.Chunk(1, 0));
  EXPECT_TRUE(wrong_.empty()) << "nothing is wrong";
  parts_.RotRow(StripeIndex(1), 2);
  ExpectLatest(parts_.Chunk(1, 0));
  EXPECT_EQ(wrong_, std::vector<uint32_t>{1});
}

TEST_F(ReportsOfWrong, AreOfThoseMembersOfALogStripeThatAreWrong) {
  // One of each of three stripes, on SSDs of their own.
  std::vector<ChunkIndex> chunks = {parts_.Chunk(1, 0)};
  for (uint32_t s = 2; s < 4; ++s) {
    const auto taken = [&](ChunkIndex chunk) {
      return std::ranges::any_of(chunks, [&](ChunkIndex other) {
        return parts_.g().SsdOf(other) == parts_.g().SsdOf(chunk);
      });
    };
    uint32_t index = 0;
    while (taken(parts_.Chunk(s, index))) {
      ++index;
    }
    chunks.push_back(parts_.Chunk(s, index));
  }
  parts_.Log(chunks);
  const auto pending = parts_.core.state->pending.Find(chunks[0]);
  ASSERT_EQ(parts_.core.state->pending.View(pending->log_stripe).members.size(), 3U);
  parts_.Lose(parts_.g().SsdOf(chunks[0]));
  ExpectLatest(chunks[0]);
  EXPECT_TRUE(wrong_.empty()) << "nothing is wrong";
  RotLatest(chunks[2]);
  ExpectLatest(chunks[0]);
  EXPECT_EQ(wrong_, std::vector<uint32_t>{3});
}

// Whoever asked is told which device it was and where on it.
TEST_F(ReportsOfWrong, AChunkThatIsWrongIsToldWithItsPlace) {
  const ChunkIndex chunk = parts_.Chunk(2, 1);
  parts_.Log({chunk});
  RotLatest(chunk);
  const DeviceIndex ssd = parts_.g().SsdOf(chunk);
  const RowWord word = parts_.core.state->Latest(chunk);
  const Buffer into = parts_.core.pool.Get(parts_.g().chunk_bytes);
  const Status status = parts_.Run(
      reader_.ReadSlot(ssd, word.word, word.crc, parts_.core.devices().number(), into.span()));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(status.error().device, ssd.value);
  EXPECT_EQ(status.error().offset_bytes,
            static_cast<int64_t>(parts_.g().SlotOffset(word.word.slot())));
}

}  // namespace
}  // namespace eplog
