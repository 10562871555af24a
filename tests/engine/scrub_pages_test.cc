// Scrubbing the pages of a checkpoint: each copy of each page is looked at, and just those that are
// wrong, or cannot be read, are named.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/checkpoint.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;

class ScrubPages : public ::testing::Test {
 protected:
  // Two runs of several pages, everything committed.
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    const uint64_t size = test_->array->GetStatus().capacity_bytes / 4 * 3;
    const VolumeId volume = test_->CreateVolume("v", size);
    Random random(13);
    ASSERT_TRUE(test_->Write(volume, 0, RandomBytes(random, size)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    ASSERT_TRUE(test_->Write(volume, 0, RandomBytes(random, size / 2)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kIncremental)).ok());
    Look();
  }
  void Look() {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(Bytes(0, offset, kSuperblockCopyBytes));
      newest = found.ok() && found->generation > newest.generation ? *found : newest;
    }
    geometry_ = newest.geometry;
    const CheckpointPointer& pointer = newest.checkpoint;
    const auto ssd = static_cast<uint32_t>(__builtin_ctzll(pointer.ssd_mask));
    const auto page = Bytes(ssd, geometry_.MetadataOffset(pointer.root_block), kBlockBytes);
    const auto header = DecodePage(page, newest.array_uuid);
    ASSERT_TRUE(header.ok());
    const auto root = DecodeRoot(page.subspan(kPageHeaderBytes, header->payload_bytes));
    ASSERT_TRUE(root.ok());
    ASSERT_EQ(root->runs.size(), 2U);
    pages_.clear();
    const auto add = [&](uint64_t mask, uint64_t block) {
      for (uint32_t i = 0; i < kSsdCount; ++i) {
        if ((mask >> i & 1) != 0) {
          pages_.emplace_back(i, block);
        }
      }
    };
    add(pointer.ssd_mask, pointer.root_block);
    for (const RunDescriptor& run : root->runs) {
      ASSERT_GT(run.blocks, 2U);
      for (uint64_t i = 0; i < run.blocks; ++i) {
        add(run.ssd_mask, (run.first_block + i) % geometry_.metadata_blocks);
      }
    }
  }
  std::span<std::byte> Bytes(uint32_t device, uint64_t offset, uint64_t length) {
    return test_->memory(device).bytes().subspan(offset, length);
  }
  CheckReport Scrub(bool heal) {
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  void ExpectNamed(const CheckReport& report, std::pair<uint32_t, uint64_t> page) {
    ASSERT_EQ(report.problems_found, 1U);
    EXPECT_EQ(report.findings[0].device, "ssd" + std::to_string(page.first));
    EXPECT_EQ(report.findings[0].what,
              "page " + std::to_string(page.second) + " of the newest checkpoint is damaged");
  }

  std::unique_ptr<TestArray> test_;
  Geometry geometry_;
  std::vector<std::pair<uint32_t, uint64_t>> pages_;  // SSD and block
};

TEST_F(ScrubPages, EachCopyOfEachIsLookedAt) {
  const CheckReport clean = Scrub(false);
  EXPECT_EQ(clean.problems_found, 0U);
  EXPECT_GE(clean.metadata_blocks_checked, pages_.size());
  for (const auto& page : pages_) {
    SCOPED_TRACE(std::to_string(page.first) + " " + std::to_string(page.second));
    const uint64_t offset = geometry_.MetadataOffset(page.second);
    Bytes(page.first, offset + 100, 1)[0] ^= std::byte{1};
    const CheckReport report = Scrub(false);
    ExpectNamed(report, page);
    EXPECT_EQ(report.metadata_blocks_checked, clean.metadata_blocks_checked);
    Bytes(page.first, offset + 100, 1)[0] ^= std::byte{1};
  }
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

// A whole stretch cannot be read for one sector in it: the others are well.
TEST_F(ScrubPages, OneThatCannotBeReadIsNoOtherOnesFault) {
  const CheckReport clean = Scrub(false);
  uint64_t looked = 0;
  for (size_t i = 0; i < pages_.size(); i += 7) {
    const auto& page = pages_[i];
    SCOPED_TRACE(std::to_string(page.first) + " " + std::to_string(page.second));
    test_->faulty(page.first)
        .Add({.kinds = MaskOf(RequestKind::kRead),
              .from_then_on = true,
              .range_offset_bytes = geometry_.MetadataOffset(page.second) + 512,
              .range_length_bytes = 512});
    const CheckReport report = Scrub(false);
    ExpectNamed(report, page);
    EXPECT_EQ(report.metadata_blocks_checked, clean.metadata_blocks_checked);
    test_->faulty(page.first).Clear();
    ++looked;
  }
  EXPECT_GT(looked, 2U);
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

// Whatever is wrong, a full one takes its place.
TEST_F(ScrubPages, AreMendedByAFullCheckpoint) {
  const auto page = pages_.back();
  Bytes(page.first, geometry_.MetadataOffset(page.second) + 100, 1)[0] ^= std::byte{1};
  const uint64_t before = test_->hooks().full_checkpoints_written;
  const CheckReport report = Scrub(true);
  ExpectNamed(report, page);
  EXPECT_EQ(report.healed, 1U);
  EXPECT_EQ(Scrub(false).problems_found, 0U);
  EXPECT_EQ(test_->hooks().full_checkpoints_written, before + 1);
}

}  // namespace
}  // namespace eplog
