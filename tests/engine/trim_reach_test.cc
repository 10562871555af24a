// What a trim takes and what it leaves: extents go back when nothing is left in them, whatever lies
// beside them; what is zero already costs nothing; and the log that it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layout/geometry.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripe = 6 * kChunk;

class TrimReach : public ::testing::TestWithParam<uint32_t> {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.auto_commit = false;
    shape.buffers = {.device_chunks = GetParam(), .stripes = GetParam()};
    return shape;
  }
  void SetUp() override {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    extent_ = superblock->geometry.extent_data_bytes();
    size_ = 40 * extent_;
    volume_ = test_.CreateVolume("v", size_);
    model_.assign(size_, std::byte{0});
  }
  void Put(uint64_t offset, uint64_t length) {
    const auto bytes = RandomBytes(random_, length);
    ASSERT_TRUE(test_.Write(volume_, offset, bytes).ok());
    std::ranges::copy(bytes, model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Trim(uint64_t offset, uint64_t length, TrimMode mode = TrimMode::kPunch) {
    const Status trimmed = RunTask(test_.loop, test_.array->Trim(volume_, offset, length, mode));
    ASSERT_TRUE(trimmed.ok()) << trimmed.error().ToString();
    std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(offset), length, std::byte{0});
  }
  void FlushAll() { ASSERT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok()); }
  uint64_t Extents() { return test_.array->GetVolume(volume_)->allocated_bytes / extent_; }
  Traffic Now() { return test_.array->GetStatus().traffic; }
  void ExpectContent() { EXPECT_TRUE(test_.Read(volume_, 0, size_) == model_); }

  TestArray test_{Shape()};
  VolumeId volume_;
  uint64_t extent_ = 0;
  uint64_t size_ = 0;
  Random random_{4};
  std::vector<std::byte> model_;
};

// Chunk by chunk from either end: the last one gives the extent back, and its neighbours stay,
// though their nearest chunks lie in buffers or in the log.
TEST_P(TrimReach, TheLastPieceOfAnExtentGivesItBack) {
  for (const bool backwards : {false, true}) {
    Put(0, 3 * extent_);
    FlushAll();
    Put(extent_ - kChunk, kChunk);
    Put(2 * extent_, kChunk);
    Put(extent_ + 3 * kChunk, 2 * kChunk);
    const uint64_t chunks = extent_ / kChunk;
    for (uint64_t i = 0; i < chunks; ++i) {
      EXPECT_EQ(Extents(), 3U) << i;
      Trim(extent_ + (backwards ? chunks - 1 - i : i) * kChunk, kChunk);
    }
    EXPECT_EQ(Extents(), 2U);
    ExpectContent();
    // A piece that is not the last of a neighbour gives nothing back.
    Trim(extent_ - 2 * kChunk, 2 * kChunk);
    Trim(2 * extent_, kChunk);
    EXPECT_EQ(Extents(), 2U);
    ExpectContent();
    Trim(0, size_);
    EXPECT_EQ(Extents(), 0U);
  }
}

// Extents that are wholly inside go, those at the ends keep what is outside.
TEST_P(TrimReach, WhatIsWhollyInsideGoesBack) {
  struct Case {
    uint64_t from;
    uint64_t to;
    uint64_t left;
  };
  for (const Case& c :
       {Case{0, extent_, 9}, Case{extent_, 4 * extent_, 7}, Case{extent_ + 1, 4 * extent_, 8},
        Case{extent_, 4 * extent_ - 1, 8}, Case{extent_ - 1, 4 * extent_ + 1, 7},
        Case{extent_ + 1, 2 * extent_ - 1, 10}, Case{0, 10 * extent_, 0},
        Case{9 * extent_, 40 * extent_, 9}}) {
    for (const TrimMode mode : {TrimMode::kZero, TrimMode::kPunch}) {
      SCOPED_TRACE(std::to_string(c.from) + " to " + std::to_string(c.to));
      Put(0, 10 * extent_);
      Trim(c.from, c.to - c.from, mode);
      EXPECT_EQ(Extents(), mode == TrimMode::kPunch ? c.left : 10U);
      ExpectContent();
      FlushAll();
      test_.Kill();
      test_.Open();
      EXPECT_EQ(Extents(), mode == TrimMode::kPunch ? c.left : 10U);
      ExpectContent();
    }
  }
}

// In extents that are there: nothing is written, logged or pending for what is zero already.
TEST_P(TrimReach, OfZerosCostsNothing) {
  Put(0, kChunk);
  Put(extent_ + 2 * kStripe, kStripe);
  FlushAll();
  const ArrayStatus before = test_.array->GetStatus();
  for (const TrimMode mode : {TrimMode::kZero, TrimMode::kPunch}) {
    Trim(kChunk + 100, 50, mode);
    Trim(3 * kChunk, 2 * kChunk, mode);
    Trim(kChunk + 7, 2 * kStripe, mode);
    Trim(kStripe, extent_ - kStripe, mode);
    Trim(extent_, 2 * kStripe, mode);
    Trim(extent_ + 3 * kStripe, 100, mode);
    Trim(5 * extent_, 10 * extent_, mode);
  }
  FlushAll();
  const ArrayStatus after = test_.array->GetStatus();
  EXPECT_EQ(after.traffic.log_appends, before.traffic.log_appends);
  EXPECT_EQ(after.traffic.ssd_data_bytes, before.traffic.ssd_data_bytes);
  EXPECT_EQ(after.pending_chunks, before.pending_chunks);
  EXPECT_EQ(Extents(), 2U);
  ExpectContent();
}

// What lies in buffers alone is content: its extent is not empty, whatever the tables say of it.
TEST_P(TrimReach, WhatOnlyLiesInBuffersKeepsItsExtent) {
  Put(3 * kChunk, kChunk);
  Put(2 * extent_ - kChunk, kChunk);
  EXPECT_EQ(Extents(), 2U);
  Trim(0, 3 * kChunk);
  Trim(4 * kChunk, extent_ - 4 * kChunk);
  Trim(extent_, extent_ - kChunk);
  EXPECT_EQ(Extents(), 2U);
  ExpectContent();
  FlushAll();
  test_.Kill();
  test_.Open();
  ExpectContent();
  Trim(3 * kChunk, kChunk);
  EXPECT_EQ(Extents(), 1U);
  ExpectContent();
}

// One record an extent, if that has no more than 64 stripes.
TEST_P(TrimReach, OfManyStripesTakesFewEntries) {
  Put(0, size_);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  const uint64_t stripes = size_ / kStripe;
  const uint64_t in_extent = extent_ / kStripe;
  ASSERT_LE(in_extent, 64U);
  uint64_t before = Now().log_appends;
  Trim(0, size_, TrimMode::kZero);
  EXPECT_EQ(Now().log_appends - before, stripes / in_extent) << "one for each extent";
  EXPECT_EQ(Extents(), 40U);
  FlushAll();
  test_.Sleep(10'000'000);
  EXPECT_EQ(test_.array->GetStatus().slots_used, 0U);
  before = Now().log_appends;
  Trim(0, size_, TrimMode::kPunch);
  EXPECT_LE(Now().log_appends - before, 2U);
  EXPECT_EQ(Extents(), 0U);
  ExpectContent();
}

// Whole chunks become zeros that are pending; of parts their chunk is written.
TEST_P(TrimReach, OfChunksLeavesTheOthersOfTheirStripe) {
  Put(0, size_ / 4);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  for (uint64_t first = 0; first < 6; ++first) {
    for (uint64_t last = first; last <= 6; ++last) {
      for (const uint64_t head : {uint64_t{0}, uint64_t{1}, kChunk - 1}) {
        for (const uint64_t tail : {uint64_t{0}, uint64_t{1}, kChunk - 1}) {
          const uint64_t from = first * kChunk + head;
          const uint64_t to = last * kChunk + (last == 6 ? 0 : tail);
          if (from >= to) {
            continue;
          }
          Put(kStripe, 3 * kStripe);
          Trim(2 * kStripe + from, to - from, TrimMode::kZero);
          const auto found = test_.Read(volume_, kStripe, 3 * kStripe);
          ASSERT_TRUE(std::equal(found.begin(), found.end(),
                                 model_.begin() + static_cast<std::ptrdiff_t>(kStripe)))
              << from << " to " << to;
        }
      }
    }
  }
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 0U);
  ExpectContent();
  const auto report = RunTask(test_.loop, test_.array->Check({}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems_found, 0U);
}

// Larger extents take one for each 64 of their stripes.
TEST(TrimOfLargeExtents, TakesAnEntryForEach64Stripes) {
  TestArray test({});
  ASSERT_TRUE(test.Close().ok());
  CreateOptions options;
  options.extent_stripes = 256;
  options.force = true;
  options.entropy = 9;
  const std::vector<Device*> all = test.Devices();
  const Status created = RunTask(test.loop, Array::Create(test.loop, {all.begin(), all.begin() + 8},
                                                          {all.begin() + 8, all.end()}, options));
  ASSERT_TRUE(created.ok()) << created.error().ToString();
  test.Open();
  const uint64_t extent = 256 * kStripe;
  const VolumeId id = test.CreateVolume("v", extent);
  const std::vector<std::byte> data(extent, std::byte{1});
  struct Case {
    uint64_t first;
    uint64_t stripes;
    uint64_t entries;
  };
  for (const Case& c : {Case{0, 256, 4}, Case{0, 64, 1}, Case{0, 65, 2}, Case{3, 128, 2},
                        Case{3, 129, 3}, Case{192, 64, 1}, Case{255, 1, 1}}) {
    SCOPED_TRACE(std::to_string(c.first) + "+" + std::to_string(c.stripes));
    ASSERT_TRUE(test.Write(id, 0, data).ok());
    const uint64_t before = test.array->GetStatus().traffic.log_appends;
    ASSERT_TRUE(RunTask(test.loop, test.array->Trim(id, c.first * kStripe, c.stripes * kStripe,
                                                    TrimMode::kZero))
                    .ok());
    EXPECT_EQ(test.array->GetStatus().traffic.log_appends - before, c.entries);
    std::vector<std::byte> model = data;
    std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(c.first * kStripe), c.stripes * kStripe,
                std::byte{0});
    EXPECT_TRUE(test.Read(id, 0, extent) == model);
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, TrimReach, ::testing::Values(0U, 8U));

struct Wide {
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
};

class TrimOfAWideStripe : public ::testing::TestWithParam<Wide> {};

// The smallest log has no room for all chunks of the widest stripes at once, however empty it is: a
// trim that asked for that would wait for ever, and everybody behind it.
TEST_P(TrimOfAWideStripe, FitsTheSmallestLog) {
  const auto [n, m, chunk] = GetParam();
  const uint64_t stripe = uint64_t{n - m} * chunk;
  ArrayShape shape;
  shape.n = n;
  shape.m = m;
  shape.chunk_bytes = chunk;
  shape.ssd_bytes = std::max<uint64_t>(uint64_t{8} << 20, uint64_t{96} * chunk);
  shape.log_bytes = MinLogBytes(chunk);
  TestArray test(shape);
  const VolumeId volume = test.CreateVolume("v", 3 * stripe);
  Random random(7);
  std::vector<std::byte> model = RandomBytes(random, 3 * stripe);
  ASSERT_TRUE(test.Write(volume, 0, model).ok());
  std::optional<Status> trimmed;
  std::optional<Status> shrunk;
  const auto start = [&test](Task<Status> task, std::optional<Status>& into) {
    test.loop.Spawn([](Task<Status> inner, std::optional<Status>* out) -> Task<void> {
      *out = co_await inner;
    }(std::move(task), &into));
    test.Sleep(60'000'000);
  };
  start(test.array->Trim(volume, stripe + chunk, stripe - chunk, TrimMode::kZero), trimmed);
  ASSERT_TRUE(trimmed) << "it waits for ever";
  EXPECT_TRUE(trimmed->ok());
  std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(stripe + chunk), stripe - chunk,
              std::byte{0});
  EXPECT_TRUE(test.Read(volume, 0, model.size()) == model);
  start(test.array->ResizeVolume(volume, chunk), shrunk);
  ASSERT_TRUE(shrunk) << "it waits for ever";
  EXPECT_TRUE(shrunk->ok());
  EXPECT_TRUE(test.Write(volume, 0, std::span(model).first(chunk)).ok());
}

INSTANTIATE_TEST_SUITE_P(Shapes, TrimOfAWideStripe,
                         ::testing::Values(Wide{32, 1, 4096}, Wide{32, 2, 65536}));

}  // namespace
}  // namespace eplog
