// MemoryDevice: a device in RAM for tests and benchmarks. Pages are allocated when first written;
// fresh ones read as zeros. Requests complete at once, or after everything that is ready has run if
// given a loop to yield to. Flush does nothing: to lose what is not flushed, put a
// VolatileCacheDevice in front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "eplog/device.h"
#include "eplog/event_loop.h"

namespace eplog {

class MemoryDevice final : public Device {
 public:
  // `size_bytes`: a multiple of 512. `yield_to`: null, or the loop in which each request lets
  // others run first.
  MemoryDevice(std::string name, uint64_t size_bytes, EventLoop* yield_to = nullptr,
               uint32_t alignment_bytes = 512);
  ~MemoryDevice() override;
  MemoryDevice(const MemoryDevice&) = delete;
  MemoryDevice& operator=(const MemoryDevice&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  // The content, to look at and to damage.
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  std::string name_;
  uint64_t size_bytes_;
  EventLoop* yield_to_;
  DeviceCapabilities capabilities_;
  std::byte* data_ = nullptr;
};

}  // namespace eplog
