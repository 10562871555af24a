// A record beyond the newest mark of which too much is missing to tell anything. It may have been
// flushed, and bringing back a device may save it: nobody drops it unasked. Where no more is
// missing than parity replaces, what is wrong of it besides was never whole: it is dropped (I8).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eplog/report.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kData = kSsdCount - kParity;
constexpr uint64_t kSize = 40 * kData * kChunk;
constexpr uint64_t kFirst = 5 * kData;  // of the chunks that the record is about

using Bytes = std::vector<std::byte>;

class UnverifiableRecord : public ::testing::Test {
 protected:
  // So many chunks are written, and nothing is flushed.
  void Make(uint64_t chunks) {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    // So that a kill comes before a mark is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    model_ = RandomBytes(random_, kSize);
    ASSERT_TRUE(test_->Write(volume_, 0, model_).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    newest_ = RandomBytes(random_, chunks * kChunk);
    ASSERT_TRUE(test_->Write(volume_, kFirst * kChunk, newest_).ok());
    test_->Kill();
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(At(0, offset, kSuperblockCopyBytes));
      superblock_ = found.ok() && found->generation > superblock_.generation ? *found : superblock_;
    }
    for (uint64_t place = 0; place < g().log_blocks; ++place) {
      const auto entry = DecodeEntryHeader(At(kSsdCount, g().LogOffset(place), kBlockBytes),
                                           superblock_.array_uuid, g());
      if (entry.ok() && entry->place == place && entry->sequence > entry_.sequence) {
        entry_ = *entry;
      }
    }
    ASSERT_LT(entry_.mark, entry_.sequence);
  }
  [[nodiscard]] const Geometry& g() const { return superblock_.geometry; }
  std::span<std::byte> At(uint32_t device, uint64_t offset, uint64_t length) {
    return test_->memory(device).bytes().subspan(offset, length);
  }
  // As if these had been replaced since, and were not whole yet.
  void Replaced(const std::vector<DeviceIndex>& devices) {
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      for (const uint64_t offset : kSuperblockCopyOffset) {
        const auto copy = At(i, offset, kSuperblockCopyBytes);
        auto superblock = DecodeSuperblock(copy);
        ASSERT_TRUE(superblock.ok());
        superblock->epoch = superblock->base = {superblock_.epoch.number + 1, 1};
        for (const DeviceIndex device : devices) {
          superblock->members[device.value].state = MemberState::kJoining;
          superblock->members[device.value].joined = superblock->epoch.number;
        }
        EncodeSuperblock(*superblock, copy);
      }
    }
  }
  [[nodiscard]] const LogStripeMember& Member(size_t i) const {
    return entry_.log_stripes[0].members[i];
  }
  [[nodiscard]] DeviceIndex SsdOfMember(size_t i) const { return g().SsdOf(Member(i).chunk); }
  void SpoilMember(size_t i) {
    At(SsdOfMember(i).value, g().SlotOffset(Member(i).word.slot()), kChunk)[9] ^= std::byte{1};
  }
  void SpoilLogChunk(uint32_t j) {
    At(kSsdCount + j, g().LogOffset(entry_.place + 1), kChunk)[9] ^= std::byte{1};
  }
  Result<std::unique_ptr<Array>> Open(bool read_only, bool force = false) {
    told_.clear();
    OpenOptions options;
    options.entropy = 77;
    options.read_only = read_only;
    options.force = force;
    options.on_event = [this](const ArrayEvent& event) {
      told_ += event.kind == EventKind::kWritesDropped ? event.text : "";
    };
    return RunTask(test_->loop, Array::Open(test_->loop, test_->Devices(), options));
  }
  void ExpectRefused() {
    for (const bool read_only : {true, false}) {
      const auto refused = Open(read_only);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
      EXPECT_EQ(refused.error().message,
                "entry " + std::to_string(entry_.sequence) +
                    " of the log cannot be verified: more devices are missing, or not whole yet, "
                    "than parity can replace; bring back missing members, or mount with "
                    "--read-only --force to read what is left");
    }
  }
  // Two chunks were written; what they were before is read, and that is told.
  void ExpectDropped() {
    auto opened = Open(true);
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
    EXPECT_EQ(told_.find("2 chunks (8192 bytes), written in 1 entries of the log"), 0U) << told_;
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    ASSERT_TRUE(test_->Close().ok());
  }

  Random random_{29};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Bytes model_;   // what was flushed
  Bytes newest_;  // what was not
  Superblock superblock_;
  EntryHeader entry_;  // of that
  std::string told_;
};

TEST_F(UnverifiableRecord, OfALogStripeIsNotDroppedUnasked) {
  Make(2);
  ASSERT_EQ(entry_.log_stripes.size(), 1U);
  ASSERT_EQ(entry_.log_stripes[0].members.size(), 2U);
  ASSERT_NO_FATAL_FAILURE(Replaced({SsdOfMember(0), SsdOfMember(1), g().LogDevice(0)}));
  SpoilLogChunk(0);
  ExpectRefused();
  // By force it is kept: what was there before does not pass for the newest.
  auto forced = Open(true, true);
  ASSERT_TRUE(forced.ok()) << forced.error().ToString();
  EXPECT_EQ(told_, "");
  const Buffer buffer = test_->pool.Get(kChunk);
  for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
    const Status read =
        RunTask(test_->loop, (*forced)->Read(volume_, chunk * kChunk, buffer.span()));
    const bool of_it = chunk == kFirst || chunk == kFirst + 1;
    ASSERT_EQ(read.ok(), !of_it) << chunk;
    EXPECT_TRUE(of_it || std::equal(buffer.data(), buffer.data() + kChunk,
                                    model_.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk)))
        << chunk;
  }
  const auto report = RunTask(test_->loop, (*forced)->FindLost());
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->ranges.size(), 1U);
  EXPECT_EQ(report->ranges[0].volume, "v");
  EXPECT_EQ(report->ranges[0].offset_bytes, kFirst * kChunk);
  EXPECT_EQ(report->ranges[0].length_bytes, 2 * kChunk);
  EXPECT_TRUE(RunTask(test_->loop, (*forced)->Close()).ok());
}

TEST_F(UnverifiableRecord, OfAStripeIsNotDroppedUnasked) {
  Make(kData);
  ASSERT_EQ(entry_.rows.size(), 1U);
  const StripeIndex stripe = entry_.rows[0].stripe;
  ASSERT_NO_FATAL_FAILURE(
      Replaced({g().SsdOf(stripe, 0), g().SsdOf(stripe, 2), g().SsdOf(stripe, kSsdCount - 1)}));
  ExpectRefused();
}

TEST_F(UnverifiableRecord, WhatCanBeDecodedIsKept) {
  Make(2);
  ASSERT_EQ(entry_.log_stripes.size(), 1U);
  ASSERT_NO_FATAL_FAILURE(Replaced({SsdOfMember(0), g().LogDevice(0)}));
  SpoilLogChunk(0);
  auto opened = Open(true);
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  test_->array = std::move(*opened);
  EXPECT_EQ(told_, "");
  EXPECT_TRUE(test_->Read(volume_, kFirst * kChunk, newest_.size()) == newest_);
  ASSERT_TRUE(test_->Close().ok());
}

// A member and a log device have been replaced; what is wrong besides is not missing.
TEST_F(UnverifiableRecord, OfWhichNoMoreIsMissingThanParityReplacesIsDropped) {
  Make(2);
  ASSERT_EQ(entry_.log_stripes.size(), 1U);
  ASSERT_NO_FATAL_FAILURE(Replaced({SsdOfMember(0), g().LogDevice(0)}));
  SpoilLogChunk(0);
  SpoilMember(1);
  ExpectDropped();
}

// A log device that was there all the time is not missing, whatever stands on it.
TEST_F(UnverifiableRecord, OfWhichLogChunksAreWrongIsDropped) {
  Make(2);
  ASSERT_EQ(entry_.log_stripes.size(), 1U);
  ASSERT_NO_FATAL_FAILURE(Replaced({SsdOfMember(0), SsdOfMember(1)}));
  SpoilLogChunk(0);
  ExpectDropped();
}

}  // namespace
}  // namespace eplog
