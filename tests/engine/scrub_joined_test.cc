// Who is to blame for what a scrub misses in the log: not a log device for what was logged before
// it joined, but the one that has something older than the others, and each of which a header is
// gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kRows = 30;
constexpr uint64_t kUpdates = 12;

class ScrubOfLogs : public ::testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;

  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.auto_commit = false;
    return shape;
  }
  // A checkpoint, and behind it updates, each a log stripe of its own.
  void SetUp() override {
    ASSERT_TRUE(test_.Write(volume_, 0, RandomBytes(random_, kRows * kStripe)).ok());
    ASSERT_TRUE(test_.Checkpoint().ok());
    for (uint64_t i = 0; i < kUpdates; ++i) {
      Update(i * (kStripe + kChunk));
    }
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    geometry_ = superblock->geometry;
    array_uuid_ = superblock->array_uuid;
  }
  void Update(uint64_t offset) {
    ASSERT_TRUE(test_.Write(volume_, offset, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Flush().ok());
  }
  Bytes ContentOf(uint32_t device) {
    const auto bytes = test_.memory(device).bytes();
    return {bytes.begin(), bytes.end()};
  }
  CheckReport Scrub(bool heal) {
    const auto report = test_.Scrub(heal);
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  // Where in the log its newest header lies, and the number of that entry.
  std::pair<uint64_t, uint64_t> NewestHeader(uint32_t log) {
    std::pair<uint64_t, uint64_t> newest{0, 0};
    for (uint64_t place = 0; place < geometry_.log_blocks; ++place) {
      const auto block = test_.memory(log).bytes().subspan(geometry_.LogOffset(place), kBlockBytes);
      const auto header = DecodeEntryHeader(block, array_uuid_, geometry_);
      if (header.ok() && header->sequence > newest.second) {
        newest = {place, header->sequence};
      }
    }
    return newest;
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
  Geometry geometry_;
  Uuid array_uuid_{};
};

// Neither for log chunks nor for headers, and they do not count as looked at.
TEST_F(ScrubOfLogs, OneThatJoinedIsNotBlamedForWhatWasLoggedBefore) {
  for (uint32_t log = kSsdCount; log < kSsdCount + kParity; ++log) {
    SCOPED_TRACE(log);
    // So slow that nothing is committed meanwhile.
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      test_.delayed(ssd).set_delays({.read_us = 10'000'000});
    }
    ASSERT_TRUE(test_.Fail(log).ok());
    ASSERT_TRUE(test_.ReplaceByItselfBlank(log).ok());
    ASSERT_TRUE(test_.Flush().ok());
    ASSERT_EQ(test_.State(log), DeviceState::kRebuilding);
    test_.Kill();
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      test_.delayed(ssd).set_delays({});
    }
    test_.Open(true);
    ASSERT_EQ(test_.State(log), DeviceState::kRebuilding);
    const auto report = RunTask(test_.loop, test_.array->Check(Progress()));
    ASSERT_TRUE(report.ok()) << report.error().ToString();
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
    EXPECT_EQ(report->log_stripes_checked, kUpdates);
    EXPECT_EQ(report->parity_checked, kRows * kParity + kUpdates * (kParity - 1));
    EXPECT_EQ(test_.array->GetStatus().devices[log].corrupt_chunks, 0U);
    ASSERT_TRUE(test_.Close().ok());
    test_.Open();
    test_.Sleep(20'000'000);
    ASSERT_EQ(test_.State(log), DeviceState::kOk);
    for (uint64_t i = 0; i < kUpdates; ++i) {
      Update(i * (kStripe + kChunk));
    }
  }
}

// Whichever log device it is that lied about a write and has an entry that was dropped: it is
// wrong, and not the one that has what was written in its place.
TEST_F(ScrubOfLogs, TheOlderOfTwoEntriesIsTheWrongOne) {
  for (uint32_t liar = kSsdCount; liar < kSsdCount + kParity; ++liar) {
    SCOPED_TRACE(liar);
    const uint32_t honest = liar == kSsdCount ? kSsdCount + 1 : kSsdCount;
    ASSERT_TRUE(test_.Flush().ok());
    const Bytes before = ContentOf(liar);
    const Bytes before_on_other = ContentOf(honest);
    ASSERT_TRUE(test_.Write(volume_, 3 * kChunk, RandomBytes(random_, kChunk)).ok());
    const Bytes stale = ContentOf(liar);
    test_.Kill();
    std::ranges::copy(before, test_.memory(liar).bytes().begin());  // it never got there
    std::ranges::copy(before_on_other, test_.memory(honest).bytes().begin());
    test_.Open();
    Update(5 * kChunk);
    ASSERT_EQ(Scrub(false).problems_found, 0U);
    const auto bytes = test_.memory(liar).bytes();
    for (uint64_t at = geometry_.LogOffset(0); at < stale.size(); at += kBlockBytes) {
      const auto block = std::span(stale).subspan(at, kBlockBytes);
      if (!std::ranges::equal(block, std::span(before).subspan(at, kBlockBytes))) {
        std::ranges::copy(block, bytes.subspan(at, kBlockBytes).begin());
      }
    }
    const CheckReport report = Scrub(false);
    EXPECT_GE(report.problems_found, 1U);
    for (const Finding& finding : report.findings) {
      EXPECT_EQ(finding.device, geometry_.DeviceName(DeviceIndex(static_cast<uint8_t>(liar))))
          << finding.Text();
    }
    EXPECT_EQ(test_.array->GetStatus().devices[honest].corrupt_chunks, 0U);
    Scrub(true);
    ASSERT_EQ(Scrub(false).problems_found, 0U);
  }
}

// Where the next entry lies is not known then, and no more is looked for.
TEST_F(ScrubOfLogs, AHeaderThatNobodyHasIsNamedOnEach) {
  test_.Sleep(20'000'000);  // marks come later, and become stable by themselves
  const auto [place, sequence] = NewestHeader(kSsdCount);
  ASSERT_NE(sequence, 0U);
  ASSERT_EQ(NewestHeader(kSsdCount + 1), std::pair(place, sequence));
  for (uint32_t log = kSsdCount; log < kSsdCount + kParity; ++log) {
    test_.memory(log).bytes()[geometry_.LogOffset(place) + 30] ^= std::byte{0x10};
  }
  for (const bool heal : {false, true}) {
    const CheckReport report = Scrub(heal);
    ASSERT_EQ(report.problems_found, kParity);
    for (uint32_t j = 0; j < kParity; ++j) {
      const Finding& finding = report.findings[j];
      EXPECT_EQ(finding.device, "log" + std::to_string(j));
      EXPECT_EQ(finding.what, "the header of log entry " + std::to_string(sequence) + " at place " +
                                  std::to_string(place) + " is damaged");
      EXPECT_EQ(finding.outcome, heal ? Finding::Outcome::kHealed : Finding::Outcome::kLeft);
    }
    EXPECT_EQ(report.healed, heal ? kParity : 0U);
  }
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

}  // namespace
}  // namespace eplog
