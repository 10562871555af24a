// Devices that fail while the array runs, and what takes their place.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "layout/geometry.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
using Bytes = std::vector<std::byte>;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 40 * kStripe;

ArrayShape Shape(JournalMode journal) {
  ArrayShape shape = SmallShape(kSsdCount, kParity);
  shape.journal = journal;
  return shape;
}

class DeviceLoss : public ::testing::TestWithParam<JournalMode> {
 protected:
  void Make() {
    test_ = std::make_unique<SmallArray>(Shape(GetParam()));
    volume_ = test_->CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_->Write(volume_, offset, data);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Flush() {
    const Status flushed = test_->Flush();
    ASSERT_TRUE(flushed.ok()) << flushed.error().ToString();
  }
  // Stripes in every state: whole, updated and committed, updated and pending, trimmed, partly new.
  void Fill() {
    Write(0, 20 * kStripe);
    Write(3 * kStripe + 100, 5000);
    Write(5 * kStripe, kChunk);
    ASSERT_TRUE(test_->Commit().ok());
    Write(2 * kStripe + kChunk, kChunk);
    Write(5 * kStripe, 2 * kChunk);
    Write(25 * kStripe + 700, 3 * kStripe);
    Trim(9 * kStripe, kStripe);
    Trim(10 * kStripe + kChunk, kChunk);
  }
  void Trim(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume_, offset, length, TrimMode::kZero)).ok());
    std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(offset), length, std::byte{0});
  }
  void ExpectContent(const std::string& when) {
    EXPECT_EQ(test_->Read(volume_, 0, kSize) == model_, true) << when;
  }
  // Every further write of this device fails.
  void Break(uint32_t device) {
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
    fault.from_then_on = true;
    test_->faulty(device).Add(fault);
  }
  DeviceState State(uint32_t device) { return test_->State(device); }
  MemoryDevice& NewDevice(uint32_t device) {
    fresh_.push_back(std::make_unique<MemoryDevice>("new" + std::to_string(device),
                                                    test_->memory(device).size_bytes()));
    return *fresh_.back();
  }
  void AwaitOk(uint32_t device) {
    for (int i = 0; i < 100 && State(device) != DeviceState::kOk; ++i) {
      test_->Sleep(200'000);
    }
    EXPECT_EQ(State(device), DeviceState::kOk) << "device " << device << " is never rebuilt";
  }

  Random random_{7};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
  std::vector<std::unique_ptr<MemoryDevice>> fresh_;
};

TEST_P(DeviceLoss, AnyTwoDevicesMayFailAndBeReplaced) {
  for (uint32_t first = 0; first < kDevices; ++first) {
    for (uint32_t second = first + 1; second < kDevices; ++second) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
      Make();
      Fill();
      Break(first);
      Write(7 * kStripe, kChunk);
      Write(26 * kStripe, 2 * kStripe + 900);
      Flush();
      Break(second);
      for (uint64_t i = 0; i < 12; ++i) {  // somewhere among these both are met
        Write(i * 3 * kStripe + i % 4 * kChunk, kChunk);
      }
      Write(30 * kStripe, 4 * kStripe);
      Flush();
      ASSERT_TRUE(test_->Checkpoint().ok());
      EXPECT_EQ(State(first), DeviceState::kFailed);
      EXPECT_EQ(State(second), DeviceState::kFailed);
      const ArrayStatus status = test_->array->GetStatus();
      EXPECT_EQ(status.state, ArrayState::kDegraded);
      EXPECT_EQ(status.further_ssd_losses_survived, 0U);
      EXPECT_NE(status.devices[first].failed_because, "");
      ExpectContent("with both lost");
      for (const uint32_t device : {first, second}) {
        const Status joined =
            RunTask(test_->loop, test_->array->ReplaceDevice(device, NewDevice(device)));
        ASSERT_TRUE(joined.ok()) << joined.error().ToString();
        Write(2 * kStripe, 3 * kChunk);
      }
      ExpectContent("while rebuilding");
      AwaitOk(first);
      AwaitOk(second);
      EXPECT_EQ(test_->array->GetStatus().further_ssd_losses_survived, kParity);
      const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
      ASSERT_TRUE(report.ok()) << report.error().ToString();
      EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
      ExpectContent("rebuilt");
      test_.reset();
      fresh_.clear();
    }
  }
}

// After the kill of the process the device answers again; but it has missed something, and what the
// flush should have kept may be gone one day.
TEST_P(DeviceLoss, WhoFailedIsNotTrustedAfterwards) {
  for (uint32_t device = 0; device < kDevices; ++device) {
    Make();
    Fill();
    Flush();
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kFlush);
    test_->faulty(device).Add(fault);  // one flush fails, and all later ones succeed (I7)
    Write(30 * kStripe, 6 * kStripe);
    Write(kStripe, kChunk);
    Flush();
    ASSERT_EQ(State(device), DeviceState::kFailed);
    test_->Kill();
    test_->Open();
    EXPECT_EQ(State(device), DeviceState::kFailed) << "device " << device;
    ExpectContent("after the kill");
    test_.reset();
  }
}

// An opening begins anew after the first failure of a device, and must not forget the second.
TEST_P(DeviceLoss, TwoThatFailInOneMomentOfAnOpeningAreBothNotTrusted) {
  for (uint64_t nth = 1; nth <= 3; ++nth) {
    Make();
    Fill();
    Flush();
    test_->Kill();
    for (const uint32_t device : {0U, kSsdCount}) {
      test_->faulty(device).Add({.kinds = MaskOf(RequestKind::kFlush), .nth = nth});
    }
    test_->Open();
    for (const uint32_t device : {0U, kSsdCount}) {
      EXPECT_EQ(State(device), DeviceState::kMissing) << "device " << device << ", flush " << nth;
    }
    ExpectContent("without both");
    test_.reset();
  }
}

// One copy of its superblock bears nothing and the other cannot be read: it may well be a member.
TEST_P(DeviceLoss, WhoseSuperblockCannotBeReadIsMissing) {
  Make();
  Fill();
  Flush();
  test_->Kill();
  for (const uint64_t blank : kSuperblockCopyOffset) {
    const uint64_t unreadable = kSuperblockCopyOffset[blank == kSuperblockCopyOffset[0] ? 1 : 0];
    const auto copy = test_->memory(0).bytes().subspan(blank, kSuperblockCopyBytes);
    const std::vector<std::byte> kept(copy.begin(), copy.end());
    std::fill(copy.begin(), copy.end(), std::byte{0});
    test_->faulty(0).Add({.kinds = MaskOf(RequestKind::kRead),
                          .from_then_on = true,
                          .range_offset_bytes = unreadable,
                          .range_length_bytes = kSuperblockCopyBytes});
    OpenOptions look;
    look.read_only = true;
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, test_->Devices(), look));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    EXPECT_EQ((*opened)->GetStatus().devices[0].state, DeviceState::kMissing);
    opened->reset();
    test_->faulty(0).Clear();
    std::copy(kept.begin(), kept.end(), copy.begin());
  }
}

TEST_P(DeviceLoss, AThirdLossStopsWritingAndReadsGoOn) {
  Make();
  Write(0, 10 * kStripe);
  Flush();
  ASSERT_TRUE(test_->Fail(6).ok());
  ASSERT_TRUE(test_->Fail(7).ok());
  Write(20 * kStripe, kStripe);
  Flush();
  const Status refused = test_->Fail(0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(State(0), DeviceState::kOk);
  Break(0);
  const std::vector<std::byte> data = RandomBytes(random_, 4 * kStripe);
  const Status written = test_->Write(volume_, 30 * kStripe, data);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kTooManyFailures);
  EXPECT_EQ(test_->array->GetStatus().state, ArrayState::kFailed);
  EXPECT_NE(test_->array->GetStatus().stopped_because.find("ssd0"), std::string::npos);
  EXPECT_TRUE(std::equal(model_.begin(), model_.begin() + 10 * kStripe,
                         test_->Read(volume_, 0, 10 * kStripe).begin()));
  test_->Kill();
}

// All at once, as behind one cable. What a checkpoint was just writing is nowhere then, and must
// not be what the others name.
TEST_P(DeviceLoss, TooManyLostInACheckpointMayComeBack) {
  Make();
  Fill();
  Flush();
  test_->Sleep(10'000'000);  // what is left to do behind it
  for (uint32_t device = 0; device < kSsdCount; ++device) {
    Break(device);
  }
  EXPECT_FALSE(test_->Checkpoint().ok());
  EXPECT_EQ(test_->array->GetStatus().state, ArrayState::kFailed);
  test_->Kill();
  for (uint32_t device = 0; device < kSsdCount; ++device) {
    test_->faulty(device).Clear();
  }
  test_->Open();
  ASSERT_NE(test_->array, nullptr);
  ExpectContent("when they are back");
  const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
}

// No log chunk protects what is pending then: what a flush calls durable has parity on the SSDs.
TEST_P(DeviceLoss, WithoutLogDevicesAFlushCommits) {
  Make();
  Fill();
  for (const uint32_t log : {kSsdCount, kSsdCount + 1}) {
    ASSERT_TRUE(test_->Fail(log).ok());
  }
  const auto pending = [this] { return test_->array->GetStatus().pending_chunks; };
  for (uint64_t round = 0; round < 3; ++round) {
    Write(2 * kStripe + round * kChunk, kChunk);
    Write(7 * kStripe, 2 * kChunk);
    EXPECT_GT(pending(), 0U);
    if (round == 1) {
      ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, 0, kSize)).ok());
    } else {
      Flush();
    }
    EXPECT_EQ(pending(), 0U);
  }
  ExpectContent("after the flushes");
  const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
  test_->Kill();
  test_->Open();
  ExpectContent("after the kill");
}

// A replacement that fails at once is no member, and the next one may come.
TEST_P(DeviceLoss, AReplacementMayFailToo) {
  Make();
  Fill();
  ASSERT_TRUE(test_->Fail(2).ok());
  FaultDevice broken(NewDevice(2));
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kWrite);
  fault.nth = 6;  // it was wiped, and fails while it joins or is rebuilt
  fault.from_then_on = true;
  broken.Add(fault);
  static_cast<void>(test_->Replace(2, broken));
  for (uint64_t i = 0; i < 12; ++i) {
    Write(i * 3 * kStripe + i % 4 * kChunk, kChunk);
  }
  Flush();
  test_->Sleep(1'000'000);
  EXPECT_EQ(State(2), DeviceState::kFailed);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(2, NewDevice(2))).ok());
  AwaitOk(2);
  ExpectContent("rebuilt");
  EXPECT_FALSE(RunTask(test_->loop, test_->array->ReplaceDevice(2, NewDevice(2))).ok());
  MemoryDevice small("small", 1 << 20);
  ASSERT_TRUE(test_->Fail(2).ok());
  EXPECT_FALSE(test_->Replace(2, small).ok());
  test_->Kill();
}

// A new device at the path of one that is still open, since its file was deleted; and a member by
// another name.
TEST_P(DeviceLoss, AReplacementIsWhatItIsWhateverItIsCalled) {
  Make();
  Fill();
  Array& array = *test_->array;
  ASSERT_TRUE(RunTask(test_->loop, array.FailDevice(2, "by hand")).ok());
  MemoryDevice same_name(array.GetStatus().devices[0].path, NewDevice(2).size_bytes());
  EXPECT_FALSE(array.Holds(same_name));
  const Status replaced = RunTask(test_->loop, array.ReplaceDevice(2, same_name));
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  EXPECT_TRUE(array.Holds(same_name));
  AwaitOk(2);
  ExpectContent("rebuilt");
  ASSERT_TRUE(RunTask(test_->loop, array.FailDevice(2, "by hand")).ok());
  EXPECT_FALSE(array.Holds(same_name)) << "it may be destroyed";
  Device* const member = test_->Devices()[0];
  EXPECT_TRUE(array.Holds(*member));
  ForwardingDevice other_way(*member);
  const Status refused = RunTask(test_->loop, array.ReplaceDevice(2, other_way));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("is ssd0 and in use"), std::string::npos)
      << refused.error().message;
  test_->Kill();
}

ArrayShape SlowShape(uint32_t n, uint32_t m) {
  ArrayShape shape = SmallShape(n, m);
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  return shape;
}

Status WriteChunks(SmallArray& test, VolumeId volume, uint64_t first, uint64_t count,
                   std::span<const std::byte> data) {
  for (uint64_t i = 0; i < count; ++i) {
    EPLOG_TRY(test.Write(volume, (first + i) * kChunk, data.subspan(i * kChunk, kChunk)));
  }
  return OkStatus();
}

// An entry from before a replacement names a slot of the SSD that is gone. Recovery, which decodes
// what it cannot read, must not write it over what lies in that slot of the successor.
TEST(Replacement, IsNotMendedWithWhatItsPredecessorHeld) {
  ArrayShape shape = SlowShape(4, 1);
  shape.auto_commit = false;
  SmallArray test(shape);
  const VolumeId volume = test.CreateVolume("v", 1 << 20);
  Random random(3);
  const std::vector<std::byte> data = RandomBytes(random, 64 * kChunk);
  ASSERT_TRUE(WriteChunks(test, volume, 60, 1, data).ok());
  ASSERT_TRUE(test.Flush().ok());
  ASSERT_TRUE(WriteChunks(test, volume, 0, 6, data).ok());  // applied, not stable
  DeviceDelays slow = kSsdDelays;
  slow.write_us = 1'000'000;  // so that nothing becomes stable soon
  for (uint32_t i = 0; i < 4; ++i) {
    test.delayed(i).set_delays(slow);
  }
  ASSERT_TRUE(test.Fail(0).ok());
  for (uint32_t i = 0; i < 4; ++i) {
    test.delayed(i).set_delays(kSsdDelays);
  }
  ASSERT_TRUE(test.ReplaceByItself(0).ok());
  const std::span<const std::byte> later = std::span(data).subspan(20 * kChunk);
  ASSERT_TRUE(WriteChunks(test, volume, 16, 24, later).ok());
  ASSERT_TRUE(test.Flush().ok());
  test.Kill();
  test.Open();
  test.Sleep(60'000'000);
  ASSERT_EQ(test.State(0), DeviceState::kOk);
  ASSERT_TRUE(test.Fail(1).ok());
  for (uint64_t i = 0; i < 24; ++i) {
    const std::vector<std::byte> found = test.Read(volume, (16 + i) * kChunk, kChunk);
    EXPECT_TRUE(std::equal(found.begin(), found.end(),
                           later.begin() + static_cast<std::ptrdiff_t>(i * kChunk)))
        << i;
  }
  test.Kill();
}

// Writes to another lost SSD make `absent` members all the time; they are not the successor's.
TEST(Replacement, IsOkAlsoWhileAnotherIsLostAndWritesGoOn) {
  SmallArray test(SlowShape(5, 2));
  const VolumeId volume = test.CreateVolume("v", 1 << 20);
  Random random(3);
  const std::vector<std::byte> data = RandomBytes(random, 64 * kChunk);
  ASSERT_TRUE(WriteChunks(test, volume, 0, 64, data).ok());
  ASSERT_TRUE(test.Fail(0).ok());
  ASSERT_TRUE(test.Fail(1).ok());
  ASSERT_TRUE(test.ReplaceByItself(0).ok());
  const uint64_t before = test.array->GetStatus().traffic.checkpoints;
  for (int i = 0; i < 200 && test.State(0) != DeviceState::kOk; ++i) {
    ASSERT_TRUE(WriteChunks(test, volume, 0, 64, data).ok());
    test.Sleep(50'000);
  }
  EXPECT_EQ(test.State(0), DeviceState::kOk);
  EXPECT_LT(test.array->GetStatus().traffic.checkpoints - before, 5U);
  // Another loss is one too many now, and nothing else is.
  ASSERT_TRUE(test.Fail(6).ok());
  EXPECT_FALSE(test.Fail(2).ok());
  test.Kill();
}

// 3+1, and ssd0 has been replaced and lacks nearly all that it is to hold.
class Rebuilding : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(test.Write(volume, 0, data).ok());
    ASSERT_TRUE(test.Flush().ok());
    ASSERT_TRUE(test.Fail(0).ok());
    ASSERT_TRUE(test.ReplaceByItself(0).ok());
    ASSERT_EQ(test.State(0), DeviceState::kRebuilding);
  }

  SmallArray test{SlowShape(4, 1)};
  VolumeId volume = test.CreateVolume("v", 2 << 20);
  Random random{3};
  std::vector<std::byte> data = RandomBytes(random, 2 << 20);
};

// Until it is rebuilt, a replacement counts among the m.
TEST_F(Rebuilding, CountsAsLostUntilItIsRebuilt) {
  EXPECT_EQ(test.array->GetStatus().further_ssd_losses_survived, 0U);
  EXPECT_FALSE(test.Fail(1).ok());
  EXPECT_TRUE(test.Fail(0).ok());
  EXPECT_EQ(test.Read(volume, 0, data.size()) == data, true);
  test.Kill();
}

// What it does not have yet is on the others alone: one of them that only was unplugged is not
// given up for ever.
TEST_F(Rebuilding, IsNoReasonToGiveUpAnother) {
  Fault unplugged;
  unplugged.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  unplugged.from_then_on = true;
  test.faulty(1).Add(unplugged);
  bool refused = false;
  for (uint64_t at = 0; at < 16 && !refused; ++at) {
    const Status written = WriteChunks(test, volume, at, 1, data);
    refused = !written.ok() && written.error().code == ErrorCode::kTooManyFailures;
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  test.Kill();
  // Nor is it while recovery cannot write to it.
  auto opening = RunTask(test.loop, Array::Open(test.loop, test.Devices(), OpenOptions{}));
  ASSERT_FALSE(opening.ok());
  EXPECT_EQ(opening.error().code, ErrorCode::kTooManyFailures) << opening.error().ToString();
  test.faulty(1).Clear();
  test.Open();
  ASSERT_NE(test.array, nullptr);
  for (int i = 0; i < 200 && test.State(0) != DeviceState::kOk; ++i) {
    test.Sleep(200'000);
  }
  EXPECT_EQ(test.State(0), DeviceState::kOk);
  EXPECT_EQ(test.State(1), DeviceState::kOk);
  EXPECT_EQ(test.Read(volume, 16 * kChunk, data.size() - 16 * kChunk) ==
                std::vector<std::byte>(data.begin() + 16 * kChunk, data.end()),
            true);
  test.Kill();
}

// The same where the other is away when the array is opened: by force it may be read.
TEST_F(Rebuilding, IsNoReasonToGoOnWithoutOneThatIsAway) {
  test.Kill();
  OpenOptions options;
  options.entropy = 99;
  std::vector<Device*> devices = test.Devices();
  devices.erase(devices.begin() + 1);
  const auto opening = RunTask(test.loop, Array::Open(test.loop, devices, options));
  ASSERT_FALSE(opening.ok());
  EXPECT_EQ(opening.error().code, ErrorCode::kTooManyFailures);
  EXPECT_NE(opening.error().message.find("not rebuilt"), std::string::npos)
      << opening.error().ToString();
  options.read_only = true;
  EXPECT_FALSE(RunTask(test.loop, Array::Open(test.loop, devices, options)).ok());
  options.force = true;
  auto reading = RunTask(test.loop, Array::Open(test.loop, devices, options));
  ASSERT_TRUE(reading.ok()) << reading.error().ToString();
  const auto lost = RunTask(test.loop, (*reading)->FindLost());
  ASSERT_TRUE(lost.ok());
  EXPECT_FALSE(lost->ranges.empty());
  EXPECT_TRUE(RunTask(test.loop, (*reading)->Close()).ok());
  // It is back, and nothing has gone on without it.
  test.Open();
  ASSERT_NE(test.array, nullptr);
  EXPECT_EQ(test.State(1), DeviceState::kOk);
  for (int i = 0; i < 200 && test.State(0) != DeviceState::kOk; ++i) {
    test.Sleep(200'000);
  }
  EXPECT_EQ(test.State(0), DeviceState::kOk);
  EXPECT_EQ(test.Read(volume, 0, data.size()) == data, true);
}

// What is on no device any more is wrong on none of those that a check reads.
TEST_F(Rebuilding, WhatIsLostIsAProblemOfACheck) {
  test.Kill();
  // As a version did that counted it as there.
  OpenOptions options;
  options.entropy = 98;
  test.hooks().canary = Canary::kUnwholeCounts;
  std::vector<Device*> devices = test.Devices();
  devices.erase(devices.begin() + 1);
  auto opening = RunTask(test.loop, OpenHooked(test.loop, devices, options, &test.hooks()));
  ASSERT_TRUE(opening.ok()) << opening.error().ToString();
  const Bytes block(kChunk, std::byte{1});
  for (uint64_t stripe = 0; stripe < 100; ++stripe) {
    static_cast<void>(RunTask(test.loop, (*opening)->Write(volume, stripe * 3 * kChunk, block)));
  }
  static_cast<void>(RunTask(test.loop, (*opening)->Commit(Progress())));
  ASSERT_TRUE(RunTask(test.loop, (*opening)->Close()).ok());
  opening->reset();
  test.hooks().canary = Canary::kNone;
  test.Open();
  ASSERT_NE(test.array, nullptr);
  test.Sleep(10'000'000);
  const auto lost = RunTask(test.loop, test.array->FindLost());
  ASSERT_TRUE(lost.ok());
  ASSERT_NE(lost->lost_bytes, 0U);
  for (const bool scrub : {false, true}) {
    const auto report = RunTask(
        test.loop, scrub ? test.array->Scrub(false, Progress()) : test.array->Check(Progress()));
    ASSERT_TRUE(report.ok()) << report.error().ToString();
    EXPECT_EQ(report->lost * kChunk, lost->lost_bytes) << scrub;
    EXPECT_GE(report->problems_found, lost->ranges.size());
  }
}

// What was written in one go is read back so, from as few SSDs as decoding takes.
TEST(Replacement, IsRebuiltInLargeRequests) {
  constexpr uint32_t kStripes = 2048;
  constexpr uint32_t kData = 6;
  ArrayShape shape = SmallShape(kData + 2, 2);
  shape.ssd_bytes = uint64_t{32} << 20;
  // For the first tenth of a second the replacing itself counts as work of others.
  shape.ssd_delays = {.read_us = 2000, .write_us = 2000, .flush_us = 2000};
  SmallArray test(shape);
  const VolumeId volume = test.CreateVolume("v", kStripes * kData * kChunk);
  Random random(3);
  const uint64_t piece = 64 * kData * kChunk;
  for (uint64_t at = 0; at < kStripes * kData * kChunk; at += piece) {
    ASSERT_TRUE(test.Write(volume, at, RandomBytes(random, piece)).ok());
  }
  ASSERT_TRUE(RunTask(test.loop, test.array->FailDevice(3, "test")).ok());
  test.Sleep(1'000'000);  // nobody else wants the devices
  const auto reads = [&test] {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kData + 2; ++i) {
      sum += test.counter(i).counters().reads;
    }
    return sum;
  };
  const uint64_t before = reads();
  MemoryDevice fresh("fresh", shape.ssd_bytes);
  ASSERT_TRUE(test.Replace(3, fresh).ok());
  test.Sleep(5'000'000);
  EXPECT_EQ(test.State(3), DeviceState::kOk);
  EXPECT_LE(reads() - before, 4 * kStripes * kData * kChunk >> 20);  // of 256 KiB, on average
  ASSERT_TRUE(test.Close().ok());                                    // before the replacement goes
}

// No space below a replacement stops the array; nobody waits for what was never submitted.
TEST(Replacement, WithoutSpaceBelowStopsTheArrayAndEndsEveryRequest) {
  for (uint64_t nth = 1; nth < 60; nth += 3) {
    SmallArray test(SlowShape(4, 1));
    const VolumeId volume = test.CreateVolume("v", 1 << 20);
    Random random(3);
    const std::vector<std::byte> data = RandomBytes(random, 64 * kChunk);
    ASSERT_TRUE(test.Write(volume, 0, data).ok());
    ASSERT_TRUE(test.Fail(0).ok());
    ASSERT_TRUE(test.ReplaceByItself(0).ok());
    Fault full;
    full.kinds = MaskOf(RequestKind::kWrite);
    full.nth = nth;
    full.code = ErrorCode::kNoSpace;
    test.faulty(0).Add(full);
    static_cast<void>(test.Write(volume, 0, data));
    test.Sleep(2'000'000);
    static_cast<void>(test.Write(volume, 0, data));
    static_cast<void>(test.Flush());
    static_cast<void>(RunTask(test.loop, test.array->Close()));
    test.Kill();
  }
}

// More than m in one moment: nothing is written down, and when they are well again, so is the
// array.
TEST(Superblocks, TooManyAtOnceMayComeBack) {
  SmallArray test(SmallShape(kSsdCount, kParity));
  const VolumeId volume = test.CreateVolume("v", kSize);
  Random random(5);
  const std::vector<std::byte> data = RandomBytes(random, 4 * kStripe);
  ASSERT_TRUE(test.Write(volume, 0, data).ok());
  ASSERT_TRUE(test.Flush().ok());
  for (uint32_t device = 0; device < kParity + 1; ++device) {
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite);
    fault.from_then_on = true;
    test.faulty(device).Add(fault);
  }
  EXPECT_FALSE(test.Write(volume, 8 * kStripe, data).ok());
  EXPECT_EQ(test.array->GetStatus().state, ArrayState::kFailed);
  test.Sleep(1'000'000);
  for (uint32_t device = 0; device < kParity + 1; ++device) {
    test.faulty(device).Clear();
  }
  test.Kill();
  test.Open();
  ASSERT_NE(test.array, nullptr);
  EXPECT_EQ(test.Read(volume, 0, data.size()) == data, true);
}

// A damaged copy of a superblock leaves the other, which may be of an earlier life: then the device
// counts as missing, and the array opens without it.
TEST(Superblocks, ADamagedCopyIsNoReasonToRefuse) {
  for (const uint64_t copy : kSuperblockCopyOffset) {
    for (uint32_t device = 0; device < 5; ++device) {
      SmallArray test(SlowShape(4, 1));
      const VolumeId volume = test.CreateVolume("v", 1 << 20);
      Random random(3);
      const std::vector<std::byte> data = RandomBytes(random, 64 * kChunk);
      ASSERT_TRUE(test.Write(volume, 0, data).ok());
      ASSERT_TRUE(test.Close().ok());
      const Buffer garbage = test.pool.GetZeroed(kSuperblockCopyBytes);
      const iovec part{const_cast<std::byte*>(garbage.data()), 512};
      ASSERT_TRUE(RunTask(test.loop, test.memory(device).Read(copy, std::span(&part, 1))).ok());
      garbage.span()[200] ^= std::byte{1};
      ASSERT_TRUE(RunTask(test.loop, test.memory(device).Write(copy, std::span(&part, 1))).ok());
      test.Open();
      ASSERT_TRUE(test.array != nullptr);
      EXPECT_EQ(test.Read(volume, 0, data.size()) == data, true);
      const DeviceState state = test.State(device);
      EXPECT_TRUE(state == DeviceState::kOk || state == DeviceState::kMissing);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceLoss,
                         ::testing::Values(JournalMode::kFull, JournalMode::kLog),
                         [](const auto& mode) {
                           return mode.param == JournalMode::kFull ? "Full" : "Log";
                         });

}  // namespace
}  // namespace eplog
