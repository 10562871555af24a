// What cannot be decoded while a device is missing may be decoded later: then it is healed as
// anything else is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kRows = 20;

class HealWithoutOne : public ::testing::Test {
 protected:
  struct Place {
    uint32_t ssd = 0;
    std::byte* at = nullptr;
  };
  ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    return shape;
  }
  void SetUp() override {
    content_ = RandomBytes(random_, kRows * kStripe);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_.Commit().ok());
  }
  Place Find(uint64_t chunk) {
    const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
    for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
      const auto bytes = test_.memory(ssd).bytes();
      for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
        if (std::ranges::equal(bytes.subspan(at, kChunk), content)) {
          return {ssd, &bytes[at]};
        }
      }
    }
    ADD_FAILURE() << "no SSD has chunk " << chunk;
    return {0, test_.memory(0).bytes().data()};
  }
  bool Reads(uint64_t chunk) {
    const Buffer into = test_.pool.Get(kChunk);
    const Status read =
        RunTask(test_.loop, test_.array->Read(volume_, chunk * kChunk, into.span()));
    test_.Sleep(2'000'000);  // what was met is seen to
    return read.ok() &&
           std::ranges::equal(std::span(content_).subspan(chunk * kChunk, kChunk), into.span());
  }
  std::vector<ArrayEvent> Events(EventKind kind) {
    std::vector<ArrayEvent> found;
    std::ranges::copy_if(events_, std::back_inserter(found),
                         [&](const ArrayEvent& event) { return event.kind == kind; });
    return found;
  }

  std::vector<ArrayEvent> events_;
  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kStripe);
  Random random_{7};
  std::vector<std::byte> content_;
};

// What was beyond healing once is forgotten when its owner has written it anew: what is wrong of
// that later is healed like anything else.
TEST_F(HealWithoutOne, WhatWasBeyondHealingAndIsWrittenAnewIsHealedAgain) {
  const uint64_t first = 8 * (kSsdCount - kParity);
  for (uint64_t chunk = first; chunk < first + kParity + 1; ++chunk) {
    *Find(chunk).at ^= std::byte{1};
  }
  EXPECT_FALSE(Reads(first));
  ASSERT_TRUE(Events(EventKind::kCorruptionHealed).empty());
  const auto anew = RandomBytes(random_, kStripe);
  std::ranges::copy(anew, content_.begin() + static_cast<std::ptrdiff_t>(first * kChunk));
  ASSERT_TRUE(test_.Write(volume_, first * kChunk, anew).ok());
  ASSERT_TRUE(test_.Commit().ok());
  *Find(first).at ^= std::byte{1};
  EXPECT_TRUE(Reads(first)) << "decoded";
  EXPECT_EQ(Events(EventKind::kCorruptionHealed).size(), 1U);
}

// Nor is it told of again, and its devices blamed, whenever a chunk beside it changes.
TEST_F(HealWithoutOne, WhatIsBeyondHealingIsMetOnceWhateverChangesBesideIt) {
  const uint64_t first = 8 * (kSsdCount - kParity);
  for (uint64_t chunk = first; chunk < first + kParity + 1; ++chunk) {
    *Find(chunk).at ^= std::byte{1};
  }
  EXPECT_FALSE(Reads(first));
  ASSERT_EQ(Events(EventKind::kCorruptionLost).size(), kParity + 1);
  const uint64_t beside = first + kParity + 1;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(test_.Write(volume_, beside * kChunk, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_.Flush().ok());
    EXPECT_FALSE(test_.Commit().ok());
    EXPECT_FALSE(Reads(first));
  }
  EXPECT_EQ(Events(EventKind::kCorruptionLost).size(), kParity + 1);
}

// One of three is away for good, and one of the others was wrong for the moment only.
TEST_F(HealWithoutOne, WhatIsLostForTheMomentIsHealedWhenItCanBe) {
  const uint64_t first = 8 * (kSsdCount - kParity);
  const Place wrong = Find(first);
  const Place for_the_moment = Find(first + 1);
  const Place missing = Find(first + 2);
  ASSERT_TRUE(test_.Fail(missing.ssd).ok());
  *wrong.at ^= std::byte{1};
  *for_the_moment.at ^= std::byte{1};
  EXPECT_FALSE(Reads(first));
  const std::vector<ArrayEvent> lost = Events(EventKind::kCorruptionLost);
  std::set<uint64_t> named;
  for (const ArrayEvent& event : lost) {
    named.insert(event.offset_bytes);
    const Place& place = event.offset_bytes == first * kChunk ? wrong : for_the_moment;
    EXPECT_EQ(event.device, "ssd" + std::to_string(place.ssd));
    EXPECT_EQ(event.volume, "v");
    EXPECT_TRUE(event.text.ends_with(" is wrong and cannot be decoded")) << event.text;
  }
  EXPECT_EQ(named, (std::set<uint64_t>{first * kChunk, (first + 1) * kChunk}));
  EXPECT_TRUE(Events(EventKind::kCorruptionHealed).empty());

  *for_the_moment.at ^= std::byte{1};
  EXPECT_TRUE(Reads(first));
  const std::vector<ArrayEvent> healed = Events(EventKind::kCorruptionHealed);
  ASSERT_EQ(healed.size(), 1U);
  EXPECT_EQ(healed[0].device, "ssd" + std::to_string(wrong.ssd));
  EXPECT_EQ(healed[0].offset_bytes, first * kChunk);
  EXPECT_TRUE(healed[0].text.ends_with(" was wrong and has been written anew")) << healed[0].text;
  EXPECT_EQ(Events(EventKind::kCorruptionLost).size(), lost.size());
  const uint64_t corrupt = test_.array->GetStatus().devices[wrong.ssd].corrupt_chunks;
  EXPECT_TRUE(Reads(first));
  EXPECT_EQ(test_.array->GetStatus().devices[wrong.ssd].corrupt_chunks, corrupt);
  test_.Kill();
}

}  // namespace
}  // namespace eplog
