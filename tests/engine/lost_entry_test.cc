// An entry of the log that is nowhere any more: what was written after it lies beyond the end,
// reads as before, and is told to the chunk, once (I8, P7).
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

using Bytes = std::vector<std::byte>;

class LostEntry : public ::testing::TestWithParam<bool> {
 protected:
  // The headers are on the log devices alone, or each on a ring as well.
  [[nodiscard]] static bool OnRings() { return GetParam(); }
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.ring_bytes = uint64_t{256} << 10;
    shape.headers_a_ring_block = OnRings() ? 1 : 0;
    // So that a kill comes before a mark is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.on_event = [this](const ArrayEvent& event) {
      told_ += event.kind == EventKind::kWritesDropped ? event.text : "";
    };
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    model_ = RandomBytes(random_, kSize);
    ASSERT_TRUE(test_->Write(volume_, 0, model_).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    Look();
    ASSERT_FALSE(entries_.empty());
    const uint64_t before = entries_.back().sequence;
    // A log stripe, a whole stripe, a log stripe: of the first nothing will be left.
    Write(5 * kData, 2);
    Write(7 * kData, kData);
    Write(9 * kData + 1, 1);
    test_->Sleep(kSsdDelays.write_us);
    test_->Kill();
    Look();
    std::erase_if(entries_, [&](const EntryHeader& entry) {
      return entry.sequence <= before || (entry.rows.empty() && entry.log_stripes.empty());
    });
    ASSERT_EQ(entries_.size(), 3U);
    ASSERT_LE(entries_.back().mark, before) << "a mark covers it: it was to be not flushed";
  }
  void Write(uint64_t chunk, uint64_t count) {
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, RandomBytes(random_, count * kChunk)).ok());
  }
  std::span<std::byte> Block(uint32_t device, uint64_t offset) {
    return test_->memory(device).bytes().subspan(offset, kBlockBytes);
  }
  // What is in the log.
  void Look() {
    superblock_ = Superblock();
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(Block(0, offset));
      superblock_ = found.ok() && found->generation > superblock_.generation ? *found : superblock_;
    }
    entries_.clear();
    for (uint64_t place = 0; place < g().log_blocks; ++place) {
      const auto entry =
          DecodeEntryHeader(Block(kSsdCount, g().LogOffset(place)), superblock_.array_uuid, g());
      if (entry.ok() && entry->place == place) {
        entries_.push_back(*entry);
      }
    }
  }
  [[nodiscard]] const Geometry& g() const { return superblock_.geometry; }
  void RemoveFromLogs(const EntryHeader& entry) {
    for (uint32_t j = 0; j < kParity; ++j) {
      std::ranges::fill(Block(kSsdCount + j, g().LogOffset(entry.place)), std::byte{0});
    }
  }
  // How many copies the rings had.
  uint32_t RemoveFromRings(const EntryHeader& entry) {
    uint32_t copies = 0;
    for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
      for (uint64_t block = 0; block < g().ring_blocks; ++block) {
        const auto bytes = Block(ssd, g().RingOffset(block));
        const auto found = DecodeRingBlock(bytes, superblock_.array_uuid, g(), DeviceIndex(ssd));
        if (found.ok() && std::ranges::count(found->headers, entry) != 0) {
          std::ranges::fill(bytes, std::byte{0});
          ++copies;
        }
      }
    }
    return copies;
  }
  static std::string Told(uint64_t chunks, uint64_t entries) {
    return std::to_string(chunks) + " chunks (" + std::to_string(chunks * kChunk) +
           " bytes), written in " + std::to_string(entries) +
           " entries of the log when the array last stopped, are not whole on the devices and read "
           "as before; no flush had covered them, unless more is damaged than parity can replace";
  }
  bool ReadsAsBefore(uint64_t chunk) {
    const Bytes now = test_->Read(volume_, chunk * kChunk, kChunk);
    return std::equal(now.begin(), now.end(),
                      model_.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk));
  }
  std::string LogDamage() {
    const auto report = RunTask(test_->loop, test_->array->FindLost());
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->log_damage : "";
  }

  Random random_{19};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Bytes model_;  // what was flushed
  Superblock superblock_;
  std::vector<EntryHeader> entries_;  // that were not
  std::string told_;
};

TEST_P(LostEntry, WhatCameAfterItIsToldToTheChunkAndOnce) {
  const uint32_t copies = RemoveFromRings(entries_[0]);
  RemoveFromLogs(entries_[0]);
  ASSERT_EQ(copies, OnRings() ? 1U : 0U);
  if (OnRings()) {
    RemoveFromLogs(entries_[1]);  // of that a ring tells
  }
  const std::string told = Told(kData + 1, 2);
  test_->Open(/*read_only=*/true);
  ASSERT_NE(test_->array, nullptr);
  EXPECT_EQ(told_, told);
  EXPECT_EQ(LogDamage(), "") << "that is for those who open by force";
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  ASSERT_TRUE(test_->Close().ok());
  for (const bool again : {false, true}) {
    told_.clear();
    const EngineHooks before = test_->hooks();
    test_->Open();
    ASSERT_NE(test_->array, nullptr);
    EXPECT_EQ(told_, again ? "" : told);
    EXPECT_EQ(test_->hooks().recovery_dropped - before.recovery_dropped, again ? 0U : 2U);
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U);
    test_->Kill();
  }
}

// Who reads what is left asks for what may be older, and is told so there.
TEST_P(LostEntry, WhatCameAfterItIsListedByForce) {
  static_cast<void>(RemoveFromRings(entries_[0]));
  RemoveFromLogs(entries_[0]);
  OpenOptions options;
  options.read_only = options.force = true;
  auto opened = RunTask(test_->loop, Array::Open(test_->loop, test_->Devices(), options));
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  test_->array = std::move(*opened);
  EXPECT_EQ(LogDamage(), Told(kData + 1, 2));
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
  ASSERT_TRUE(test_->Close().ok());
}

// The last one is nowhere: nothing tells that it ever was.
TEST_P(LostEntry, OfTheLastNobodyKnows) {
  static_cast<void>(RemoveFromRings(entries_[2]));
  RemoveFromLogs(entries_[2]);
  const EngineHooks before = test_->hooks();
  test_->Open();
  ASSERT_NE(test_->array, nullptr);
  EXPECT_EQ(told_, "");
  EXPECT_EQ(test_->hooks().recovery_dropped, before.recovery_dropped);
  EXPECT_TRUE(ReadsAsBefore(9 * kData + 1));
  EXPECT_FALSE(ReadsAsBefore(7 * kData)) << "what came before it stands";
  EXPECT_FALSE(ReadsAsBefore(5 * kData));
}

INSTANTIATE_TEST_SUITE_P(Headers, LostEntry, ::testing::Bool(), [](const auto& where) {
  return where.param ? "OnRingsToo" : "OnLogsAlone";
});

}  // namespace
}  // namespace eplog
