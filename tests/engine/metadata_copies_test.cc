// Every copy of what an opening may need is looked at by a scrub, each is blamed on the device that
// has it, and mended; so is what none has any more. What nobody needs is not looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kUpdates = 8;

class MetadataCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.auto_commit = false;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", 600 * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, RandomBytes(random_, 600 * kChunk)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    geometry_ = Newest(0).geometry;
  }
  void Update() {
    for (uint64_t i = 0; i < kUpdates; ++i) {
      ASSERT_TRUE(test_->Write(volume_, i * 9 * kChunk, RandomBytes(random_, kChunk)).ok());
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    }
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
    return report.ok() ? *report : CheckReport();
  }
  uint64_t Corrupt(uint32_t device) {
    return test_->array->GetStatus().devices[device].corrupt_chunks;
  }
  static std::string Name(uint32_t device) {
    return device < kSsdCount ? "ssd" + std::to_string(device)
                              : "log" + std::to_string(device - kSsdCount);
  }
  // One scrub finds it, on this device, and changes nothing.
  void ExpectFoundOn(uint32_t device, const std::string& what) {
    const uint64_t corrupt = Corrupt(device);
    const CheckReport report = Scrub(false);
    ASSERT_EQ(report.problems_found, 1U) << what;
    EXPECT_EQ(report.findings[0].device, Name(device));
    EXPECT_NE(report.findings[0].what.find(what), std::string::npos) << report.findings[0].what;
    EXPECT_EQ(report.findings[0].outcome, Finding::Outcome::kLeft);
    EXPECT_EQ(Corrupt(device), corrupt + 1);
  }
  // All that is wrong, in one go; nothing is left.
  void ExpectHealed(uint64_t problems) {
    const CheckReport report = Scrub(true);
    EXPECT_EQ(report.problems_found, problems);
    EXPECT_EQ(report.healed, problems);
    EXPECT_EQ(report.lost, 0U);
    for (const Finding& finding : report.findings) {
      EXPECT_EQ(finding.outcome, Finding::Outcome::kHealed) << finding.Text();
    }
    EXPECT_EQ(Scrub(false).problems_found, 0U);
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Geometry geometry_;
};

TEST_F(MetadataCopies, OfSuperblocksOnEachDevice) {
  for (uint32_t device = 0; device < kDevices; ++device) {
    for (const size_t copy : {0U, 1U}) {
      Flip(device, kSuperblockCopyOffset[copy] + 40);
      ExpectFoundOn(device,
                    copy == 0 ? "superblock copy A is damaged" : "superblock copy B is damaged");
      ExpectHealed(1);
      EXPECT_TRUE(
          DecodeSuperblock(Bytes(device, kSuperblockCopyOffset[copy], kSuperblockCopyBytes)).ok());
    }
  }
  // One of each, in one go.
  for (uint32_t device = 0; device < kDevices; ++device) {
    Flip(device, kSuperblockCopyOffset[device % 2] + 40);
  }
  ExpectHealed(kDevices);
}

// As many blocks of an SSD are pages of the checkpoint as were looked at on each that has them.
TEST_F(MetadataCopies, OfPagesOnEachSsdThatHasThem) {
  const uint64_t checked = Scrub(false).metadata_blocks_checked - 2 * kDevices;
  ASSERT_EQ(checked % (kParity + 1), 0U);
  const uint64_t pages = checked / (kParity + 1);
  ASSERT_GE(pages, 2U) << "a root, and a run";
  uint32_t has_them = 0;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    const uint64_t mask = Newest(0).checkpoint.ssd_mask;
    const uint64_t corrupt = Corrupt(ssd);
    for (uint64_t block = 0; block < geometry_.metadata_blocks; ++block) {
      Flip(ssd, geometry_.MetadataOffset(block) + 100);
    }
    const CheckReport report = Scrub(false);
    has_them += (mask >> ssd & 1) != 0 ? 1 : 0;
    EXPECT_EQ(report.problems_found, (mask >> ssd & 1) != 0 ? pages : 0) << ssd;
    EXPECT_GE(Corrupt(ssd) - corrupt, report.problems_found);
    for (const Finding& finding : report.findings) {
      EXPECT_EQ(finding.device, Name(ssd));
      EXPECT_EQ(finding.what.find("page "), 0U) << finding.what;
    }
    ExpectHealed(report.problems_found);
  }
  EXPECT_GT(has_them, 1U);
}

TEST_F(MetadataCopies, OfEachHeaderOnEachLogDevice) {
  Update();
  ASSERT_EQ(Scrub(false).problems_found, 0U);
  for (uint32_t log = kSsdCount; log < kDevices; ++log) {
    uint64_t found = 0;
    for (uint64_t place = 0; place < geometry_.log_blocks; ++place) {
      const uint64_t offset = geometry_.LogOffset(place);
      const auto header =
          DecodeEntryHeader(Bytes(log, offset, kBlockBytes), Newest(0).array_uuid, geometry_);
      if (!header.ok() || header->place != place || header->log_stripes.empty()) {
        continue;
      }
      ++found;
      Flip(log, offset + 30);
      ExpectFoundOn(log, "header of log entry " + std::to_string(header->sequence) + " at place " +
                             std::to_string(place));
      Flip(log, offset + 30);
    }
    EXPECT_EQ(found, kUpdates);
  }
}

// On none of the log devices any more: a checkpoint makes them needless, before an opening needs
// them.
TEST_F(MetadataCopies, OfAHeaderThatIsNowhereInTheLog) {
  Update();
  uint64_t place = 0;
  for (; place < geometry_.log_blocks; ++place) {
    const auto header = DecodeEntryHeader(Bytes(kSsdCount, geometry_.LogOffset(place), kBlockBytes),
                                          Newest(0).array_uuid, geometry_);
    if (header.ok() && header->place == place && !header->log_stripes.empty()) {
      break;
    }
  }
  for (uint32_t log = kSsdCount; log < kDevices; ++log) {
    Flip(log, geometry_.LogOffset(place) + 30);
  }
  ExpectHealed(kParity);
  const std::vector<std::byte> content = test_->Read(volume_, 0, 600 * kChunk);
  test_->Kill();
  test_->Open();
  EXPECT_TRUE(test_->Read(volume_, 0, 600 * kChunk) == content);
}

TEST_F(MetadataCopies, OfEachBlockOfEachRing) {
  Update();
  const uint64_t first = Newest(0).epoch.number;
  uint64_t found = 0;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    for (uint64_t block = 0; block < geometry_.ring_blocks; ++block) {
      const uint64_t offset = geometry_.RingOffset(block);
      const auto decoded = DecodeRingBlock(Bytes(ssd, offset, kBlockBytes), Newest(0).array_uuid,
                                           geometry_, DeviceIndex(static_cast<uint8_t>(ssd)));
      if (!decoded.ok()) {
        continue;
      }
      Flip(ssd, offset + 70);
      const CheckReport report = Scrub(false);
      if (report.problems_found != 0) {  // what the checkpoint covers is not needed
        ++found;
        ExpectFoundOn(ssd, "block " + std::to_string(decoded->number) + " of the journal ring");
      }
      Flip(ssd, offset + 70);
    }
  }
  EXPECT_EQ(found, kUpdates) << "in epoch " << first;
}

// The root on all SSDs: an opening would find none, and the array at work has it all.
TEST_F(MetadataCopies, OfTheCheckpointThatIsNowhere) {
  Update();
  const CheckpointPointer pointer = Newest(0).checkpoint;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    Flip(ssd, geometry_.MetadataOffset(pointer.root_block) + 100);
  }
  const CheckReport left = Scrub(false);
  ASSERT_EQ(left.problems_found, 1U);
  EXPECT_EQ(left.findings[0].device, "");
  EXPECT_EQ(left.findings[0].what.find("the newest checkpoint: "), 0U) << left.findings[0].what;
  ExpectHealed(1);
  const std::vector<std::byte> content = test_->Read(volume_, 0, 600 * kChunk);
  test_->Kill();
  test_->Open();
  ASSERT_NE(test_->array, nullptr);
  EXPECT_TRUE(test_->Read(volume_, 0, 600 * kChunk) == content);
}

// Of a device that is lost nothing is read; nothing is wrong with the others for that.
TEST_F(MetadataCopies, OnALostDeviceAreNobodysConcern) {
  for (const uint32_t device : {1U, kSsdCount}) {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(device, "by hand")).ok());
    Update();
    for (const uint64_t copy : kSuperblockCopyOffset) {
      Flip(device, copy + 40);
    }
    const uint64_t reads = test_->counter(device).counters().reads;
    const CheckReport report = Scrub(true);
    EXPECT_EQ(report.problems_found, 0U);
    EXPECT_EQ(test_->counter(device).counters().reads, reads);
  }
}

}  // namespace
}  // namespace eplog
