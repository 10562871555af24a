// What is asked of an SSD that has joined: not what the one before it had, and everything since.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;

class Joined : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    const VolumeId volume = test_->CreateVolume("v", 40 * kStripe);
    const std::vector<std::byte> data = RandomBytes(random_, 20 * kStripe);
    ASSERT_TRUE(test_->Write(volume, 0, data).ok());
  }
  void WriteCheckpoint() {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
  }
  // It has joined, and stays so.
  void Replace(uint32_t ssd) {
    test_->array->SetRebuildPace({.bytes_per_second = 1});
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(ssd, "by hand")).ok());
    std::ranges::fill(test_->memory(ssd).bytes(), std::byte{0});
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->ReplaceDevice(ssd, *test_->Devices()[ssd])).ok());
  }
  void Finish(uint32_t ssd) {
    test_->array->SetRebuildPace({});
    test_->Sleep(60'000'000);
    ASSERT_EQ(test_->array->GetStatus().devices[ssd].state, DeviceState::kOk);
  }
  void RotCheckpoints(uint32_t ssd) {
    const auto bytes = test_->memory(ssd).bytes();
    const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    const Geometry& g = superblock->geometry;
    std::ranges::fill(bytes.subspan(g.MetadataOffset(0), g.metadata_blocks * kBlockBytes),
                      std::byte{0x5a});
  }
  uint64_t Problems(bool heal) {
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->problems_found : 0;
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
};

TEST_F(Joined, AnOpeningBlamesItNotForTheCheckpointBefore) {
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    WriteCheckpoint();
    Replace(ssd);
    test_->Kill();
    test_->Open();
    const ArrayStatus status = test_->array->GetStatus();
    ASSERT_EQ(status.devices[ssd].state, DeviceState::kRebuilding);
    for (const DeviceStatus& device : status.devices) {
      EXPECT_EQ(device.corrupt_chunks, 0U) << ssd;
    }
    Finish(ssd);
  }
}

// What a checkpoint gave it while it was not whole yet is what others may rely on.
TEST_F(Joined, PagesThatItWasGivenAreLookedAt) {
  uint32_t found = 0;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    Replace(ssd);
    WriteCheckpoint();
    ASSERT_EQ(test_->array->GetStatus().devices[ssd].state, DeviceState::kRebuilding);
    ASSERT_EQ(Problems(false), 0U);
    RotCheckpoints(ssd);
    const bool wrong = Problems(true) != 0;
    EXPECT_EQ(test_->array->GetStatus().devices[ssd].corrupt_chunks != 0, wrong) << ssd;
    found += wrong ? 1 : 0;
    EXPECT_EQ(Problems(false), 0U) << "it was mended";
    Finish(ssd);
  }
  EXPECT_GT(found, 0U) << "not every checkpoint is on every SSD, but each is on some";
}

// What was on its way to the SSD before it, or goes by a word from then, finds other content on
// it: that is read another way, and not held against it.
class ReadAcross : public Joined {
 protected:
  static constexpr uint32_t kSsd = 1;
  static constexpr uint64_t kLongUs = 100'000'000;

  // Its SSD is replaced while `task` waits for it, which ends then.
  void ReplaceDuring(Task<Status> task) {
    bool done = false;
    test_->loop.Spawn([](Task<Status> waits, bool& end) -> Task<void> {
      const Status status = co_await waits;
      EXPECT_TRUE(status.ok()) << status.error().ToString();
      end = true;
    }(std::move(task), done));
    test_->Sleep(10);
    ASSERT_GT(test_->delayed(kSsd).in_flight(), 0U);
    test_->delayed(kSsd).set_delays({});
    Replace(kSsd);
    ASSERT_FALSE(done);
    ASSERT_GT(test_->delayed(kSsd).in_flight(), 0U);
    ASSERT_TRUE(test_->loop.RunUntil([&done] { return done; }));
    EXPECT_EQ(test_->array->GetStatus().devices[kSsd].corrupt_chunks, 0U);
    EXPECT_EQ(test_->array->GetStatus().devices[kSsd].read_errors, 0U);
  }
  static Task<Status> FindsNothing(Array& array, Progress progress = Progress()) {
    Task<Result<CheckReport>> scrub = array.Scrub(false, std::move(progress));
    const Result<CheckReport> report = co_await scrub;
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report.ok() ? report->problems_found : 1, 0U);
    co_return OkStatus();
  }
  void MakeReadsSlow() { test_->delayed(kSsd).set_delays({.read_us = kLongUs}); }
};

TEST_F(ReadAcross, OfAUser) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  const std::vector<std::byte> before = test_->Read(volume, 0, 20 * kStripe);
  MakeReadsSlow();
  const Buffer into = test_->pool.Get(20 * kStripe);
  ReplaceDuring(test_->array->Read(volume, 0, into.span()));
  EXPECT_TRUE(std::ranges::equal(into.span(), before));
}

// Of many rows at once: by the first word of progress, metadata and some rows have been read.
TEST_F(ReadAcross, OfAScrub) {
  const VolumeId volume = test_->CreateVolume("many", 1000 * kStripe);
  ASSERT_TRUE(test_->Write(volume, 0, RandomBytes(random_, 1000 * kStripe)).ok());
  uint64_t told = 0;
  const Progress progress = [this, &told](uint64_t done, uint64_t total) {
    if (told == 0 && done != 0 && done < total) {
      MakeReadsSlow();
      told = done;
    }
  };
  ReplaceDuring(FindsNothing(*test_->array, progress));
  EXPECT_GT(told, 0U);
}

// What is pending is read chunk by chunk.
TEST_F(ReadAcross, OfAScrubOfTheLog) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  for (uint64_t chunk = 0; chunk < 40; ++chunk) {
    ASSERT_TRUE(test_->Write(volume, chunk * kChunk, RandomBytes(random_, kChunk)).ok());
  }
  MakeReadsSlow();
  ReplaceDuring(FindsNothing(*test_->array));
}

// Parity is made from what is read under words from before.
TEST_F(ReadAcross, OfACommit) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  for (uint64_t chunk = 0; chunk < 40; ++chunk) {
    ASSERT_TRUE(test_->Write(volume, chunk * kChunk, RandomBytes(random_, kChunk)).ok());
  }
  MakeReadsSlow();
  ReplaceDuring(test_->array->Commit(Progress()));
}

}  // namespace
}  // namespace eplog
