// What a scrub and a check say that they have read is what there was to read, and each finding says
// where it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint32_t kData = kSsdCount - kParity;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kRows = 24;
constexpr uint64_t kUpdates = 7;

using Bytes = std::vector<std::byte>;

class ScrubFigures : public ::testing::Test {
 protected:
  ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.auto_commit = false;
    shape.max_corrupt_chunks = 0;
    shape.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    return shape;
  }
  void SetUp() override {
    content_ = RandomBytes(random_, kRows * kStripe);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    geometry_ = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
  }
  // Each a log stripe of its own.
  void Update() {
    for (uint64_t i = 0; i < kUpdates; ++i) {
      ASSERT_TRUE(test_.Write(volume_, i * (kStripe + kChunk), RandomBytes(random_, kChunk)).ok());
    }
    Flush();
  }
  void Flush() { ASSERT_TRUE(test_.Flush().ok()); }
  CheckReport Scrub(bool heal) {
    const auto report = test_.Scrub(heal);
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  // Where a chunk lies that has this content.
  std::pair<uint32_t, std::byte*> Find(std::span<const std::byte> content) {
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      const auto bytes = test_.memory(ssd).bytes();
      for (uint64_t at = 0; at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          return {ssd, &bytes[at]};
        }
      }
    }
    ADD_FAILURE() << "no SSD has it";
    return {0, test_.memory(0).bytes().data()};
  }
  size_t Events(EventKind kind) {
    return static_cast<size_t>(
        std::ranges::count_if(events_, [&](const auto& event) { return event.kind == kind; }));
  }

  std::vector<ArrayEvent> events_;
  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", 200 * kStripe);
  Random random_{7};
  Bytes content_;
  Geometry geometry_;
};

TEST_F(ScrubFigures, AreWhatThereIsToRead) {
  Update();
  for (const bool check : {false, true}) {
    const auto report =
        check ? RunTask(test_.loop, test_.array->Check(Progress())) : test_.Scrub(false);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->first_stripe, 0U);
    EXPECT_EQ(report->rows_checked, kRows);
    EXPECT_EQ(report->log_stripes_checked, kUpdates);
    EXPECT_EQ(report->chunks_checked, kRows * kSsdCount + kUpdates);
    EXPECT_EQ(report->parity_checked, (kRows + kUpdates) * kParity);
    EXPECT_EQ(report->problems_found + report->healed + report->lost, 0U);
    EXPECT_TRUE(report->findings.empty());
  }
}

// What one SSD and one log device had is not there to be read.
TEST_F(ScrubFigures, LeaveOutWhatIsMissing) {
  ASSERT_TRUE(test_.Fail(0).ok());
  ASSERT_TRUE(test_.Fail(kSsdCount).ok());
  test_.Sleep(10'000'000);  // what the log protected is committed
  ASSERT_EQ(test_.array->GetStatus().pending_chunks, 0U);
  Update();
  ASSERT_EQ(test_.array->GetStatus().pending_chunks, kUpdates);
  uint64_t parity_there = 0;
  for (uint32_t s = 0; s < kRows; ++s) {
    for (uint32_t j = 0; j < kParity; ++j) {
      parity_there += geometry_.SsdOf(StripeIndex(s), kData + j).value != 0 ? 1 : 0;
    }
  }
  uint64_t members_there = 0;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    members_there += geometry_.SsdOf(ChunkIndex(i * (kData + 1))).value != 0 ? 1 : 0;
  }
  ASSERT_LT(members_there, kUpdates);
  const CheckReport report = Scrub(false);
  EXPECT_EQ(report.rows_checked, kRows);
  EXPECT_EQ(report.log_stripes_checked, kUpdates);
  EXPECT_EQ(report.chunks_checked, kRows * (kSsdCount - 1) + members_there);
  EXPECT_EQ(report.parity_checked, parity_there + kUpdates * (kParity - 1));
  EXPECT_EQ(report.problems_found + report.lost, 0U);
}

// A flushed update has a header on each log device, and one more in a ring.
TEST_F(ScrubFigures, OfMetadataGrowWithEachEntry) {
  Flush();
  const uint64_t before = Scrub(false).metadata_blocks_checked;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    ASSERT_TRUE(test_.Write(volume_, i * (kStripe + kChunk), RandomBytes(random_, kChunk)).ok());
    Flush();
  }
  EXPECT_EQ(Scrub(false).metadata_blocks_checked - before, kUpdates * (kParity + 1));
  ASSERT_TRUE(test_.Checkpoint().ok());
  // Two copies on each device, and a root and a run on m + 1 SSDs.
  const uint64_t at_rest = Scrub(false).metadata_blocks_checked;
  EXPECT_EQ(at_rest, 2 * (kSsdCount + kParity) + 2 * (kParity + 1));
}

TEST_F(ScrubFigures, OfProgressGoUpToTheEnd) {
  Update();
  for (const bool check : {false, true}) {
    std::vector<std::pair<uint64_t, uint64_t>> told;
    const Progress progress = [&told](uint64_t done, uint64_t total) {
      told.emplace_back(done, total);
    };
    const auto report = check ? RunTask(test_.loop, test_.array->Check(progress))
                              : RunTask(test_.loop, test_.array->Scrub(true, progress));
    ASSERT_TRUE(report.ok());
    ASSERT_FALSE(told.empty());
    uint64_t last = 0;
    for (const auto& [done, total] : told) {
      EXPECT_EQ(total, geometry_.stripes + kUpdates);
      EXPECT_LE(last, done);
      last = done;
    }
    EXPECT_EQ(last, geometry_.stripes + kUpdates);
  }
  EXPECT_EQ(Events(EventKind::kScrubFinished), 1U) << "of the scrub";
}

// In words and figures, and to the byte.
TEST_F(ScrubFigures, EachFindingNamesTheChunkOfItsVolume) {
  const VolumeId other = test_.CreateVolume("other", 200 * kStripe);
  const Bytes more = RandomBytes(random_, kRows * kStripe);
  ASSERT_TRUE(test_.Write(other, 64 * kStripe, more).ok());
  for (const bool second : {false, true}) {
    for (uint64_t chunk = 0; chunk < kRows * kData; chunk += 11) {
      SCOPED_TRACE(chunk);
      const auto part = std::span(second ? more : content_).subspan(chunk * kChunk, kChunk);
      const auto [ssd, at] = Find(part);
      *at ^= std::byte{1};
      const std::string device = "ssd" + std::to_string(ssd);
      const uint64_t offset = chunk * kChunk + (second ? 64 * kStripe : 0);
      events_.clear();
      const CheckReport left = Scrub(false);
      EXPECT_EQ(Events(EventKind::kCorruptionHealed), 0U);
      const CheckReport healed = Scrub(true);
      for (const CheckReport* report : {&left, &healed}) {
        ASSERT_EQ(report->problems_found, 1U);
        ASSERT_EQ(report->findings.size(), 1U);
        const Finding& finding = report->findings[0];
        EXPECT_EQ(finding.device, device);
        EXPECT_EQ(finding.volume, second ? "other" : "v");
        EXPECT_EQ(finding.offset_bytes, offset);
        EXPECT_EQ(finding.outcome,
                  report == &left ? Finding::Outcome::kLeft : Finding::Outcome::kHealed);
      }
      EXPECT_EQ(left.healed, 0U);
      EXPECT_EQ(healed.healed, 1U);
      ASSERT_EQ(Events(EventKind::kCorruptionHealed), 1U);
      const auto event =
          std::ranges::find(events_, EventKind::kCorruptionHealed, &ArrayEvent::kind);
      EXPECT_EQ(event->device, device);
      EXPECT_EQ(event->volume, second ? "other" : "v");
      EXPECT_EQ(event->offset_bytes, offset);
      EXPECT_EQ(Scrub(false).problems_found, 0U);
    }
  }
}

// Parity is nobody's data: its stripe is named.
TEST_F(ScrubFigures, AFindingOfParityNamesItsStripe) {
  // Whatever is no data of the volume is its parity.
  std::set<std::byte*> data;
  for (uint64_t chunk = 0; chunk < kRows * kData; ++chunk) {
    data.insert(Find(std::span(content_).subspan(chunk * kChunk, kChunk)).second);
  }
  const auto bytes = test_.memory(0).bytes();
  uint64_t parity = 0;
  for (uint64_t at = test_.SlotsOffsetBytes(); at < bytes.size(); at += kChunk) {
    if (data.contains(&bytes[at]) || bytes[at] == std::byte{0}) {
      continue;
    }
    ++parity;
    bytes[at] ^= std::byte{1};
    const CheckReport report = Scrub(false);
    bytes[at] ^= std::byte{1};
    ASSERT_EQ(report.problems_found, 1U);
    const Finding& finding = report.findings[0];
    EXPECT_EQ(finding.device, "ssd0");
    EXPECT_EQ(finding.volume, "");
    const std::string stripe = "parity of stripe ";
    ASSERT_EQ(finding.what.find(stripe), 0U) << finding.what;
    const auto number = static_cast<uint32_t>(std::stoul(finding.what.substr(stripe.size())));
    EXPECT_GE(geometry_.IndexOn(StripeIndex(number), DeviceIndex(0)), kData);
  }
  EXPECT_GT(parity, kRows / kSsdCount);
}

// The list has an end, and the counters have none; all is healed.
TEST_F(ScrubFigures, CountMoreThanTheyList) {
  constexpr uint64_t kMany = 1100;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ResizeVolume(volume_, kMany * kStripe)).ok());
  for (uint64_t row = 0; row < kMany; row += 50) {
    ASSERT_TRUE(test_.Write(volume_, row * kStripe, RandomBytes(random_, 50 * kStripe)).ok());
  }
  Flush();
  ASSERT_TRUE(test_.Checkpoint().ok());
  test_.Sleep(20'000'000);
  const auto bytes = test_.memory(2).bytes();
  for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
    bytes[at + 9] ^= std::byte{1};
  }
  events_.clear();
  const CheckReport report = Scrub(true);
  EXPECT_EQ(report.problems_found, kMany);
  EXPECT_EQ(report.healed, kMany);
  EXPECT_EQ(report.lost, 0U);
  EXPECT_EQ(report.findings.size(), 1000U);
  EXPECT_EQ(Events(EventKind::kCorruptionHealed), kMany);
}

// Each row of which something is wrong is read once more, to be healed.
TEST_F(ScrubFigures, HealingReadsARowOnce) {
  Flush();
  const auto read = [this] {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      bytes += test_.counter(i).counters().bytes_read;
    }
    return bytes;
  };
  const auto cost = [&] {
    const uint64_t before = read();
    EXPECT_EQ(Scrub(true).lost, 0U);
    return read() - before;
  };
  const uint64_t sound = cost();
  const auto [ssd, at] = Find(std::span(content_).first(kChunk));
  *at ^= std::byte{1};
  // The chunk that is wrong is looked at once more by itself, each time.
  EXPECT_LE(cost(), sound + (kSsdCount + 2) * kChunk);
  EXPECT_LE(test_.array->GetStatus().devices[ssd].corrupt_chunks, 2U);
}

}  // namespace
}  // namespace eplog
