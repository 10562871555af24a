// Scrubbing of what describes the data: every copy of superblocks, checkpoint pages, log headers
// and journal ring blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;

class MetadataScrub : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.ring_bytes = uint64_t{64} << 10;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 400 * kChunk);
    const std::vector<std::byte> data = RandomBytes(random_, 200 * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, data).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    for (uint64_t i = 0; i < 12; ++i) {
      const std::vector<std::byte> update = RandomBytes(random_, kChunk);
      ASSERT_TRUE(test_->Write(volume_, i * 9 * kChunk, update).ok());
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    }
    geometry_ = Newest(0).geometry;
  }
  Superblock Newest(uint32_t device) {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found = DecodeSuperblock(Bytes(device, offset, kSuperblockCopyBytes));
      if (found.ok() && found->generation > newest.generation) {
        newest = *found;
      }
    }
    return newest;
  }
  std::span<std::byte> Bytes(uint32_t device, uint64_t offset, uint64_t length) {
    return test_->memory(device).bytes().subspan(offset, length);
  }
  void Flip(uint32_t device, uint64_t offset) { Bytes(device, offset, 1)[0] ^= std::byte{0x10}; }
  CheckReport Scrub(bool heal) {
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return *report;
  }
  // Found once, on the device that has it; still there when nothing was healed; gone when it was.
  void ExpectFoundAndHealed(const std::string& device, const std::string& what) {
    for (const bool heal : {false, true}) {
      const CheckReport report = Scrub(heal);
      ASSERT_EQ(report.problems_found, 1U) << what;
      EXPECT_EQ(report.findings[0].device, device);
      EXPECT_NE(report.findings[0].what.find(what), std::string::npos) << report.findings[0].what;
      EXPECT_EQ(report.findings[0].outcome,
                heal ? Finding::Outcome::kHealed : Finding::Outcome::kLeft);
      EXPECT_EQ(report.healed, heal ? 1U : 0U);
    }
    EXPECT_EQ(Scrub(false).problems_found, 0U) << what;
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Geometry geometry_;
};

TEST_F(MetadataScrub, FindsNothingWhereNothingIsWrong) {
  const CheckReport report = Scrub(false);
  EXPECT_EQ(report.problems_found, 0U);
  // 16 superblocks; a root and a run of a page at least on three SSDs; 12 headers on two log
  // devices; 12 ring blocks.
  EXPECT_GE(report.metadata_blocks_checked, 16U + 6U + 24U + 12U);
}

TEST_F(MetadataScrub, SuperblockCopies) {
  for (const uint32_t device : {0U, 7U}) {
    for (const uint64_t offset : kSuperblockCopyOffset) {
      Flip(device, offset + 40);
      ExpectFoundAndHealed(geometry_.DeviceName(DeviceIndex(static_cast<uint8_t>(device))),
                           "superblock copy");
    }
  }
}

TEST_F(MetadataScrub, CheckpointPages) {
  const CheckpointPointer pointer = Newest(0).checkpoint;
  for (uint8_t i = 0; i < kSsdCount; ++i) {
    if ((pointer.ssd_mask >> i & 1) != 0) {
      Flip(i, geometry_.MetadataOffset(pointer.root_block) + 100);
      ExpectFoundAndHealed(geometry_.DeviceName(DeviceIndex(i)), "of the newest checkpoint");
      break;
    }
  }
}

// A log device that lied about a write has an older entry there, with the same number: it is the
// one that is wrong, not those that have the newer.
TEST_F(MetadataScrub, AnEntryThatWasDroppedIsNoWitness) {
  const uint32_t log0 = kSsdCount;
  const auto content = [this](uint32_t log) {
    return std::vector<std::byte>(test_->memory(log).bytes().begin(),
                                  test_->memory(log).bytes().end());
  };
  const std::vector<std::byte> before[] = {content(log0), content(log0 + 1)};
  const std::vector<std::byte> update = RandomBytes(random_, kChunk);
  ASSERT_TRUE(test_->Write(volume_, 3 * kChunk, update).ok());  // not flushed
  const std::vector<std::byte> stale = content(log0);
  test_->Kill();
  for (uint32_t j = 0; j < kParity; ++j) {  // it never got there
    std::ranges::copy(before[j], test_->memory(log0 + j).bytes().begin());
  }
  test_->Open();
  ASSERT_TRUE(test_->Write(volume_, 5 * kChunk, update).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  ASSERT_EQ(Scrub(false).problems_found, 0U);
  uint64_t stale_blocks = 0;
  for (uint64_t at = geometry_.LogOffset(0); at < stale.size(); at += kBlockBytes) {
    const auto block = std::span(stale).subspan(at, kBlockBytes);
    if (!std::ranges::equal(block, std::span(before[0]).subspan(at, kBlockBytes))) {
      std::ranges::copy(block, Bytes(log0, at, kBlockBytes).begin());
      ++stale_blocks;
    }
  }
  ASSERT_GT(stale_blocks, 1U) << "a header, and a log chunk";
  const CheckReport report = Scrub(false);
  EXPECT_GE(report.problems_found, 1U);
  for (const Finding& finding : report.findings) {
    EXPECT_EQ(finding.device, geometry_.DeviceName(DeviceIndex(kSsdCount))) << finding.what;
  }
  EXPECT_EQ(test_->array->GetStatus().devices[log0 + 1].corrupt_chunks, 0U);
  Scrub(true);
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

// Nor is what a user wrote a round before, whatever it says: he does not know the epoch.
TEST_F(MetadataScrub, WhatAUserWroteIsNoWitness) {
  const uint32_t log0 = kSsdCount;
  for (uint64_t place = 0; place < geometry_.log_blocks; ++place) {
    const auto block = Bytes(log0, geometry_.LogOffset(place), kBlockBytes);
    const auto header = DecodeEntryHeader(block, Newest(0).array_uuid, geometry_);
    if (!header.ok() || header->sequence <= 3) {
      continue;
    }
    const std::vector<std::byte> kept(block.begin(), block.end());
    EntryHeader users = *header;
    users.epoch = {header->epoch.number + 1, 12345};
    EncodeEntryHeader(users, Newest(0).array_uuid, block);
    const CheckReport report = Scrub(false);
    std::ranges::copy(kept, block.begin());
    if (report.problems_found != 0) {  // what a checkpoint covers nobody needs
      ASSERT_EQ(report.problems_found, 1U);
      EXPECT_EQ(report.findings[0].device, geometry_.DeviceName(DeviceIndex(kSsdCount)));
      return;
    }
  }
  FAIL() << "no header was looked at";
}

TEST_F(MetadataScrub, LogHeaders) {
  // The newest header before the end of the log: found by its magic, from behind.
  for (const uint32_t log : {kSsdCount, kSsdCount + 1}) {
    const std::vector<std::byte> update = RandomBytes(random_, kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, update).ok());
    test_->Sleep(20'000'000);  // marks come later, and become stable by themselves
    uint64_t newest = 0;
    uint64_t at = 0;
    for (uint64_t place = 0; place < geometry_.log_blocks; ++place) {
      const auto header = DecodeEntryHeader(Bytes(log, geometry_.LogOffset(place), kBlockBytes),
                                            Newest(0).array_uuid, geometry_);
      if (header.ok() && header->sequence > newest) {
        newest = header->sequence;
        at = geometry_.LogOffset(place);
      }
    }
    ASSERT_NE(newest, 0U);
    Flip(log, at + 30);
    ExpectFoundAndHealed(geometry_.DeviceName(DeviceIndex(static_cast<uint8_t>(log))),
                         "header of log entry " + std::to_string(newest));
  }
}

TEST_F(MetadataScrub, RingBlocks) {
  for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
    for (uint64_t block = 0; block < geometry_.ring_blocks; ++block) {
      const uint64_t offset = geometry_.RingOffset(block);
      const auto found = DecodeRingBlock(Bytes(ssd, offset, kBlockBytes), Newest(0).array_uuid,
                                         geometry_, DeviceIndex(ssd));
      if (found.ok() && found->number > 0) {
        Flip(ssd, offset + 70);
        ExpectFoundAndHealed(geometry_.DeviceName(DeviceIndex(ssd)), "journal ring");
        return;
      }
    }
  }
  FAIL() << "no ring has a block";
}

// With everything committed and a checkpoint behind it, nobody needs what the log devices hold.
TEST_F(MetadataScrub, WhatIsNotNeededIsNotJudged) {
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Commit(Progress())).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
  for (uint32_t log = kSsdCount; log < kSsdCount + kParity; ++log) {
    for (uint64_t place = 0; place < geometry_.log_blocks; ++place) {
      Flip(log, geometry_.LogOffset(place) + 20);
    }
  }
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

TEST_F(MetadataScrub, AnOfflineCheckSeesTheSame) {
  ASSERT_TRUE(test_->Close().ok());
  Flip(3, kSuperblockCopyOffset[0] + 40);
  const CheckpointPointer pointer = Newest(0).checkpoint;
  const auto last = static_cast<uint8_t>(63 - __builtin_clzll(pointer.ssd_mask));
  Flip(last, geometry_.MetadataOffset(pointer.root_block) + 100);
  test_->Open(true);
  const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problems_found, 2U);
  EXPECT_EQ(report->findings[0].device, "ssd3");
  EXPECT_EQ(report->findings[1].device, geometry_.DeviceName(DeviceIndex(last)));
}

// Who lied about a write has what lay there a round before, which is right by itself.
TEST_F(MetadataScrub, ABlockOfAnEarlierRoundOfTheRingIsNone) {
  const auto ring = [this](uint32_t ssd) {
    return Bytes(ssd, geometry_.RingOffset(0), geometry_.ring_blocks * kBlockBytes);
  };
  std::vector<std::vector<std::byte>> before;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    before.emplace_back(ring(ssd).begin(), ring(ssd).end());
  }
  for (uint64_t i = 0; i < kSsdCount * geometry_.ring_blocks + 10; ++i) {
    ASSERT_TRUE(test_->Write(volume_, i % 20 * 9 * kChunk, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  ASSERT_EQ(Scrub(false).problems_found, 0U);
  const auto uuid = Newest(0).array_uuid;
  uint64_t found = 0;
  for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
    for (uint64_t at = 0; at < geometry_.ring_blocks; ++at) {
      const auto now = ring(ssd).subspan(at * kBlockBytes, kBlockBytes);
      const auto old = std::span(before[ssd]).subspan(at * kBlockBytes, kBlockBytes);
      const auto old_block = DecodeRingBlock(old, uuid, geometry_, DeviceIndex(ssd));
      const auto block = DecodeRingBlock(now, uuid, geometry_, DeviceIndex(ssd));
      if (!old_block.ok() || !block.ok() || old_block->number == block->number) {
        continue;
      }
      const std::vector<std::byte> kept(now.begin(), now.end());
      std::ranges::copy(old, now.begin());
      const CheckReport report = Scrub(false);
      std::ranges::copy(kept, now.begin());
      // What a checkpoint has covered since nobody needs.
      if (report.problems_found != 0) {
        ++found;
        ASSERT_EQ(report.problems_found, 1U);
        EXPECT_EQ(report.findings[0].device, "ssd" + std::to_string(ssd));
        EXPECT_NE(report.findings[0].what.find("block " + std::to_string(block->number) +
                                               " of the journal ring is damaged"),
                  std::string::npos)
            << report.findings[0].what;
      }
    }
  }
  EXPECT_GT(found, 0U);
}

// A crash may have torn the copy that was being written, and what only looks does not mend it. Once
// the array was closed it is a problem like any other.
TEST_F(MetadataScrub, ACopyThatACrashToreIsNoProblemOfAnOfflineCheck) {
  const auto generation = [this](size_t copy) {
    const auto found =
        DecodeSuperblock(Bytes(3, kSuperblockCopyOffset[copy], kSuperblockCopyBytes));
    return found.ok() ? found->generation : 0;
  };
  for (const bool crashes : {true, false}) {
    SCOPED_TRACE(crashes ? "after a crash" : "after it was closed");
    if (crashes) {
      test_->Kill();
    } else {
      test_->Open();
      ASSERT_TRUE(test_->Close().ok());
    }
    const size_t older = generation(0) < generation(1) ? 0 : 1;
    Flip(3, kSuperblockCopyOffset[older] + 40);
    test_->Open(true);
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, crashes ? 0U : 1U);
    ASSERT_TRUE(test_->Close().ok());
  }
}

}  // namespace
}  // namespace eplog
