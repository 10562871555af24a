// What FindLost lists, byte for byte against what can be read: with chunks larger than blocks,
// volumes that end within one, holes, and versions that are pending.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eplog/report.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kChunk = 16384;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 1;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;

class LossRanges : public ::testing::TestWithParam<std::vector<uint32_t>> {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.chunk_bytes = kChunk;
    shape.ssd_bytes = uint64_t{24} << 20;
    shape.log_bytes = uint64_t{8} << 20;
    shape.auto_commit = false;
    return shape;
  }
  void SetUp() override {
    Create("gone", 8 * kStripe);
    // One after another as it comes, so that their extents lie among each other.
    Create("b", 70 * kStripe + kChunk + kBlock);
    Create("a", 40 * kStripe);
    Create("empty", 40 * kStripe);
    for (uint64_t at = 0; at < 70 * kStripe; at += 10 * kStripe) {
      Write("b", at, 10 * kStripe);
      Write("a", at / 2, 2 * kStripe);  // with holes
    }
    Write("gone", 0, 8 * kStripe);
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit(Progress())).ok());
    Write("b", 70 * kStripe, kChunk + kBlock);  // to its end
    for (uint64_t i = 0; i < 40; ++i) {
      Write("b", random_.Below(69 * kStripe / kChunk) * kChunk, kChunk * (1 + i % 3));
      Write("a", random_.Below(39 * kStripe / kBlock) * kBlock, kBlock);
    }
    ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(volumes_["gone"])).ok());
    volumes_.erase("gone");
    ASSERT_TRUE(test_.Close().ok());
  }
  void Create(const std::string& name, uint64_t size) {
    volumes_[name] = test_.CreateVolume(name, size);
  }
  void Write(const std::string& name, uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_.Write(volumes_[name], offset, RandomBytes(random_, length)).ok());
  }
  void OpenByForce() {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      if (std::ranges::find(GetParam(), i) == GetParam().end()) {
        devices.push_back(test_.Devices()[i]);
      }
    }
    OpenOptions options;
    options.read_only = options.force = true;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }

  TestArray test_{Shape()};
  Random random_{5};
  std::map<std::string, VolumeId> volumes_;
};

TEST_P(LossRanges, AreJustTheBytesThatCannotBeRead) {
  OpenByForce();
  ASSERT_NE(test_.array, nullptr);
  const auto report = RunTask(test_.loop, test_.array->FindLost());
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  EXPECT_EQ(report->unsure, "");
  std::map<std::string, std::set<uint64_t>> named;
  uint64_t bytes = 0;
  for (size_t i = 0; i < report->ranges.size(); ++i) {
    const LostRange& range = report->ranges[i];
    EXPECT_GT(range.length_bytes, 0U);
    bytes += range.length_bytes;
    for (uint64_t at = 0; at < range.length_bytes; at += kBlock) {
      named[range.volume].insert(range.offset_bytes + at);
    }
    if (i != 0) {
      const LostRange& before = report->ranges[i - 1];
      EXPECT_LT(std::pair(before.volume, before.offset_bytes + before.length_bytes),
                std::pair(range.volume, range.offset_bytes))
          << "in order, and neighbours joined";
    }
  }
  EXPECT_EQ(report->lost_bytes, bytes);
  std::map<std::string, std::set<uint64_t>> unreadable;
  const Buffer block = test_.pool.Get(kBlock);
  for (const auto& [name, id] : volumes_) {
    const uint64_t size = test_.array->GetVolume(id)->size_bytes;
    for (uint64_t at = 0; at < size; at += kBlock) {
      if (!RunTask(test_.loop, test_.array->Read(id, at, block.span())).ok()) {
        unreadable[name].insert(at);
      }
    }
  }
  EXPECT_EQ(named, unreadable);
  EXPECT_EQ(named.contains("a") && named.contains("b"), GetParam().size() > kParity);
  EXPECT_FALSE(named.contains("empty"));
}

INSTANTIATE_TEST_SUITE_P(Missing, LossRanges,
                         ::testing::Values(std::vector<uint32_t>{2}, std::vector<uint32_t>{0, 1},
                                           std::vector<uint32_t>{0, 3}, std::vector<uint32_t>{1, 4},
                                           std::vector<uint32_t>{2, 4}, std::vector<uint32_t>{2, 5},
                                           std::vector<uint32_t>{0, 2, 5}),
                         [](const auto& missing) {
                           std::string name = "Devices";
                           for (const uint32_t device : missing.param) {
                             name += std::to_string(device);
                           }
                           return name;
                         });

}  // namespace
}  // namespace eplog
