// EngineParts with checkpoints and superblocks, as after a creation.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/checkpoint/checkpoint_loader.h"
#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblocks.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    const Appender::Position start{parts_.core.identity.epoch, 0, 0};
    EXPECT_TRUE(parts_.Run(checkpointer_.WriteAlone(start)).ok());
    for (int copy = 0; copy < 2; ++copy) {
      EXPECT_TRUE(parts_.Run(superblocks_.Write()).ok());
    }
    checkpointer_.Open(0);
  }
  [[nodiscard]] const Geometry& g() const { return parts_.g(); }
  // Both copies on a device.
  std::vector<Result<Superblock>> CopiesOn(DeviceIndex device) {
    std::vector<Result<Superblock>> copies;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      copies.push_back(
          DecodeSuperblock(parts_.memory(device).bytes().subspan(offset, kSuperblockCopyBytes)));
    }
    return copies;
  }
  Superblock NewestOn(DeviceIndex device) {
    const auto copies = CopiesOn(device);
    EXPECT_TRUE(copies[0].ok() && copies[1].ok());
    return copies[0]->generation > copies[1]->generation ? *copies[0] : *copies[1];
  }
  Status Checkpoint(CheckpointKind kind = CheckpointKind::kAuto) {
    return parts_.Run(checkpointer_.Checkpoint(kind));
  }
  Result<CheckpointRoot> Root() {
    return parts_.Run(LoadRoot(parts_.core, NewestOn(DeviceIndex(0)).checkpoint));
  }
  // What the superblocks name, loaded.
  Result<std::unique_ptr<State>> Load() {
    auto root = Root();
    EPLOG_TRY(root);
    auto state = std::make_unique<State>(g());
    EPLOG_TRY(parts_.Run(LoadRuns(parts_.core, *root, *state)));
    return state;
  }
  // That it is the state as it is.
  void ExpectLoads() {
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
    const State& now = *parts_.core.state;
    for (uint64_t c = 0; c < g().data_chunks(); ++c) {
      const ChunkIndex chunk(c);
      ASSERT_EQ((*loaded)->Latest(chunk), now.Latest(chunk)) << c;
      const auto there = now.pending.Find(chunk);
      const auto found = (*loaded)->pending.Find(chunk);
      ASSERT_EQ(found.has_value(), there.has_value()) << c;
      ASSERT_TRUE(!found || found->version == there->version) << c;
    }
    for (uint32_t s = 0; s < g().stripes; ++s) {
      for (uint32_t i = 0; i < g().n; ++i) {
        ASSERT_EQ((*loaded)->rows.Get(StripeIndex(s), i), now.rows.Get(StripeIndex(s), i));
      }
    }
    EXPECT_EQ((*loaded)->pending.live_members(), now.pending.live_members());
    EXPECT_EQ((*loaded)->pending.zeros(), now.pending.zeros());
    EXPECT_EQ((*loaded)->volumes.all().size(), now.volumes.all().size());
    EXPECT_EQ((*loaded)->volumes.free_extents(), now.volumes.free_extents());
    EXPECT_EQ((*loaded)->volumes.next_id(), now.volumes.next_id());
  }
  // The metadata area of an SSD is noise.
  void RotPages(DeviceIndex ssd) {
    auto area = parts_.memory(ssd).bytes().subspan(g().metadata_offset_bytes,
                                                   g().metadata_blocks * kBlockBytes);
    for (size_t i = 0; i < area.size(); i += kBlockBytes) {
      area[i + 70] ^= std::byte{1};
    }
  }

  EngineParts parts_;
  Superblocks superblocks_{parts_.core, parts_.core.identity,
                           std::vector<uint64_t>(parts_.g().devices(), 0), 0};
  Checkpointer checkpointer_{parts_.core, parts_.appender, parts_.flusher, superblocks_};
};

}  // namespace eplog
