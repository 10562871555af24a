// More than m devices are missing: refused, or opened by force to read what is left, with an exact
// list of what is not (P7).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "format/wire.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kChunks = 160;
constexpr uint64_t kSize = kChunks * kChunk - 1000;  // the last chunk is cut off

class Beyond : public ::testing::Test {
 protected:
  void Make() {
    test_ = std::make_unique<SmallArray>(SmallShape(kSsdCount, kParity));
    static_cast<void>(test_->CreateVolume("another", kStripe));
    volume_ = test_->CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
    // Whole stripes, updates that are committed, updates that are pending, holes.
    Write(0, 30 * kStripe);
    for (uint64_t i = 0; i < 20; ++i) {
      Write(i * 5 * kChunk, kChunk);
    }
    ASSERT_TRUE(test_->Commit().ok());
    for (uint64_t i = 0; i < 30; ++i) {
      Write((i * 7 + 2) % 158 * kChunk, kChunk + i % 2 * 700);
    }
    Flush();
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    ASSERT_TRUE(test_->Write(volume_, offset, data).ok());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Flush() { ASSERT_TRUE(test_->Flush().ok()); }

  Result<std::unique_ptr<Array>> Open(const std::vector<uint32_t>& without, bool force) {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kDevices; ++i) {
      if (std::find(without.begin(), without.end(), i) == without.end()) {
        devices.push_back(test_->Devices()[i]);
      }
    }
    OpenOptions options;
    options.read_only = true;
    options.force = force;
    return RunTask(test_->loop, Array::Open(test_->loop, devices, options));
  }

  // Chunk by chunk: what is listed fails, everything else is what was written. How many are lost.
  uint64_t Compare(Array& array) {
    const auto report = RunTask(test_->loop, array.FindLost());
    EXPECT_TRUE(report.ok());
    if (!array.GetVolume(volume_)) {
      EXPECT_NE(report->log_damage, "") << "the volume was made after the last checkpoint";
      return 0;
    }
    uint64_t lost = 0;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < kChunks; ++i) {
      const uint64_t at = i * kChunk;
      const uint64_t length = std::min(kChunk, kSize - at);
      const bool listed =
          std::any_of(report->ranges.begin(), report->ranges.end(), [&](const LostRange& range) {
            return range.volume == "v" && at >= range.offset_bytes &&
                   at + length <= range.offset_bytes + range.length_bytes;
          });
      Buffer buffer = test_->pool.Get(kChunk);
      const auto into = buffer.span().first(length);
      const Status read = RunTask(test_->loop, array.Read(volume_, at, into));
      EXPECT_EQ(read.ok(), !listed) << "chunk " << i;
      if (!read.ok()) {
        EXPECT_EQ(read.error().code, ErrorCode::kTooManyFailures);
        ++lost;
        bytes += length;
      } else if (report->log_damage.empty()) {
        EXPECT_TRUE(
            std::equal(into.begin(), into.end(), model_.begin() + static_cast<std::ptrdiff_t>(at)))
            << "chunk " << i;
      }
    }
    EXPECT_EQ(report->lost_bytes, bytes);
    for (size_t i = 1; i < report->ranges.size(); ++i) {
      EXPECT_LT(report->ranges[i - 1].offset_bytes + report->ranges[i - 1].length_bytes,
                report->ranges[i].offset_bytes)
          << "neighbours are joined";
    }
    return lost;
  }

  Random random_{11};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
};

// Those that are here cannot know what the others did without them.
TEST_F(Beyond, SoManyAreMissingThatTheyMayHaveGoneOnAlone) {
  Make();
  ASSERT_TRUE(test_->Close().ok());
  for (const uint32_t there : {kDevices - kSsdCount, kDevices - kSsdCount + 1}) {
    uint32_t opened = 0;
    for (uint32_t first = 0; first + there <= kDevices; ++first) {
      std::vector<uint32_t> missing;
      for (uint32_t i = 0; i < kDevices; ++i) {
        if (i < first || i >= first + there) {
          missing.push_back(i);
        }
      }
      auto array = Open(missing, true);
      if (!array.ok()) {
        continue;  // the checkpoint is not on every SSD
      }
      ++opened;
      const auto report = RunTask(test_->loop, (*array)->FindLost());
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->left_behind, missing.size() >= kSsdCount) << first << " " << there;
      EXPECT_TRUE(RunTask(test_->loop, (*array)->Close()).ok());
    }
    EXPECT_GT(opened, 0U);
  }
}

// Two of those that are missing had failed before, as is written down: the others are too few.
TEST_F(Beyond, WhoHadFailedBeforeDidNotGoOnWithTheOthers) {
  Make();
  for (const uint32_t failed : {0U, 1U}) {
    ASSERT_TRUE(test_->Fail(failed).ok());
  }
  ASSERT_TRUE(test_->Close().ok());
  uint32_t opened = 0;
  for (uint32_t ssd = 2; ssd < kSsdCount; ++ssd) {
    std::vector<uint32_t> missing;
    for (uint32_t i = 0; i < kDevices - 1; ++i) {
      if (i != ssd) {
        missing.push_back(i);
      }
    }
    auto array = Open(missing, true);
    if (!array.ok()) {
      continue;  // the checkpoint is not on every SSD
    }
    ++opened;
    const auto report = RunTask(test_->loop, (*array)->FindLost());
    ASSERT_TRUE(report.ok());
    EXPECT_FALSE(report->left_behind) << ssd;
    EXPECT_TRUE(RunTask(test_->loop, (*array)->Close()).ok());
  }
  EXPECT_GT(opened, 0U);
}

TEST_F(Beyond, WhatIsLostIsListedExactlyWhicheverThreeAreMissing) {
  for (const bool closed : {true, false}) {
    Make();
    if (closed) {
      ASSERT_TRUE(test_->Close().ok());
    } else {
      test_->Kill();
    }
    uint64_t opened = 0;
    uint64_t with_losses = 0;
    uint64_t without_checkpoint = 0;
    for (uint32_t a = 0; a < kDevices; ++a) {
      for (uint32_t b = a + 1; b < kDevices; ++b) {
        for (uint32_t c = b + 1; c < kDevices; ++c) {
          SCOPED_TRACE(std::to_string(a) + std::to_string(b) + std::to_string(c));
          const auto refused = Open({a, b, c}, false);
          ASSERT_FALSE(refused.ok());
          EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
          const auto forced = Open({a, b, c}, true);
          if (!forced.ok()) {
            EXPECT_LT(c, kSsdCount) << forced.error().ToString();
            ++without_checkpoint;  // its copies were on just these three
            continue;
          }
          ++opened;
          const ArrayStatus status = (*forced)->GetStatus();
          EXPECT_EQ(status.state, ArrayState::kFailed);
          EXPECT_NE(status.stopped_because, "");
          EXPECT_EQ(status.devices[a].state, DeviceState::kMissing);
          with_losses += Compare(**forced) != 0 ? 1 : 0;
          const std::vector<std::byte> data(kChunk);
          EXPECT_FALSE(RunTask(test_->loop, (*forced)->Write(volume_, 0, data)).ok());
          EXPECT_TRUE(RunTask(test_->loop, (*forced)->Close()).ok());
        }
      }
    }
    EXPECT_LE(without_checkpoint, 1U);
    EXPECT_GE(opened, 55U);
    EXPECT_GE(with_losses, 19U);  // any three SSDs, at least
    test_->Open();
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
    test_.reset();
  }
}

TEST_F(Beyond, ForceWithEnoughDevicesIsAnOrdinaryOpening) {
  Make();
  test_->Kill();
  const auto opened = Open({0, 6}, true);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->GetStatus().state, ArrayState::kDegraded);
  EXPECT_EQ(Compare(**opened), 0U);
  EXPECT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
  test_->Open();
}

// Two SSDs left while the array went on; then a third died. What the two still have is worth
// reading: it is checked like everything else, and what was written since is not taken from them.
TEST_F(Beyond, DevicesThatMissedSomethingHelp) {
  Make();
  for (const uint32_t ssd : {0U, 1U}) {
    ASSERT_TRUE(test_->Fail(ssd).ok());
  }
  Write(3 * kStripe, 2 * kStripe);
  Write(9 * kStripe + kChunk, 2 * kChunk);
  Flush();
  test_->Kill();
  const auto without = Open({0, 1, 2}, true);
  ASSERT_TRUE(without.ok()) << without.error().ToString();
  const uint64_t lost_without = Compare(**without);
  EXPECT_TRUE(RunTask(test_->loop, (*without)->Close()).ok());
  ASSERT_FALSE(Open({2}, false).ok());
  const auto with = Open({2}, true);
  ASSERT_TRUE(with.ok()) << with.error().ToString();
  EXPECT_EQ((*with)->GetStatus().devices[0].state, DeviceState::kFailed);
  const uint64_t lost_with = Compare(**with);
  EXPECT_GT(lost_with, 0U);
  EXPECT_LT(lost_with, lost_without / 4);
  EXPECT_TRUE(RunTask(test_->loop, (*with)->Close()).ok());
  test_->Open();
  EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model_);
}

// What has no name any more is called something that is nobody's name, and one is told from
// another.
TEST_F(Beyond, HiddenVolumesAreCalledSomethingElse) {
  Make();
  const std::vector<std::byte> data(kStripe, std::byte{5});
  std::vector<VolumeId> hidden;
  for (const char* name : {"x", "y"}) {
    hidden.push_back(test_->CreateVolume(name, 4 * kStripe));
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(test_->Write(hidden.back(), i * kStripe, data).ok());
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->HideVolume(hidden.back())).ok());
  }
  Flush();
  test_->Kill();
  const auto array = Open({0, 1, 2}, true);
  ASSERT_TRUE(array.ok()) << array.error().ToString();
  const auto report = RunTask(test_->loop, (*array)->FindLost());
  ASSERT_TRUE(report.ok());
  std::map<std::string, uint64_t> lost;
  for (const LostRange& range : report->ranges) {
    lost[range.volume] += range.length_bytes;
    EXPECT_EQ(range.volume.find(kReservedVolumePrefix), std::string::npos) << range.volume;
    EXPECT_TRUE(std::none_of(range.volume.begin(), range.volume.end(), ::iscntrl)) << range.volume;
  }
  for (const VolumeId id : hidden) {
    const std::string name = "(deleted/replaced while open, #" + std::to_string(id.value) + ")";
    EXPECT_GT(lost[name], 0U) << name;
    EXPECT_LE(lost[name], 4 * kStripe) << name;
  }
  EXPECT_GT(lost["v"], 0U);
}

// The array stops when a third is lost while it runs; the list is to be had there too.
TEST_F(Beyond, WhileItRuns) {
  Make();
  EXPECT_EQ(Compare(*test_->array), 0U);
  for (const uint32_t device : {0U, 1U}) {
    ASSERT_TRUE(test_->Fail(device).ok());
  }
  EXPECT_EQ(Compare(*test_->array), 0U);
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  fault.from_then_on = true;
  test_->faulty(3).Add(fault);
  const std::vector<std::byte> data(8 * kStripe);
  ASSERT_FALSE(test_->Write(volume_, 30 * kStripe, data).ok());
  const auto report = RunTask(test_->loop, test_->array->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->lost_bytes, 0U);
  for (const LostRange& range : report->ranges) {
    Buffer buffer = test_->pool.Get(kChunk);
    EXPECT_FALSE(
        RunTask(test_->loop, test_->array->Read(volume_, range.offset_bytes, buffer.span())).ok());
  }
  test_->Kill();
}

// What is left is read by who asks for it. That everything was read and is well is said of an array
// that is whole enough, and of no other.
TEST_F(Beyond, IsNotCalledScrubbed) {
  Make();
  ASSERT_TRUE(test_->Commit().ok());
  ASSERT_TRUE(test_->Close().ok());
  const auto array = Open({0, 1, 6}, true);
  ASSERT_TRUE(array.ok()) << array.error().ToString();
  ASSERT_EQ((*array)->GetStatus().live_log_stripes, 0U);
  for (const auto& report : {RunTask(test_->loop, (*array)->Scrub(false, Progress())),
                             RunTask(test_->loop, (*array)->Check(Progress()))}) {
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kTooManyFailures);
    EXPECT_NE(report.error().message.find("not complete"), std::string::npos)
        << report.error().message;
  }
  EXPECT_TRUE(RunTask(test_->loop, (*array)->Close()).ok());
}

// ---- what is there and means nothing

class Garbage : public Beyond {
 protected:
  struct Area {
    uint32_t device = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
  };

  void Keep() {
    kept_.clear();
    for (uint32_t i = 0; i < kDevices; ++i) {
      const auto bytes = test_->memory(i).bytes();
      kept_.emplace_back(bytes.begin(), bytes.end());
    }
    geometry_ = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
  }
  void PutBack() {
    for (uint32_t i = 0; i < kDevices; ++i) {
      std::copy(kept_[i].begin(), kept_[i].end(), test_->memory(i).bytes().begin());
    }
  }
  Area Log(uint32_t j) {
    return {kSsdCount + j, geometry_.log_offset_bytes, geometry_.log_blocks * kBlockBytes};
  }
  Area Ring(uint32_t ssd) {
    return {ssd, geometry_.ring_offset_bytes, geometry_.ring_blocks * kBlockBytes};
  }
  Area Metadata(uint32_t ssd) {
    return {ssd, geometry_.metadata_offset_bytes, geometry_.metadata_blocks * kBlockBytes};
  }
  Area Slots(uint32_t ssd) {
    return {ssd, geometry_.slots_offset_bytes, uint64_t{geometry_.slots} * kChunk};
  }
  void Spoil(const Area& area) {
    const std::vector<std::byte> bytes = RandomBytes(random_, area.length);
    std::copy(
        bytes.begin(), bytes.end(),
        test_->memory(area.device).bytes().begin() + static_cast<std::ptrdiff_t>(area.offset));
  }
  // What reads is what was written, or it is told that the end of the log is lost.
  void ExpectNothingSilentlyOld(Array& array) {
    const auto report = RunTask(test_->loop, array.FindLost());
    ASSERT_TRUE(report.ok());
    for (uint64_t i = 0; i < kChunks && report->log_damage.empty(); ++i) {
      Buffer buffer = test_->pool.Get(kChunk);
      const uint64_t length = std::min(kChunk, kSize - i * kChunk);
      const auto into = buffer.span().first(length);
      const Status read = RunTask(test_->loop, array.Read(volume_, i * kChunk, into));
      EXPECT_TRUE(!read.ok() ||
                  std::equal(into.begin(), into.end(),
                             model_.begin() + static_cast<std::ptrdiff_t>(i * kChunk)))
          << "chunk " << i;
    }
    EXPECT_EQ(array.GetStatus().stopped_because.empty(),
              report->log_damage.empty() && report->lost_bytes == 0)
        << array.GetStatus().stopped_because;
  }

  std::vector<std::vector<std::byte>> kept_;
  Geometry geometry_;
};

// All that the logs held, and one of the rings: an entry is nowhere, and later ones are.
TEST_F(Garbage, InBothLogsAndARingLeavesWhatTheOthersHave) {
  Make();
  test_->Kill();
  Keep();
  uint64_t damaged = 0;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    for (const bool log_is_there : {true, false}) {
      SCOPED_TRACE("ssd" + std::to_string(ssd));
      PutBack();
      Spoil(Log(0));
      Spoil(Log(1));
      Spoil(Ring(ssd));
      const std::vector<uint32_t> without =
          log_is_there ? std::vector<uint32_t>{} : std::vector<uint32_t>{kSsdCount};
      const auto refused = Open(without, false);
      const auto forced = Open(without, true);
      ASSERT_TRUE(forced.ok()) << forced.error().ToString();
      ExpectNothingSilentlyOld(**forced);
      const auto report = RunTask(test_->loop, (*forced)->FindLost());
      EXPECT_EQ(refused.ok(), report->log_damage.empty()) << report->log_damage;
      damaged += refused.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(damaged, 0U);
}

// Nothing is the worse for being there.
TEST_F(Garbage, ForceOpensWhateverItOpensWithoutTheDamagedDevices) {
  Make();
  test_->Kill();
  Keep();
  uint64_t opened = 0;
  for (int round = 0; round < 150; ++round) {
    PutBack();
    std::vector<uint32_t> spoilt;
    for (uint64_t areas = random_.Between(1, 6); areas != 0; --areas) {
      const auto ssd = static_cast<uint32_t>(random_.Below(kSsdCount));
      const uint64_t kind = random_.Below(4);
      const Area area = kind == 0   ? Log(static_cast<uint32_t>(random_.Below(kParity)))
                        : kind == 1 ? Ring(ssd)
                        : kind == 2 ? Metadata(ssd)
                                    : Slots(ssd);
      Spoil(area);
      spoilt.push_back(area.device);
    }
    const auto without = Open(spoilt, true);
    const auto with = Open({}, true);
    if (without.ok()) {
      ++opened;
      EXPECT_TRUE(with.ok()) << "round " << round << ": " << with.error().ToString();
    }
    if (with.ok()) {
      ExpectNothingSilentlyOld(**with);
    }
  }
  EXPECT_GT(opened, 50U);
}

// Power failed while whole stripes and updates were on their way, so that some of their chunks are
// not what they should be, and then more than m devices are lost: by force their entries are kept,
// and what cannot be read of them is listed like everything else.
TEST_F(Garbage, WhatWasOnItsWayIsListedToo) {
  for (const uint64_t chunks : {kStripe / kChunk, uint64_t{3}}) {
    Make();
    test_->Kill();
    test_->Open();
    Keep();
    const std::vector<std::byte> data = RandomBytes(random_, chunks * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 4 * kStripe, data).ok());
    test_->Kill();
    for (uint32_t ssd = 0; ssd < 4; ++ssd) {
      const Area slots = Slots(ssd);
      std::copy_n(kept_[ssd].begin() + static_cast<std::ptrdiff_t>(slots.offset), slots.length,
                  test_->memory(ssd).bytes().begin() + static_cast<std::ptrdiff_t>(slots.offset));
    }
    std::copy(data.begin(), data.end(), model_.begin() + 4 * kStripe);
    uint64_t opened = 0;
    for (uint32_t third = 0; third < 4; ++third) {
      SCOPED_TRACE("without ssd4, ssd5 and ssd" + std::to_string(third));
      const auto forced = Open({4, 5, third}, true);
      if (forced.ok()) {  // else the checkpoint was on just these three
        ++opened;
        EXPECT_GT(Compare(**forced), 0U);
      }
    }
    EXPECT_GE(opened, 3U);
  }
}

// A pointer that only some superblocks bear, to a checkpoint that is nowhere whole: what the others
// name is whole.
TEST_F(Garbage, InTheNewestCheckpointLeavesTheOneBeforeIt) {
  Make();
  std::vector<std::vector<std::byte>> before;
  for (uint32_t i = 0; i < kDevices; ++i) {
    const auto bytes = test_->memory(i).bytes().first(kSuperblockAreaBytes);
    before.emplace_back(bytes.begin(), bytes.end());
  }
  ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kIncremental)).ok());
  test_->Kill();
  for (uint32_t i = 1; i < kDevices; ++i) {  // a crash while the pointer was written
    std::copy(before[i].begin(), before[i].end(), test_->memory(i).bytes().begin());
  }
  Keep();
  ASSERT_TRUE(Open({}, false).ok());
  const auto newest = [&](size_t copy) {
    return *DecodeSuperblock(
        test_->memory(0).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes));
  };
  const Superblock superblock = newest(0).generation > newest(1).generation ? newest(0) : newest(1);
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    Spoil({ssd, geometry_.MetadataOffset(superblock.checkpoint.root_block), kBlockBytes});
  }
  ASSERT_FALSE(Open({}, false).ok());
  ASSERT_TRUE(Open({0}, false).ok());
  const auto forced = Open({}, true);
  ASSERT_TRUE(forced.ok()) << forced.error().ToString();
  ExpectNothingSilentlyOld(**forced);
  EXPECT_EQ((*forced)->GetStatus().state, ArrayState::kFailed);
  const auto report = RunTask(test_->loop, (*forced)->FindLost());
  EXPECT_NE(report->log_damage.find("checkpoint"), std::string::npos) << report->log_damage;
}

// Beside those that are missing, one is there that is not whole yet: more than parity replaces. The
// refusal names force, and force opens.
TEST_F(Garbage, ADeviceThatIsNotWholeYetIsNoWorseThanAMissingOne) {
  uint64_t refusals = 0;
  for (uint64_t us = 100; us < 8000; us += 200) {  // until the kill
    Make();
    ASSERT_TRUE(test_->Fail(0).ok());
    for (uint64_t i = 0; i < 12; ++i) {  // log stripes that its part is missing of
      Write((i * 3) * kStripe, 3 * kChunk);
    }
    MemoryDevice fresh("fresh", test_->memory(0).size_bytes());
    DelayDevice slow(test_->loop, fresh, kSsdDelays);
    test_->loop.Spawn([](Array& array, Device& device) -> Task<void> {
      Task<Status> replacing = array.ReplaceDevice(0, device);
      static_cast<void>(co_await replacing);
    }(*test_->array, slow));
    test_->Sleep(us);
    test_->Kill();
    if (!DecodeSuperblock(fresh.bytes().subspan(kSuperblockCopyOffset[1], kSuperblockCopyBytes))
             .ok()) {
      continue;  // no member yet
    }
    for (uint32_t ssd = 1; ssd < kSsdCount; ++ssd) {
      std::vector<Device*> devices = {&fresh};
      for (uint32_t i = 1; i < kDevices - 1; ++i) {
        if (i != ssd) {
          devices.push_back(test_->Devices()[i]);
        }
      }
      OpenOptions options;
      options.read_only = true;
      const auto refused = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
      options.force = true;
      const auto forced = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
      ASSERT_TRUE(forced.ok()) << forced.error().ToString();
      if (!refused.ok()) {
        EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
        EXPECT_NE(refused.error().message.find("--force"), std::string::npos)
            << refused.error().message;
        ++refusals;
      }
    }
  }
  EXPECT_GT(refusals, 0U);
}

}  // namespace
}  // namespace eplog
