// What status says about the end of a rebuild comes true: from its second quarter on within a
// fifth, with a pace that was asked for, beside a steady load, and as fast as the devices go.

#include <cstdlib>

#include "device/forwarding_device.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kSampleUs = 250'000;
constexpr uint64_t kUnitSeconds = 1;  // of rebuild_eta_seconds
constexpr DeviceDelays kSlowSsd = {.read_us = 3'000, .write_us = 2'000, .flush_us = 3'000};

// Takes its writes one after another, so many bytes a second.
class SerialDevice final : public ForwardingDevice {
 public:
  SerialDevice(EventLoop& loop, Device& below, uint64_t bytes_per_second)
      : ForwardingDevice(below), loop_(loop), bytes_per_second_(bytes_per_second) {}
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    const uint64_t us = TotalBytes(from) * 1'000'000 / bytes_per_second_;
    free_at_us_ = std::max(free_at_us_, loop_.NowUs()) + us;
    co_await loop_.Sleep(free_at_us_ - loop_.NowUs());
    Task<Status> write = below().Write(offset_bytes, from);
    co_return co_await write;
  }

 private:
  EventLoop& loop_;
  uint64_t bytes_per_second_;
  uint64_t free_at_us_ = 0;
};

struct Sample {
  uint64_t at_us = 0;
  double done = 0;  // share
  uint64_t eta_seconds = 0;
};

class RebuildEta : public ::testing::Test {
 protected:
  void Make(const DeviceDelays& delays, uint64_t bytes_per_second) {
    ArrayShape shape;
    shape.n = 5;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{48} << 20;
    shape.ssd_delays = delays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    size_ = test_->array->GetStatus().capacity_bytes * 9 / 10;
    volume_ = test_->CreateVolume("v", size_);
    Random random(3);
    const std::vector<std::byte> content = RandomBytes(random, uint64_t{1} << 20);
    for (uint64_t at = 0; at + content.size() <= size_; at += content.size()) {
      ASSERT_TRUE(test_->Write(volume_, at, content).ok());
    }
    fresh_ = std::make_unique<MemoryDevice>("fresh", shape.ssd_bytes);
    slow_ = std::make_unique<SerialDevice>(test_->loop, *fresh_, bytes_per_second);
  }
  Task<void> Load() {
    Buffer block = test_->pool.GetZeroed(kBlockBytes);
    Random random(4);
    while (!ended_) {
      Task<Status> write = test_->array->Write(
          volume_, random.Below(size_ / kBlockBytes) * kBlockBytes, block.span());
      static_cast<void>(co_await write);
      co_await test_->loop.Sleep(5'000);
    }
    --loads_;
  }
  // Rebuilds, looks every quarter of a second, and judges what was said once the end is known.
  void Judge(uint64_t at_least_us) {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "by hand")).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(1, *slow_)).ok());
    const uint64_t begun = test_->loop.NowUs();
    std::vector<Sample> samples;
    ArrayStatus status = test_->array->GetStatus();
    while (status.devices[1].state == DeviceState::kRebuilding) {
      test_->Sleep(kSampleUs);
      status = test_->array->GetStatus();
      if (status.rebuild_total_bytes != 0) {
        const auto left = static_cast<double>(status.rebuild_left_bytes);
        samples.push_back({test_->loop.NowUs(),
                           1 - left / static_cast<double>(status.rebuild_total_bytes),
                           status.rebuild_eta_seconds});
      }
      ASSERT_LT(test_->loop.NowUs() - begun, 600'000'000U);
    }
    const uint64_t end = test_->loop.NowUs();
    ended_ = true;
    ASSERT_TRUE(test_->loop.RunUntil([this] { return loads_ == 0; }));
    EXPECT_GE(end - begun, at_least_us) << "too short to say anything";
    size_t judged = 0;
    double worst = 0;
    for (const Sample& sample : samples) {
      if (sample.done < 0.25) {
        continue;
      }
      ++judged;
      const double truth = static_cast<double>(end - sample.at_us) / 1e6;
      const double off = std::abs(static_cast<double>(sample.eta_seconds) - truth);
      worst = std::max(worst, (off - kUnitSeconds) / std::max(truth, 1.0));
      EXPECT_LE(off, 0.2 * truth + kUnitSeconds)
          << sample.eta_seconds << " s said, " << truth << " s it took, at " << sample.done;
    }
    EXPECT_GT(judged, 20U);
    std::printf("%.1f s, %zu looks, worst %.1f %% off beyond the second\n",
                static_cast<double>(end - begun) / 1e6, judged, worst * 100);
  }

  std::unique_ptr<MemoryDevice> fresh_;
  std::unique_ptr<SerialDevice> slow_;
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  uint64_t size_ = 0;
  int loads_ = 0;
  bool ended_ = false;
};

TEST_F(RebuildEta, AtAPaceThatWasAskedFor) {
  Make(kSsdDelays, uint64_t{100} << 20);
  test_->array->SetRebuildPace({.yields = false, .bytes_per_second = uint64_t{1} << 20});
  Judge(30'000'000);
}

TEST_F(RebuildEta, BesideASteadyLoad) {
  Make(kSlowSsd, uint64_t{100} << 20);
  loads_ = 4;
  for (int i = 0; i < loads_; ++i) {
    test_->loop.Spawn(Load());
  }
  Judge(8'000'000);
}

TEST_F(RebuildEta, AsFastAsTheDevicesGo) {
  Make(kSsdDelays, uint64_t{2} << 20);
  Judge(15'000'000);
}

}  // namespace
}  // namespace eplog
