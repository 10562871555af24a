// A trim that gives extents back beside somebody who writes to them: an extent that was empty when
// the trim looked keeps what came before it has gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStepUs = 150;
constexpr uint64_t kSteps = 40;  // of what a trim of two extents takes, and some beyond

class TrimBeside : public ::testing::TestWithParam<uint32_t> {
 protected:
  void MakeArray(ArrayShape shape) {
    shape.log_delays = kLogDelays;
    shape.buffers = {.device_chunks = GetParam(), .stripes = GetParam()};
    test_ = std::make_unique<SmallArray>(shape);
    const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    extent_stripes_ = superblock->geometry.extent_stripes;
    extent_ = superblock->geometry.extent_data_bytes();
  }
  // Content at both sides of the border of the first two extents, and nothing else in the first.
  void Make() {
    ArrayShape shape = SmallShape(4, 1);
    shape.ssd_delays = kSsdDelays;
    MakeArray(shape);
    volume_ = test_->CreateVolume("v", 4 * extent_);
    content_ = RandomBytes(random_, kChunk);
    for (const uint64_t offset : {extent_ - kChunk, extent_, extent_ + kChunk, 3 * extent_}) {
      ASSERT_TRUE(test_->Write(volume_, offset, content_).ok());
    }
    ASSERT_TRUE(test_->Flush().ok());
  }
  void Start(Task<Status> task, std::optional<Status>& into) {
    test_->loop.Spawn([](Task<Status> inner, std::optional<Status>* out) -> Task<void> {
      *out = co_await inner;
    }(std::move(task), &into));
  }
  // Just the two chunks at the border, and a write to the first extent after a while.
  void TrimBesideWrite(uint64_t step, std::span<const std::byte> data) {
    std::optional<Status> trimmed;
    std::optional<Status> done;
    Start(test_->array->Trim(volume_, extent_ - kChunk, 2 * kChunk, TrimMode::kPunch), trimmed);
    test_->Sleep(step * kStepUs);
    Start(test_->array->Write(volume_, 0, data), done);
    test_->Sleep(10'000'000);
    ASSERT_TRUE(trimmed && done) << "both end";
    EXPECT_TRUE(done->ok()) << done->error().ToString();
    EXPECT_TRUE(trimmed->ok()) << trimmed->error().ToString();
  }
  void ExpectSound() {
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
  }
  uint64_t Extents() { return test_->array->GetVolume(volume_)->allocated_bytes / extent_; }

  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  uint64_t extent_ = 0;  // bytes
  uint32_t extent_stripes_ = 0;
  Random random_{6};
  std::vector<std::byte> content_;
};

TEST_P(TrimBeside, AWriteThatComesMeanwhileIsKept) {
  for (uint64_t step = 0; step < kSteps && !HasFailure(); ++step) {
    SCOPED_TRACE(step);
    Make();
    const std::vector<std::byte> data = RandomBytes(random_, kChunk);
    TrimBesideWrite(step, data);
    EXPECT_EQ(Extents(), 3U) << "the first has what was written, the others what was there";
    for (const bool killed : {false, true}) {
      EXPECT_TRUE(test_->Read(volume_, 0, kChunk) == data);
      EXPECT_TRUE(test_->Read(volume_, extent_ + kChunk, kChunk) == content_);
      EXPECT_TRUE(test_->Read(volume_, extent_ - kChunk, 2 * kChunk) ==
                  std::vector<std::byte>(2 * kChunk));
      if (!killed) {
        ASSERT_TRUE(test_->Flush().ok());
        test_->Kill();
        test_->Open();
      }
    }
    ExpectSound();
    test_->Kill();
  }
}

// Extents go in batches of some thousand stripes, and whoever waits for one does not wait for all.
TEST_P(TrimBeside, ManyExtentsThatGoLetOthersIn) {
  ArrayShape shape = SmallShape(4, 1);
  shape.ssd_bytes = shape.log_bytes = uint64_t{64} << 20;
  MakeArray(shape);
  const uint64_t extents = 4096 / extent_stripes_;
  volume_ = test_->CreateVolume("v", extents * extent_);
  content_ = RandomBytes(random_, kChunk);
  for (uint64_t i = 0; i < extents; ++i) {
    ASSERT_TRUE(test_->Write(volume_, i * extent_, content_).ok());
  }
  ASSERT_EQ(Extents(), extents);
  std::optional<Status> trimmed;
  Start(test_->array->Trim(volume_, 0, extents * extent_, TrimMode::kPunch), trimmed);
  while (Extents() == extents) {
    test_->Sleep(kStepUs);
  }
  ASSERT_FALSE(trimmed);
  EXPECT_TRUE(test_->Write(volume_, (extents - 1) * extent_, content_).ok());
  EXPECT_FALSE(trimmed) << "whoever writes meanwhile waits for what goes now";
  test_->Sleep(10'000'000);
  ASSERT_TRUE(trimmed && trimmed->ok());
  EXPECT_LE(Extents(), 1U);
  ExpectSound();
}

INSTANTIATE_TEST_SUITE_P(Buffers, TrimBeside, ::testing::Values(0U, 16U));

}  // namespace
}  // namespace eplog
