// A replacement from the order to the end: what it must be, what becomes of what it held, what
// happens if it fails before it has joined, and what is said of all that.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/entry.h"
#include "runtime/task_group.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kSize = 100 * kStripe;
constexpr uint64_t kRingBytes = uint64_t{5} << 19;  // two and a half of what is wiped at once

class Replacing : public ::testing::Test {
 protected:
  ArrayShape Shape() {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.ring_bytes = kRingBytes;
    shape.auto_commit = false;
    shape.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    return shape;
  }
  void SetUp() override {
    content_ = RandomBytes(random_, kSize);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    for (uint64_t i = 0; i < 10; ++i) {
      const std::vector<std::byte> update = RandomBytes(random_, kChunk);
      const uint64_t at = i * (kStripe + kChunk);
      ASSERT_TRUE(test_.Write(volume_, at, update).ok());
      std::ranges::copy(update, content_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_TRUE(test_.Flush().ok());
    geometry_ = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
  }
  Status Fail(uint32_t device) { return test_.Fail(device); }
  Status Replace(uint32_t device, Device& by) { return test_.Replace(device, by); }
  DeviceStatus Device_(uint32_t device) { return test_.array->GetStatus().devices[device]; }
  void AwaitOk(uint32_t device) {
    for (int i = 0; i < 200 && Device_(device).state != DeviceState::kOk; ++i) {
      test_.Sleep(200'000);
    }
    ASSERT_EQ(Device_(device).state, DeviceState::kOk);
  }
  uint64_t SizeOf(uint32_t device) { return test_.memory(device).size_bytes(); }
  // What a member held that nobody cleaned.
  std::unique_ptr<MemoryDevice> Used(uint32_t device, uint64_t bytes) {
    auto used = std::make_unique<MemoryDevice>("used", bytes);
    if (device < kSsdCount) {
      std::ranges::fill(used->bytes(), std::byte{0xA5});
    } else {
      std::ranges::copy(test_.memory(device).bytes().first(std::min(bytes, SizeOf(device))),
                        used->bytes().begin());
    }
    return used;
  }
  void ExpectContent() { EXPECT_TRUE(test_.Read(volume_, 0, kSize) == content_); }

  std::vector<ArrayEvent> events_;
  std::vector<std::unique_ptr<MemoryDevice>> kept_;  // longer than the array
  SmallArray test_{Shape()};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{7};
  std::vector<std::byte> content_;
  Geometry geometry_;
};

// Whichever request it is that fails: it is no member, and the next one may come.
TEST_F(Replacing, OneThatFailsWhileItIsWipedIsRefused) {
  for (const uint32_t device : {1U, kSsdCount}) {
    ASSERT_TRUE(Fail(device).ok());
    for (const RequestKind kind : {RequestKind::kWrite, RequestKind::kFlush}) {
      // Two copies of its superblock and, of an SSD, its ring; each is flushed.
      const uint64_t ring = kind == RequestKind::kFlush ? 1 : 3;
      const uint64_t wiping = 2 + (device < kSsdCount ? ring : 0);
      for (uint64_t nth = 1; nth <= wiping; ++nth) {
        SCOPED_TRACE(std::to_string(device) + ": request " + std::to_string(nth));
        FaultDevice broken(std::make_unique<MemoryDevice>("broken", SizeOf(device)));
        Fault fault;
        fault.kinds = MaskOf(kind);
        fault.nth = nth;
        broken.Add(fault);
        EXPECT_FALSE(Replace(device, broken).ok());
        EXPECT_EQ(broken.fired(), 1U);
        EXPECT_EQ(Device_(device).state, DeviceState::kFailed);
        EXPECT_FALSE(test_.array->Holds(broken));
      }
    }
    kept_.push_back(Used(device, SizeOf(device)));
    ASSERT_TRUE(Replace(device, *kept_.back()).ok());
    AwaitOk(device);
  }
  ExpectContent();
  ASSERT_TRUE(test_.Close().ok());
}

// From its first request on: in the end it is a member that holds all, or none.
TEST_F(Replacing, OneThatIsRefusedIsNoMember) {
  uint64_t refused = 0;
  for (uint64_t nth = 1; nth < 24; ++nth) {
    SCOPED_TRACE(nth);
    if (Device_(1).state == DeviceState::kOk) {
      ASSERT_TRUE(Fail(1).ok());
    }
    auto broken =
        std::make_unique<FaultDevice>(std::make_unique<MemoryDevice>("broken", SizeOf(1)));
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
    fault.nth = nth;
    broken->Add(fault);
    const Status replaced = Replace(1, *broken);
    if (!replaced.ok()) {
      ++refused;
      EXPECT_FALSE(test_.array->Holds(*broken));
      EXPECT_EQ(Device_(1).state, DeviceState::kFailed);
    } else {
      test_.Sleep(20'000'000);
      EXPECT_EQ(Device_(1).state, broken->fired() == 0 ? DeviceState::kOk : DeviceState::kFailed);
      if (Device_(1).state == DeviceState::kOk) {
        ASSERT_TRUE(Fail(1).ok());
      }
    }
    ExpectContent();
  }
  EXPECT_GT(refused, 10U);
  ASSERT_TRUE(Replace(1, *test_.Devices()[1]).ok());
  AwaitOk(1);
  ASSERT_TRUE(Fail(0).ok());
  ASSERT_TRUE(Fail(4).ok());
  ExpectContent();
}

// Of what was there before, nothing lies where it could be taken for the array's.
TEST_F(Replacing, NothingIsLeftInTheRingOfWhatItHeld) {
  ASSERT_TRUE(Fail(1).ok());
  kept_.push_back(Used(1, SizeOf(1)));
  ASSERT_TRUE(Replace(1, *kept_.back()).ok());
  AwaitOk(1);
  const auto bytes = kept_.back()->bytes();
  const auto superblock = DecodeSuperblock(bytes.first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  for (const uint64_t copy : kSuperblockCopyOffset) {
    EXPECT_TRUE(DecodeSuperblock(bytes.subspan(copy, kSuperblockCopyBytes)).ok());
  }
  uint64_t foreign = 0;
  for (uint64_t block = 0; block < geometry_.ring_blocks; ++block) {
    const auto found = bytes.subspan(geometry_.RingOffset(block), kBlockBytes);
    const bool zeros = std::ranges::all_of(found, [](std::byte b) { return b == std::byte{0}; });
    foreign +=
        zeros || DecodeRingBlock(found, superblock->array_uuid, geometry_, DeviceIndex(1)).ok() ? 0
                                                                                                : 1;
  }
  EXPECT_GT(geometry_.ring_blocks, 2 * (uint64_t{1} << 20) / kBlockBytes);
  EXPECT_EQ(foreign, 0U);
  ASSERT_TRUE(test_.Close().ok());
}

// To the byte: what the layout takes is enough, and what is less is said with the figure.
TEST_F(Replacing, OneThatIsJustLargeEnoughFits) {
  for (const uint32_t device : {2U, kSsdCount + 1}) {
    SCOPED_TRACE(device);
    const uint64_t need = device < kSsdCount ? geometry_.ssd_bytes() : geometry_.log_bytes();
    ASSERT_TRUE(Fail(device).ok());
    MemoryDevice small("small", need - 512);
    const Status refused = Replace(device, small);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    for (const uint64_t figure : {need, need - 512}) {
      EXPECT_NE(refused.error().message.find(std::to_string(figure)), std::string::npos)
          << refused.error().message;
    }
    EXPECT_TRUE(std::ranges::all_of(small.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    kept_.push_back(Used(device, need));
    const Status replaced = Replace(device, *kept_.back());
    ASSERT_TRUE(replaced.ok()) << replaced.error().message;
    AwaitOk(device);
  }
  ExpectContent();
  ASSERT_TRUE(test_.Close().ok());
}

// Durable on return: whoever opens next finds it a member that is to be rebuilt.
TEST_F(Replacing, IsWrittenDownWhenItReturns) {
  for (const uint32_t device : {1U, kSsdCount}) {
    SCOPED_TRACE(device);
    test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
    ASSERT_TRUE(Fail(device).ok());
    std::ranges::fill(test_.memory(device).bytes(), std::byte{0});
    ASSERT_TRUE(Replace(device, *test_.Devices()[device]).ok());
    test_.Kill();
    test_.Open(true);
    EXPECT_NE(Device_(device).state, DeviceState::kFailed);
    EXPECT_NE(Device_(device).state, DeviceState::kMissing);
    ASSERT_TRUE(test_.Close().ok());
    test_.Open();
    AwaitOk(device);
    ExpectContent();
  }
}

// Who comes second is refused, and nothing becomes of his device.
TEST_F(Replacing, TwoAtOnceForOnePlace) {
  ASSERT_TRUE(Fail(1).ok());
  MemoryDevice one("one", SizeOf(1));
  MemoryDevice two("two", SizeOf(1));
  uint64_t succeeded = 0;
  const auto replace = [&](MemoryDevice* by) -> Task<Status> {
    Task<Status> replacing = test_.array->ReplaceDevice(1, *by);
    const Status status = co_await replacing;
    succeeded += status.ok() ? 1 : 0;
    EXPECT_EQ(test_.array->Holds(*by), status.ok());
    co_return OkStatus();
  };
  const auto both = [&]() -> Task<Status> {
    TaskGroup group(test_.loop);
    group.Start(replace(&one));
    group.Start(replace(&two));
    Task<Status> all = group.Wait();
    co_return co_await all;
  };
  ASSERT_TRUE(RunTask(test_.loop, both()).ok());
  EXPECT_EQ(succeeded, 1U);
  AwaitOk(1);
  ExpectContent();
  ASSERT_TRUE(test_.Close().ok());
}

TEST_F(Replacing, TwoAtOnceForTwoPlaces) {
  ASSERT_TRUE(Fail(1).ok());
  ASSERT_TRUE(Fail(3).ok());
  MemoryDevice one("one", SizeOf(1));
  MemoryDevice two("two", SizeOf(3));
  const auto both = [&]() -> Task<Status> {
    TaskGroup group(test_.loop);
    group.Start(test_.array->ReplaceDevice(1, one));
    group.Start(test_.array->ReplaceDevice(3, two));
    Task<Status> all = group.Wait();
    co_return co_await all;
  };
  // The second may be told that the first is just being taken in; then it comes again.
  static_cast<void>(RunTask(test_.loop, both()));
  EXPECT_TRUE(test_.array->Holds(one) || test_.array->Holds(two));
  if (!test_.array->Holds(one)) {
    ASSERT_TRUE(Replace(1, one).ok());
  }
  if (!test_.array->Holds(two)) {
    ASSERT_TRUE(Replace(3, two).ok());
  }
  AwaitOk(1);
  AwaitOk(3);
  ASSERT_TRUE(Fail(0).ok());
  ASSERT_TRUE(Fail(2).ok());
  ExpectContent();
  test_.Kill();
}

// Who comes second is refused: he would wipe what the first has joined.
TEST_F(Replacing, OneForTwoPlacesAtOnce) {
  for (uint32_t second = 0; second < 2; ++second) {
    ASSERT_TRUE(Fail(1).ok());
    ASSERT_TRUE(Fail(3).ok());
    MemoryDevice one("one", SizeOf(1));
    DelayDevice slow(test_.loop, one, kSsdDelays);
    std::vector<uint32_t> taken;
    const auto replace = [&](uint32_t place, uint64_t after_us) -> Task<Status> {
      co_await test_.loop.Sleep(after_us);
      Task<Status> replacing = test_.array->ReplaceDevice(place, slow);
      const Status status = co_await replacing;
      if (status.ok()) {
        taken.push_back(place);
      } else {
        EXPECT_EQ(status.error().code, ErrorCode::kBusy) << status.error().ToString();
      }
      co_return OkStatus();
    };
    const auto both = [&]() -> Task<Status> {
      TaskGroup group(test_.loop);
      group.Start(replace(1, 0));
      group.Start(replace(3, second * 100));  // while the first reads, or wipes
      Task<Status> all = group.Wait();
      co_return co_await all;
    };
    ASSERT_TRUE(RunTask(test_.loop, both()).ok());
    ASSERT_EQ(taken, std::vector<uint32_t>({1}));
    EXPECT_EQ(Device_(3).state, DeviceState::kFailed);
    ASSERT_TRUE(Replace(3, *test_.Devices()[3]).ok());
    AwaitOk(1);
    AwaitOk(3);
    ExpectContent();
    ASSERT_TRUE(Fail(1).ok());
    ASSERT_TRUE(Replace(1, *test_.Devices()[1]).ok());
    AwaitOk(1);
  }
}

TEST_F(Replacing, IsToldFromTheLossToTheEnd) {
  for (const uint32_t device : {1U, kSsdCount}) {
    const std::string name = geometry_.DeviceName(DeviceIndex(static_cast<uint8_t>(device)));
    SCOPED_TRACE(name);
    events_.clear();
    ASSERT_TRUE(Fail(device).ok());
    ASSERT_EQ(events_.size(), 2U);
    EXPECT_EQ(events_[0].kind,
              device < kSsdCount ? EventKind::kDeviceFailed : EventKind::kLogDeviceLost);
    EXPECT_EQ(events_[0].device, name);
    EXPECT_NE(events_[0].text.find("by hand"), std::string::npos) << events_[0].text;
    EXPECT_EQ(events_[1].kind, EventKind::kDegraded);
    EXPECT_NE(events_[1].text.find("survives 1 further"), std::string::npos) << events_[1].text;
    EXPECT_NE(events_[1].text.find("replace " + name), std::string::npos) << events_[1].text;
    events_.clear();
    const uint64_t joined = test_.hooks().devices_joined;
    ASSERT_TRUE(Replace(device, *test_.Devices()[device]).ok());
    AwaitOk(device);
    ASSERT_EQ(events_.size(), 2U);
    EXPECT_EQ(events_[0].kind, EventKind::kRebuildStarted);
    EXPECT_EQ(events_[1].kind, EventKind::kRebuildFinished);
    EXPECT_EQ(events_[0].device, name);
    EXPECT_EQ(events_[1].device, name);
    EXPECT_EQ(test_.hooks().devices_joined, joined + 1);
  }
}

// Each device that is lost, or not whole, is named with its reason; those that are well are not.
TEST_F(Replacing, AStopNamesWhoIsMissingAndWhy) {
  ASSERT_TRUE(test_.Close().ok());
  std::vector<Device*> devices = test_.Devices();
  devices.erase(devices.begin() + 4);
  OpenOptions options;
  options.entropy = 99;
  options.on_event = test_.shape().on_event;
  auto opened = RunTask(test_.loop, Array::Open(test_.loop, devices, options));
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  test_.array = std::move(*opened);
  test_.array->SetRebuildPace({.yields = false, .bytes_per_second = 1});
  ASSERT_TRUE(Fail(1).ok());
  ASSERT_TRUE(Replace(1, *test_.Devices()[1]).ok());
  ASSERT_EQ(Device_(1).state, DeviceState::kRebuilding);
  events_.clear();
  test_.faulty(2).FailDevice();
  static_cast<void>(test_.Write(volume_, 0, content_));
  const std::string why = test_.array->GetStatus().stopped_because;
  for (const char* part :
       {"more than 2 devices", "ssd1 is not whole yet", "ssd4 was missing", "ssd2: "}) {
    EXPECT_NE(why.find(part), std::string::npos) << part << " in: " << why;
  }
  for (const char* part : {"ssd0", "ssd3", "log0", "log1"}) {
    EXPECT_EQ(why.find(part), std::string::npos) << part << " in: " << why;
  }
  EXPECT_EQ(std::ranges::count(events_, EventKind::kStopped, &ArrayEvent::kind), 1);
  EXPECT_EQ(std::ranges::count(events_, EventKind::kDegraded, &ArrayEvent::kind), 0);
  test_.Kill();
}

}  // namespace
}  // namespace eplog
