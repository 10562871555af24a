// Where checkpoints lie, read from the devices with nothing but the format: m + 1 whole copies,
// each time elsewhere, one behind the other round the metadata area, and always room for a full
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "format/checkpoint.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr size_t kMostRuns = 32;  // docs/format.md: one root names them all

class CheckpointPlaces : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m, uint64_t ssd_bytes = uint64_t{8} << 20) {
    ArrayShape shape;
    shape.n = n;
    shape.m = m;
    shape.ssd_bytes = ssd_bytes;
    shape.log_bytes = uint64_t{1} << 20;
    test_ = std::make_unique<TestArray>(shape);
    Read();
    k_ = n - m;
    chunks_ = g().capacity_bytes() / kChunk / 2;
    volume_ = test_->CreateVolume("v", chunks_ * kChunk);
  }
  [[nodiscard]] const Geometry& g() const { return superblock_.geometry; }
  // The newest superblock that there is, and the root that it names.
  void Read() {
    superblock_ = Superblock();
    for (uint32_t i = 0; i < test_->Devices().size(); ++i) {
      for (const uint64_t offset : kSuperblockCopyOffset) {
        const auto found =
            DecodeSuperblock(test_->memory(i).bytes().subspan(offset, kSuperblockCopyBytes));
        const bool newer =
            found.ok() && std::pair(found->epoch, found->checkpoint.generation) >=
                              std::pair(superblock_.epoch, superblock_.checkpoint.generation);
        superblock_ = newer ? *found : superblock_;
      }
    }
    const CheckpointPointer& pointer = superblock_.checkpoint;
    ASSERT_EQ(pointer.root_blocks, 1U);
    std::optional<std::span<const std::byte>> payload;
    for (uint32_t ssd = 0; ssd < g().n && !payload; ++ssd) {
      if ((pointer.ssd_mask >> ssd & 1) != 0) {
        payload = Payload(
            ssd, {PageKind::kRoot, pointer.generation, pointer.random, pointer.root_block, 0, 0});
      }
    }
    ASSERT_TRUE(payload.has_value());
    EXPECT_EQ(Crc32c(*payload), pointer.root_crc);
    auto root = DecodeRoot(*payload);
    ASSERT_TRUE(root.ok());
    root_ = std::move(*root);
  }
  std::optional<std::span<const std::byte>> Payload(uint32_t ssd, PageHeader expected) {
    const auto page = test_->memory(ssd).bytes().subspan(
        superblock_.geometry.MetadataOffset(expected.block), kBlockBytes);
    const auto header = DecodePage(page, superblock_.array_uuid);
    if (!header.ok()) {
      return std::nullopt;
    }
    expected.payload_bytes = header->payload_bytes;
    return *header == expected
               ? std::optional(page.subspan(kPageHeaderBytes, header->payload_bytes))
               : std::nullopt;
  }
  // Bytes of a run as one SSD has it.
  std::vector<std::byte> Stream(uint32_t ssd, const RunDescriptor& run) {
    std::vector<std::byte> stream;
    for (uint32_t i = 0; i < run.blocks; ++i) {
      const uint64_t block = (run.first_block + i) % g().metadata_blocks;
      const auto payload = Payload(ssd, {PageKind::kRun, run.generation, run.random, block, i, 0});
      EXPECT_TRUE(payload.has_value()) << "page " << i << " of generation " << run.generation;
      if (payload) {
        EXPECT_TRUE(payload->size() == kPagePayloadBytes || i + 1 == run.blocks);
        stream.insert(stream.end(), payload->begin(), payload->end());
      }
    }
    return stream;
  }
  static uint32_t Count(uint64_t mask) { return static_cast<uint32_t>(std::popcount(mask)); }

  // All that is promised of the newest checkpoint.
  void ExpectWhole(uint64_t live) {
    Read();
    const CheckpointPointer& pointer = superblock_.checkpoint;
    const uint64_t area = g().metadata_blocks;
    ASSERT_FALSE(root_.runs.empty());
    EXPECT_LE(root_.runs.size(), kMostRuns);
    EXPECT_EQ(Count(pointer.ssd_mask), g().m + 1);
    EXPECT_EQ(pointer.ssd_mask & ~live, 0U);
    for (uint32_t ssd = 0; ssd < g().n; ++ssd) {
      if ((pointer.ssd_mask >> ssd & 1) != 0) {
        EXPECT_TRUE(Payload(ssd, {PageKind::kRoot, pointer.generation, pointer.random,
                                  pointer.root_block, 0, 0})
                        .has_value());
      }
    }
    EXPECT_EQ(root_.runs[0].generation, pointer.generation);
    EXPECT_EQ(root_.runs[0].random, pointer.random);
    uint64_t behind = pointer.root_block;
    for (size_t i = 0; i < root_.runs.size(); ++i) {
      const RunDescriptor& run = root_.runs[i];
      EXPECT_EQ(run.full, i + 1 == root_.runs.size());
      EXPECT_EQ(Count(run.ssd_mask), g().m + 1);
      EXPECT_EQ((run.first_block + run.blocks) % area, behind) << "its root lies behind it";
      behind = (run.first_block + area - 1) % area;  // the root of the one before
      EXPECT_EQ(run.blocks, DivideUp(run.stream_bytes, kPagePayloadBytes));
      for (uint32_t ssd = 0; ssd < g().n; ++ssd) {
        if ((run.ssd_mask >> ssd & 1) != 0 && (live >> ssd & 1) != 0) {
          const std::vector<std::byte> stream = Stream(ssd, run);
          EXPECT_EQ(stream.size(), run.stream_bytes);
          EXPECT_EQ(Crc32c(stream), run.stream_crc);
        }
      }
    }
    const uint64_t first = root_.runs.back().first_block;
    const uint64_t used = (pointer.root_block + area - first) % area + 1;
    EXPECT_LE(used + g().max_checkpoint_blocks(), area) << "a full one finds no room";
    EXPECT_EQ(test_->array->GetStatus().devices[0].corrupt_chunks, 0U);
  }
  void Write(uint64_t chunk, uint64_t count) {
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, RandomBytes(random_, count * kChunk)).ok());
  }
  // So many rows far from each other change.
  void Touch(uint64_t rows) {
    for (uint64_t i = 0; i < rows; ++i) {
      Write((touched_ % (chunks_ / k_)) * k_, k_);
      touched_ += 7;
    }
  }
  void Checkpoint(CheckpointKind kind) {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(kind)).ok());
  }
  [[nodiscard]] uint64_t All() const { return (uint64_t{1} << g().n) - 1; }

  Random random_{31};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  uint64_t chunks_ = 0;
  uint64_t k_ = 0;
  uint64_t touched_ = 0;
  Superblock superblock_;
  CheckpointRoot root_;
};

// Round and round, whatever they hold and however it falls on the blocks of the area.
TEST_F(CheckpointPlaces, EveryIncrementalOneLeavesRoomForAFullOne) {
  // Small areas: their end is reached before there are too many runs.
  for (const uint64_t size : {uint64_t{4}, uint64_t{5}, uint64_t{6}, uint64_t{16}}) {
    SCOPED_TRACE(size);
    Make(3, 1, size << 19);
    Write(0, chunks_ * size / 20);
    Checkpoint(CheckpointKind::kFull);
    uint64_t full = 0;
    uint64_t wraps = 0;
    uint64_t before = 0;
    for (int i = 0; i < 120; ++i) {
      Touch(1 + random_.Below(i % 10 == 9 ? size * 8 : 3));
      Checkpoint(CheckpointKind::kIncremental);
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(All()));
      full += root_.runs.size() == 1 ? 1 : 0;
      wraps += superblock_.checkpoint.root_block < before ? 1 : 0;
      before = superblock_.checkpoint.root_block;
      if (i % 40 == 39) {
        const std::vector<std::byte> content = test_->Read(volume_, 0, chunks_ * kChunk);
        test_->Kill();
        test_->Open();
        ASSERT_TRUE(test_->Read(volume_, 0, chunks_ * kChunk) == content);
      }
      ASSERT_FALSE(HasFailure()) << i;
    }
    EXPECT_GT(full, 0U);
    EXPECT_LT(full, 60U) << "they are incremental as long as there is room";
    EXPECT_GT(wraps, 0U);
  }
}

TEST_F(CheckpointPlaces, EachSsdGetsAsManyAsTheOthers) {
  for (const auto& [n, m] : {std::pair(3U, 1U), std::pair(5U, 2U), std::pair(6U, 1U)}) {
    SCOPED_TRACE(n);
    Make(n, m);
    std::vector<uint64_t> copies(n, 0);
    Read();
    uint64_t before = superblock_.checkpoint.ssd_mask;
    for (uint32_t i = 0; i < 2 * n; ++i) {
      Touch(1);
      Checkpoint(CheckpointKind::kFull);
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(All()));
      EXPECT_EQ(root_.runs.size(), 1U) << "a full one needs no other";
      const uint64_t now = superblock_.checkpoint.ssd_mask;
      EXPECT_EQ(Count(now & before), 2 * (m + 1) - std::min(n, 2 * (m + 1))) << "others each time";
      before = now;
      for (uint32_t ssd = 0; ssd < n; ++ssd) {
        copies[ssd] += superblock_.checkpoint.ssd_mask >> ssd & 1;
      }
    }
    EXPECT_EQ(copies, std::vector<uint64_t>(n, uint64_t{2} * (m + 1)));
  }
}

TEST_F(CheckpointPlaces, WithoutALostSsdTheOthersHaveThem) {
  Make(5, 2);
  Touch(5);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "by hand")).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(3, "by hand")).ok());
  const uint64_t live = All() & ~uint64_t{0b1010};
  for (int i = 0; i < 5; ++i) {
    Touch(1);
    Checkpoint(CheckpointKind::kFull);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(live));
    EXPECT_EQ(superblock_.checkpoint.ssd_mask, live);
  }
}

// What was written before an SSD was replaced is not built upon; neither after another opening.
TEST_F(CheckpointPlaces, AfterAReplacementAFullOneComesFirst) {
  for (const bool reopened : {false, true}) {
    Make(5, 2);
    Write(0, chunks_);
    Checkpoint(CheckpointKind::kFull);
    Touch(1);
    Checkpoint(CheckpointKind::kIncremental);
    Read();
    EXPECT_EQ(root_.runs.size(), 2U);
    const uint64_t before = superblock_.checkpoint.generation;
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(2, "by hand")).ok());
    MemoryDevice fresh("fresh", test_->memory(2).size_bytes());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(2, fresh)).ok());
    if (reopened) {
      test_->Kill();
      std::vector<Device*> devices = test_->Devices();
      devices[2] = &fresh;
      OpenOptions options;
      options.entropy = 99;
      auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
      ASSERT_TRUE(opened.ok());
      test_->array = std::move(*opened);
    }
    Touch(1);
    Checkpoint(CheckpointKind::kIncremental);
    Read();
    EXPECT_GT(root_.runs.back().generation, before);
    ASSERT_TRUE(test_->Close().ok());
  }
}

// Incremental ones as long as together they are shorter than a full one; nothing if nothing
// happened.
TEST_F(CheckpointPlaces, WhicheverIsCheaperInTheLongRun) {
  Make(4, 1, uint64_t{16} << 20);
  Write(0, chunks_);
  Checkpoint(CheckpointKind::kFull);
  Read();
  const uint64_t length = root_.runs[0].stream_bytes;
  ASSERT_GT(length, 4 * kPagePayloadBytes);
  uint64_t full = 0;
  uint64_t longest = 0;
  for (int i = 0; i < 80; ++i) {
    Touch(60);
    Checkpoint(CheckpointKind::kAuto);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(All()));
    uint64_t since = 0;
    for (size_t r = 0; r + 1 < root_.runs.size(); ++r) {
      since += root_.runs[r].stream_bytes;
    }
    longest = std::max(longest, since);
    EXPECT_LT(since, root_.runs.back().stream_bytes);
    full += root_.runs.size() == 1 ? 1 : 0;
  }
  EXPECT_GT(full, 0U);
  EXPECT_LT(full, 40U);
  EXPECT_GT(longest, length / 4) << "a full one comes no sooner than it pays";
  test_->Sleep(20'000'000);  // until nothing more comes of what was written
  Checkpoint(CheckpointKind::kAuto);
  Read();
  const uint64_t generation = superblock_.checkpoint.generation;
  Checkpoint(CheckpointKind::kAuto);
  Read();
  EXPECT_EQ(superblock_.checkpoint.generation, generation) << "nothing has changed";
  Checkpoint(CheckpointKind::kIncremental);
  Read();
  EXPECT_EQ(superblock_.checkpoint.generation, generation + 1) << "it was asked for";
}

// The commonest case: the whole checkpoint of a small change is one page and the root, on m + 1
// SSDs, and a superblock everywhere; the figures of traffic say so.
TEST_F(CheckpointPlaces, CostWhatIsCounted) {
  Make(5, 2);
  Write(0, chunks_);
  Checkpoint(CheckpointKind::kFull);
  for (const CheckpointKind kind : {CheckpointKind::kIncremental, CheckpointKind::kFull}) {
    Touch(1);
    test_->Sleep(20'000'000);  // until all is stable and nothing more comes of it
    const Traffic before = test_->array->GetStatus().traffic;
    Checkpoint(kind);
    const Traffic after = test_->array->GetStatus().traffic;
    Read();
    const uint64_t pages = (root_.runs[0].blocks + 1) * (g().m + 1) * kBlockBytes;
    EXPECT_EQ(after.ssd_metadata_bytes - before.ssd_metadata_bytes,
              pages + g().n * kSuperblockCopyBytes);
    EXPECT_EQ(after.log_header_bytes - before.log_header_bytes, g().m * kSuperblockCopyBytes);
    EXPECT_EQ(after.checkpoints - before.checkpoints, 1U);
    // The root has them as they are when it counts.
    std::vector<uint64_t> counters;
    ForEachCounter(after, [&](uint64_t counter) { counters.push_back(counter); });
    ASSERT_EQ(root_.lifetime_counters.size(), counters.size());
    const Traffic lifetime = test_->array->GetStatus().lifetime;
    std::vector<uint64_t> since_creation;
    ForEachCounter(lifetime, [&](uint64_t counter) { since_creation.push_back(counter); });
    EXPECT_EQ(root_.lifetime_counters, since_creation);
  }
}

}  // namespace
}  // namespace eplog
