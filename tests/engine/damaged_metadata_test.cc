// Checkpoints and logs that are damaged beyond their copies: refused in words that say what is
// wrong. What they say is what is written on the devices, changed where it hurts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "format/checkpoint.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 1;
constexpr const char* kByForce = ", or mount with --read-only --force to read what is left";

class DamagedMetadata : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    // So that a kill comes before the mark that follows a flush is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 1 << 20);
  }
  void Write(uint64_t chunk, uint64_t count) {
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, RandomBytes(random_, count * kChunk)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  std::span<std::byte> Bytes(uint32_t device, uint64_t offset, uint64_t length) {
    return test_->memory(device).bytes().subspan(offset, length);
  }
  // What the devices bear, once the array is closed or killed.
  void Look() {
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(Bytes(0, offset, kSuperblockCopyBytes));
      ASSERT_TRUE(found.ok());
      newest_ = found->generation > newest_.generation ? *found : newest_;
    }
    for (uint64_t place = 0; place < g().log_blocks; ++place) {
      const auto entry = DecodeEntryHeader(Bytes(kSsdCount, g().LogOffset(place), kBlockBytes),
                                           newest_.array_uuid, g());
      if (entry.ok() && entry->place == place) {
        entries_.push_back(*entry);
      }
    }
  }
  [[nodiscard]] const Geometry& g() const { return newest_.geometry; }
  void ChangeSuperblocks(const std::function<void(Superblock&)>& edit) {
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      for (const uint64_t offset : kSuperblockCopyOffset) {
        const auto at = Bytes(i, offset, kSuperblockCopyBytes);
        auto superblock = DecodeSuperblock(at);
        ASSERT_TRUE(superblock.ok());
        edit(*superblock);
        EncodeSuperblock(*superblock, at);
      }
    }
  }
  // On every SSD that has it, and the superblocks name the new one.
  void ChangeRoot(const std::function<void(CheckpointRoot&)>& edit) {
    const CheckpointPointer pointer = newest_.checkpoint;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      if ((pointer.ssd_mask >> i & 1) == 0) {
        continue;
      }
      const auto page = Bytes(i, g().MetadataOffset(pointer.root_block), kBlockBytes);
      const auto header = DecodePage(page, newest_.array_uuid);
      ASSERT_TRUE(header.ok());
      auto root = DecodeRoot(page.subspan(kPageHeaderBytes, header->payload_bytes));
      ASSERT_TRUE(root.ok());
      edit(*root);
      const std::vector<std::byte> bytes = EncodeRoot(*root);
      std::copy(bytes.begin(), bytes.end(), page.begin() + kPageHeaderBytes);
      PageHeader changed = *header;
      changed.payload_bytes = static_cast<uint32_t>(bytes.size());
      FinishPage(changed, newest_.array_uuid, page);
      crc = Crc32c(bytes);
    }
    ChangeSuperblocks([&](Superblock& superblock) { superblock.checkpoint.root_crc = crc; });
  }
  void ChangeEntry(const EntryHeader& old, const EntryHeader& entry) {
    std::vector<std::byte> block(kBlockBytes);
    EncodeEntryHeader(entry, newest_.array_uuid, block);
    std::ranges::copy(block, Bytes(kSsdCount, g().LogOffset(old.place), kBlockBytes).begin());
  }
  void ForgetRings() {
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      std::ranges::fill(Bytes(i, g().ring_offset_bytes, g().ring_blocks * kBlockBytes),
                        std::byte{0});
    }
  }
  Result<std::unique_ptr<Array>> Open(bool force = false,
                                      std::optional<uint32_t> without = std::nullopt) {
    OpenOptions options;
    options.entropy = 77;
    options.read_only = true;
    options.force = force;
    std::vector<Device*> devices = test_->Devices();
    if (without) {
      devices.erase(devices.begin() + *without);
    }
    return RunTask(test_->loop, Array::Open(test_->loop, devices, options));
  }
  void ExpectRefused(ErrorCode code, const std::string& words) {
    const auto opened = Open();
    ASSERT_FALSE(opened.ok()) << words;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_EQ(opened.error().message, words);
  }

  Random random_{9};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Superblock newest_;
  std::vector<EntryHeader> entries_;
};

TEST_F(DamagedMetadata, PagesThatAreNowhereWhole) {
  Write(0, 30);
  ASSERT_TRUE(test_->Close().ok());
  Look();
  const CheckpointPointer pointer = newest_.checkpoint;
  for (const bool root : {false, true}) {
    const uint64_t block =
        root ? pointer.root_block
             : (pointer.root_block + g().metadata_blocks - 1) % g().metadata_blocks;
    uint32_t left = kParity + 1;
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      if ((pointer.ssd_mask >> i & 1) == 0) {
        continue;
      }
      auto opened = Open();
      ASSERT_TRUE(opened.ok()) << "it is on " << left << " SSDs: " << opened.error().message;
      --left;
      Bytes(i, g().MetadataOffset(block) + kPageHeaderBytes, 1)[0] ^= std::byte{1};
    }
    ExpectRefused(ErrorCode::kCorrupt,
                  "a page of the newest checkpoint cannot be read from any SSD");
    for (uint32_t i = 0; i < kSsdCount; ++i) {
      if ((pointer.ssd_mask >> i & 1) != 0) {
        Bytes(i, g().MetadataOffset(block) + kPageHeaderBytes, 1)[0] ^= std::byte{1};
      }
    }
  }
}

// A page that is wrong is counted against its SSD, and one that cannot be read as well.
TEST_F(DamagedMetadata, APageThatIsWrongIsCountedAgainstItsSsd) {
  Write(0, 30);
  ASSERT_TRUE(test_->Close().ok());
  Look();
  const CheckpointPointer pointer = newest_.checkpoint;
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    if ((pointer.ssd_mask >> i & 1) == 0) {
      continue;
    }
    const uint64_t run = (pointer.root_block + g().metadata_blocks - 1) % g().metadata_blocks;
    for (const uint64_t block : {pointer.root_block, run}) {
      Bytes(i, g().MetadataOffset(block) + 5, 1)[0] ^= std::byte{1};
    }
    auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const ArrayStatus status = (*opened)->GetStatus();
    uint64_t others = 0;
    for (uint32_t j = 0; j < kSsdCount; ++j) {
      others += j == i ? 0 : status.devices[j].corrupt_chunks;
    }
    EXPECT_EQ(others, 0U);
    EXPECT_LE(status.devices[i].corrupt_chunks, 2U) << "each page once";
    for (const uint64_t block : {pointer.root_block, run}) {
      Bytes(i, g().MetadataOffset(block) + 5, 1)[0] ^= std::byte{1};
    }
    ASSERT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
  }
}

TEST_F(DamagedMetadata, ACheckpointOfWhichTheChecksumIsWrong) {
  Write(0, 30);
  ASSERT_TRUE(test_->Close().ok());
  Look();
  const std::string wrong = "the newest checkpoint is damaged: its checksum is wrong";
  ChangeSuperblocks([](Superblock& superblock) { superblock.checkpoint.root_crc ^= 1; });
  ExpectRefused(ErrorCode::kCorrupt, wrong);
  ChangeSuperblocks([](Superblock& superblock) { superblock.checkpoint.root_crc ^= 1; });
  ASSERT_TRUE(Open().ok());
  ChangeRoot([](CheckpointRoot& root) { root.runs[0].stream_crc ^= 1; });
  ExpectRefused(ErrorCode::kCorrupt, wrong);
  ChangeRoot([](CheckpointRoot& root) { root.runs[0].stream_crc ^= 1; });
  ASSERT_TRUE(Open().ok());
}

// Behind the newest checkpoint there is room for a full one, or the next would be written over it.
TEST_F(DamagedMetadata, RunsThatDoNotLieAsTheyWereWritten) {
  Write(0, 30);
  ASSERT_TRUE(test_->Close().ok());
  Look();
  const std::string words =
      "the newest checkpoint is damaged: its runs do not lie as they were written";
  const uint64_t area = g().metadata_blocks;
  const uint64_t root_block = newest_.checkpoint.root_block;
  uint64_t first = 0;
  ChangeRoot([&](CheckpointRoot& root) { first = root.runs.back().first_block; });
  // From there to the root, both included, and then a full one.
  for (const uint64_t used : {area - g().max_checkpoint_blocks() + 1, area}) {
    ChangeRoot([&](CheckpointRoot& root) {
      root.runs.back().first_block = (root_block + area - (used - 1)) % area;
    });
    ExpectRefused(ErrorCode::kCorrupt, words);
  }
  ChangeRoot([&](CheckpointRoot& root) { root.runs.back().first_block = area + 1; });
  ExpectRefused(ErrorCode::kCorrupt, words);
  // With just enough room it is looked at, and is not there.
  ChangeRoot([&](CheckpointRoot& root) {
    root.runs.back().first_block =
        (root_block + area - (area - g().max_checkpoint_blocks() - 1)) % area;
  });
  ExpectRefused(ErrorCode::kCorrupt, "a page of the newest checkpoint cannot be read from any SSD");
  ChangeRoot([&](CheckpointRoot& root) { root.runs.back().first_block = first; });
  ASSERT_TRUE(Open().ok());
}

TEST_F(DamagedMetadata, AnEntryThatIsNowhereThoughLaterOnesHadBeenMadeDurable) {
  for (uint64_t i = 0; i < 8; ++i) {
    Write(i * 3, 1);
  }
  test_->Kill();
  Look();
  ASSERT_GT(entries_.size(), 6U);
  uint64_t mark = 0;
  for (const EntryHeader& entry : entries_) {
    mark = std::max(mark, entry.mark);
  }
  const EntryHeader& gone = entries_[entries_.size() - 4];
  ASSERT_LE(gone.sequence, mark);
  ForgetRings();
  Bytes(kSsdCount, g().LogOffset(gone.place), 1)[0] ^= std::byte{1};
  const std::string what = "the log is damaged: entry " + std::to_string(gone.sequence) +
                           " cannot be found or verified, yet entries up to " +
                           std::to_string(mark) +
                           " had been made durable; bring back missing members";
  ExpectRefused(ErrorCode::kCorrupt, what + kByForce);
  // By force what is before it is shown, and the same is said.
  const auto forced = Open(/*force=*/true);
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  const auto report = RunTask(test_->loop, (*forced)->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_NE(report->log_damage.find(what), std::string::npos) << report->log_damage;
  EXPECT_EQ((*forced)->GetStatus().state, ArrayState::kFailed);
}

// What the CRCs cannot tell, the tables do: two rows with one slot.
TEST_F(DamagedMetadata, ASlotThatIsInUseTwice) {
  Write(0, 3);
  Write(3 * kSsdCount, 3);  // the same SSDs in the same places
  Write(40, 1);             // whose entry says that both are stable
  Write(41, 1);
  test_->Kill();
  Look();
  ForgetRings();
  std::vector<EntryHeader> stripes;
  for (const EntryHeader& entry : entries_) {
    if (!entry.rows.empty()) {
      stripes.push_back(entry);
    }
  }
  ASSERT_GE(stripes.size(), 2U);
  EntryHeader changed = stripes[1];
  const SlotWord word = stripes[0].rows[0].changes[0].word;
  ASSERT_EQ(g().SsdOf(changed.rows[0].stripe, 0), g().SsdOf(stripes[0].rows[0].stripe, 0));
  changed.rows[0].changes[0].word = word;
  ChangeEntry(stripes[1], changed);
  const auto opened = Open();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  const DeviceIndex ssd = g().SsdOf(changed.rows[0].stripe, 0);
  EXPECT_EQ(opened.error().message.find("the log or the checkpoint is damaged: a slot of " +
                                        g().DeviceName(ssd) + " from "),
            0U)
      << opened.error().message;
  EXPECT_NE(opened.error().message.find(std::string(" is in use twice") + kByForce),
            std::string::npos)
      << opened.error().message;
  EXPECT_TRUE(Open(/*force=*/true).ok());
}

// Without the two SSDs that hold it, there is no checkpoint to begin from, by force neither.
TEST_F(DamagedMetadata, NoSsdThatHoldsTheCheckpoint) {
  Write(0, 30);
  ASSERT_TRUE(test_->Close().ok());
  Look();
  std::vector<Device*> devices;
  for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
    if (i >= kSsdCount || (newest_.checkpoint.ssd_mask >> i & 1) == 0) {
      devices.push_back(test_->Devices()[i]);
    }
  }
  OpenOptions options;
  options.read_only = true;
  options.force = true;
  const auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(opened.error().message, "no SSD that holds the newest checkpoint is there");
}

}  // namespace
}  // namespace eplog
