// Chunks of rows to new slots: what is wrong stays as it is until its successor is described, slots
// that commits may need are left to them, and what comes to nothing leaves nothing behind.
#include "engine/repair/row_mender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/log/admission.h"
#include "engine/read/chunk_reader.h"
#include "engine/read/row_batch.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kRows = 4;

class RowMenders : public ::testing::Test {
 protected:
  using Bytes = EngineParts::Bytes;
  using Masks = std::vector<uint64_t>;

  RowMenders() {
    for (uint32_t s = 0; s < kRows; ++s) {
      parts_.WriteStripe(StripeIndex(s));
    }
    applied_ = Applied();
  }
  static uint64_t Bit(uint32_t index) { return uint64_t{1} << index; }
  [[nodiscard]] const Geometry& g() const { return parts_.g(); }
  [[nodiscard]] uint64_t Applied() const { return parts_.appender.applied().sequence; }
  [[nodiscard]] uint32_t Free(DeviceIndex ssd) const { return parts_.core.space.free(ssd); }
  [[nodiscard]] RowWord Word(uint32_t stripe, uint32_t index) const {
    return parts_.core.state->rows.Get(StripeIndex(stripe), index);
  }
  [[nodiscard]] DeviceIndex SsdOf(uint32_t stripe, uint32_t index) const {
    return g().SsdOf(StripeIndex(stripe), index);
  }
  Bytes Held(uint32_t stripe, uint32_t index, SlotWord word) {
    const auto bytes = parts_.SlotBytes(SsdOf(stripe, index), word);
    return {bytes.begin(), bytes.end()};
  }
  // These positions of the rows become wrong, and the batch has them as they should be.
  void ReadWith(const Masks& wrong) {
    for (uint32_t s = 0; s < wrong.size(); ++s) {
      for (uint64_t mask = wrong[s]; mask != 0; mask &= mask - 1) {
        parts_.RotRow(StripeIndex(s), static_cast<uint32_t>(std::countr_zero(mask)));
      }
    }
    Read(*batch_);
    states_ = parts_.core.devices().number();
    for (uint32_t s = 0; s < wrong.size(); ++s) {
      ASSERT_EQ(batch_->row(s).bad, wrong[s]) << s;
      ASSERT_TRUE(batch_->Decode(s, wrong[s]).ok()) << s;
    }
  }
  void Read(RowBatch& batch) {
    for (uint32_t s = 0; s < kRows; ++s) {
      batch.Add(StripeIndex(s));
    }
    const Status read = parts_.Run([](Task<void> inner) -> Task<Status> {
      co_await inner;
      co_return OkStatus();
    }(batch.ReadAll()));
    ASSERT_TRUE(read.ok());
  }
  Result<uint64_t> Mend(const Masks& masks, Grant* granted = nullptr) {
    return parts_.Run(mender_.Mend(*batch_, masks, states_, granted));
  }
  // So many slots of an SSD are left free.
  void LeaveFree(DeviceIndex ssd, uint32_t count) {
    while (Free(ssd) > count) {
      static_cast<void>(parts_.core.space.Claim(ssd));
    }
  }

  EngineParts parts_;  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
  RowMender mender_{parts_.core, parts_.appender};
  std::unique_ptr<RowBatch> batch_ = std::make_unique<RowBatch>(parts_.core, reader_, kRows);
  uint64_t states_ = 0;
  uint64_t applied_ = 0;
};

TEST_F(RowMenders, WhatIsWrongGoesToANewSlotOfItsSsd) {
  const Masks wrong = {Bit(0), Bit(1) | Bit(4), Bit(3), 0};
  ReadWith(wrong);
  std::vector<std::vector<RowWord>> words(kRows);
  std::vector<std::vector<Bytes>> held(kRows);
  std::map<uint8_t, uint32_t> free;
  for (uint32_t s = 0; s < kRows; ++s) {
    for (uint32_t i = 0; i < g().n; ++i) {
      words[s].push_back(Word(s, i));
      held[s].push_back(Held(s, i, Word(s, i).word));
      free[SsdOf(s, i).value] = Free(SsdOf(s, i));
    }
  }
  const Result<uint64_t> mended = Mend(wrong);
  ASSERT_TRUE(mended.ok()) << mended.error().ToString();
  EXPECT_EQ(*mended, 4U);
  for (uint32_t s = 0; s < kRows; ++s) {
    for (uint32_t i = 0; i < g().n; ++i) {
      SCOPED_TRACE("stripe " + std::to_string(s) + ", position " + std::to_string(i));
      EXPECT_TRUE(Held(s, i, words[s][i].word) == held[s][i]) << "nothing is written in place";
      if ((wrong[s] & Bit(i)) == 0) {
        EXPECT_EQ(Word(s, i), words[s][i]);
        continue;
      }
      EXPECT_TRUE(Word(s, i).word.has_slot());
      EXPECT_FALSE(Word(s, i).word == words[s][i].word);
      EXPECT_EQ(Word(s, i).crc, words[s][i].crc);
      --free[SsdOf(s, i).value];
    }
  }
  for (const auto& [ssd, count] : free) {
    EXPECT_EQ(Free(DeviceIndex(ssd)), count) << "what was wrong is not free at once";
  }
  RowBatch again(parts_.core, reader_, kRows);
  Read(again);
  for (uint32_t s = 0; s < kRows; ++s) {
    EXPECT_EQ(again.row(s).bad, 0U) << s;
    EXPECT_EQ(again.WrongParity(s), 0U) << s;
  }
}

// It is a new place for what the row says, and no newer version of anything.
TEST_F(RowMenders, WhatIsPendingStaysPending) {
  const ChunkIndex chunk = parts_.Chunk(1, 2);
  const uint64_t logged = parts_.Log({chunk});
  ReadWith({0, Bit(2)});
  const RowWord word = Word(1, 2);
  const RowWord word_of_other = Word(0, 2);
  const Result<uint64_t> mended = Mend({0, Bit(2), 0, 0});
  ASSERT_TRUE(mended.ok()) << mended.error().ToString();
  EXPECT_EQ(*mended, 1U);
  EXPECT_FALSE(Word(1, 2) == word);
  EXPECT_EQ(Word(0, 2), word_of_other);
  const auto pending = parts_.core.state->pending.Find(chunk);
  ASSERT_TRUE(pending);
  EXPECT_EQ(pending->version, logged);
  EXPECT_EQ(Applied(), logged + 1);
}

// Rows that cannot be decoded are asked for nothing, and so nothing of them is described.
TEST_F(RowMenders, ARowOfWhichNothingIsMendedIsNotDescribed) {
  ReadWith({});
  const Result<uint64_t> mended = Mend(Masks(kRows));
  ASSERT_TRUE(mended.ok()) << mended.error().ToString();
  EXPECT_EQ(*mended, 0U);
  EXPECT_EQ(Applied(), applied_);
}

// What is left out stays as it was: its turn comes again.
TEST_F(RowMenders, TheLastSlotsAreLeftToCommits) {
  const DeviceIndex ssd(1);
  const uint64_t first = Bit(g().IndexOn(StripeIndex(0), ssd));
  const uint32_t index = g().IndexOn(StripeIndex(1), ssd);
  ReadWith({first, Bit(index)});
  const RowWord word = Word(1, index);
  LeaveFree(ssd, g().commit_width() + 1);
  const Result<uint64_t> mended = Mend({first, Bit(index), 0, 0});
  ASSERT_TRUE(mended.ok()) << mended.error().ToString();
  EXPECT_EQ(*mended, 1U);
  EXPECT_EQ(Free(ssd), g().commit_width());
  EXPECT_EQ(Word(1, index), word);
  const uint64_t applied = Applied();
  const Result<uint64_t> again = Mend({0, Bit(index), 0, 0});
  ASSERT_TRUE(again.ok()) << again.error().ToString();
  EXPECT_EQ(*again, 0U);
  EXPECT_EQ(Free(ssd), g().commit_width());
  EXPECT_EQ(Word(1, index), word);
  EXPECT_EQ(Applied(), applied);
}

TEST_F(RowMenders, WithAGrantItsSlotsAreTakenAndNoOthers) {
  const uint32_t with = 0;
  const uint32_t without = 3;
  const uint64_t both = Bit(with) | Bit(without);
  ReadWith({both});
  const RowWord word = Word(0, without);
  const DeviceIndex ssd = SsdOf(0, with);
  const DeviceIndex other = SsdOf(0, without);
  const uint32_t free_on_other = Free(other);
  {
    Grant grant(parts_.admission);
    const Admission::Need need{
        .ssds = EngineParts::MaskOf(ssd), .owing = 0, .blocks = RowMender::Blocks(1, g().n)};
    ASSERT_TRUE(parts_.admission.TryAdmit(grant, need));
    LeaveFree(ssd, g().commit_width());  // none that is to spare
    const Result<uint64_t> mended = Mend({both, 0, 0, 0}, &grant);
    ASSERT_TRUE(mended.ok()) << mended.error().ToString();
    EXPECT_EQ(*mended, 1U);
    EXPECT_FALSE(grant.Holds(ssd));
  }
  EXPECT_EQ(Free(ssd), g().commit_width()) << "it is in use and not given back";
  EXPECT_EQ(Free(other), free_on_other);
  EXPECT_EQ(Word(0, without), word);
}

// Neither the one that has changed nor any other keeps a slot of it.
TEST_F(RowMenders, NothingIsTakenWhereDevicesHaveChangedSinceTheRowsWereRead) {
  const DeviceIndex replaced = SsdOf(0, 1);
  const DeviceIndex other = SsdOf(0, 4);
  ReadWith({Bit(1) | Bit(4)});
  const RowWord word = Word(0, 4);
  parts_.Lose(replaced);
  parts_.Join(replaced);
  ASSERT_EQ(Free(replaced), g().slots);
  const uint32_t free = Free(other);
  const Result<uint64_t> mended = Mend({Bit(1) | Bit(4), 0, 0, 0});
  ASSERT_FALSE(mended.ok());
  EXPECT_EQ(mended.error().code, ErrorCode::kBusy);
  EXPECT_EQ(Free(replaced), g().slots);
  EXPECT_EQ(Free(other), free);
  EXPECT_TRUE(Word(0, 1).word.is_absent());
  EXPECT_EQ(Word(0, 4), word);
  EXPECT_EQ(Applied(), applied_);
}

// One that fails while it is written to is lost, and what was meant for the others is not described
// under states that are past.
TEST_F(RowMenders, AnSsdThatIsLostMeanwhileTakesNoSlotAlong) {
  const DeviceIndex failing = SsdOf(0, 1);
  const DeviceIndex other = SsdOf(0, 4);
  ReadWith({Bit(1) | Bit(4)});
  const uint32_t free = Free(other);
  parts_.faulty(failing).Add({.kinds = MaskOf(RequestKind::kWrite)});
  const Result<uint64_t> mended = Mend({Bit(1) | Bit(4), 0, 0, 0});
  EXPECT_FALSE(parts_.core.members.live(failing));
  ASSERT_FALSE(mended.ok());
  EXPECT_EQ(mended.error().code, ErrorCode::kBusy);
  EXPECT_EQ(Free(other), free);
  EXPECT_EQ(Applied(), applied_);
  EXPECT_TRUE(parts_.core.Running().ok());
}

// No room below is no loss of a device: then nothing more can be relied on.
TEST_F(RowMenders, NoRoomBelowStopsTheArray) {
  ReadWith({Bit(2)});
  const RowWord word = Word(0, 2);
  parts_.faulty(SsdOf(0, 2))
      .Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace, .errno_value = 28});
  const Result<uint64_t> mended = Mend({Bit(2), 0, 0, 0});
  ASSERT_FALSE(mended.ok());
  EXPECT_EQ(mended.error().code, ErrorCode::kNoSpace);
  EXPECT_FALSE(parts_.core.Running().ok());
  EXPECT_TRUE(parts_.core.members.live(SsdOf(0, 2)));
  EXPECT_EQ(Word(0, 2), word);
  EXPECT_EQ(Applied(), applied_);
}

}  // namespace
}  // namespace eplog
