// A check and a scrub, whether it repairs or not, name as lost just what cannot be read, where
// rot and missing devices together are more than parity replaces.
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
constexpr uint64_t kStripes = 60;
constexpr uint32_t kData = 3;
constexpr uint64_t kSize = kStripes * kData * kChunk;

enum class Verb : uint8_t { kCheck, kScrub, kRepair };

struct Case {
  const char* name;
  uint32_t parity;
  std::vector<uint32_t> missing;
  std::vector<uint32_t> rotten;
  bool log_rots = false;   // of log0: the log chunks of what is pending by itself
  bool log_joins = false;  // log0 has been replaced and lacks what was logged before
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"NothingIsRotten", 1, {1}, {}},       {"Raid5", 1, {1}, {2}},
      {"Raid5Whole", 1, {}, {0, 2}},         {"Raid5LogMissing", 1, {4}, {0, 2}},
      {"Raid5LogRots", 1, {1}, {}, true},    {"Raid6", 2, {0, 1}, {2}},
      {"Raid6OneMissing", 2, {3}, {0, 4}},   {"Raid6LogMissing", 2, {1, 5}, {2, 3}},
      {"Raid6LogRots", 2, {1, 6}, {}, true}, {"Raid6LogJoins", 2, {1}, {2, 3}, false, true},
      {"Raid6ThreeRot", 2, {}, {0, 1, 2}},
  };
  return cases;
}

class CheckLost : public ::testing::TestWithParam<std::tuple<size_t, Verb>> {
 protected:
  const Case& case_ = Cases()[std::get<0>(GetParam())];
  const Verb verb_ = std::get<1>(GetParam());

  ArrayShape Shape() const {
    ArrayShape shape = SmallShape(kData + case_.parity, case_.parity);
    shape.auto_commit = false;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  // Rows, and what is pending: of one chunk each, and of several.
  void SetUp() override {
    Write(0, kSize * 3 / 4);
    ASSERT_TRUE(test_.Commit().ok());
    Pend();
    if (case_.log_rots) {
      for (uint64_t i = 0; i < 20; ++i) {
        alone_.push_back(Write((kSize / kChunk - 1 - i) * kChunk, kChunk));
      }
    }
    ASSERT_TRUE(test_.Flush().ok());
    ASSERT_TRUE(test_.Checkpoint().ok());
    if (case_.log_joins) {
      const uint32_t log = kData + case_.parity;
      ASSERT_TRUE(test_.Fail(log).ok());
      ASSERT_TRUE(test_.ReplaceByItselfBlank(log).ok());
      Pend();  // of this it has its part
      ASSERT_TRUE(test_.Flush().ok());
      ASSERT_EQ(test_.State(log), DeviceState::kRebuilding);
    }
    test_.Kill();
    Rot();
  }
  void Pend() {
    for (uint64_t i = 0; i < 30; ++i) {
      Write(random_.Below(kSize / kChunk) * kChunk, kChunk);
      Write((i * 2 * kData + random_.Below(2)) * kChunk, 2 * kChunk);
    }
  }
  std::vector<std::byte> Write(uint64_t offset, uint64_t length) {
    std::vector<std::byte> data = RandomBytes(random_, std::min(length, kSize - offset));
    EXPECT_TRUE(test_.Write(volume_, offset, data).ok());
    return data;
  }
  void Rot() {
    for (const uint32_t ssd : case_.rotten) {
      const auto bytes = test_.memory(ssd).bytes();
      for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
        bytes[at] ^= random_.OneIn(3) ? std::byte{1} : std::byte{0};
      }
    }
    const auto log = test_.memory(kData + case_.parity).bytes();
    for (const std::vector<std::byte>& chunk : alone_) {  // is its own first parity
      const auto found = std::search(log.begin(), log.end(), chunk.begin(), chunk.end());
      ASSERT_NE(found, log.end());
      *found ^= std::byte{1};
    }
  }
  void Open() {
    std::vector<Device*> devices;
    const std::vector<Device*> all = test_.Devices();
    for (uint32_t i = 0; i < all.size(); ++i) {
      if (std::ranges::find(case_.missing, i) == case_.missing.end()) {
        devices.push_back(all[i]);
      }
    }
    OpenOptions options;
    options.entropy = 77;
    options.auto_commit = false;
    options.read_only = verb_ != Verb::kRepair;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  CheckReport Run() {
    Task<Result<CheckReport>> task = verb_ == Verb::kCheck
                                         ? test_.array->Check(Progress())
                                         : test_.array->Scrub(verb_ == Verb::kRepair, Progress());
    const auto report = RunTask(test_.loop, std::move(task));
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  std::set<uint64_t> Unreadable() {
    std::set<uint64_t> unreadable;
    const Buffer chunk = test_.pool.Get(kChunk);
    for (uint64_t at = 0; at < kSize; at += kChunk) {
      if (!RunTask(test_.loop, test_.array->Read(volume_, at, chunk.span())).ok()) {
        unreadable.insert(at);
      }
    }
    return unreadable;
  }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{11};
  std::vector<std::vector<std::byte>> alone_;
};

TEST_P(CheckLost, IsJustWhatCannotBeRead) {
  Open();
  ASSERT_NE(test_.array, nullptr);
  const CheckReport report = Run();
  std::set<uint64_t> named;
  for (const Finding& finding : report.findings) {
    if (finding.outcome != Finding::Outcome::kLost) {
      continue;
    }
    EXPECT_EQ(finding.volume, "v") << finding.Text();
    EXPECT_TRUE(named.insert(finding.offset_bytes).second) << "twice: " << finding.Text();
  }
  EXPECT_EQ(report.problems_found, report.findings.size()) << "all are listed";
  EXPECT_EQ(report.lost, named.size());
  const std::set<uint64_t> unreadable = Unreadable();
  EXPECT_EQ(unreadable.empty(), case_.rotten.empty() && !case_.log_rots);
  EXPECT_EQ(named, unreadable);
  EXPECT_EQ(report.problems_found == 0, case_.rotten.empty() && !case_.log_rots)
      << "what is only missing is no problem";
}

// What has been written anew can be read, though it is in memory only.
TEST(CheckLostBuffered, IsNotWhatIsBuffered) {
  ArrayShape shape = SmallShape(4, 1);
  shape.buffers.device_chunks = 64;
  SmallArray test(shape);
  const VolumeId volume = test.CreateVolume("v", kSize);
  Random random(3);
  ASSERT_TRUE(test.Write(volume, 0, RandomBytes(random, kData * kChunk)).ok());
  ASSERT_TRUE(test.Commit().ok());
  for (uint32_t ssd = 0; ssd < shape.n; ++ssd) {
    const auto bytes = test.memory(ssd).bytes();
    for (uint64_t at = test.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
      bytes[at] ^= std::byte{1};
    }
  }
  ASSERT_TRUE(test.Write(volume, kChunk, RandomBytes(random, kChunk)).ok());
  const auto report = test.Scrub(false);
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  EXPECT_EQ(report->problems_found, 4U) << "three of data and their parity";
  EXPECT_EQ(report->lost, 2U);
  for (const Finding& finding : report->findings) {
    const bool lost = !finding.volume.empty() && finding.offset_bytes != kChunk;
    EXPECT_EQ(finding.outcome, lost ? Finding::Outcome::kLost : Finding::Outcome::kLeft)
        << finding.Text();
  }
  test.Kill();
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<size_t, Verb>>& info) {
  static const char* const verbs[] = {"Check", "Scrub", "Repair"};
  return std::string(Cases()[std::get<0>(info.param)].name) +
         verbs[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(All, CheckLost,
                         ::testing::Combine(::testing::Range(size_t{0}, Cases().size()),
                                            ::testing::Values(Verb::kCheck, Verb::kScrub,
                                                              Verb::kRepair)),
                         NameOf);

}  // namespace
}  // namespace eplog
