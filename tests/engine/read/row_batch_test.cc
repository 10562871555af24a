// Many rows in few requests: what is side by side is one, each chunk has its own outcome, and what
// was added stays readable whatever happens to the row meanwhile.
#include "engine/read/row_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/read/chunk_reader.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Bytes = EngineParts::Bytes;
constexpr uint32_t kRows = 8;

class RowBatches : public ::testing::Test {
 protected:
  RowBatches() {
    for (uint32_t s = 0; s < kRows; ++s) {
      parts_.WriteStripe(StripeIndex(s));
    }
    parts_.ResetCounters();
  }
  void AddAll(uint32_t count = kRows) {
    for (uint32_t s = 0; s < count; ++s) {
      batch_->Add(StripeIndex(s));
    }
  }
  Status Ran(Task<void> task) {
    return parts_.Run([](Task<void> inner) -> Task<Status> {
      co_await inner;
      co_return OkStatus();
    }(std::move(task)));
  }
  void ReadAll() { ASSERT_TRUE(Ran(batch_->ReadAll()).ok()); }
  void ReadEnough(const std::vector<size_t>& rows) {
    ASSERT_TRUE(Ran(batch_->ReadEnough(rows)).ok());
  }
  // Of a row that was written as a whole.
  [[nodiscard]] Bytes Wanted(uint32_t stripe, uint32_t index) const {
    const StripeIndex at(stripe);
    return index < parts_.g().k() ? parts_.latest.at(parts_.g().Chunk(at, index).value)
                                  : parts_.ParityOfLatest(at)[index - parts_.g().k()];
  }
  void ExpectChunk(size_t at, uint32_t index) {
    EXPECT_TRUE(
        std::ranges::equal(batch_->Chunk(at, index), Wanted(static_cast<uint32_t>(at), index)))
        << "row " << at << ", position " << index;
  }
  [[nodiscard]] uint64_t All() const { return (uint64_t{1} << parts_.g().n) - 1; }
  [[nodiscard]] uint64_t Blamed(DeviceIndex device) const {
    return parts_.core.members.counters(device).corrupt_chunks;
  }

  EngineParts parts_;  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
  std::unique_ptr<RowBatch> batch_ = std::make_unique<RowBatch>(parts_.core, reader_, kRows);
};

TEST_F(RowBatches, AnEmptyOneReadsNothing) {
  ReadAll();
  ReadEnough({});
  EXPECT_TRUE(parts_.Run(batch_->Write({})).ok());
  EXPECT_EQ(batch_->size(), 0U);
  EXPECT_EQ(parts_.ReadsOfSsds(), 0U);
}

TEST_F(RowBatches, WhatIsSideBySideIsOneRequest) {
  AddAll();
  ReadAll();
  EXPECT_EQ(parts_.ReadsOfSsds(), parts_.g().n) << "fresh stripes lie one behind the other";
  for (size_t at = 0; at < kRows; ++at) {
    EXPECT_EQ(batch_->row(at).valid, All());
    EXPECT_EQ(batch_->row(at).bad, 0U);
    EXPECT_EQ(batch_->WrongParity(at), 0U);
    for (uint32_t i = 0; i < parts_.g().n; ++i) {
      ExpectChunk(at, i);
    }
  }
  ReadAll();
  EXPECT_EQ(parts_.ReadsOfSsds(), parts_.g().n) << "what is here is not read again";
}

TEST_F(RowBatches, OnlyThesePositions) {
  AddAll(2);
  const std::vector<uint64_t> masks = {0b00001, 0b10010};
  ASSERT_TRUE(Ran(batch_->ReadThese(masks)).ok());
  EXPECT_EQ(batch_->row(0).valid, masks[0]);
  EXPECT_EQ(batch_->row(1).valid, masks[1]);
  ExpectChunk(1, 4);
}

TEST_F(RowBatches, ZerosAreThereUnread) {
  const StripeIndex empty(parts_.g().stripes - 1);
  batch_->Add(empty);
  ReadAll();
  EXPECT_EQ(batch_->row(0).valid, All());
  EXPECT_EQ(parts_.ReadsOfSsds(), 0U);
  EXPECT_EQ(batch_->WrongParity(0), 0U) << "the parity of zeros is zeros";
}

// One bad chunk takes nothing from its neighbours in the request.
TEST_F(RowBatches, EachChunkHasItsOwnOutcome) {
  const DeviceIndex ssd = parts_.g().SsdOf(StripeIndex(3), 1);
  parts_.RotRow(StripeIndex(3), 1);
  AddAll();
  ReadAll();
  for (size_t at = 0; at < kRows; ++at) {
    const uint64_t bad = at == 3 ? 0b00010 : 0;
    EXPECT_EQ(batch_->row(at).bad, bad) << at;
    EXPECT_EQ(batch_->row(at).valid, All() & ~bad) << at;
  }
  EXPECT_EQ(Blamed(ssd), 1U);
}

TEST_F(RowBatches, AnUnreadableSectorIsReadAroundAndIsNoWrongChunk) {
  const DeviceIndex ssd = parts_.g().SsdOf(StripeIndex(3), 1);
  const SlotWord word = parts_.core.state->rows.Get(StripeIndex(3), 1).word;
  parts_.faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead),
                          .from_then_on = true,
                          .range_offset_bytes = parts_.g().SlotOffset(word.slot()),
                          .range_length_bytes = kSectorBytes});
  AddAll();
  ReadAll();
  for (size_t at = 0; at < kRows; ++at) {
    EXPECT_EQ(batch_->row(at).bad, at == 3 ? 0b00010U : 0U) << at;
  }
  EXPECT_EQ(Blamed(ssd), 0U);
}

// A device that is not there has nothing wrong.
TEST_F(RowBatches, WhatIsMissingIsNeitherValidNorBad) {
  parts_.Lose(DeviceIndex(2));
  AddAll();
  ReadAll();
  for (uint32_t s = 0; s < kRows; ++s) {
    const uint64_t missing = uint64_t{1} << parts_.g().IndexOn(StripeIndex(s), DeviceIndex(2));
    EXPECT_EQ(batch_->row(s).bad, 0U);
    EXPECT_EQ(batch_->row(s).valid, All() & ~missing);
    EXPECT_TRUE(batch_->Decode(s, missing).ok());
    EXPECT_EQ(batch_->row(s).valid, All());
    ExpectChunk(s, parts_.g().IndexOn(StripeIndex(s), DeviceIndex(2)));
  }
}

// ---- what decoding takes

TEST_F(RowBatches, EnoughIsKPositionsOfTheSameSsds) {
  AddAll();
  ReadEnough({0, 2, 5});
  uint32_t ssds = 0;
  for (uint8_t i = 0; i < parts_.g().n; ++i) {
    ssds += parts_.counted(DeviceIndex(i)).reads != 0 ? 1 : 0;
  }
  EXPECT_EQ(ssds, parts_.g().k());
  for (size_t at = 0; at < kRows; ++at) {
    const bool asked = at == 0 || at == 2 || at == 5;
    EXPECT_EQ(std::popcount(batch_->row(at).valid), asked ? 3 : 0) << at;
  }
}

TEST_F(RowBatches, WhereSomeAreWrongOthersAreReadUntilItIsEnoughOrAll) {
  parts_.RotRow(StripeIndex(0), 0);
  parts_.RotRow(StripeIndex(0), 1);
  for (uint32_t i = 0; i < 3; ++i) {
    parts_.RotRow(StripeIndex(1), i);
  }
  AddAll(2);
  ReadEnough({0, 1});
  EXPECT_EQ(batch_->row(0).valid & 0b11100U, 0b11100U);
  ASSERT_TRUE(batch_->Decode(0, 0b00011).ok());
  ExpectChunk(0, 0);
  ExpectChunk(0, 1);
  EXPECT_EQ(batch_->row(1).valid, 0b11000U) << "there is no more";
  const Status beyond = batch_->Decode(1, 0b00001);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, ErrorCode::kTooManyFailures);
  EXPECT_EQ(batch_->row(1).valid, 0b11000U);
}

// The checksums of both are right: one of them was computed from something else.
TEST_F(RowBatches, ParityThatDoesNotMatchIsToldAndDecodesNothing) {
  const StripeIndex stripe(0);
  const DeviceIndex ssd = parts_.g().SsdOf(stripe, 3);
  RowWord word = parts_.core.state->rows.Get(stripe, 3);
  const Bytes other = parts_.NewContent();
  std::ranges::copy(other, parts_.SlotBytes(ssd, word.word).begin());
  word.crc = parts_.core.checksum(other);
  parts_.core.state->rows.Set(stripe, 3, word);
  AddAll(1);
  ReadAll();
  EXPECT_EQ(batch_->row(0).bad, 0U);
  EXPECT_EQ(batch_->WrongParity(0), 0b01000U);
  batch_->CountWrong(0, batch_->WrongParity(0));
  EXPECT_EQ(Blamed(ssd), 1U);

  // Of a data chunk and that parity.
  parts_.Rot(parts_.g().SsdOf(stripe, 0), parts_.core.state->rows.Get(stripe, 0).word);
  parts_.Rot(parts_.g().SsdOf(stripe, 4), parts_.core.state->rows.Get(stripe, 4).word);
  batch_ = std::make_unique<RowBatch>(parts_.core, reader_, 1);
  AddAll(1);
  ReadAll();
  EXPECT_EQ(batch_->WrongParity(0), 0U) << "not all data is here";
  const Status decoded = batch_->Decode(0, 0b00001);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(batch_->row(0).valid & 1U, 0U);
}

TEST_F(RowBatches, ParityAnewWithItsChecksums) {
  const Bytes wanted = Wanted(0, 4);
  parts_.RotRow(StripeIndex(0), 4);
  AddAll(1);
  ReadAll();
  ASSERT_EQ(batch_->row(0).bad, 0b10000U);
  batch_->EncodeParity(0, 0b10000);
  EXPECT_TRUE(std::ranges::equal(batch_->Chunk(0, 4), wanted));
  EXPECT_EQ(batch_->row(0).words[4].crc, parts_.core.checksum(wanted));
  EXPECT_EQ(batch_->row(0).valid, All());
  ExpectChunk(0, 3);  // the other one is left as it was
}

TEST_F(RowBatches, OnlyTheParityThatIsWantedIsMadeAnew) {
  const uint32_t crc = parts_.core.state->rows.Get(StripeIndex(0), 3).crc;
  RowWord word = parts_.core.state->rows.Get(StripeIndex(0), 3);
  word.crc = crc ^ 1;
  parts_.core.state->rows.Set(StripeIndex(0), 3, word);
  parts_.RotRow(StripeIndex(0), 4);
  AddAll(1);
  ReadAll();
  ASSERT_EQ(batch_->row(0).bad, 0b11000U);
  batch_->EncodeParity(0, 0b10000);
  EXPECT_EQ(batch_->row(0).valid, 0b10111U);
  EXPECT_EQ(batch_->row(0).words[3].crc, crc ^ 1);
  ExpectChunk(0, 4);
}

// ---- meanwhile

TEST_F(RowBatches, WhatWasAddedStaysAsItWas) {
  AddAll();
  const Bytes old = Wanted(0, 0);
  const SlotWord slot = parts_.core.state->rows.Get(StripeIndex(0), 0).word;
  parts_.WriteStripe(StripeIndex(0));
  parts_.MakeStable();
  EXPECT_TRUE(parts_.core.space.IsUsed(parts_.g().SsdOf(StripeIndex(0), 0), slot.slot()));
  ReadAll();
  EXPECT_EQ(batch_->row(0).valid, All());
  EXPECT_TRUE(std::ranges::equal(batch_->Chunk(0, 0), old));
  EXPECT_EQ(batch_->WrongParity(0), 0U);
  batch_.reset();
  EXPECT_FALSE(parts_.core.space.IsUsed(parts_.g().SsdOf(StripeIndex(0), 0), slot.slot()));
}

TEST_F(RowBatches, WhoJoinedSinceIsNotBlamed) {
  AddAll();
  parts_.Lose(DeviceIndex(1));
  parts_.Join(DeviceIndex(1));
  ReadAll();
  EXPECT_EQ(Blamed(DeviceIndex(1)), 0U);
  for (uint32_t s = 0; s < kRows; ++s) {
    EXPECT_TRUE(batch_->Decode(s, All()).ok());
  }
}

// ---- writing

TEST_F(RowBatches, ChunksToNewSlotsInOneRequestWhereTheseAreSideBySide) {
  AddAll();
  ReadAll();
  std::vector<RowBatch::Place> places;
  const DeviceIndex ssd(0);
  for (size_t at = kRows; at-- != 0;) {
    const uint32_t index = parts_.g().IndexOn(StripeIndex(static_cast<uint32_t>(at)), ssd);
    places.push_back({at, index, ssd, SlotIndex(200 + static_cast<uint32_t>(at))});
  }
  parts_.ResetCounters();
  ASSERT_TRUE(parts_.Run(batch_->Write(places)).ok());
  EXPECT_EQ(parts_.counted(ssd).writes, 1U);
  EXPECT_EQ(parts_.core.traffic.ssd_repair_bytes, uint64_t{kRows} * parts_.g().chunk_bytes);
  for (const RowBatch::Place& place : places) {
    const auto got = parts_.SlotBytes(ssd, SlotWord::At(place.slot));
    EXPECT_TRUE(std::ranges::equal(got, batch_->Chunk(place.at, place.index)));
  }
}

// Who has joined since the slots were taken has given them to others.
TEST_F(RowBatches, NothingToASuccessorOfTheDeviceThatItWasFor) {
  AddAll(2);
  ReadAll();
  const StatesNumber before = parts_.core.devices().number();
  const auto place = [&](uint8_t ssd, StatesNumber states) {
    return RowBatch::Place{0, parts_.g().IndexOn(StripeIndex(0), DeviceIndex(ssd)),
                           DeviceIndex(ssd), SlotIndex(300), states};
  };
  parts_.Lose(DeviceIndex(0));
  parts_.Join(DeviceIndex(0));
  parts_.ResetCounters();
  ASSERT_TRUE(parts_.Run(batch_->Write({place(0, before), place(1, before)})).ok());
  EXPECT_EQ(parts_.counted(DeviceIndex(1)).writes, 1U) << "it has been there all the time";
  EXPECT_EQ(parts_.core.traffic.ssd_repair_bytes, parts_.g().chunk_bytes);
  ASSERT_TRUE(parts_.Run(batch_->Write({place(0, parts_.core.devices().number())})).ok());
  EXPECT_EQ(parts_.core.traffic.ssd_repair_bytes, 2 * parts_.g().chunk_bytes);
}

TEST_F(RowBatches, TheLossOfADeviceIsNoErrorAndLackOfSpaceBelowIsOne) {
  AddAll(2);
  ReadAll();
  const auto place = [&](uint8_t ssd) {
    return RowBatch::Place{0, parts_.g().IndexOn(StripeIndex(0), DeviceIndex(ssd)),
                           DeviceIndex(ssd), SlotIndex(300)};
  };
  parts_.faulty(DeviceIndex(0)).Add({.kinds = MaskOf(RequestKind::kWrite)});
  EXPECT_TRUE(parts_.Run(batch_->Write({place(0), place(1)})).ok());
  EXPECT_FALSE(parts_.core.members.live(DeviceIndex(0)));
  EXPECT_EQ(parts_.core.traffic.ssd_repair_bytes, parts_.g().chunk_bytes);
  parts_.faulty(DeviceIndex(2))
      .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  const Status full = parts_.Run(batch_->Write({place(1), place(2)}));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace eplog
