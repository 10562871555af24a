// Silent corruption and bad sectors: found, named, healed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/task_group.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 40 * kStripe;

class Heal : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
    Write(0, 20 * kStripe);  // rows
    Write(3 * kStripe, kChunk);
    ASSERT_TRUE(test_->Commit().ok());
    for (uint64_t i = 0; i < 12; ++i) {  // pending, some of them superseded
      Write((i % 8) * kStripe + i % 4 * kChunk, 2 * kChunk);
    }
    Write(30 * kStripe + 500, 2 * kStripe);
    ASSERT_TRUE(test_->Flush().ok());
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    ASSERT_TRUE(test_->Write(volume_, offset, data).ok());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  // Everything behind the metadata of a device is garbage.
  void Rot(uint32_t device) {
    const bool log = device >= kSsdCount;
    MemoryDevice& memory = test_->memory(device);
    const uint64_t from = log ? uint64_t{64} << 10 : test_->SlotsOffsetBytes();
    const Buffer garbage = test_->pool.Get(memory.size_bytes() - from);
    for (std::byte& byte : garbage.span()) {
      byte = static_cast<std::byte>(random_.Next());
    }
    const iovec part{garbage.data(), garbage.size()};
    ASSERT_TRUE(RunTask(test_->loop, memory.Write(from, std::span(&part, 1))).ok());
  }
  // A device with so many wrong chunks is failed, and nothing is pending.
  void FailByCount(uint32_t chunks) {
    ASSERT_TRUE(test_->Close().ok());
    test_->shape().max_corrupt_chunks = chunks;
    test_->Open();
    ASSERT_TRUE(test_->Commit().ok());
  }
  // Some slots of a device, from the first on.
  void RotSlots(uint32_t device, uint64_t first, uint64_t count) {
    const auto bytes = test_->memory(device).bytes();
    for (uint64_t slot = first; slot < first + count; ++slot) {
      bytes[test_->SlotsOffsetBytes() + slot * kChunk + 100] ^= std::byte{1};
    }
  }
  CheckReport Scrub(bool heal) {
    auto report = test_->Scrub(heal);
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : CheckReport();
  }
  Task<Status> ScrubInto(CheckReport& report) {
    Task<Result<CheckReport>> scrub = test_->array->Scrub(true, Progress());
    auto scrubbed = co_await scrub;
    report = scrubbed.ok() ? *scrubbed : report;
    co_return scrubbed.ok() ? OkStatus() : Status(Fail(scrubbed.error()));
  }
  Task<Status> ReadStripes(uint64_t count) {
    const Buffer buffer = test_->pool.Get(kStripe);
    for (uint64_t stripe = 0; stripe < count; ++stripe) {
      Task<Status> reading = test_->array->Read(volume_, stripe * kStripe, buffer.span());
      Status status = co_await reading;
      if (!status.ok()) {
        co_return status;
      }
    }
    co_return OkStatus();
  }
  Task<Status> ScrubBesideReads(CheckReport& report) {
    TaskGroup both(test_->loop);
    both.Start(ScrubInto(report));
    both.Start(ReadStripes(10));
    Task<Status> all = both.Wait();
    co_return co_await all;
  }
  // The array is closed as soon as a scrub has done something.
  Task<Status> ScrubUntilClosed() {
    TaskGroup closing(test_->loop);
    bool asked = false;
    Task<Result<CheckReport>> scrub = test_->array->Scrub(true, [&](uint64_t done, uint64_t) {
      if (done > 0 && !std::exchange(asked, true)) {
        closing.Start(test_->array->Close());
      }
    });
    const Result<CheckReport> cut = co_await scrub;
    EXPECT_FALSE(cut.ok());
    Task<Status> closed = closing.Wait();
    co_return co_await closed;
  }
  void ExpectContent(const std::string& when) {
    EXPECT_EQ(test_->Read(volume_, 0, kSize) == model_, true) << when;
  }
  size_t Events(EventKind kind) {
    return static_cast<size_t>(std::count_if(events_.begin(), events_.end(),
                                             [&](const auto& e) { return e.kind == kind; }));
  }

  Random random_{11};
  std::vector<ArrayEvent> events_;
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
};

// The name of what was deleted while open is nobody's any more.
TEST_F(Heal, WhatIsWrongInAHiddenVolumeIsNotNamedByItsInternalName) {
  ASSERT_TRUE(RunTask(test_->loop, test_->array->HideVolume(volume_)).ok());
  Rot(0);
  const CheckReport report = Scrub(true);
  EXPECT_GT(report.healed, 0U);
  const std::string name = "(deleted/replaced while open, #" + std::to_string(volume_.value) + ")";
  EXPECT_TRUE(std::any_of(report.findings.begin(), report.findings.end(),
                          [&](const Finding& finding) { return finding.volume == name; }));
  EXPECT_TRUE(std::any_of(events_.begin(), events_.end(),
                          [&](const ArrayEvent& event) { return event.volume == name; }));
  for (const ArrayEvent& event : events_) {
    EXPECT_EQ(event.text.find(kReservedVolumePrefix), std::string::npos) << event.text;
  }
}

TEST_F(Heal, ScrubOfASoundArrayFindsNothing) {
  const CheckReport report = Scrub(true);
  EXPECT_EQ(report.problems_found, 0U);
  EXPECT_GT(report.chunks_checked, 100U);
  EXPECT_GT(report.log_stripes_checked, 3U);
}

TEST_F(Heal, ScrubNamesTheDeviceAndChangesNothing) {
  for (uint32_t device : {0U, 3U, 5U}) {
    SCOPED_TRACE(device);
    SetUp();
    Rot(device);
    const uint64_t before = test_->counter(device).counters().writes;
    const CheckReport report = Scrub(false);
    EXPECT_GT(report.problems_found, 10U);
    EXPECT_EQ(report.healed, 0U);
    for (const Finding& finding : report.findings) {
      EXPECT_EQ(finding.device, "ssd" + std::to_string(device)) << finding.Text();
      EXPECT_EQ(finding.outcome, Finding::Outcome::kLeft);
    }
    EXPECT_EQ(test_->counter(device).counters().writes, before);
  }
}

TEST_F(Heal, ScrubHealsAnyTwoDevices) {
  for (uint32_t first = 0; first < kSsdCount + kParity; ++first) {
    for (uint32_t second = first + 1; second < kSsdCount + kParity; ++second) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
      SetUp();
      Rot(first);
      Rot(second);
      const CheckReport found = Scrub(true);
      EXPECT_GT(found.problems_found, 0U);
      EXPECT_EQ(found.lost, 0U);
      const CheckReport again = Scrub(true);
      EXPECT_EQ(again.problems_found, 0U) << again.findings.front().Text();
      ExpectContent("healed");
      // And now any two others may go.
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice((first + 1) % 6, "test")).ok());
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice((first + 3) % 6, "test")).ok());
      ExpectContent("with others lost");
    }
  }
}

TEST_F(Heal, ReadHealsWhatItMeets) {
  Rot(2);
  ExpectContent("beside rot");
  test_->Sleep(1'000'000);
  EXPECT_GT(Events(EventKind::kCorruptionHealed), 0U);
  EXPECT_EQ(Events(EventKind::kCorruptionLost), 0U);
  for (const ArrayEvent& event : events_) {
    EXPECT_EQ(event.device, "ssd2") << event.text;
  }
  const uint64_t corrupt = test_->array->GetStatus().devices[2].corrupt_chunks;
  ExpectContent("healed");
  EXPECT_EQ(test_->array->GetStatus().devices[2].corrupt_chunks, corrupt);
}

// What was on its way when the array was killed may be whole, old or torn on any device.
TEST_F(Heal, WhatACrashToreIsNobodysFault) {
  for (const uint32_t device : {2U, kSsdCount}) {  // an SSD and a log device
    SCOPED_TRACE(device);
    SetUp();
    for (uint64_t i = 0; i < 8; ++i) {
      Write(i * kStripe + i % 4 * kChunk, 2 * kChunk);  // not flushed
    }
    test_->Kill();
    Rot(device);
    test_->Open();
    EXPECT_EQ(test_->array->GetStatus().devices[device].corrupt_chunks, 0U);
    ExpectContent("recovered");
  }
}

TEST_F(Heal, UnreadableSectorIsHealedToAnotherSlot) {
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kRead);
  fault.from_then_on = true;
  fault.range_offset_bytes = test_->SlotsOffsetBytes();
  fault.range_length_bytes = uint64_t{256} << 10;
  test_->faulty(1).Add(fault);
  const CheckReport found = Scrub(true);
  EXPECT_EQ(found.lost, 0U);
  ExpectContent("healed");
  EXPECT_EQ(Scrub(false).problems_found, 0U);
}

TEST_F(Heal, MoreThanParityCanReplaceIsNamedAndStaysUnreadable) {
  Rot(0);
  Rot(1);
  Rot(2);
  const CheckReport found = Scrub(true);
  EXPECT_GT(found.lost, 0U);
  EXPECT_GT(Events(EventKind::kCorruptionLost), 0U);
  Buffer buffer = test_->pool.Get(kChunk);
  uint64_t unreadable = 0;
  for (uint64_t at = 0; at < kSize; at += kChunk) {
    const Status read = RunTask(test_->loop, test_->array->Read(volume_, at, buffer.span()));
    if (read.ok()) {
      EXPECT_EQ(std::memcmp(buffer.data(), model_.data() + at, kChunk), 0)
          << "wrong data at " << at;
    } else {
      ++unreadable;
    }
  }
  EXPECT_GT(unreadable, 0U);
}

// One bad sector that is read again and again is one bad sector.
TEST_F(Heal, OneBadSectorFailsNoDevice) {
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kRead);
  fault.from_then_on = true;
  fault.range_offset_bytes = test_->SlotsOffsetBytes();
  fault.range_length_bytes = kChunk;
  test_->faulty(1).Add(fault);
  for (int round = 0; round < 100; ++round) {
    ExpectContent("with a bad sector");
  }
  test_->Sleep(3'000'000);
  EXPECT_EQ(test_->State(1), DeviceState::kOk);
}

// What a scrub has not come to yet may be decoded only with the device that was wrong so often.
TEST_F(Heal, NobodyIsFailedByCountWhileAScrubStillFindsOthersWrong) {
  FailByCount(4);
  // As many devices as parity replaces are wrong beside one that is wrong often, in other rows.
  RotSlots(1, 0, 8);
  RotSlots(2, 14, 2);
  RotSlots(3, 14, 2);
  CheckReport found;
  ASSERT_TRUE(RunTask(test_->loop, ScrubBesideReads(found)).ok());
  EXPECT_GE(found.problems_found, 4U);
  EXPECT_EQ(found.lost, 0U);
  EXPECT_EQ(Events(EventKind::kCorruptionLost), 0U);
  ExpectContent("healed");
  EXPECT_EQ(test_->State(1), DeviceState::kOk);
  // The next one finds that device wrong and no other: then it is.
  RotSlots(1, 0, 40);
  EXPECT_EQ(Scrub(true).lost, 0U);
  EXPECT_EQ(test_->State(1), DeviceState::kFailed);
  ExpectContent("without it");
}

// What one read has met of others is known, though it is not healed yet.
TEST_F(Heal, NobodyIsFailedByCountWhileOthersWaitForTheirTurn) {
  FailByCount(4);
  RotSlots(1, 0, 8);
  RotSlots(2, 14, 2);
  RotSlots(3, 14, 2);
  ExpectContent("decoded");
  test_->Sleep(3'000'000);
  EXPECT_EQ(Events(EventKind::kCorruptionLost), 0U);
  EXPECT_EQ(test_->State(1), DeviceState::kOk);
  ExpectContent("healed");
}

// So is what a scrub has found that was not to mend anything.
TEST_F(Heal, NobodyIsFailedByCountWhereAScrubHasOnlyLooked) {
  FailByCount(4);
  RotSlots(2, 14, 2);
  RotSlots(3, 14, 2);
  EXPECT_EQ(Scrub(false).problems_found, 4U);
  RotSlots(1, 0, 8);
  static_cast<void>(test_->Read(volume_, 0, 12 * kStripe));
  test_->Sleep(3'000'000);
  EXPECT_GE(test_->array->GetStatus().devices[1].corrupt_chunks, 4U);
  ExpectContent("afterwards");
}

// Log devices, too: without an SSD its pending chunks are decoded with them.
TEST_F(Heal, NobodyIsFailedByCountWhereTheLogsAreWrong) {
  ASSERT_TRUE(test_->Close().ok());
  test_->shape().max_corrupt_chunks = 4;
  test_->shape().auto_commit = false;
  test_->Open();
  Rot(kSsdCount);
  Rot(kSsdCount + 1);
  EXPECT_GT(Scrub(false).problems_found, 4U);
  RotSlots(1, 9, 10);
  static_cast<void>(test_->Read(volume_, 9 * kStripe, 10 * kStripe));
  test_->Sleep(3'000'000);
  EXPECT_GE(test_->array->GetStatus().devices[1].corrupt_chunks, 4U);
  ExpectContent("afterwards");
}

// One that is cut short has not come to what it would have found.
TEST_F(Heal, NobodyIsFailedByCountByAScrubThatIsCutShort) {
  FailByCount(4);
  RotSlots(1, 0, 8);
  RotSlots(2, 14, 2);
  RotSlots(3, 14, 2);
  static_cast<void>(test_->Read(volume_, 30 * kStripe, kStripe));  // others are at work
  ASSERT_TRUE(RunTask(test_->loop, ScrubUntilClosed()).ok());
  test_->array.reset();
  test_->Open();
  EXPECT_EQ(test_->State(1), DeviceState::kOk);
  ExpectContent("opened again");
}

// Nor where reads alone have met as many others as parity replaces.
TEST_F(Heal, NobodyIsFailedByCountWhereOthersAreWrongToo) {
  FailByCount(4);
  RotSlots(2, 2, 3);
  RotSlots(3, 2, 3);
  ExpectContent("beside rot");
  test_->Sleep(1'000'000);
  RotSlots(1, 0, 40);
  ExpectContent("beside more of it");
  test_->Sleep(1'000'000);
  EXPECT_GE(test_->array->GetStatus().devices[1].corrupt_chunks, 4U);
  EXPECT_EQ(test_->State(1), DeviceState::kOk);
  EXPECT_EQ(Scrub(true).lost, 0U);
  EXPECT_EQ(test_->State(1), DeviceState::kFailed);
}

// What is wrong of the metadata is healed last.
TEST_F(Heal, NobodyIsFailedByCountBeforeTheMetadataIsHealed) {
  FailByCount(4);
  ASSERT_TRUE(test_->Checkpoint().ok());
  Superblock newest;
  for (const uint64_t copy : kSuperblockCopyOffset) {
    const auto found =
        DecodeSuperblock(test_->memory(0).bytes().subspan(copy, kSuperblockCopyBytes));
    ASSERT_TRUE(found.ok());
    newest = found->generation > newest.generation ? *found : newest;
  }
  const CheckpointPointer root = newest.checkpoint;
  uint32_t damaged = 0;
  uint32_t rotten = 0;
  for (uint32_t i = 0; i < kSsdCount; ++i) {
    if ((root.ssd_mask >> i & 1) != 0 && damaged < kParity) {
      test_->memory(i).bytes()[newest.geometry.MetadataOffset(root.root_block) + 100] ^=
          std::byte{1};
      ++damaged;
    } else {
      rotten = i;
    }
  }
  ASSERT_EQ(damaged, kParity);
  RotSlots(rotten, 0, 40);
  EXPECT_EQ(Scrub(true).lost, 0U);
  EXPECT_GE(test_->array->GetStatus().devices[rotten].corrupt_chunks, 4U);
  EXPECT_EQ(test_->State(rotten), DeviceState::kOk);
  // The next one finds nothing wrong any more.
  EXPECT_EQ(Scrub(true).problems_found, 0U);
  EXPECT_EQ(test_->State(rotten), DeviceState::kFailed);
  ExpectContent("without it");
}

// What was logged before it joined was never given to it.
TEST_F(Heal, ALogThatJoinedIsNotBlamedForWhatWasLoggedBefore) {
  constexpr uint64_t kMany = 500;
  const VolumeId other = test_->CreateVolume("w", kMany * kStripe);
  const std::vector<std::byte> chunk = RandomBytes(random_, kChunk);
  for (uint64_t stripe = 0; stripe < kMany; ++stripe) {
    ASSERT_TRUE(test_->Write(other, stripe * kStripe + stripe % 4 * kChunk, chunk).ok());
  }
  ASSERT_TRUE(test_->Flush().ok());
  const uint64_t decoded = test_->hooks().decoded_chunks;
  // At once: what is pending is committed when a log device is lost.
  const auto lose_and_read = [&]() -> Task<Status> {
    Task<Status> fail_log = test_->array->FailDevice(kSsdCount, "by hand");
    Status status = co_await fail_log;
    EPLOG_CO_TRY(status);
    std::ranges::fill(test_->memory(kSsdCount).bytes(), std::byte{0});
    Task<Status> replace = test_->array->ReplaceDevice(kSsdCount, *test_->Devices()[kSsdCount]);
    status = co_await replace;
    EPLOG_CO_TRY(status);
    Task<Status> fail = test_->array->FailDevice(0, "by hand");
    status = co_await fail;
    EPLOG_CO_TRY(status);
    const Buffer buffer = test_->pool.Get(kChunk);
    for (uint64_t stripe = kMany; stripe-- > 0;) {
      Task<Status> reading =
          test_->array->Read(other, stripe * kStripe + stripe % 4 * kChunk, buffer.span());
      status = co_await reading;
      EPLOG_CO_TRY(status);
      EXPECT_EQ(std::memcmp(buffer.data(), chunk.data(), kChunk), 0) << stripe;
    }
    co_return OkStatus();
  };
  ASSERT_TRUE(RunTask(test_->loop, lose_and_read()).ok());
  ASSERT_GT(test_->hooks().decoded_chunks, decoded);
  EXPECT_EQ(test_->array->GetStatus().devices[kSsdCount].corrupt_chunks, 0U);
}

// Nor an SSD for the checkpoint that the one before it had.
TEST_F(Heal, AnSsdThatJoinedIsNotBlamedForTheCheckpointBefore) {
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    ASSERT_TRUE(test_->Checkpoint().ok());
    CheckReport report;
    const auto replace_and_scrub = [&]() -> Task<Status> {
      Task<Status> fail = test_->array->FailDevice(ssd, "by hand");
      Status status = co_await fail;
      EPLOG_CO_TRY(status);
      std::ranges::fill(test_->memory(ssd).bytes(), std::byte{0});
      Task<Status> replace = test_->array->ReplaceDevice(ssd, *test_->Devices()[ssd]);
      status = co_await replace;
      EPLOG_CO_TRY(status);
      Task<Status> scrub = ScrubInto(report);
      co_return co_await scrub;
    };
    ASSERT_TRUE(RunTask(test_->loop, replace_and_scrub()).ok());
    EXPECT_EQ(report.problems_found, 0U) << ssd;
    EXPECT_EQ(test_->array->GetStatus().devices[ssd].corrupt_chunks, 0U) << ssd;
    test_->Sleep(30'000'000);
    ASSERT_EQ(test_->State(ssd), DeviceState::kOk);
  }
}

// A scrub does not look at the log of one that joins: what was met wrong there still is.
TEST_F(Heal, NobodyIsFailedByCountWhereALogThatJoinedIsWrong) {
  test_->shape().auto_commit = false;
  FailByCount(4);
  test_->array->SetRebuildPace({.bytes_per_second = 1});
  for (const uint32_t device : {0U, kSsdCount}) {
    ASSERT_TRUE(test_->Fail(device).ok());
    ASSERT_TRUE(test_->ReplaceByItselfBlank(device).ok());
  }
  Write(20 * kStripe, 2 * kChunk);
  ASSERT_TRUE(test_->Checkpoint().ok());
  Rot(kSsdCount);
  // One chunk cannot be read once, and is decoded from the log.
  for (const uint32_t device : {1U, 2U, 3U, 4U, 5U}) {
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kRead);
    test_->faulty(device).Add(fault);
  }
  static_cast<void>(test_->Read(volume_, 20 * kStripe, kChunk));
  for (const uint32_t device : {1U, 2U, 3U, 4U, 5U}) {
    test_->faulty(device).Clear();
  }
  const auto status = [&](uint32_t device) { return test_->array->GetStatus().devices[device]; };
  ASSERT_GT(status(kSsdCount).corrupt_chunks, 0U);
  ASSERT_EQ(status(kSsdCount).state, DeviceState::kRebuilding);
  EXPECT_EQ(Scrub(true).lost, 0U);
  ASSERT_EQ(status(kSsdCount).state, DeviceState::kRebuilding);
  test_->array->SetRebuildPace({});
  test_->Sleep(30'000'000);
  ASSERT_EQ(status(kSsdCount).state, DeviceState::kOk);
  ASSERT_EQ(status(0).state, DeviceState::kOk);
  RotSlots(2, 0, 40);
  static_cast<void>(test_->Read(volume_, 0, 2 * kStripe));
  test_->Sleep(3'000'000);
  ASSERT_GT(status(2).corrupt_chunks, 0U);
  ASSERT_EQ(status(2).state, DeviceState::kOk);
  RotSlots(1, 0, 60);
  static_cast<void>(test_->Read(volume_, 2 * kStripe, 18 * kStripe));
  test_->Sleep(3'000'000);
  EXPECT_GE(status(1).corrupt_chunks, 4U);
  for (uint32_t device = 0; device < kSsdCount + kParity; ++device) {
    EXPECT_EQ(status(device).state, DeviceState::kOk) << device;
  }
}

TEST_F(Heal, DeviceThatFailsManyReadsIsFailedOnce) {
  for (const uint32_t device : {1U, 4U}) {
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kRead);
    fault.from_then_on = true;
    test_->faulty(device).Add(fault);
  }
  for (int round = 0; round < 5; ++round) {
    ExpectContent("with two that do not read");
    test_->Sleep(1'000'000);
  }
  const ArrayStatus status = test_->array->GetStatus();
  const bool one = status.devices[1].state == DeviceState::kFailed;
  const bool other = status.devices[4].state == DeviceState::kFailed;
  EXPECT_NE(one, other) << "the second still helps while the first is missing";
  ExpectContent("afterwards");
}

}  // namespace
}  // namespace eplog
