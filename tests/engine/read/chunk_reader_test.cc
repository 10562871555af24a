// The content of chunks, each checked (P5): read where it lies, else decoded by its row or its log
// stripe, else an error; and who is blamed for what is wrong.
#include "engine/read/chunk_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Bytes = EngineParts::Bytes;

class ChunkReaders : public ::testing::Test {
 protected:
  ChunkReaders() {
    reader_.set_on_wrong([this](StripeIndex stripe) { wrong_.push_back(stripe.value); });
  }
  Result<Bytes> Read(ChunkIndex chunk) { return ReadBy(reader_, chunk); }
  Result<Bytes> ReadBy(ChunkReader& reader, ChunkIndex chunk) {
    const Buffer into = parts_.core.pool.Get(parts_.g().chunk_bytes);
    const Status status = parts_.Run(reader.ReadLatest(chunk, into.span()));
    if (!status.ok()) {
      return Fail(status.error());
    }
    return Bytes(into.data(), into.data() + into.size());
  }
  void ExpectLatest(ChunkIndex chunk) {
    const Result<Bytes> got = Read(chunk);
    ASSERT_TRUE(got.ok()) << got.error().ToString();
    EXPECT_TRUE(*got == parts_.latest.at(chunk.value)) << "chunk " << chunk.value;
  }
  [[nodiscard]] uint64_t Blamed(DeviceIndex device) const {
    return parts_.core.members.counters(device).corrupt_chunks;
  }
  void RotLatest(ChunkIndex chunk) {
    parts_.Rot(parts_.g().SsdOf(chunk), parts_.core.state->Latest(chunk).word);
  }
  // What a log device holds of the log stripe in which a chunk is pending.
  void RotLogChunk(uint32_t j, ChunkIndex chunk) {
    const auto pending = parts_.core.state->pending.Find(chunk);
    ASSERT_TRUE(pending);
    const uint64_t place = parts_.core.state->pending.PlaceOf(pending->log_stripe);
    parts_.memory(parts_.g().LogDevice(j)).bytes()[parts_.g().LogOffset(place)] ^= std::byte{1};
  }

  EngineParts parts_;  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
  std::vector<uint32_t> wrong_;
};

TEST_F(ChunkReaders, WhatWasNeverWrittenIsZerosAndReadsNothing) {
  const Result<Bytes> got = Read(ChunkIndex(parts_.g().data_chunks() - 1));
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(std::ranges::all_of(*got, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(parts_.ReadsOfSsds(), 0U);
}

TEST_F(ChunkReaders, OneThatIsRightIsOneRead) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Log({parts_.Chunk(0, 1)});
  ExpectLatest(parts_.Chunk(0, 0));
  ExpectLatest(parts_.Chunk(0, 1));
  EXPECT_EQ(parts_.ReadsOfSsds(), 2U);
  EXPECT_TRUE(wrong_.empty());
  EXPECT_EQ(parts_.hooks.decoded_chunks, 0U);
}

// The old version and its parity decode the peers, not the new one.
TEST_F(ChunkReaders, ACommittedChunkThatIsWrongIsDecodedByItsRow) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Log({parts_.Chunk(0, 1)});
  RotLatest(parts_.Chunk(0, 0));
  ExpectLatest(parts_.Chunk(0, 0));
  EXPECT_EQ(parts_.hooks.decoded_chunks, 1U);
  ASSERT_FALSE(wrong_.empty());
  EXPECT_EQ(wrong_.front(), 0U);
  EXPECT_GE(Blamed(parts_.g().SsdOf(parts_.Chunk(0, 0))), 1U);
  EXPECT_EQ(Blamed(parts_.g().SsdOf(parts_.Chunk(0, 1))), 0U);
}

TEST_F(ChunkReaders, APendingChunkThatIsWrongIsDecodedByItsLogStripe) {
  parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1), parts_.Chunk(1, 2)});
  RotLatest(parts_.Chunk(0, 0));
  RotLatest(parts_.Chunk(1, 2));
  ExpectLatest(parts_.Chunk(0, 0));
  ExpectLatest(parts_.Chunk(1, 2));
  EXPECT_NE(std::ranges::find(wrong_, 1U), wrong_.end());
}

// I3: superseded members decode what is still pending.
TEST_F(ChunkReaders, ASupersededMemberHelpsToDecode) {
  parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1), parts_.Chunk(0, 2)});
  parts_.Log({parts_.Chunk(0, 1)});
  RotLatest(parts_.Chunk(0, 0));
  RotLatest(parts_.Chunk(0, 2));
  ExpectLatest(parts_.Chunk(0, 0));
}

TEST_F(ChunkReaders, AsManyAsParityReplacesAndNotOneMore) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.RotRow(StripeIndex(0), 0);
  parts_.RotRow(StripeIndex(0), 4);
  ExpectLatest(parts_.Chunk(0, 0));
  parts_.RotRow(StripeIndex(0), 3);
  const Result<Bytes> beyond = Read(parts_.Chunk(0, 0));
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, ErrorCode::kTooManyFailures);
  EXPECT_NE(beyond.error().message.find("stripe 0"), std::string::npos);
  ExpectLatest(parts_.Chunk(0, 1));  // what is right reads all the same

  parts_.Log({parts_.Chunk(1, 0), parts_.Chunk(1, 1)});
  RotLatest(parts_.Chunk(1, 0));
  RotLogChunk(0, parts_.Chunk(1, 0));
  ExpectLatest(parts_.Chunk(1, 0));
  RotLogChunk(1, parts_.Chunk(1, 0));
  EXPECT_EQ(Read(parts_.Chunk(1, 0)).error().code, ErrorCode::kTooManyFailures);
}

// Parity whose own checksum is right, and which is that of other data.
TEST_F(ChunkReaders, WhatARowDecodesToMustBeWhatWasWritten) {
  const StripeIndex stripe(0);
  parts_.WriteStripe(stripe);
  RowWord word = parts_.core.state->rows.Get(stripe, 3);
  const Bytes other = parts_.NewContent();
  std::ranges::copy(other, parts_.SlotBytes(parts_.g().SsdOf(stripe, 3), word.word).begin());
  word.crc = parts_.core.checksum(other);
  parts_.core.state->rows.Set(stripe, 3, word);
  parts_.RotRow(stripe, 0);
  parts_.RotRow(stripe, 4);
  const Result<Bytes> decoded = Read(parts_.Chunk(0, 0));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kTooManyFailures);
  ExpectLatest(parts_.Chunk(0, 1));
}

// A peer that is wrong and looks right, as other content with the same checksum does.
TEST(ChunkReadersOfAlike, WhatALogStripeDecodesToMustBeWhatWasWritten) {
  EngineParts parts({.alike = true});
  ChunkReader reader(parts.core, &parts.appender);
  const ChunkIndex chunk = parts.Chunk(1, 0);
  const ChunkIndex peer = parts.Chunk(1, 1);
  parts.Log({chunk, peer});
  const auto pending = parts.core.state->pending.Find(chunk);
  const SlotWord peers_word = parts.core.state->Latest(peer).word;
  const Bytes other = parts.NewContent();
  std::ranges::copy(other, parts.SlotBytes(parts.g().SsdOf(peer), peers_word).begin());
  parts.Rot(parts.g().SsdOf(chunk), pending->word);
  // The first log chunk is their sum, of which this checksum tells nothing.
  const uint64_t place = parts.core.state->pending.PlaceOf(pending->log_stripe);
  parts.memory(parts.g().LogDevice(0)).bytes()[parts.g().LogOffset(place)] ^= std::byte{1};
  Bytes into(parts.g().chunk_bytes);
  const Status decoded = parts.Run(reader.ReadLatest(chunk, into));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kTooManyFailures);
}

// A lone one needs no other SSD: each log chunk has all of it.
TEST_F(ChunkReaders, ALonePendingChunkIsInEachLogChunk) {
  parts_.Log({parts_.Chunk(0, 0)});
  parts_.Lose(parts_.g().SsdOf(parts_.Chunk(0, 0)));
  RotLogChunk(1, parts_.Chunk(0, 0));
  ExpectLatest(parts_.Chunk(0, 0));
  EXPECT_EQ(Blamed(parts_.g().LogDevice(1)), 1U);
  EXPECT_EQ(Blamed(parts_.g().LogDevice(0)), 0U);
}

// What is missing is known; only what a device should have is reported to be mended.
TEST_F(ChunkReaders, WhatIsMissingIsDecodedAndNotReported) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.Lose(parts_.g().SsdOf(parts_.Chunk(0, 2)));
  ExpectLatest(parts_.Chunk(0, 2));
  EXPECT_TRUE(wrong_.empty());
  parts_.Join(parts_.g().SsdOf(parts_.Chunk(0, 2)));  // its words are `absent` now
  ExpectLatest(parts_.Chunk(0, 2));
  EXPECT_TRUE(wrong_.empty());
  EXPECT_EQ(Blamed(parts_.g().SsdOf(parts_.Chunk(0, 2))), 0U);
}

TEST_F(ChunkReaders, AnUnreadableOneIsReportedAndNotCalledCorrupt) {
  parts_.WriteStripe(StripeIndex(0));
  const DeviceIndex ssd = parts_.g().SsdOf(parts_.Chunk(0, 0));
  parts_.faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  ExpectLatest(parts_.Chunk(0, 0));
  EXPECT_FALSE(wrong_.empty());
  EXPECT_EQ(Blamed(ssd), 0U);
}

// Recovery looks at what a crash tore.
TEST_F(ChunkReaders, WhileOpeningNobodyIsBlamed) {
  parts_.WriteStripe(StripeIndex(0));
  RotLatest(parts_.Chunk(0, 0));
  ChunkReader opening(parts_.core, nullptr);
  const Result<Bytes> got = ReadBy(opening, parts_.Chunk(0, 0));
  EXPECT_TRUE(got.ok() && *got == parts_.latest.at(parts_.Chunk(0, 0).value));
  EXPECT_EQ(Blamed(parts_.g().SsdOf(parts_.Chunk(0, 0))), 0U);
}

TEST_F(ChunkReaders, WhoJoinedSinceTheWordWasLookedUpIsNotBlamed) {
  parts_.WriteStripe(StripeIndex(0));
  const DeviceIndex ssd = parts_.g().SsdOf(parts_.Chunk(0, 0));
  const RowWord word = parts_.core.state->Latest(parts_.Chunk(0, 0));
  const uint64_t states = parts_.core.devices().number();
  parts_.Lose(ssd);
  parts_.Join(ssd);
  const Buffer into = parts_.core.pool.Get(parts_.g().chunk_bytes);
  const Status read = parts_.Run(reader_.ReadSlot(ssd, word.word, word.crc, states, into.span()));
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Blamed(ssd), 0U);
  const Status again = parts_.Run(
      reader_.ReadSlot(ssd, word.word, word.crc, parts_.core.devices().number(), into.span()));
  EXPECT_EQ(again.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Blamed(ssd), 1U);
}

TEST_F(ChunkReaders, ALogDeviceIsNotBlamedForWhatWasLoggedBeforeItCame) {
  parts_.Log({parts_.Chunk(0, 0)});
  const auto pending = parts_.core.state->pending.Find(parts_.Chunk(0, 0));
  const uint64_t place = parts_.core.state->pending.PlaceOf(pending->log_stripe);
  RotLogChunk(0, parts_.Chunk(0, 0));
  const DeviceIndex log = parts_.g().LogDevice(0);
  const Buffer into = parts_.core.pool.Get(parts_.g().chunk_bytes);
  parts_.states().FoundJoining(log, false, place + 1);
  EXPECT_FALSE(parts_.Run(reader_.ReadLogChunk(0, place, pending->crc, into.span())).ok());
  EXPECT_EQ(Blamed(log), 0U);
  parts_.states().FoundJoining(log, false, place);
  EXPECT_FALSE(parts_.Run(reader_.ReadLogChunk(0, place, pending->crc, into.span())).ok());
  EXPECT_EQ(Blamed(log), 1U);
}

TEST_F(ChunkReaders, WhatAnOpeningWouldWriteAgainIsReadInstead) {
  parts_.WriteStripe(StripeIndex(0));
  const Bytes content = parts_.NewContent();
  Buffer instead = parts_.core.pool.Get(content.size());
  std::memcpy(instead.data(), content.data(), content.size());
  reader_.ReadInstead(parts_.Chunk(0, 1), std::move(instead));
  EXPECT_TRUE(reader_.ReadsInstead(parts_.Chunk(0, 1)));
  EXPECT_FALSE(reader_.ReadsInstead(parts_.Chunk(0, 0)));
  const Result<Bytes> got = Read(parts_.Chunk(0, 1));
  EXPECT_TRUE(got.ok() && *got == content);
  ExpectLatest(parts_.Chunk(0, 0));
}

// ---- who asks which of them could not be had

TEST_F(ChunkReaders, OfARowAllPositionsThatWereNotReadable) {
  parts_.WriteStripe(StripeIndex(0));
  parts_.RotRow(StripeIndex(0), 1);
  parts_.RotRow(StripeIndex(0), 4);  // of parity
  std::vector<RowWord> words;
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  for (uint32_t i = 0; i < parts_.g().n; ++i) {
    words.push_back(parts_.core.state->rows.Get(StripeIndex(0), i));
  }
  for (uint32_t i = 0; i < parts_.g().k(); ++i) {
    buffers.push_back(parts_.core.pool.Get(parts_.g().chunk_bytes));
    data.push_back(buffers.back().span());
  }
  uint64_t rebuilt = 0;
  ASSERT_TRUE(parts_
                  .Run(reader_.ReadRow(StripeIndex(0), words, parts_.core.devices().number(), data,
                                       &rebuilt))
                  .ok());
  EXPECT_EQ(rebuilt, 0b10010U);
  for (uint32_t i = 0; i < parts_.g().k(); ++i) {
    const Bytes& wanted = parts_.latest.at(parts_.Chunk(0, i).value);
    EXPECT_TRUE(std::ranges::equal(data[i], wanted)) << i;
  }
}

TEST_F(ChunkReaders, OfALogStripeMembersThenLogDevices) {
  parts_.Log({parts_.Chunk(0, 0), parts_.Chunk(0, 1)});
  const auto pending = parts_.core.state->pending.Find(parts_.Chunk(0, 0));
  const LogStripeView view = parts_.core.state->pending.View(pending->log_stripe);
  RotLatest(view.members[1].chunk);
  RotLogChunk(1, parts_.Chunk(0, 0));
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  for (size_t i = 0; i < view.members.size(); ++i) {
    buffers.push_back(parts_.core.pool.Get(parts_.g().chunk_bytes));
    data.push_back(buffers.back().span());
  }
  uint64_t rebuilt = 0;
  ASSERT_TRUE(parts_.Run(reader_.ReadLogStripe(view, data, &rebuilt)).ok());
  EXPECT_EQ(rebuilt, 0b1010U);
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(data[i], parts_.latest.at(view.members[i].chunk.value)));
  }
}

// ---- while others write

TEST(ChunkReaderBesideWrites, AVersionThatCameMeanwhileIsReadInstead) {
  EngineParts parts({.delays = {.read_us = 1000, .write_us = 10}});
  ChunkReader reader(parts.core, &parts.appender);
  const ChunkIndex chunk = parts.Chunk(0, 0);
  parts.Log({chunk});
  const RowWord old = parts.core.state->Latest(chunk);
  parts.Rot(parts.g().SsdOf(chunk), old.word);
  const Buffer into = parts.core.pool.Get(parts.g().chunk_bytes);
  std::optional<Status> ended;
  parts.loop.Spawn([](Task<Status> read, std::optional<Status>* out) -> Task<void> {
    *out = co_await read;
  }(reader.ReadLatest(chunk, into.span()), &ended));
  // The read is on its way when another version is written, and finds the old one wrong.
  static_cast<void>(
      parts.loop.RunUntil([&] { return parts.delayed(parts.g().SsdOf(chunk)).in_flight() != 0; }));
  parts.Log({chunk});
  ASSERT_NE(parts.core.state->Latest(chunk).word, old.word);
  parts.Settle();
  ASSERT_TRUE(ended && ended->ok());
  EXPECT_TRUE(std::ranges::equal(into.span(), parts.latest.at(chunk.value)));
  EXPECT_EQ(parts.hooks.decoded_chunks, 0U);
}

// I1: a slot that is being read is nobody else's.
TEST(ReadPins, KeepASlotUntilTheLastOfThemGoes) {
  EngineParts parts;
  const ChunkIndex chunk = parts.Chunk(0, 0);
  const DeviceIndex ssd = parts.g().SsdOf(chunk);
  parts.Log({chunk});
  const SlotWord old = parts.core.state->Latest(chunk).word;
  Pins first(parts.core);
  first.Add(ssd, old);
  first.Add(ssd, SlotWord::Zero());  // there is nothing to keep
  first.Add(ssd, SlotWord::Absent());
  auto second = std::make_unique<Pins>(parts.core);
  second->Add(ssd, old);
  parts.Log({chunk});
  parts.MakeStable();
  EXPECT_TRUE(parts.core.space.IsUsed(ssd, old.slot()));
  second.reset();
  EXPECT_TRUE(parts.core.space.IsUsed(ssd, old.slot()));
  first.Release();
  EXPECT_FALSE(parts.core.space.IsUsed(ssd, old.slot()));
  first.Release();  // and once more does no harm
}

}  // namespace
}  // namespace eplog
