// What a check says of tables that contradict themselves. No opening takes such tables, so that
// only a mistake of the engine's own could make them: here they are made by hand.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/core/core.h"
#include "engine/core/findings.h"
#include "engine/log/appender.h"
#include "engine/read/chunk_reader.h"
#include "engine/repair/scrubber.h"
#include "engine/write/buffered_chunks.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "layout/geometry.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;

Superblock Identity() {
  GeometryRequest request;
  request.n = kSsdCount;
  request.m = 1;
  request.chunk_bytes = 4096;
  request.ssd_bytes = uint64_t{4} << 20;
  request.log_bytes = uint64_t{2} << 20;
  request.extent_stripes = 64;
  Superblock identity;
  identity.geometry = *PlanGeometry(request);
  return identity;
}

class References : public ::testing::Test {
 protected:
  // A volume has extent 0; so much is in order.
  void SetUp() override {
    EntryHeader entry = Entry();
    entry.volumes.emplace_back(VolumeCreated{VolumeId(1), 1 << 20, "v"});
    entry.volumes.emplace_back(ExtentAssigned{VolumeId(1), 0, ExtentIndex(0)});
    Apply(entry);
    Row(0, {0, 0, 0, 0});
    Row(g().extent_stripes - 1, {1, 1, 1, 1});
    for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
      core_.space.MarkUsed(DeviceIndex(ssd), SlotIndex(0), 2);
    }
  }
  const Geometry& g() const { return core_.geometry; }
  EntryHeader Entry() {
    EntryHeader entry;
    entry.sequence = ++sequence_;
    return entry;
  }
  void Apply(const EntryHeader& entry) {
    SlotChanges ignored;
    core_.state->Apply(entry, ignored);
  }
  // A whole stripe, by SSD.
  void Row(uint32_t stripe, const std::vector<uint32_t>& slots) {
    EntryHeader entry = Entry();
    RowRecord& row = entry.rows.emplace_back();
    row.stripe = StripeIndex(stripe);
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      const SlotIndex slot(slots[g().SsdOf(row.stripe, i).value]);
      row.changes.push_back(
          {static_cast<uint8_t>(i), SlotWord::At(slot), 1, i < g().k() ? entry.sequence : 0});
    }
    Apply(entry);
  }
  std::vector<std::string> Check() {
    Findings findings;
    Scrubber scrubber(core_, reader_, appender_, buffered_, nullptr, findings);
    scrubber.CheckReferences();
    std::vector<std::string> found;
    for (const Finding& finding : findings.report.findings) {
      found.push_back(finding.what);
    }
    EXPECT_EQ(findings.report.problems_found, found.size());
    return found;
  }

  VirtualLoop loop_;
  Core core_{loop_, std::vector<Device*>(kSsdCount + 1, nullptr), Identity(), OpenOptions()};
  Appender appender_{core_};
  ChunkReader reader_{core_, nullptr};
  BufferedChunks buffered_{core_};
  uint64_t sequence_ = 0;
};

using Found = std::vector<std::string>;

TEST_F(References, ThatAreInOrderAreNoProblem) {
  EXPECT_EQ(Check(), Found());
}

TEST_F(References, ToOneSlotTwiceAreFoundOnItsSsd) {
  core_.space.MarkUsed(DeviceIndex(0), SlotIndex(2));
  core_.space.MarkUsed(DeviceIndex(1), SlotIndex(2));
  core_.space.MarkUsed(DeviceIndex(3), SlotIndex(2));
  Row(5, {2, 2, 1, 2});
  EXPECT_EQ(Check(), Found{"ssd2 slot 1 is referenced twice or does not exist"});
}

TEST_F(References, BehindTheLastSlotAreFound) {
  for (const uint8_t ssd : std::vector<uint8_t>{0, 1, 3}) {
    core_.space.MarkUsed(DeviceIndex(ssd), SlotIndex(2));
  }
  Row(5, {2, 2, g().slots, 2});
  EXPECT_EQ(Check(), Found{"ssd2 slot " + std::to_string(g().slots) +
                           " is referenced twice or does not exist"});
}

TEST_F(References, ToTheLastSlotAreNoProblem) {
  for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
    core_.space.MarkUsed(DeviceIndex(ssd), SlotIndex(g().slots - 1));
  }
  const uint32_t last = g().slots - 1;
  Row(5, {last, last, last, last});
  EXPECT_EQ(Check(), Found());
}

TEST_F(References, ToWhatSomebodyElseCouldTakeAreFound) {
  for (const uint8_t ssd : std::vector<uint8_t>{0, 1, 2}) {
    core_.space.MarkUsed(DeviceIndex(ssd), SlotIndex(2));
  }
  Row(5, {2, 2, 2, 2});
  EXPECT_EQ(Check(), Found{"ssd3 slot 2 is referenced and free"});
}

// From the first stripe behind the volume's extent to the last of all.
TEST_F(References, OutsideOfVolumesAreFound) {
  const std::vector<uint32_t> stripes = {g().extent_stripes, g().stripes - 1};
  Found expected;
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
      core_.space.MarkUsed(DeviceIndex(ssd), SlotIndex(2 + i));
    }
    Row(stripes[i], {2 + i, 2 + i, 2 + i, 2 + i});
    expected.push_back("stripe " + std::to_string(stripes[i]) +
                       " has content and belongs to no volume");
  }
  EXPECT_EQ(Check(), expected);
}

}  // namespace
}  // namespace eplog
