// ForwardingDevice: the base of every device in front of another. It forwards everything; a wrapper
// overrides what it changes. It owns the device below, or borrows it (then it must not outlive it).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "eplog/device.h"

namespace eplog {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& below) : below_(&below) {}
  explicit ForwardingDevice(std::unique_ptr<Device> below)
      : owned_(std::move(below)), below_(owned_.get()) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    return below_->Read(offset_bytes, into);
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    return below_->Write(offset_bytes, from);
  }
  Task<Status> Flush() override { return below_->Flush(); }
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override {
    return below_->Discard(offset_bytes, length_bytes);
  }

  [[nodiscard]] uint64_t size_bytes() const override { return below_->size_bytes(); }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override {
    return below_->capabilities();
  }
  [[nodiscard]] DeviceIdentity identity() const override { return below_->identity(); }
  [[nodiscard]] const std::string& name() const override { return below_->name(); }

 protected:
  [[nodiscard]] Device& below() const { return *below_; }

 private:
  std::unique_ptr<Device> owned_;
  Device* below_;
};

}  // namespace eplog
