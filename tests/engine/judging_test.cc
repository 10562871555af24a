// Which devices are failed as a whole for what was wrong on them: by the limits that were asked
// for, neither earlier nor later, and what is said about what cannot be healed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kData = kSsdCount - kParity;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kRows = 60;
constexpr uint32_t kLimit = 6;

class Judging : public ::testing::Test {
 protected:
  static ArrayShape Shape() { return SmallShape(kSsdCount, kParity); }
  void SetUp() override {
    content_ = RandomBytes(random_, kRows * kStripe);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_.Close().ok());
    geometry_ = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    for (uint64_t chunk = 0; chunk < kRows * kData; ++chunk) {
      Locate(chunk);
    }
  }
  void Open(uint32_t max_read_errors, uint32_t max_corrupt_chunks) {
    OpenOptions options;
    options.entropy = ++lives_ + 50;
    options.max_read_errors = max_read_errors;
    options.max_corrupt_chunks = max_corrupt_chunks;
    options.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    options.scrub_mark.load = [this] { return mark_; };
    auto opened =
        RunTask(test_.loop, OpenHooked(test_.loop, test_.Devices(), options, &test_.hooks()));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  // Where each chunk was written first.
  void Locate(uint64_t chunk) {
    const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      const auto bytes = test_.memory(ssd).bytes();
      for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          places_.emplace_back(ssd, at);
          return;
        }
      }
    }
    FAIL() << "no SSD has chunk " << chunk;
  }
  // The chunks of the volume that lie on this SSD.
  std::vector<uint64_t> ChunksOn(uint32_t ssd) {
    std::vector<uint64_t> chunks;
    for (uint64_t chunk = 0; chunk < places_.size(); ++chunk) {
      if (places_[chunk].first == ssd) {
        chunks.push_back(chunk);
      }
    }
    return chunks;
  }
  void Rot(uint64_t chunk) {
    test_.memory(places_[chunk].first).bytes()[places_[chunk].second] ^= std::byte{1};
  }
  void MakeUnreadable(uint64_t chunk) {
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kRead);
    fault.from_then_on = true;
    fault.range_offset_bytes = places_[chunk].second;
    fault.range_length_bytes = kChunk;
    test_.faulty(places_[chunk].first).Add(fault);
  }
  // Whoever reads gets what was written; a moment later it is healed.
  void Read(uint64_t chunk) {
    const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
    const std::vector<std::byte> found = test_.Read(volume_, chunk * kChunk, kChunk);
    EXPECT_TRUE(std::ranges::equal(found, content)) << chunk;
    test_.Sleep(100'000);
  }
  DeviceStatus Device(uint32_t device) { return test_.array->GetStatus().devices[device]; }
  std::vector<ArrayEvent> Events(EventKind kind) {
    std::vector<ArrayEvent> found;
    std::ranges::copy_if(events_, std::back_inserter(found),
                         [&](const ArrayEvent& event) { return event.kind == kind; });
    return found;
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
  std::vector<std::byte> content_;
  Geometry geometry_;
  std::vector<std::pair<uint32_t, uint64_t>> places_;  // of each chunk: SSD, byte offset
  std::vector<ArrayEvent> events_;
  std::optional<ScrubMark> mark_;
  uint64_t lives_ = 0;
};

TEST_F(Judging, AsManyWrongChunksAsTheLimitAndNotOneLess) {
  Open(0, kLimit);
  const std::vector<uint64_t> chunks = ChunksOn(1);
  for (uint32_t i = 0; i < kLimit; ++i) {
    EXPECT_EQ(Device(1).state, DeviceState::kOk) << i;
    Rot(chunks[i]);
    Read(chunks[i]);
    EXPECT_EQ(Events(EventKind::kCorruptionHealed).size(), i + 1);
  }
  EXPECT_EQ(Device(1).state, DeviceState::kFailed);
  EXPECT_NE(Device(1).failed_because.find("chunks were wrong"), std::string::npos)
      << Device(1).failed_because;
  EXPECT_EQ(Events(EventKind::kDeviceFailed).size(), 1U);
  test_.Kill();
}

TEST_F(Judging, AsManyFailedReadsAsTheLimitAndNotOneLess) {
  Open(kLimit, 0);
  const std::vector<uint64_t> chunks = ChunksOn(1);
  for (uint32_t i = 0; i < kLimit; ++i) {
    EXPECT_EQ(Device(1).state, DeviceState::kOk) << i;
    MakeUnreadable(chunks[i]);
    Read(chunks[i]);
  }
  EXPECT_EQ(Device(1).state, DeviceState::kFailed);
  EXPECT_NE(Device(1).failed_because.find("reads have failed"), std::string::npos)
      << Device(1).failed_because;
  test_.Kill();
}

TEST_F(Judging, NobodyWhereThereIsNoLimit) {
  Open(0, 0);
  for (const uint64_t chunk : ChunksOn(1)) {
    Rot(chunk);
    Read(chunk);
  }
  EXPECT_GE(Device(1).corrupt_chunks, ChunksOn(1).size());
  EXPECT_EQ(Device(1).state, DeviceState::kOk);
}

// What is wrong on fewer others than parity replaces can be decoded without it.
TEST_F(Judging, OneOtherThatWasWrongProtectsNobody) {
  Open(0, kLimit);
  Rot(ChunksOn(4)[0]);
  Read(ChunksOn(4)[0]);
  ASSERT_GT(Device(4).corrupt_chunks, 0U);
  for (uint32_t i = 0; i < kLimit; ++i) {
    Rot(ChunksOn(1)[i]);
    Read(ChunksOn(1)[i]);
  }
  EXPECT_EQ(Device(1).state, DeviceState::kFailed);
  EXPECT_EQ(Device(4).state, DeviceState::kOk);
  test_.Kill();
}

// Nor while one is away: without this one, too, nothing more could be lost.
TEST_F(Judging, NobodyWhileAnotherIsMissing) {
  Open(0, kLimit);
  ASSERT_TRUE(test_.Fail(3).ok());
  for (uint32_t i = 0; i < 2 * kLimit; ++i) {
    Rot(ChunksOn(1)[i]);
    Read(ChunksOn(1)[i]);
  }
  EXPECT_EQ(Device(1).state, DeviceState::kOk);
  test_.Kill();
}

// A scrub that looks, one that heals what others found, and reads, count alike.
TEST_F(Judging, AScrubThatHealsJudgesAtItsEnd) {
  Open(0, kLimit);
  for (uint32_t i = 0; i < kLimit; ++i) {
    Rot(ChunksOn(1)[i]);
  }
  ASSERT_EQ(test_.Scrub(false)->problems_found, kLimit);
  EXPECT_EQ(Device(1).state, DeviceState::kOk) << "nothing was healed, so nothing is known of it";
  const auto report = test_.Scrub(true);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->healed, kLimit);
  EXPECT_EQ(Device(1).state, DeviceState::kFailed);
  test_.Kill();
}

// Who waits for a chunk that cannot be decoded is refused each time; the owner is told once.
TEST_F(Judging, WhatIsLostIsToldOnce) {
  Open(0, 0);
  for (uint64_t i = 0; i <= kParity; ++i) {
    Rot(i);  // of one stripe
  }
  const Buffer chunk = test_.pool.Get(kChunk);
  for (int round = 0; round < 10; ++round) {
    EXPECT_FALSE(RunTask(test_.loop, test_.array->Read(volume_, 0, chunk.span())).ok());
    test_.Sleep(2'000'000);
  }
  const std::vector<ArrayEvent> lost = Events(EventKind::kCorruptionLost);
  ASSERT_EQ(lost.size(), kParity + 1);
  for (uint64_t i = 0; i <= kParity; ++i) {
    EXPECT_EQ(lost[i].volume, "v");
    EXPECT_EQ(lost[i].offset_bytes, i * kChunk);
    EXPECT_EQ(lost[i].device, "ssd" + std::to_string(places_[i].first));
  }
  EXPECT_TRUE(Events(EventKind::kCorruptionHealed).empty());
}

// What is pending lies in no row, and is told as itself.
TEST_F(Judging, APendingChunkIsHealedAndToldByItself) {
  Open(0, 0);
  const std::vector<std::byte> update = RandomBytes(random_, kChunk);
  constexpr uint64_t kAt = 5 * kStripe + kChunk;
  ASSERT_TRUE(test_.Write(volume_, kAt, update).ok());
  ASSERT_TRUE(test_.Flush().ok());
  const auto place = [&]() -> std::byte* {
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      const auto bytes = test_.memory(ssd).bytes();
      const auto found = std::search(bytes.begin(), bytes.end(), update.begin(), update.end());
      if (found != bytes.end()) {
        return &*found;
      }
    }
    return nullptr;
  }();
  ASSERT_NE(place, nullptr);
  *place ^= std::byte{1};
  EXPECT_TRUE(test_.Read(volume_, kAt, kChunk) == update);
  test_.Sleep(1'000'000);
  const std::vector<ArrayEvent> healed = Events(EventKind::kCorruptionHealed);
  ASSERT_EQ(healed.size(), 1U);
  EXPECT_EQ(healed[0].volume, "v");
  EXPECT_EQ(healed[0].offset_bytes, kAt);
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 1U) << "as a write of what it holds";
  const uint64_t decoded = test_.hooks().decoded_chunks;
  EXPECT_TRUE(test_.Read(volume_, kAt, kChunk) == update);
  EXPECT_EQ(test_.hooks().decoded_chunks, decoded);
}

// What was healed may go wrong again, and is healed again.
TEST_F(Judging, AStripeIsHealedAsOftenAsItIsWrong) {
  Open(0, 0);
  for (uint64_t i = 0; i < kData; ++i) {
    Rot(8 * kData + i);  // of one stripe, one after the other
    Read(8 * kData + i);
    EXPECT_EQ(Events(EventKind::kCorruptionHealed).size(), i + 1);
  }
  EXPECT_EQ(test_.Scrub(false)->problems_found, 0U);
}

// A member and every log chunk: no read gets it, and the scrub says which it is.
TEST_F(Judging, APendingChunkThatIsLostIsToldOnceAndCounted) {
  Open(0, 0);
  const std::vector<std::byte> update = RandomBytes(random_, kChunk);
  constexpr uint64_t kAt = 5 * kStripe + kChunk;
  ASSERT_TRUE(test_.Write(volume_, kAt, update).ok());
  ASSERT_TRUE(test_.Flush().ok());
  const auto log = test_.memory(kSsdCount).bytes();  // of one member, the first is a copy
  const auto copy = std::search(log.begin(), log.end(), update.begin(), update.end());
  ASSERT_NE(copy, log.end());
  const auto place = copy - log.begin();
  for (uint32_t j = 0; j < kParity; ++j) {
    test_.memory(kSsdCount + j).bytes()[static_cast<size_t>(place)] ^= std::byte{1};
  }
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    const auto bytes = test_.memory(ssd).bytes();
    const auto found = std::search(bytes.begin(), bytes.end(), update.begin(), update.end());
    if (found != bytes.end()) {
      *found ^= std::byte{1};
    }
  }
  const Buffer chunk = test_.pool.Get(kChunk);
  for (int round = 0; round < 5; ++round) {
    EXPECT_FALSE(RunTask(test_.loop, test_.array->Read(volume_, kAt, chunk.span())).ok());
    test_.Sleep(2'000'000);
  }
  const std::vector<ArrayEvent> lost = Events(EventKind::kCorruptionLost);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].volume, "v");
  EXPECT_EQ(lost[0].offset_bytes, kAt);
  const auto report = test_.Scrub(false);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 1U + kParity);
  EXPECT_EQ(report->lost, 1U);
  test_.Kill();
}

// Not everything was read by this one.
TEST_F(Judging, AScrubThatWentOnWhereAnotherStoppedJudgesNobody) {
  const std::vector<uint64_t> chunks = ChunksOn(1);
  mark_ = ScrubMark{.heal = true, .next_stripe = 4};
  Open(0, kLimit);
  for (uint32_t i = 0; i < 2 * kLimit; ++i) {
    Rot(chunks[chunks.size() - 1 - i]);
  }
  auto report = test_.Scrub(true);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->first_stripe, 4U);
  EXPECT_EQ(report->healed, 2 * kLimit);
  EXPECT_EQ(Device(1).state, DeviceState::kOk);
  mark_.reset();
  report = test_.Scrub(true);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
  EXPECT_EQ(Device(1).state, DeviceState::kFailed) << "nothing is wrong of any other";
  test_.Kill();
}

// One is enough at a time; the first goes on.
TEST_F(Judging, ASecondScrubIsRefusedWhileOneIsAtWork) {
  Open(0, 0);
  Rot(7);
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    test_.delayed(i).set_delays({.read_us = 10'000});
  }
  std::optional<Result<CheckReport>> first;
  test_.loop.Spawn([](Array& array, auto& report) -> Task<void> {
    Task<Result<CheckReport>> scrubbing = array.Scrub(true, Progress());
    report.emplace(co_await scrubbing);
  }(*test_.array, first));
  test_.Sleep(15'000);
  ASSERT_FALSE(first);
  for (const bool heal : {false, true}) {
    const auto second = test_.Scrub(heal);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  }
  EXPECT_EQ(RunTask(test_.loop, test_.array->Plan(Change())).error().code, ErrorCode::kBusy);
  test_.Sleep(10'000'000);
  ASSERT_TRUE(first && first->ok());
  EXPECT_EQ((*first)->healed, 1U);
  const auto after = test_.Scrub(true);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->problems_found, 0U);
  const std::vector<ArrayEvent> finished = Events(EventKind::kScrubFinished);
  ASSERT_EQ(finished.size(), 2U);
  EXPECT_NE(finished[0].text.find("1 problems, 1 copies"), std::string::npos) << finished[0].text;
  EXPECT_NE(finished[1].text.find("0 problems, 0 copies"), std::string::npos) << finished[1].text;
}

}  // namespace
}  // namespace eplog
