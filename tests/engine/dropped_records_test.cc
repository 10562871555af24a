// Records at the end of the log that are not whole: they are dropped alone, what is whole of them
// is written again, nothing newer is undone by that, and what is lost is told to the chunk (I8).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripes = 40;

using Bytes = std::vector<std::byte>;

class DroppedRecords : public ::testing::Test {
 protected:
  void Make(uint32_t n = 4, uint32_t m = 1) {
    told_.clear();
    ArrayShape shape;
    shape.n = n;
    shape.m = m;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    // So that a kill comes before the mark that follows a flush is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.on_event = [this](const ArrayEvent& event) {
      if (event.kind == EventKind::kWritesDropped) {
        told_ += event.text;
      }
    };
    k_ = n - m;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kStripes * k_ * kChunk);
    model_.assign(kStripes * k_, Bytes(kChunk));
    Write(0, 20 * k_);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    ASSERT_NO_FATAL_FAILURE(Look());
    before_ = entries_.empty() ? 0 : entries_.back().sequence;
  }
  void Write(uint64_t first, uint64_t count) {
    const Bytes data = RandomBytes(random_, count * kChunk);
    ASSERT_TRUE(test_->Write(volume_, first * kChunk, data).ok());
    for (uint64_t i = 0; i < count; ++i) {
      const auto from = data.begin() + static_cast<std::ptrdiff_t>(i * kChunk);
      model_[first + i].assign(from, from + kChunk);
    }
  }
  void Trim(uint64_t first, uint64_t count, TrimMode mode = TrimMode::kZero) {
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume_, first * kChunk, count * kChunk, mode))
            .ok());
    for (uint64_t i = 0; i < count; ++i) {
      model_[first + i].assign(kChunk, std::byte{0});
    }
  }
  // What is in the log.
  void Look() {
    superblock_ = Superblock();
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found =
          DecodeSuperblock(test_->memory(0).bytes().subspan(offset, kSuperblockCopyBytes));
      superblock_ = found.ok() && found->generation > superblock_.generation ? *found : superblock_;
    }
    entries_.clear();
    for (uint64_t place = 0; place < g().log_blocks; ++place) {
      const auto entry =
          DecodeEntryHeader(test_->memory(g().n).bytes().subspan(g().LogOffset(place), kBlockBytes),
                            superblock_.array_uuid, g());
      if (entry.ok() && entry->place == place) {
        entries_.push_back(*entry);
      }
    }
  }
  [[nodiscard]] const Geometry& g() const { return superblock_.geometry; }
  void Kill() {
    test_->Kill();
    ASSERT_NO_FATAL_FAILURE(Look());
    const auto newest = [&] {
      uint64_t mark = 0;
      for (const EntryHeader& entry : entries_) {
        mark = std::max(mark, entry.mark);
      }
      return mark;
    };
    ASSERT_LE(newest(), before_) << "a mark covers it, and nothing is judged";
    std::erase_if(entries_, [&](const EntryHeader& entry) {
      return entry.sequence <= before_ || (entry.rows.empty() && entry.log_stripes.empty());
    });
    ASSERT_FALSE(entries_.empty());
  }
  void Flip(uint32_t device, uint64_t offset) {
    test_->memory(device).bytes()[offset + 77] ^= std::byte{1};
  }
  void SpoilRow(const EntryHeader& entry, const std::vector<uint32_t>& positions) {
    ASSERT_EQ(entry.rows.size(), 1U);
    for (const RowChange& change : entry.rows[0].changes) {
      if (std::find(positions.begin(), positions.end(), change.index) != positions.end()) {
        Flip(g().SsdOf(entry.rows[0].stripe, change.index).value,
             g().SlotOffset(change.word.slot()));
      }
    }
  }
  // Members by their number, then the log chunk.
  void SpoilLogStripe(const EntryHeader& entry, const std::vector<size_t>& positions) {
    ASSERT_EQ(entry.log_stripes.size(), 1U);
    const auto& members = entry.log_stripes[0].members;
    for (const size_t i : positions) {
      if (i < members.size()) {
        Flip(g().SsdOf(members[i].chunk).value, g().SlotOffset(members[i].word.slot()));
      } else {
        Flip(static_cast<uint32_t>(g().n + i - members.size()), g().LogOffset(entry.place + 1));
      }
    }
  }
  void ExpectContent() {
    for (uint64_t i = 0; i < model_.size(); ++i) {
      EXPECT_TRUE(test_->Read(volume_, i * kChunk, kChunk) == model_[i]) << "chunk " << i;
    }
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
  }
  // Seen by all openings, and told by those that find it.
  void ExpectAfterOpening(const std::string& told, uint64_t dropped, uint64_t salvaged) {
    test_->Open(/*read_only=*/true);
    ASSERT_NE(test_->array, nullptr);
    EXPECT_EQ(told_, told);
    ExpectContent();
    ASSERT_TRUE(test_->Close().ok());
    told_.clear();
    const EngineHooks before = test_->hooks();
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    EXPECT_EQ(told_, told);
    EXPECT_EQ(test_->hooks().recovery_dropped - before.recovery_dropped, dropped);
    EXPECT_EQ(test_->hooks().recovery_salvaged - before.recovery_salvaged, salvaged);
    EXPECT_EQ(test_->array->GetStatus().unstable_bytes, 0U) << "what is written again is durable";
    ExpectContent();
    test_->Kill();
    told_.clear();
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    EXPECT_EQ(told_, "") << "only once";
    ExpectContent();
  }
  static std::string Told(uint64_t chunks, uint64_t entries) {
    return std::to_string(chunks) + " chunks (" + std::to_string(chunks * kChunk) +
           " bytes), written in " + std::to_string(entries) +
           " entries of the log when the array last stopped, are not whole on the devices and read "
           "as before; no flush had covered them, unless more is damaged than parity can replace";
  }

  Random random_{41};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  uint64_t k_ = 0;
  uint64_t before_ = 0;  // the newest entry that is stable
  std::vector<Bytes> model_;
  Superblock superblock_;
  std::vector<EntryHeader> entries_;  // since then
  std::string told_;
};

TEST_F(DroppedRecords, WhatIsWholeOfALogStripeIsWrittenAgain) {
  for (const bool log_too : {false, true}) {
    Make();
    const std::vector<Bytes> old = model_;
    Write(5 * k_, 2);
    ASSERT_NO_FATAL_FAILURE(Kill());
    ASSERT_EQ(entries_.size(), 1U);
    // One of its chunks and its log chunk, or both chunks.
    SpoilLogStripe(entries_[0], log_too ? std::vector<size_t>{0, 2} : std::vector<size_t>{0, 1});
    model_[5 * k_] = old[5 * k_];
    model_[5 * k_ + 1] = log_too ? model_[5 * k_ + 1] : old[5 * k_ + 1];
    ExpectAfterOpening(Told(log_too ? 1 : 2, 1), 1, log_too ? 1 : 0);
  }
}

TEST_F(DroppedRecords, WhatIsWholeOfAStripeIsWrittenAgain) {
  Make(5, 2);
  const std::vector<Bytes> old = model_;
  Write(5 * k_, k_);
  Write(7 * k_, k_);
  Write(30 * k_, k_);
  ASSERT_NO_FATAL_FAILURE(Kill());
  ASSERT_EQ(entries_.size(), 3U);
  SpoilRow(entries_[0], {0, 2, 4});
  SpoilRow(entries_[1], {1, 3});  // can be decoded
  SpoilRow(entries_[2], {1, 2, 3});
  for (const uint64_t lost : {5 * k_, 5 * k_ + 2, 30 * k_ + 1, 30 * k_ + 2}) {
    model_[lost] = old[lost];
  }
  ExpectAfterOpening(Told(4, 2), 2, 2);
}

TEST_F(DroppedRecords, WhereNothingIsLostNothingIsTold) {
  Make();
  Write(5 * k_, 2);
  Write(7 * k_, k_);
  ASSERT_NO_FATAL_FAILURE(Kill());
  ASSERT_EQ(entries_.size(), 2U);
  SpoilLogStripe(entries_[0], {1});
  SpoilRow(entries_[1], {3});
  ExpectAfterOpening("", 0, 0);
}

// Of a log stripe that was dropped chunk 1 is whole. What came after it stands, whatever it was,
// and no more than what it touches.
TEST_F(DroppedRecords, NothingNewerIsOverwrittenByWhatIsWrittenAgain) {
  const uint64_t stripe = 5;
  const std::vector<std::function<void()>> later = {
      [&] { Write(stripe * k_ + 1, 1); },
      [&] { Write(stripe * k_, k_); },
      [&] { Trim(stripe * k_ + 1, 1); },
      [&] { Trim(stripe * k_, k_); },
      [&] { Trim((stripe - 1) * k_, 3 * k_); },
      [&] { Trim(stripe * k_ + 2, 1); },
      [&] { Trim((stripe - 1) * k_, k_); },
      [&] { Trim((stripe + 1) * k_, k_); },
      [&] { Write((stripe - 1) * k_, k_); },
      [&] { Write((stripe + 1) * k_, k_); },
      [&] { Write(stripe * k_ + 2, 1); },
      [&] { Trim(0, kStripes * k_, TrimMode::kPunch); }};  // its extents go back
  for (size_t i = 0; i < later.size(); ++i) {
    SCOPED_TRACE(i);
    Make();
    const Bytes old = model_[stripe * k_];
    Write(stripe * k_, 2);
    const Bytes torn = model_[stripe * k_];
    later[i]();
    ASSERT_NO_FATAL_FAILURE(Kill());
    SpoilLogStripe(entries_[0], {0, 2});
    if (model_[stripe * k_] == torn) {
      model_[stripe * k_] = old;
    }
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    ExpectContent();
    test_->Kill();
    test_->Open();
    ExpectContent();
  }
}

// What comes after a stripe that is dropped builds upon it, but for what says the whole stripe.
TEST_F(DroppedRecords, AWriteOfTheWholeStripeStandsWhateverWasDroppedBefore) {
  for (const uint64_t times : {1U, 2U}) {
    Make();
    for (uint64_t i = 0; i < times; ++i) {
      Write(5 * k_, k_);
    }
    Write(5 * k_, k_);
    ASSERT_NO_FATAL_FAILURE(Kill());
    ASSERT_EQ(entries_.size(), times + 1);
    for (uint64_t i = 0; i < times; ++i) {
      SpoilRow(entries_[i], {0, 1});
    }
    test_->Open(/*read_only=*/true);
    ASSERT_NE(test_->array, nullptr);
    ExpectContent();
    ASSERT_TRUE(test_->Close().ok());
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    ExpectContent();
    test_->Kill();
    test_->Open();
    ExpectContent();
  }
}

}  // namespace
}  // namespace eplog
