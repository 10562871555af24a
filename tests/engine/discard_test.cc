// What SSDs that take it are told of slots that hold nothing (TRIM): of all of them when somebody
// asks, and in the background of runs that are worth a request and have been free for a while.
// Never of what holds anything: the devices of the tests forget what they are told of.

#include <algorithm>
#include <map>
#include <utility>

#include "device/forwarding_device.h"
#include "runtime/task_group.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kSecond = 1'000'000;
constexpr uint32_t kSsds = 4;

struct Told {
  uint64_t at_us = 0;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t slots_left = 0;  // free ones, while the request is on its way
};

class ListeningDevice final : public ForwardingDevice {
 public:
  ListeningDevice(EventLoop& loop, Device& below, const std::unique_ptr<Array>& array)
      : ForwardingDevice(below), loop_(loop), array_(array), capabilities_(below.capabilities()) {}
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override {
    told.push_back({loop_.NowUs(), offset_bytes, length_bytes,
                    array_ ? array_->GetStatus().slots_free_min : 0});
    return below().Discard(offset_bytes, length_bytes);
  }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  void TakesNone() { capabilities_.discard = false; }

  std::vector<Told> told;

 private:
  EventLoop& loop_;
  const std::unique_ptr<Array>& array_;
  DeviceCapabilities capabilities_;
};

class Discard : public ::testing::Test {
 protected:
  void Make(uint32_t chunk_bytes, uint64_t ssd_bytes, const OpenOptions& options = {}) {
    ArrayShape shape;
    shape.n = kSsds;
    shape.m = 1;
    shape.chunk_bytes = chunk_bytes;
    shape.ssd_bytes = ssd_bytes;
    shape.ssd_delays = {.read_us = 80, .write_us = 30, .flush_us = 300, .discard_us = 2000};
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    g_ = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    Reopen(options);
    volume_ = test_->CreateVolume("v", g_.capacity_bytes());
  }
  void Reopen(OpenOptions options) {
    ASSERT_TRUE(test_->Close().ok());
    devices_.clear();
    std::vector<Device*> all;
    for (Device* device : test_->Devices()) {
      devices_.push_back(std::make_unique<ListeningDevice>(test_->loop, *device, test_->array));
      all.push_back(devices_.back().get());
    }
    if (deaf_) {
      devices_[*deaf_]->TakesNone();
    }
    options.entropy = ++lives_ + 100;
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, all, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  // Before the devices that it holds.
  void TearDown() override { test_->Kill(); }

  // Fresh stripes take the next slots in order: stripe i has slot i on each SSD.
  void FillStripes(uint64_t count) {
    for (uint64_t stripe = 0; stripe < count; ++stripe) {
      std::vector<std::byte> data(g_.stripe_data_bytes(), static_cast<std::byte>(stripe));
      for (size_t at = 0; at < data.size(); at += 4096) {
        const uint64_t stamp = random_.Next();
        std::memcpy(data.data() + at, &stamp, sizeof stamp);
      }
      ASSERT_TRUE(test_->Write(volume_, stripe * data.size(), data).ok());
      model_[stripe] = std::move(data);
    }
    Settle();
  }
  void Trim(uint64_t first, uint64_t count) {
    const uint64_t bytes = g_.stripe_data_bytes();
    ASSERT_TRUE(RunTask(test_->loop,
                        test_->array->Trim(volume_, first * bytes, count * bytes, TrimMode::kZero))
                    .ok());
    for (uint64_t stripe = first; stripe < first + count; ++stripe) {
      model_[stripe].assign(bytes, std::byte{0});
    }
  }
  // What has been freed is free afterwards (I1).
  void Settle() {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
      test_->Sleep(1000);
    }
  }
  Result<uint64_t> DiscardFree(const Progress& progress = {}) {
    return RunTask(test_->loop, test_->array->DiscardFree(progress));
  }
  void ExpectContent() {
    for (const auto& [stripe, data] : model_) {
      ASSERT_TRUE(test_->Read(volume_, stripe * data.size(), data.size()) == data) << stripe;
    }
    const auto report = RunTask(test_->loop, test_->array->Check({}));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U);
  }
  // Slots of an SSD that it was told of, in order.
  std::vector<uint64_t> ToldSlots(uint32_t ssd) {
    std::vector<uint64_t> slots;
    for (const Told& told : devices_[ssd]->told) {
      EXPECT_GE(told.offset_bytes, g_.slots_offset_bytes);
      EXPECT_EQ((told.offset_bytes - g_.slots_offset_bytes) % g_.chunk_bytes, 0U);
      EXPECT_EQ(told.length_bytes % g_.chunk_bytes, 0U);
      const uint64_t first = (told.offset_bytes - g_.slots_offset_bytes) / g_.chunk_bytes;
      for (uint64_t i = 0; i < told.length_bytes / g_.chunk_bytes; ++i) {
        slots.push_back(first + i);
      }
    }
    EXPECT_TRUE(slots.empty() || slots.back() < g_.slots);
    return slots;
  }
  void ForgetTold() {
    for (auto& device : devices_) {
      device->told.clear();
    }
  }
  static std::vector<uint64_t> Range(uint64_t first, uint64_t count) {
    std::vector<uint64_t> range;
    for (uint64_t i = 0; i < count; ++i) {
      range.push_back(first + i);
    }
    return range;
  }

  std::optional<size_t> deaf_;
  std::vector<std::unique_ptr<ListeningDevice>> devices_;
  std::unique_ptr<TestArray> test_;
  Geometry g_;
  VolumeId volume_;
  Random random_{5};
  std::map<uint64_t, std::vector<std::byte>> model_;
  uint64_t lives_ = 0;
};

TEST_F(Discard, ByHandTellsOfAllThatHoldsNothingInRequestsThatLeaveEnough) {
  Make(65536, uint64_t{96} << 20);
  constexpr uint64_t kStripes = 300;
  FillStripes(kStripes);
  Trim(100, 50);
  Settle();
  const ArrayStatus before = test_->array->GetStatus();
  ASSERT_EQ(before.slots_used, (kStripes - 50) * kSsds);
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  const auto bytes =
      DiscardFree([&](uint64_t done, uint64_t total) { progress.emplace_back(done, total); });
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, (before.slots - before.slots_used) * g_.chunk_bytes);
  std::vector<uint64_t> wanted = Range(100, 50);
  for (uint64_t slot = kStripes; slot < g_.slots; ++slot) {
    wanted.push_back(slot);
  }
  size_t requests = 0;
  for (uint32_t ssd = 0; ssd < kSsds; ++ssd) {
    EXPECT_EQ(ToldSlots(ssd), wanted) << "ssd" << ssd;
    uint64_t longest = 0;
    for (const Told& told : devices_[ssd]->told) {
      longest = std::max(longest, told.length_bytes);
      EXPECT_GT(told.slots_left, g_.commit_width() + g_.reserve_slots() / 4);
    }
    EXPECT_EQ(longest, uint64_t{16} << 20);
    requests += devices_[ssd]->told.size();
  }
  EXPECT_TRUE(devices_[kSsds]->told.empty()) << "a log device has no slots";
  EXPECT_EQ(progress.size(), requests);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), std::pair(before.slots, before.slots));
  EXPECT_EQ(test_->array->GetStatus().slots_used, before.slots_used) << "all are given back";
  ExpectContent();
}

// Where so much is in use that others may need the rest, nobody is told of that.
TEST_F(Discard, LeavesAloneWhatOthersMayNeed) {
  Make(4096, uint64_t{6} << 20);
  FillStripes(g_.stripes);
  const uint64_t keep = g_.commit_width() + g_.reserve_slots() / 4 + 1;
  // Overwritten chunk by chunk the reserve fills with versions that parity does not cover yet.
  uint64_t stripe = 0;
  while (test_->array->GetStatus().slots_free_min > keep) {
    const auto data = RandomBytes(random_, g_.chunk_bytes);
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(test_->Write(volume_, (stripe * 3 + i) * g_.chunk_bytes, std::span(data)).ok());
      std::ranges::copy(data,
                        model_[stripe].begin() + static_cast<std::ptrdiff_t>(i * g_.chunk_bytes));
    }
    ++stripe;
  }
  const auto bytes = DiscardFree();
  ASSERT_TRUE(bytes.ok());
  for (uint32_t ssd = 0; ssd < kSsds; ++ssd) {
    for (const Told& told : devices_[ssd]->told) {
      EXPECT_GE(told.slots_left, g_.commit_width()) << "ssd" << ssd;
    }
  }
  ExpectContent();
}

class BackgroundDiscard : public Discard, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(BackgroundDiscard, TellsEachSsdOnceOfWhatHasBeenFreeForTenSeconds) {
  const uint32_t chunk_bytes = GetParam();
  Make(chunk_bytes, chunk_bytes == 4096 ? uint64_t{16} << 20 : uint64_t{chunk_bytes} * 300);
  const uint64_t least = std::max<uint64_t>(1, (uint64_t{64} << 10) / chunk_bytes);
  FillStripes(200);
  test_->Sleep(60 * kSecond);
  ForgetTold();
  // Two runs that are worth a request, and one that is too short by a slot.
  Trim(4, least);
  Trim(60, 3 * least);
  if (least > 1) {
    Trim(150, least - 1);
  }
  Settle();
  const uint64_t freed_us = test_->loop.NowUs();
  test_->Sleep(200 * kSecond);
  std::vector<uint64_t> wanted = Range(4, least);
  for (const uint64_t slot : Range(60, 3 * least)) {
    wanted.push_back(slot);
  }
  for (uint32_t ssd = 0; ssd < kSsds; ++ssd) {
    EXPECT_EQ(ToldSlots(ssd), wanted) << "ssd" << ssd;
    EXPECT_EQ(devices_[ssd]->told.size(), 2U) << "neighbours go in one request";
    for (const Told& told : devices_[ssd]->told) {
      EXPECT_GE(told.at_us, freed_us + 10 * kSecond - 3000);
      EXPECT_LE(told.at_us, freed_us + 21 * kSecond);
    }
  }
  EXPECT_EQ(test_->array->GetStatus().slots_used, (200 - 4 * least - (least - 1)) * kSsds);
  // The short one with what is freed beside it is long enough, and nothing is told twice.
  ForgetTold();
  Trim(150 + least - 1, 1);
  Settle();
  test_->Sleep(200 * kSecond);
  for (uint32_t ssd = 0; ssd < kSsds; ++ssd) {
    EXPECT_EQ(ToldSlots(ssd), Range(150, least)) << "ssd" << ssd;
  }
  ExpectContent();
}

INSTANTIATE_TEST_SUITE_P(Chunks, BackgroundDiscard, ::testing::Values(4096U, 16384U, 262144U));

TEST_F(Discard, OnlyThoseThatTakeItAndOnlyIfWanted) {
  deaf_ = 2;
  Make(65536, uint64_t{64} << 20);
  FillStripes(200);
  Trim(50, 20);
  Settle();
  test_->Sleep(60 * kSecond);
  ASSERT_TRUE(DiscardFree().ok());
  for (uint32_t ssd = 0; ssd < kSsds; ++ssd) {
    EXPECT_EQ(devices_[ssd]->told.empty(), ssd == 2) << "ssd" << ssd;
  }
  OpenOptions options;
  options.discard = false;
  Reopen(options);
  Trim(100, 20);
  Settle();
  test_->Sleep(100 * kSecond);
  EXPECT_TRUE(devices_[0]->told.empty()) << "not asked for in the background";
  ASSERT_TRUE(DiscardFree().ok());
  EXPECT_FALSE(devices_[0]->told.empty()) << "asked for by hand";
  ExpectContent();
}

// It is a hint: an SSD that fails it loses nothing by that, and the others are told all the same.
TEST_F(Discard, OneThatFailsItIsAsGoodWithout) {
  Make(65536, uint64_t{64} << 20);
  FillStripes(100);
  for (const uint32_t ssd : {1U, 3U}) {
    test_->faulty(ssd).Add({.kinds = MaskOf(RequestKind::kDiscard), .from_then_on = true});
  }
  const ArrayStatus before = test_->array->GetStatus();
  const auto bytes = DiscardFree();
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, 2 * uint64_t{g_.slots - 100} * g_.chunk_bytes);
  EXPECT_EQ(devices_[1]->told.size(), 1U);
  Trim(10, 40);
  Settle();
  test_->Sleep(60 * kSecond);
  EXPECT_EQ(ToldSlots(0).size(), g_.slots - 100U + 40U);
  const ArrayStatus after = test_->array->GetStatus();
  EXPECT_EQ(after.state, ArrayState::kClean);
  EXPECT_EQ(after.slots_used, before.slots_used - uint64_t{40} * kSsds);
  ExpectContent();
}

// Nobody gets a slot while a request of it is on its way.
TEST_F(Discard, WritesGoOnBesideIt) {
  Make(4096, uint64_t{16} << 20);
  FillStripes(300);
  const auto work = [](TestArray& test, VolumeId volume, Random& random,
                       std::map<uint64_t, std::vector<std::byte>>& model, uint64_t chunks,
                       const bool& stop) -> Task<Status> {
    const uint64_t stripe_bytes = model.begin()->second.size();
    while (!stop) {
      const uint64_t at = random.Below(chunks) * 4096;
      const std::vector<std::byte> data = RandomBytes(random, 4096);
      Task<Status> write = test.array->Write(volume, at, data);
      Status status = co_await write;
      EPLOG_CO_TRY(status);
      std::ranges::copy(
          data, model[at / stripe_bytes].begin() + static_cast<std::ptrdiff_t>(at % stripe_bytes));
    }
    co_return OkStatus();
  };
  bool stop = false;
  TaskGroup group(test_->loop);
  group.Start(work(*test_, volume_, random_, model_, 300 * 3, stop));
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(DiscardFree().ok());
  }
  stop = true;
  const Status written = RunTask(test_->loop, group.Wait());
  EXPECT_TRUE(written.ok());
  EXPECT_GT(devices_[0]->told.size(), 5U);
  ExpectContent();
  // Closing waits for the one that is on its way.
  Trim(10, 40);
  Settle();
  test_->Sleep(19 * kSecond);
  EXPECT_TRUE(test_->Close().ok());
  test_->Open();
}

}  // namespace
}  // namespace eplog
