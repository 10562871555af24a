// Devices that take their time to close.
#include "host/device_closer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "tests/support/no_threads.h"

namespace eplog {
namespace {

using Clock = DeviceCloser::Clock;

// Closes when it may.
class SlowDevice final : public Device {
 public:
  SlowDevice(uint64_t number, std::shared_future<void> may, std::atomic<int>& closed)
      : identity_{true, number, 0}, may_(std::move(may)), closed_(closed) {}
  ~SlowDevice() override {
    may_.wait();
    ++closed_;
  }
  SlowDevice(const SlowDevice&) = delete;
  SlowDevice& operator=(const SlowDevice&) = delete;

  Task<Status> Read(uint64_t /*offset*/, std::span<const iovec> /*into*/) override {
    return Nothing();
  }
  Task<Status> Write(uint64_t /*offset*/, std::span<const iovec> /*from*/) override {
    return Nothing();
  }
  Task<Status> Flush() override { return Nothing(); }
  Task<Status> Discard(uint64_t /*offset*/, uint64_t /*length*/) override { return Nothing(); }
  [[nodiscard]] uint64_t size_bytes() const override { return 0; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] DeviceIdentity identity() const override { return identity_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  static Task<Status> Nothing() { co_return OkStatus(); }
  DeviceIdentity identity_;
  std::shared_future<void> may_;
  std::atomic<int>& closed_;
  DeviceCapabilities capabilities_;
  std::string name_;
};

TEST(DeviceCloser, OneThatHangsHoldsUpNoOther) {
  std::promise<void> first_may;
  std::promise<void> second_may;
  std::atomic<int> closed = 0;
  DeviceCloser closer;
  const auto make = [&](uint64_t number, std::promise<void>& may) -> std::unique_ptr<Device> {
    return std::make_unique<SlowDevice>(number, may.get_future().share(), closed);
  };
  std::unique_ptr<Device> first = make(1, first_may);
  std::unique_ptr<Device> second = make(2, second_may);
  const DeviceIdentity hanging = first->identity();
  const DeviceIdentity well = second->identity();
  ASSERT_TRUE(closer.Close(first));
  ASSERT_TRUE(closer.Close(second));
  EXPECT_EQ(first, nullptr);
  EXPECT_FALSE(closer.Wait(well, Clock::now() + std::chrono::milliseconds(20)));
  second_may.set_value();
  EXPECT_TRUE(closer.Wait(well, Clock::now() + std::chrono::minutes(5)));
  EXPECT_EQ(closed, 1);
  EXPECT_FALSE(closer.Wait(hanging, Clock::now() + std::chrono::milliseconds(20)));
  EXPECT_FALSE(closer.WaitForAll(Clock::now() + std::chrono::milliseconds(20)));
  first_may.set_value();
  EXPECT_TRUE(closer.WaitForAll(Clock::now() + std::chrono::minutes(5)));
  EXPECT_EQ(closed, 2);
}

void WithoutAThreadTheDeviceStays() {
  std::promise<void> may;
  may.set_value();
  std::atomic<int> closed = 0;
  DeviceCloser closer;
  std::unique_ptr<Device> device =
      std::make_unique<SlowDevice>(1, may.get_future().share(), closed);
  const Device* const before = device.get();
  ThreadLimit limit;
  EXPECT_FALSE(closer.Close(device));
  EXPECT_EQ(device.get(), before);
  EXPECT_TRUE(closer.WaitForAll(Clock::now())) << "nothing is being closed";
  limit.Lift();
  EXPECT_TRUE(closer.Close(device));
  EXPECT_TRUE(closer.WaitForAll(Clock::now() + std::chrono::minutes(5)));
  EXPECT_EQ(closed, 1);
}

TEST(DeviceCloserDeathTest, WithoutAThreadTheDeviceStays) {
  EPLOG_IN_A_PROCESS(WithoutAThreadTheDeviceStays);
}

}  // namespace
}  // namespace eplog
