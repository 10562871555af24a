// Every choice of up to m failed devices, SSDs and log devices alike, in every state of a stripe:
// what is read, written, flushed, committed, recovered, replaced and scrubbed. The engine is not
// its own judge: a slow decoder looks at the bytes of the devices that are left.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"
#include "tests/engine/raw_oracle.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

struct Layout {
  uint32_t k;
  uint32_t m;
};

class Matrix : public ::testing::TestWithParam<Layout> {
 protected:
  [[nodiscard]] uint32_t k() const { return GetParam().k; }
  [[nodiscard]] uint32_t m() const { return GetParam().m; }
  [[nodiscard]] uint32_t n() const { return k() + m(); }
  [[nodiscard]] uint32_t devices() const { return n() + m(); }
  [[nodiscard]] uint64_t stripe() const { return k() * kChunk; }
  [[nodiscard]] uint64_t size() const { return 16 * stripe(); }

  void Make() {
    ArrayShape shape;
    shape.n = n();
    shape.m = m();
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    fresh_.clear();
    volume_ = test_->CreateVolume("v", size());
    model_.assign(size(), std::byte{0});
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    const Status written = test_->Write(volume_, offset, data);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Trim(uint64_t offset, uint64_t length) {
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume_, offset, length, TrimMode::kZero)).ok());
    std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(offset), length, std::byte{0});
  }
  void Must(const Status& status) { ASSERT_TRUE(status.ok()) << status.error().ToString(); }
  void Flush() { Must(RunTask(test_->loop, test_->array->FlushAll())); }
  void Commit() { Must(RunTask(test_->loop, test_->array->Commit(Progress()))); }

  // Fresh full stripes; committed, half committed and pending updates; trimmed; partly new; and
  // some in buffers.
  void Fill() {
    Write(0, 10 * stripe());
    Write(2 * stripe() + 100, 2 * kChunk);
    Commit();
    Write(2 * stripe(), kChunk);
    Write(4 * stripe() + (k() - 1) * kChunk, kChunk);
    Write(12 * stripe() + 700, stripe() + 1000);  // partly new
    Trim(6 * stripe(), stripe());
    Trim(7 * stripe() + kChunk, kChunk);
    Flush();
    ASSERT_TRUE(test_->array->SetBuffers({.device_chunks = 8, .stripes = 4}).ok());
    Write(4 * stripe(), kChunk);
    Write(14 * stripe(), kChunk);
  }
  void WriteMore() {
    Write(stripe(), stripe());
    Write(3 * stripe() + 50, kChunk);
    Write(4 * stripe() + 10, 3 * kChunk);
    Write(15 * stripe(), stripe());
    Trim(8 * stripe() + 10, kChunk);
  }
  void ExpectContent(const std::string& when) {
    ASSERT_TRUE(test_->Read(volume_, 0, size()) == model_) << when;
  }
  // Closes the array, and decodes its devices without those of `lost`.
  void ExpectOnDevices(uint64_t lost, const std::string& when) {
    Must(test_->Close());
    std::vector<Device*> all = test_->Devices();
    for (const auto& [index, device] : fresh_) {
      all[index] = device.get();
    }
    std::vector<Device*> there;
    for (uint32_t i = 0; i < all.size(); ++i) {
      if ((lost >> i & 1) == 0) {
        there.push_back(all[i]);
      }
    }
    std::string wrong;
    const auto content = DecodeVolume(test_->loop, there, lost, "v", wrong);
    ASSERT_EQ(wrong, "") << when;
    ASSERT_TRUE(content == model_) << when;
    Reopen(all, lost);
  }
  void Reopen(const std::vector<Device*>& all, uint64_t lost) {
    std::vector<Device*> there;
    for (uint32_t i = 0; i < all.size(); ++i) {
      if ((lost >> i & 1) == 0) {
        there.push_back(all[i]);
      }
    }
    OpenOptions options;
    options.entropy = random_.Next();
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, there, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }

  void Run(uint64_t lost) {
    Make();
    Fill();
    for (uint32_t i = 0; i < devices(); ++i) {
      if ((lost >> i & 1) != 0) {
        Must(RunTask(test_->loop, test_->array->FailDevice(i, "test")));
      }
    }
    ExpectContent("lost");
    WriteMore();
    ExpectContent("written degraded");
    Flush();
    test_->Kill();
    Reopen(test_->Devices(), lost);
    ExpectContent("recovered");
    WriteMore();
    Commit();
    ExpectContent("committed degraded");
    WriteMore();
    ExpectOnDevices(lost, "the bytes of the devices that are left");
    for (uint32_t i = 0; i < devices(); ++i) {
      if ((lost >> i & 1) != 0) {
        fresh_.emplace_back(i, std::make_unique<MemoryDevice>("new" + std::to_string(i),
                                                              test_->memory(i).size_bytes()));
        Must(RunTask(test_->loop, test_->array->ReplaceDevice(i, *fresh_.back().second)));
        Write(9 * stripe(), 2 * kChunk);
      }
    }
    for (int i = 0; i < 100 && !AllOk(); ++i) {
      test_->Sleep(200'000);
    }
    ASSERT_TRUE(AllOk()) << "never rebuilt";
    ExpectContent("rebuilt");
    const auto report = RunTask(test_->loop, test_->array->Scrub(true, Progress()));
    ASSERT_TRUE(report.ok());
    ASSERT_EQ(report->problems_found, 0U) << report->findings.front().Text();
    const auto check = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(check.ok());
    ASSERT_EQ(check->problems_found, 0U) << check->findings.front().Text();
    // Others may go now: as many, but not the same.
    const uint64_t others = lost << 1 | (lost >> (devices() - 1) & 1);
    ExpectOnDevices(others & ((uint64_t{1} << devices()) - 1), "without others");
    test_->Kill();
    test_.reset();
  }
  bool AllOk() {
    const ArrayStatus status = test_->array->GetStatus();
    return std::all_of(status.devices.begin(), status.devices.end(),
                       [](const auto& device) { return device.state == DeviceState::kOk; });
  }

  Random random_{3};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
  std::vector<std::pair<uint32_t, std::unique_ptr<MemoryDevice>>> fresh_;
};

TEST_P(Matrix, AnyDevicesMayFail) {
  uint64_t choices = 0;
  for (uint64_t lost = 0; lost < uint64_t{1} << devices(); ++lost) {
    if (static_cast<uint32_t>(std::popcount(lost)) > m()) {
      continue;
    }
    SCOPED_TRACE("lost mask " + std::to_string(lost));
    Run(lost);
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
    ++choices;
  }
  RecordProperty("choices", static_cast<int>(choices));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Matrix,
                         ::testing::Values(Layout{2, 1}, Layout{4, 1}, Layout{10, 1}, Layout{2, 2},
                                           Layout{4, 2}, Layout{6, 2}, Layout{8, 2}, Layout{10, 2},
                                           Layout{2, 3}, Layout{4, 3}, Layout{6, 3}),
                         [](const auto& layout) {
                           return std::to_string(layout.param.k) + "and" +
                                  std::to_string(layout.param.m);
                         });

}  // namespace
}  // namespace eplog
