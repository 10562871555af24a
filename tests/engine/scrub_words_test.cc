// What a scrub says of log stripes: which version of which chunk, or which log chunk, is wrong; and
// what it makes of a mark.
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
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kRows = 30;

class ScrubWords : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.auto_commit = false;
    shape.max_corrupt_chunks = 0;
    return shape;
  }
  void SetUp() override { Write(0, kRows * kStripe); }
  std::vector<std::byte> Write(uint64_t offset, uint64_t length) {
    std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_.Write(volume_, offset, data);
    EXPECT_TRUE(written.ok()) << written.error().ToString();
    return data;
  }
  // The devices that hold this, and where.
  std::vector<std::pair<uint32_t, std::byte*>> Find(const std::vector<std::byte>& content) {
    std::vector<std::pair<uint32_t, std::byte*>> found;
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      const auto bytes = test_.memory(i).bytes();
      const auto at = std::search(bytes.begin(), bytes.end(), content.begin(), content.end());
      if (at != bytes.end()) {
        found.emplace_back(i, &*at);
      }
    }
    return found;
  }
  CheckReport Scrub(bool heal) {
    const auto report = test_.Scrub(heal);
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
};

// Two chunks of one log stripe, of which one is written again: the stripe needs both versions.
TEST_F(ScrubWords, SayWhichVersionOfAChunkIsWrong) {
  for (const bool older : {false, true}) {
    SCOPED_TRACE(older);
    const uint64_t at = (older ? 9 : 4) * kStripe;
    const std::vector<std::byte> both = Write(at, 2 * kChunk);
    Write(at, kChunk);
    ASSERT_TRUE(test_.Flush().ok());
    const auto half = both.begin() + static_cast<std::ptrdiff_t>(kChunk);
    const auto places = older ? Find({both.begin(), half}) : Find({half, both.end()});
    ASSERT_EQ(places.size(), 1U);
    *places[0].second ^= std::byte{1};
    const CheckReport left = Scrub(false);
    const CheckReport healed = Scrub(true);
    ASSERT_EQ(left.problems_found, 1U);
    // The commit that lets go of the log stripe leaves the chunk where it is, for its row to heal.
    ASSERT_EQ(healed.problems_found, older ? 1U : 2U);
    for (const CheckReport* report : {&left, &healed}) {
      const Finding& finding = report->findings[0];
      EXPECT_EQ(finding.device, "ssd" + std::to_string(places[0].first));
      EXPECT_EQ(finding.volume, "v");
      EXPECT_EQ(finding.offset_bytes, older ? at : at + kChunk);
      EXPECT_EQ(finding.what.find(older ? "an older version: " : "its newest version: "), 0U)
          << finding.what;
      for (const Finding& each : report->findings) {
        EXPECT_EQ(each.outcome,
                  report == &left ? Finding::Outcome::kLeft : Finding::Outcome::kHealed);
      }
      EXPECT_EQ(report->lost, 0U);
    }
    EXPECT_EQ(left.healed, 0U);
    EXPECT_GE(healed.healed, 1U) << "who was met by the commit may have been healed beside it";
    EXPECT_EQ(Scrub(false).problems_found, 0U);
  }
}

// Of one member the first log chunk is a copy. What is wrong of it goes with the log stripe.
TEST_F(ScrubWords, SayWhichLogChunkIsWrong) {
  const std::vector<std::byte> update = Write(4 * kStripe, kChunk);
  Write(5 * kStripe, kChunk);
  ASSERT_TRUE(test_.Flush().ok());
  const auto places = Find(update);
  ASSERT_GE(places.size(), 2U);
  const auto [device, at] = places.back();
  ASSERT_GE(device, kSsdCount);
  *at ^= std::byte{1};
  const std::string name = "log" + std::to_string(device - kSsdCount);
  const uint64_t corrupt = test_.array->GetStatus().devices[device].corrupt_chunks;
  const CheckReport left = Scrub(false);
  ASSERT_EQ(left.problems_found, 1U);
  EXPECT_EQ(left.findings[0].device, name);
  EXPECT_EQ(left.findings[0].volume, "");
  EXPECT_EQ(left.findings[0].what.find("log chunk at place "), 0U) << left.findings[0].what;
  EXPECT_EQ(test_.array->GetStatus().devices[device].corrupt_chunks, corrupt + 1);
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 2U);
  EXPECT_EQ(Scrub(true).healed, 1U);
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 1U) << "the other one stays";
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

// ---- marks

class ScrubMarkBounds : public ScrubWords {
 protected:
  void Open(const ScrubMark& mark) {
    ASSERT_TRUE(test_.Close().ok());
    OpenOptions options;
    options.entropy = ++lives_ + 60;
    options.auto_commit = false;
    options.on_event = [this](const ArrayEvent& event) {
      said_ = event.kind == EventKind::kScrubFinished ? event.text : said_;
    };
    options.scrub_mark.load = [mark] { return std::optional(mark); };
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, test_.Devices(), options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  [[nodiscard]] uint32_t Stripes() {
    return DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry.stripes;
  }

  uint64_t lives_ = 0;
  std::string said_;
};

// It may be of an array that was created anew since.
TEST_F(ScrubMarkBounds, OneBehindTheEndIsNone) {
  ScrubMark mark{.heal = false, .next_stripe = Stripes()};
  mark.problems_found = 3;
  mark.healed = 2;
  mark.lost = 1;
  Open(mark);
  CheckReport report = Scrub(false);
  EXPECT_EQ(report.first_stripe, 0U);
  EXPECT_EQ(report.rows_checked, kRows);
  EXPECT_EQ(report.problems_found + report.problems_found_before + report.healed + report.lost, 0U);
  EXPECT_EQ(said_, "everything was read: 0 problems, 0 copies written anew");
  --mark.next_stripe;
  Open(mark);
  report = Scrub(false);
  EXPECT_EQ(report.first_stripe, mark.next_stripe);
  EXPECT_EQ(report.rows_checked, 0U);
  EXPECT_EQ(report.problems_found, 3U);
  EXPECT_EQ(report.problems_found_before, 3U);
  EXPECT_EQ(report.healed, 2U);
  EXPECT_EQ(report.lost, 1U);
  EXPECT_EQ(said_,
            "everything was read: 3 problems (3 of them before it was cut short), 2 copies written "
            "anew");
}

}  // namespace
}  // namespace eplog
