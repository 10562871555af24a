// Members that were away and are there again when the array is opened: who is told what, and that
// one that cannot be used, or is not wanted, stays out and nobody else is the worse for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsds = 6;
constexpr uint64_t kSize = 200 * 4 * kChunk;

class OpeningAgain : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsds, 2);
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  void SetUp() override { Write(0, kSize); }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_.Write(volume_, offset, data);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
    ASSERT_TRUE(test_.Flush().ok());
  }
  void Open(const std::set<uint32_t>& without = {}, bool take_back = true, bool read_only = false) {
    events_.clear();
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kSsds + 2; ++i) {
      if (!without.contains(i)) {
        devices.push_back(test_.Devices()[i]);
      }
    }
    OpenOptions options;
    options.entropy = ++lives_ + 1000;
    options.take_back = take_back;
    options.read_only = read_only;
    options.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_.array = std::move(*opened);
  }
  void LifeWithout(uint32_t device) {
    test_.Kill();
    Open({device});
    EXPECT_EQ(State(device), DeviceState::kMissing);
    EXPECT_TRUE(test_.array->GetStatus().devices[device].path.empty());
    Write(20 * kChunk, 30 * kChunk);
    Write(3 * kChunk, 100);
    ASSERT_TRUE(test_.Close().ok());
  }
  DeviceState State(uint32_t device) { return test_.State(device); }
  std::vector<std::string> Texts(EventKind kind, const std::string& device) const {
    std::vector<std::string> texts;
    for (const ArrayEvent& event : events_) {
      if (event.kind == kind && event.device == device) {
        texts.push_back(event.text);
      }
    }
    return texts;
  }
  void ExpectContent() { EXPECT_TRUE(test_.Read(volume_, 0, kSize) == model_); }
  void ExpectBackAndRebuilt(uint32_t device, const std::string& name) {
    Open();
    const auto started = Texts(EventKind::kRebuildStarted, name);
    ASSERT_EQ(started.size(), 1U);
    EXPECT_NE(started.front().find(name + " is back"), std::string::npos) << started.front();
    EXPECT_EQ(State(device), DeviceState::kRebuilding);
    EXPECT_FALSE(test_.array->GetStatus().devices[device].path.empty());
    test_.Sleep(60'000'000);
    EXPECT_EQ(State(device), DeviceState::kOk);
    EXPECT_EQ(Texts(EventKind::kRebuildFinished, name).size(), 1U);
    EXPECT_EQ(Texts(EventKind::kRebuildStarted, name).size(), 1U);
    ExpectContent();
  }

  uint64_t lives_ = 0;
  Random random_{17};
  std::vector<ArrayEvent> events_;
  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  std::vector<std::byte> model_ = std::vector<std::byte>(kSize);
};

TEST_F(OpeningAgain, WhoIsBackIsNamed) {
  LifeWithout(2);
  ExpectBackAndRebuilt(2, "ssd2");
  LifeWithout(kSsds + 1);
  ExpectBackAndRebuilt(kSsds + 1, "log1");
  EXPECT_TRUE(Texts(EventKind::kDegraded, "log1").empty());
}

TEST_F(OpeningAgain, WhoIsNotWantedBackStaysOut) {
  LifeWithout(2);
  Open({}, false);
  EXPECT_TRUE(Texts(EventKind::kRebuildStarted, "ssd2").empty());
  test_.Sleep(10'000'000);
  EXPECT_NE(State(2), DeviceState::kOk);
  EXPECT_NE(State(2), DeviceState::kRebuilding);
  const uint64_t before = test_.counter(2).counters().writes;
  Write(70 * kChunk, 30 * kChunk);
  ASSERT_TRUE(test_.Close().ok());
  EXPECT_EQ(test_.counter(2).counters().writes, before) << "nothing is written to it";
  ExpectBackAndRebuilt(2, "ssd2");
}

// Its flush fails, or the first write to it: its own affair.
TEST_F(OpeningAgain, WhoIsBackAndFailsAtOnceIsNamedAndLeftOut) {
  for (const uint32_t device : {2U, kSsds}) {
    const std::string name = device < kSsds ? "ssd2" : "log0";
    for (const RequestKind kind : {RequestKind::kFlush, RequestKind::kWrite}) {
      if (kind == RequestKind::kWrite && device == kSsds) {
        continue;  // it is not wiped
      }
      SCOPED_TRACE(name);
      LifeWithout(device);
      test_.faulty(device).Add({.kinds = MaskOf(kind), .from_then_on = true});
      Open();
      const auto told = Texts(EventKind::kDegraded, name);
      ASSERT_EQ(told.size(), 1U);
      EXPECT_NE(told.front().find(name + " is back and cannot be used"), std::string::npos)
          << told.front();
      EXPECT_TRUE(Texts(EventKind::kRebuildStarted, name).empty());
      EXPECT_NE(State(device), DeviceState::kOk);
      EXPECT_NE(State(device), DeviceState::kRebuilding);
      ExpectContent();
      Write(100 * kChunk, 20 * kChunk);
      ExpectContent();
      test_.faulty(device).Clear();
      // It has failed: it is a matter for a replacement.
      test_.Kill();
      Open();
      if (State(device) != DeviceState::kOk) {
        test_.Sleep(60'000'000);
        if (State(device) != DeviceState::kOk) {
          ASSERT_TRUE(test_.ReplaceByItself(device).ok());
          test_.Sleep(60'000'000);
        }
      }
      ASSERT_EQ(State(device), DeviceState::kOk);
      ExpectContent();
    }
  }
}

TEST_F(OpeningAgain, WhoOnlyLooksTakesNobodyBack) {
  LifeWithout(2);
  uint64_t before = 0;
  for (uint32_t i = 0; i < kSsds + 2; ++i) {
    before += test_.counter(i).counters().writes + test_.counter(i).counters().flushes;
  }
  Open({}, true, true);
  EXPECT_TRUE(events_.empty());
  EXPECT_NE(State(2), DeviceState::kOk);
  ExpectContent();
  ASSERT_TRUE(test_.Close().ok());
  for (uint32_t i = 0; i < kSsds + 2; ++i) {
    before -= test_.counter(i).counters().writes + test_.counter(i).counters().flushes;
  }
  EXPECT_EQ(before, 0U);
  ExpectBackAndRebuilt(2, "ssd2");
}

}  // namespace
}  // namespace eplog
