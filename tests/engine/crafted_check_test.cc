// What a scrub finds of what no write could have made: an entry of the log is changed in its
// meaning and encoded again, with everything that it describes as its checksums say.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "format/content_checksum.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kData = 3;
constexpr uint64_t kStripe = kData * kChunk;
constexpr uint64_t kSize = 100 * kStripe;

class CraftedCheck : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 5;
    shape.m = 2;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.auto_commit = false;
    return shape;
  }
  void Write(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(test_.Write(volume_, offset, RandomBytes(random_, length)).ok());
  }
  // Kills the array and visits the entries of its log; what comes back changed is what the log
  // devices have from now on. Nothing was flushed, so that no ring has it.
  void Craft(const std::function<bool(EntryHeader&)>& change) {
    test_.Kill();
    identity_ = *DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    const Geometry& g = identity_.geometry;
    for (uint64_t place = 0; place < g.log_blocks; ++place) {
      const auto at = static_cast<std::ptrdiff_t>(g.LogOffset(place));
      auto entry =
          DecodeEntryHeader(test_.memory(g.n).bytes().subspan(static_cast<size_t>(at), kBlockBytes),
                            identity_.array_uuid, g);
      if (!entry.ok() || entry->place != place || !change(*entry)) {
        continue;
      }
      std::vector<std::byte> block(kBlockBytes);
      EncodeEntryHeader(*entry, identity_.array_uuid, block);
      for (uint32_t j = 0; j < g.m; ++j) {
        std::ranges::copy(block, test_.memory(g.n + j).bytes().begin() + at);
      }
      ++crafted_;
    }
  }
  uint32_t Checksum(std::span<const std::byte> chunk) {
    return ContentChecksum(identity_.version, identity_.array_uuid)(chunk);
  }
  uint64_t Corrupt(uint32_t device) {
    return test_.array->GetStatus().devices[device].corrupt_chunks;
  }

  TestArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{5};
  Superblock identity_;
  uint64_t crafted_ = 0;
};

// Each is what its own checksum says, and the code is wrong: whoever were decoded with it would be.
TEST_F(CraftedCheck, ALogChunkThatDoesNotMatchItsMembersIsFoundAndGoesWithItsLogStripe) {
  Write(0, 4 * kStripe);
  Write(kChunk, kChunk);
  Craft([this](EntryHeader& entry) {
    if (entry.log_stripes.empty()) {
      return false;
    }
    const Geometry& g = identity_.geometry;
    const auto chunk = test_.memory(g.n + 1).bytes().subspan(g.LogOffset(entry.place + 1), kChunk);
    std::ranges::copy(RandomBytes(random_, kChunk), chunk.begin());
    entry.log_stripes[0].log_crcs[1] = Checksum(chunk);
    return true;
  });
  ASSERT_EQ(crafted_, 1U);
  test_.Open();
  EXPECT_EQ(Corrupt(6), 0U);
  for (const bool heal : {false, true}) {
    const auto report = RunTask(test_.loop, test_.array->Scrub(heal, Progress()));
    ASSERT_TRUE(report.ok());
    ASSERT_EQ(report->problems_found, 1U);
    EXPECT_EQ(report->findings[0].device, "log1");
    EXPECT_EQ(report->findings[0].volume, "");
    EXPECT_NE(report->findings[0].what.find("does not match its members"), std::string::npos)
        << report->findings[0].Text();
    EXPECT_EQ(report->findings[0].outcome,
              heal ? Finding::Outcome::kHealed : Finding::Outcome::kLeft);
    EXPECT_EQ(report->healed, heal ? 1U : 0U);
    EXPECT_EQ(report->lost, 0U);
    EXPECT_EQ(Corrupt(6), heal ? 2U : 1U);
  }
  EXPECT_EQ(Corrupt(5), 0U);
  EXPECT_EQ(test_.array->GetStatus().live_log_stripes, 0U);
  EXPECT_EQ(RunTask(test_.loop, test_.array->Scrub(false, Progress()))->problems_found, 0U);
}

}  // namespace
}  // namespace eplog
