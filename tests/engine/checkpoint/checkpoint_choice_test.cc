// Which SSDs a checkpoint goes to, when it is one of all or of what changed, and what its root says was
// written until it counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "engine/core/traffic.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class CheckpointChoice : public CheckpointTest {
 protected:
  CheckpointPointer Pointer() { return NewestOn(DeviceIndex(0)).checkpoint; }
  // Of the whole area, from the beginning of the oldest run to the root.
  uint64_t UsedBlocks() {
    const uint64_t area = g().metadata_blocks;
    const uint64_t first = Root()->runs.back().first_block;
    return (Pointer().root_block + area - first) % area + 1;
  }
  // As section 5 has it: one of what changed while those since the last full one are shorter than
  // it, and where a full one of any size fits behind it.
  bool ChangesAreLess() {
    const std::vector<RunDescriptor> runs = Root()->runs;
    uint64_t since = MostBytes();
    for (size_t i = 0; i + 1 < runs.size(); ++i) {
      since += runs[i].stream_bytes;
    }
    return since < runs.back().stream_bytes && AFullOneFitsBehindIt();
  }
  bool AFullOneFitsBehindIt() {
    return UsedBlocks() + MostBlocks() + g().max_checkpoint_blocks() <= g().metadata_blocks;
  }
  // With its root.
  [[nodiscard]] uint64_t MostBlocks() const { return DivideUp(MostBytes(), kPagePayloadBytes) + 1; }
  [[nodiscard]] uint64_t MostBytes() const { return Snapshot::MaxBytes(*parts_.core.state, false); }
};

// None wears for all.
TEST_F(CheckpointChoice, EachSsdGetsAsManyAsAnyOther) {
  std::array<uint32_t, kMaxSsds> times{};
  for (uint32_t i = 0; i < g().n; ++i) {
    ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    for (uint32_t ssd = 0; ssd < g().n; ++ssd) {
      times[ssd] += (Pointer().ssd_mask >> ssd & 1) != 0 ? 1 : 0;
    }
  }
  for (uint32_t ssd = 0; ssd < g().n; ++ssd) {
    EXPECT_EQ(times[ssd], g().m + 1) << ssd;
  }
}

TEST_F(CheckpointChoice, IsOfWhatChangedWhileThatIsLessThanAllOfIt) {
  for (uint32_t s = 0; s < g().stripes / 2; ++s) {
    parts_.WriteStripe(StripeIndex(s));
    if (s % 20 == 0) {
      parts_.MakeStable();
      ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    }
  }
  ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
  uint32_t full = 0;
  uint32_t incremental = 0;
  for (uint32_t i = 0; i < 60; ++i) {
    parts_.Log({parts_.Chunk(i * 7 % g().stripes, 0)});
    parts_.MakeStable();
    const bool less = ChangesAreLess();
    const uint64_t next = (Pointer().root_block + 1) % g().metadata_blocks;
    ASSERT_TRUE(Checkpoint(CheckpointKind::kAuto).ok());
    ASSERT_EQ(Root()->runs.size() > 1, less) << i;
    ASSERT_EQ(Root()->runs[0].first_block, next) << "behind the one that counts until then";
    ++(less ? incremental : full);
  }
  EXPECT_GT(full, 0U);
  EXPECT_GT(incremental, full);
  ExpectLoads();
}

// To the last block: where one of what changed just fits, so that a full one does behind it, it is
// made; with a block less it is not. As found at an opening, round the end of the area.
TEST_F(CheckpointChoice, IsOfAllWhereAFullOneOfAnySizeWouldNotFitBehindIt) {
  const uint64_t area = g().metadata_blocks;
  const auto after = [&](uint64_t used) {
    CheckpointRoot root = *Root();
    root.runs = {root.runs.back()};
    root.runs[0].first_block = area - 20;
    const uint64_t root_block = (area - 20 + used - 1) % area;
    checkpointer_.Adopt(root, root_block);
    parts_.Log({parts_.Chunk(0, 0)});
    EXPECT_TRUE(Checkpoint(CheckpointKind::kIncremental).ok());
    const auto written = Root();
    if (!written.ok()) {
      ADD_FAILURE() << written.error().ToString();
      return size_t{0};
    }
    EXPECT_EQ(written->runs[0].first_block, (root_block + 1) % area);
    return written->runs.size();
  };
  parts_.Log({parts_.Chunk(0, 0)});
  const uint64_t most = area - g().max_checkpoint_blocks() - MostBlocks();
  for (const uint64_t used : {uint64_t{2}, uint64_t{20}, uint64_t{21}, most - 1, most}) {
    EXPECT_EQ(after(used), 2U) << used;
  }
  const uint64_t told = parts_.hooks.metadata_full;
  EXPECT_EQ(after(most + 1), 1U);
  EXPECT_EQ(parts_.hooks.metadata_full, told + 1);
  ExpectLoads();
}

// Whoever opens the array goes on counting from there.
TEST_F(CheckpointChoice, TheRootSaysWhatWillHaveBeenWrittenWhenItCounts) {
  ForEachCounter(parts_.core.lifetime_before, [](uint64_t& value) { value = 1'000'000; });
  for (int lost = 0; lost < 3; ++lost) {
    parts_.WriteStripe(StripeIndex(static_cast<uint32_t>(lost)));
    parts_.Log({parts_.Chunk(9, 0)});
    parts_.MakeStable();  // what goes to the rings beside it is not known to the root
    ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    const Traffic all = AddTraffic(parts_.core.lifetime_before, parts_.core.CurrentTraffic());
    const std::vector<uint64_t> said = Root()->lifetime_counters;
    const std::vector<uint64_t> counted = TrafficToCounters(all);
    ASSERT_EQ(said.size(), counted.size());
    for (size_t i = 0; i < said.size(); ++i) {
      EXPECT_EQ(said[i], counted[i]) << kTrafficCounters[i].name << ", " << lost << " lost";
    }
    if (lost < 2) {
      parts_.Lose(lost == 0 ? DeviceIndex(1) : g().LogDevice(0));
    }
  }
}

// A replacement has no pages of what was written before it came, and all of what it was chosen for
// since.
TEST_F(CheckpointChoice, ASsdMustHaveThePagesOfTheFirstItWasChosenForAndOfAllLaterOnes) {
  const DeviceIndex fresh(0);
  parts_.core.has_checkpoint_from[fresh.value] = Core::kNoneYet;
  uint64_t first = 0;
  uint32_t without = 0;
  for (uint32_t i = 0; i < 2 * g().n; ++i) {
    ASSERT_TRUE(Checkpoint(CheckpointKind::kFull).ok());
    const CheckpointPointer pointer = Pointer();
    const bool chosen = (pointer.ssd_mask >> fresh.value & 1) != 0;
    first = first == 0 && chosen ? pointer.generation : first;
    without += first == 0 ? 1 : 0;
    EXPECT_EQ(parts_.core.has_checkpoint_from[fresh.value], first == 0 ? Core::kNoneYet : first);
    EXPECT_EQ(parts_.core.MustHavePagesOf(pointer.generation, fresh), first != 0);
    EXPECT_TRUE(parts_.core.MustHavePagesOf(0, DeviceIndex(1))) << "it was there all the time";
  }
  EXPECT_NE(first, 0U);
  EXPECT_NE(without, 0U) << "it was chosen at once";
  EXPECT_FALSE(parts_.core.MustHavePagesOf(first - 1, fresh));
}

}  // namespace
}  // namespace eplog
