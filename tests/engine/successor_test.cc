// Who takes the place of a device that was failed for what was wrong on it begins anew: it is
// judged by its own chunks, and each of these counts once, however often it is met.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kData = kSsdCount - kParity;
constexpr uint64_t kRows = 60;
constexpr uint32_t kLimit = 6;
constexpr uint32_t kFailed = 1;

class Successor : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.max_corrupt_chunks = kLimit;
    return shape;
  }
  void SetUp() override { ASSERT_TRUE(test_.Write(volume_, 0, content_).ok()); }
  // Of the chunks that lie on this SSD the `nth` is wrong from now on; which it is.
  uint64_t Rot(uint32_t ssd, uint64_t nth) {
    const auto bytes = test_.memory(ssd).bytes();
    for (uint64_t chunk = 0; chunk < kRows * kData; ++chunk) {
      const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
      for (uint64_t at = test_.SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
        if (std::ranges::equal(content, bytes.subspan(at, kChunk)) && nth-- == 0) {
          bytes[at] ^= std::byte{1};
          return chunk;
        }
      }
    }
    ADD_FAILURE() << "there are not so many";
    return 0;
  }
  // It is read as it was written, and healed.
  void Read(uint64_t chunk) {
    const std::vector<std::byte> found = test_.Read(volume_, chunk * kChunk, kChunk);
    EXPECT_TRUE(std::ranges::equal(found, std::span(content_).subspan(chunk * kChunk, kChunk)));
    test_.Sleep(100'000);
  }
  // Met wrong as often as that is too often, and it is one chunk.
  void MeetOneChunkOftenOn(uint32_t ssd) {
    const uint64_t chunk = Rot(ssd, 3);
    for (uint32_t i = 0; i < 2 * kLimit; ++i) {
      const auto report = test_.Scrub(false);
      ASSERT_TRUE(report.ok());
      ASSERT_EQ(report->problems_found, 1U);
    }
    EXPECT_GE(Status(ssd).corrupt_chunks, 2 * kLimit);
    Read(chunk);
  }
  void FailForWhatIsWrong() {
    for (uint32_t i = 0; i < kLimit; ++i) {
      Read(Rot(kFailed, i));
    }
    ASSERT_EQ(Status(kFailed).state, DeviceState::kFailed);
  }
  void Replace() {
    ASSERT_TRUE(test_.ReplaceByItselfBlank(kFailed).ok());
    for (int i = 0; i < 100 && Status(kFailed).state != DeviceState::kOk; ++i) {
      test_.Sleep(200'000);
    }
    ASSERT_EQ(Status(kFailed).state, DeviceState::kOk);
    EXPECT_EQ(Status(kFailed).corrupt_chunks, 0U);
  }
  DeviceStatus Status(uint32_t device) { return test_.array->GetStatus().devices[device]; }

  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kRows* kData* kChunk);
  Random random_{7};
  std::vector<std::byte> content_ = RandomBytes(random_, kRows* kData* kChunk);
};

TEST_F(Successor, OneChunkThatIsMetOftenFailsNobody) {
  MeetOneChunkOftenOn(kFailed);
  EXPECT_EQ(Status(kFailed).state, DeviceState::kOk);
}

// Something of another was healed while it was away.
TEST_F(Successor, IsNotJudgedByThoseOfTheOneBefore) {
  FailForWhatIsWrong();
  Read(Rot(4, 0));
  Replace();
  MeetOneChunkOftenOn(kFailed);
  EXPECT_EQ(Status(kFailed).state, DeviceState::kOk);
}

// Nothing was healed meanwhile, so that nobody was judged.
TEST_F(Successor, IsNotJudgedByThoseOfTheOneBeforeThoughNobodyWasJudgedMeanwhile) {
  FailForWhatIsWrong();
  Replace();
  MeetOneChunkOftenOn(kFailed);
  EXPECT_EQ(Status(kFailed).state, DeviceState::kOk);
}

// By its own it is.
TEST_F(Successor, IsJudgedByItsOwn) {
  FailForWhatIsWrong();
  Read(Rot(4, 0));
  Replace();
  FailForWhatIsWrong();
}

}  // namespace
}  // namespace eplog
