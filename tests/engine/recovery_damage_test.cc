// Damage that an opening meets beside the end of the log: what it does not touch reads as it was
// flushed, and what was written last and cannot be kept is told (P2, P7, I8).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

using Bytes = std::vector<std::byte>;

class RecoveryDamage : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m, uint64_t commit_idle_us = 0) {
    ArrayShape shape;
    shape.commit.idle_us = commit_idle_us;
    // So that a kill comes before the mark that follows a flush is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.n = n;
    shape.m = m;
    shape.ssd_bytes = uint64_t{2} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    n_ = n;
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", kChunks * kChunk);
    model_.assign(kChunks, Bytes(kChunk));
  }
  // One request; as many chunks as `count`.
  void Write(uint64_t first, uint64_t count = 1) {
    const Bytes data = RandomBytes(random_, count * kChunk);
    ASSERT_TRUE(test_->Write(volume_, first * kChunk, data).ok());
    for (uint64_t i = 0; i < count; ++i) {
      const auto from = data.begin() + static_cast<std::ptrdiff_t>(i * kChunk);
      model_[first + i].assign(from, from + kChunk);
    }
  }
  void Flush() { ASSERT_TRUE(test_->Flush().ok()); }
  void Commit() { ASSERT_TRUE(test_->Commit().ok()); }

  // Everything that the devices have, to begin again from.
  void Keep() {
    test_->Kill();
    kept_.clear();
    for (uint32_t i = 0; i < n_ + 1; ++i) {
      const auto bytes = test_->memory(i).bytes();
      kept_.emplace_back(bytes.begin(), bytes.end());
    }
  }
  void PutBack() {
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      std::copy(kept_[i].begin(), kept_[i].end(), test_->memory(i).bytes().begin());
    }
  }
  // Where a chunk with this content lies: device and offset. Every chunk is written once only.
  std::pair<uint32_t, uint64_t> Find(const Bytes& content) const {
    for (uint32_t i = 0; i < n_; ++i) {
      for (uint64_t at = 0; at + kChunk <= kept_[i].size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       kept_[i].begin() + static_cast<std::ptrdiff_t>(at))) {
          return {i, at};
        }
      }
    }
    ADD_FAILURE() << "a chunk is nowhere";
    return {0, 0};
  }
  void Rot(std::pair<uint32_t, uint64_t> place) {
    test_->memory(place.first).bytes()[place.second + 100] ^= std::byte{1};
  }
  void Open(uint32_t without) {
    told_.clear();
    OpenOptions options;
    options.entropy = ++lives_;
    options.auto_commit = false;
    options.on_event = [this](const ArrayEvent& event) {
      if (event.kind == EventKind::kWritesDropped) {
        told_ += event.text;
      }
    };
    std::vector<Device*> devices = test_->Devices();
    if (without < devices.size()) {
      devices.erase(devices.begin() + without);
    }
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  // Chunks that cannot be read, and those that read as something else than was written last.
  struct Outcome {
    uint64_t unreadable = 0;
    uint64_t older = 0;
  };
  Outcome Compare() {
    Outcome outcome;
    for (uint64_t i = 0; i < kChunks; ++i) {
      Buffer buffer = test_->pool.Get(kChunk);
      const Status read =
          RunTask(test_->loop, test_->array->Read(volume_, i * kChunk, buffer.span()));
      if (!read.ok()) {
        ++outcome.unreadable;
      } else if (!std::equal(model_[i].begin(), model_[i].end(), buffer.data())) {
        ++outcome.older;
      }
    }
    return outcome;
  }

  static constexpr uint64_t kChunks = 60;
  Random random_{5};
  uint32_t n_ = 0;
  uint64_t lives_ = 100;
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<Bytes> model_;
  std::vector<Bytes> kept_;
  std::string told_;
};

// The commit, in the background, is the newest entry but five, and an opening verifies it. What it
// finds wrong there is a chunk that the commit left alone, long flushed: no reason to take anything
// back.
TEST_F(RecoveryDamage, AnOldChunksRotTakesBackNoFlushedWrite) {
  Make(3, 1, 10'000);
  Write(0, kChunks);
  Flush();
  Commit();
  Write(10);
  Flush();
  test_->Sleep(100'000);
  ASSERT_EQ(test_->array->GetStatus().pending_chunks, 0U);
  for (const uint64_t chunk : {20U, 25U, 31U, 36U, 42U}) {
    Write(chunk);
  }
  Flush();
  Keep();
  const auto untouched = Find(model_[11]);  // of the same stripe
  for (uint32_t without = 0; without < n_ + 2; ++without) {
    if (without == untouched.first) {
      continue;
    }
    SCOPED_TRACE("without " + std::to_string(without));
    PutBack();
    Rot(untouched);
    Open(without);
    const Outcome outcome = Compare();
    EXPECT_EQ(outcome.older, 0U);
    EXPECT_LE(outcome.unreadable, without < n_ ? 1U : 0U) << "the rotten chunk itself";
    EXPECT_EQ(told_, "") << "a commit that is not kept changes no content";
    test_->Kill();
  }
}

// One chunk anywhere rots, and one device is missing: more than parity replaces where both meet, in
// a row or in a log stripe, and nothing anywhere else. Whole stripes, commits and log stripes are
// all beyond the newest mark.
TEST_F(RecoveryDamage, RotBesideALossTakesNothingElse) {
  Make(4, 1);
  Write(0, kChunks);
  Flush();
  Commit();
  for (const uint64_t chunk : {4U, 7U, 11U, 30U}) {
    Write(chunk);
  }
  Flush();
  Commit();
  for (const uint64_t chunk : {20U, 7U, 31U, 36U, 42U, 50U}) {
    Write(chunk);
  }
  Write(12, 6);
  Write(51, 2);
  Flush();
  Keep();
  uint64_t harmed = 0;
  for (uint64_t rotten = 0; rotten < kChunks; ++rotten) {
    for (uint32_t without = 0; without < n_ + 1; ++without) {
      SCOPED_TRACE("chunk " + std::to_string(rotten) + " without " + std::to_string(without));
      PutBack();
      const auto place = Find(model_[rotten]);
      if (place.first == without || rotten % 3 != 0) {
        continue;
      }
      Rot(place);
      Open(without);
      const Outcome outcome = Compare();
      ASSERT_LE(outcome.unreadable + outcome.older, 2U);
      if (outcome.older != 0) {
        ASSERT_NE(told_, "");
      }
      harmed += outcome.unreadable + outcome.older != 0 ? 1 : 0;
      // And it stays so.
      test_->Kill();
      Open(without);
      const Outcome again = Compare();
      ASSERT_EQ(again.unreadable + again.older, outcome.unreadable + outcome.older);
      test_->Kill();
    }
  }
  EXPECT_GT(harmed, 0U);
}

// What is stable has m + 1 copies of its header: here on the log device and on one ring. An opening
// that cannot read a ring, or finds a block of it damaged, must not write over what it does not
// know, and sees to it that the log device can be lost afterwards.
class RingDamage : public RecoveryDamage {
 protected:
  // Entries that were flushed one by one, and what the devices have of them is kept.
  void KeepFlushedEntries() {
    Make(2, 1);
    Write(0, 8);
    for (uint64_t chunk = 8; chunk < 14; ++chunk) {
      Write(chunk);
      Flush();
    }
    test_->Sleep(100'000);
    Keep();
    const auto superblock = DecodeSuperblock(
        std::span(kept_[0]).subspan(kSuperblockCopyOffset[0], kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    superblock_ = *superblock;
  }
  // All that was flushed, and nothing was dropped.
  void ExpectWholeWithoutTheLog() {
    Open(/*without=*/n_);
    const Outcome outcome = Compare();
    EXPECT_EQ(outcome.unreadable, 0U);
    EXPECT_EQ(outcome.older, 0U);
    EXPECT_EQ(told_, "");
    test_->Kill();
  }
  // The ring is as good as given back: nothing is known of it.
  void LoseTheLogAfter(const std::function<void(uint32_t ssd, const Geometry& geometry)>& harm,
                       const std::function<void(uint32_t ssd)>& mend) {
    KeepFlushedEntries();
    for (uint32_t ssd = 0; ssd < n_; ++ssd) {
      SCOPED_TRACE("ssd" + std::to_string(ssd));
      PutBack();
      harm(ssd, superblock_.geometry);
      Open(/*without=*/99);
      mend(ssd);
      Write(20 + ssd);
      Flush();
      const Outcome then = Compare();
      EXPECT_EQ(then.unreadable + then.older, 0U);
      test_->Kill();
      ExpectWholeWithoutTheLog();
      model_[20 + ssd].assign(kChunk, std::byte{0});
    }
  }

  Superblock superblock_;
};

// Of a ring some blocks cannot be read that nobody needs, and the log is lost: all headers are there.
TEST_F(RingDamage, ABlockThatCannotBeReadHidesNoOther) {
  KeepFlushedEntries();
  const Geometry& g = superblock_.geometry;
  uint64_t unneeded = 0;
  for (uint64_t block = 0; block < g.ring_blocks; ++block) {
    for (uint8_t ssd = 0; ssd < n_; ++ssd) {
      const auto bytes = std::span(kept_[ssd]).subspan(g.RingOffset(block), kBlockBytes);
      if (DecodeRingBlock(bytes, superblock_.array_uuid, g, DeviceIndex(ssd)).ok()) {
        continue;
      }
      ++unneeded;
      test_->faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead),
                              .from_then_on = true,
                              .range_offset_bytes = g.RingOffset(block),
                              .range_length_bytes = kBlockBytes});
    }
  }
  ASSERT_GT(unneeded, 0U);
  ExpectWholeWithoutTheLog();
}

TEST_F(RingDamage, WhatCouldNotBeReadIsNotWrittenOver) {
  LoseTheLogAfter(
      [this](uint32_t ssd, const Geometry& geometry) {
        test_->faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead),
                                .from_then_on = true,
                                .range_offset_bytes = geometry.ring_offset_bytes,
                                .range_length_bytes = geometry.ring_blocks * kBlockBytes});
      },
      [this](uint32_t ssd) { test_->faulty(ssd).Clear(); });
}

TEST_F(RingDamage, WhatRottedIsKnownElsewhereAfterwards) {
  LoseTheLogAfter(
      [this](uint32_t ssd, const Geometry& geometry) {
        for (uint64_t block = 0; block < geometry.ring_blocks; ++block) {
          Rot({ssd, geometry.RingOffset(block)});
        }
      },
      [](uint32_t /*ssd*/) {});
}

}  // namespace
}  // namespace eplog
