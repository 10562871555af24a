// A ring block that reaches over the end of the log: an opening keeps some of its headers and cuts
// the others off.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kHeaders = 6;  // in a full block

class CutRingBlock : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 2;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.headers_a_ring_block = kHeaders;
    shape.auto_commit = false;
    // So that a kill comes before a flush has ended, and before a mark is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  void SetUp() override {
    const VolumeId volume = test_.CreateVolume("v", kHeaders * kChunk);
    // So that no extent is allocated later: entries that do are never cut off.
    ASSERT_TRUE(test_.Write(volume, 0, RandomBytes(random_, kHeaders * kChunk)).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kFull)).ok());
    for (uint64_t i = 0; i < kHeaders; ++i) {
      ASSERT_TRUE(test_.Write(volume, i * kChunk, RandomBytes(random_, kChunk)).ok());
    }
    test_.Sleep(kSsdDelays.write_us);
    test_.Kill();
    Look();
    ASSERT_EQ(headers_.size(), kHeaders);
    ASSERT_LT(headers_.back().mark, headers_.front().sequence)
        << "a mark covers it, and nothing is judged";
  }
  std::span<std::byte> Block(uint32_t device, uint64_t offset) {
    return test_.memory(device).bytes().subspan(offset, kBlockBytes);
  }
  [[nodiscard]] const Geometry& g() const { return superblock_.geometry; }
  // What is the newest block of the rings?
  void Look() {
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(Block(0, offset));
      superblock_ = found.ok() && found->generation > superblock_.generation ? *found : superblock_;
    }
    for (uint8_t ssd = 0; ssd < g().n; ++ssd) {
      for (uint64_t block = 0; block < g().ring_blocks; ++block) {
        const std::span<std::byte> bytes = Block(ssd, g().RingOffset(block));
        auto found = DecodeRingBlock(bytes, superblock_.array_uuid, g(), DeviceIndex(ssd));
        if (found.ok() &&
            (headers_.empty() || found->headers.back().sequence > headers_.back().sequence)) {
          headers_ = std::move(found->headers);
          block_ = bytes;
        }
      }
    }
  }
  // Neither its chunk nor its parity is whole any more.
  void Spoil(const EntryHeader& entry) {
    for (const RowRecord& row : entry.rows) {
      for (const RowChange& change : row.changes) {
        Block(g().SsdOf(row.stripe, change.index).value, g().SlotOffset(change.word.slot()))[77] ^=
            std::byte{1};
      }
    }
  }
  uint64_t ProblemsFound() {
    const auto report = RunTask(test_.loop, test_.array->Scrub(false, Progress()));
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->problems_found : 0;
  }

  Random random_{7};
  TestArray test_{Shape()};
  Superblock superblock_;
  std::vector<EntryHeader> headers_;  // of that block
  std::span<std::byte> block_;
};

// What is kept of it is stable, and the block is its only copy beside the log's. The others' numbers
// are given again only later: till then they must not make the block look like one that is still
// being written.
TEST_F(CutRingBlock, IsScrubbedForWhatIsKeptOfIt) {
  std::for_each(headers_.begin() + 1, headers_.end(), [this](const auto& entry) { Spoil(entry); });
  test_.Open();
  ASSERT_NE(test_.array, nullptr);
  ASSERT_EQ(test_.hooks().recovery_cut_entries, kHeaders - 1);
  EXPECT_EQ(ProblemsFound(), 0U);
  block_[kBlockBytes / 2] ^= std::byte{1};
  EXPECT_EQ(ProblemsFound(), 1U);
}

}  // namespace
}  // namespace eplog
