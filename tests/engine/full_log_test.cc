// A log that is full of what cannot be committed: whoever lets go of that is taken all the same,
// since nobody else would ever have room again.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 3 * kChunk;
constexpr uint64_t kStripes = 400;
constexpr uint64_t kSize = kStripes * kStripe;

class FullLog : public ::testing::Test {
 protected:
  // 3+1. Most stripes have lost more than their parity replaces, and were written to since.
  void Make() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.max_corrupt_chunks = 0;
    test_ = std::make_unique<TestArray>(shape);
    other_ = test_->CreateVolume("other", kSize);
    volume_ = test_->CreateVolume("v", kSize);
    ASSERT_TRUE(test_->Write(volume_, 0, RandomBytes(random_, kSize)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Commit(Progress())).ok());
    const auto bytes = test_->memory(1).bytes();
    for (uint64_t slot = 0; slot < 350; ++slot) {
      bytes[test_->SlotsOffsetBytes() + slot * kChunk + 100] ^= std::byte{1};
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(2, "by hand")).ok());
    lost_.clear();
    const Buffer buffer = test_->pool.Get(kChunk);
    for (uint64_t chunk = 0; chunk < kSize / kChunk; ++chunk) {
      if (!RunTask(test_->loop, test_->array->Read(volume_, chunk * kChunk, buffer.span())).ok()) {
        lost_.insert(chunk);
      }
    }
    uint64_t refused = 0;
    for (uint64_t chunk = 0; chunk < kSize / kChunk && refused < 3; ++chunk) {
      if (HasLost(chunk / 3) && !lost_.contains(chunk)) {
        refused += Put(chunk).ok() ? 0 : 1;
      }
    }
    ASSERT_EQ(refused, 3U) << "the log is full";
  }
  bool HasLost(uint64_t stripe) const {
    const auto first = lost_.lower_bound(stripe * 3);
    return first != lost_.end() && *first < stripe * 3 + 3;
  }
  Status Put(uint64_t chunk) {
    return test_->Write(volume_, chunk * kChunk, RandomBytes(random_, kChunk));
  }
  Status PutIn(VolumeId id, uint64_t offset) {
    return test_->Write(id, offset, RandomBytes(random_, kChunk));
  }
  Geometry GeometryOfIt() {
    return DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
  }
  Status Trim(uint64_t offset, uint64_t length, TrimMode mode) {
    return RunTask(test_->loop, test_->array->Trim(volume_, offset, length, mode));
  }

  std::unique_ptr<TestArray> test_;
  VolumeId other_;
  VolumeId volume_;
  std::set<uint64_t> lost_;
  Random random_{3};
};

TEST_F(FullLog, TakesWhatLetsGoOfIt) {
  struct Cure {
    std::string name;
    std::function<Status()> make;
  };
  const std::vector<Cure> cures = {
      {"cut",
       [this] { return RunTask(test_->loop, test_->array->ResizeVolume(volume_, kStripe)); }},
      {"replace",
       [this] { return RunTask(test_->loop, test_->array->RenameVolume(other_, "v", true)); }},
      {"delete", [this] { return RunTask(test_->loop, test_->array->DeleteVolume(volume_)); }},
      {"punch all", [this] { return Trim(0, kSize, TrimMode::kPunch); }},
  };
  for (const Cure& cure : cures) {
    SCOPED_TRACE(cure.name);
    Make();
    ASSERT_FALSE(HasFailure());
    const Status cured = cure.make();
    EXPECT_TRUE(cured.ok()) << cured.error().ToString();
    test_->Sleep(10'000'000);
    // There is room for everybody again.
    const VolumeId fresh = test_->CreateVolume("fresh", uint64_t{1} << 20);
    for (uint64_t i = 0; i < 50; ++i) {
      const Status put = test_->Write(fresh, i * 2 * kChunk, RandomBytes(random_, kChunk));
      ASSERT_TRUE(put.ok()) << put.error().ToString();
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    test_->Kill();
  }
}

// A write that is refused for want of log had an extent in view. That is nobody's: it counts as
// free, and the next one has it.
TEST_F(FullLog, ExtentsOfRefusedWritesAreFree) {
  Make();
  ASSERT_FALSE(HasFailure());
  const uint64_t extent = GeometryOfIt().extent_data_bytes();
  const uint64_t extents = GeometryOfIt().extents();
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 20 && refused < 5; ++i) {
    refused += PutIn(other_, i * extent).ok() ? 0 : 1;
  }
  EXPECT_EQ(refused, 5U);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->DeleteVolume(volume_)).ok());
  test_->Sleep(10'000'000);
  const uint64_t taken = test_->array->GetVolume(other_)->allocated_bytes / extent;
  const VolumeId all = test_->CreateVolume("all", extents * extent);
  for (uint64_t i = 0; i < extents - taken; ++i) {
    const Status put = PutIn(all, i * extent);
    ASSERT_TRUE(put.ok()) << i << ": " << put.error().ToString();
  }
  EXPECT_EQ(test_->array->GetStatus().free_bytes, 0U);
  test_->Kill();
}

}  // namespace
}  // namespace eplog
