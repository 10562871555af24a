// SimDevice: what simulated SSDs and disks have in common: name, size, content, a queue of limited
// depth, and waiting on the virtual clock. The models calculate in nanoseconds; a request ends at
// the next whole microsecond, which is as fine as the loop's clock is. The background goes on in
// nanoseconds, so that nothing adds up.
//
// Content is written when a request completes. A device can be destroyed when no request is in
// flight; what is in its background then needs nobody.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"
#include "sim/parameters.h"
#include "sim/pattern_store.h"

namespace eplog::sim {

class SimDevice : public Device {
 public:
  [[nodiscard]] uint64_t size_bytes() const override { return content_.size_bytes(); }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const PatternStore& content() const { return content_; }

 protected:
  SimDevice(EventLoop& loop, std::string name, uint64_t size_bytes, uint32_t queue_depth);

  // A place in the device's queue, held from construction to the end of the request.
  class [[nodiscard]] Place {
   public:
    explicit Place(SimDevice* device) : device_(device) {}
    Place(Place&& other) noexcept : device_(std::exchange(other.device_, nullptr)) {}
    Place& operator=(Place&& other) = delete;
    ~Place() {
      if (device_ != nullptr) {
        device_->Leave();
      }
    }

   private:
    SimDevice* device_;
  };
  Task<Place> Enter();

  [[nodiscard]] uint64_t NowNs() const { return loop_.NowUs() * 1000; }
  Task<void> Until(uint64_t at_ns);

  void Put(uint64_t offset_bytes, std::span<const iovec> from);
  void Get(uint64_t offset_bytes, std::span<const iovec> into) const;

  EventLoop& loop_;
  DeviceCapabilities capabilities_;
  PatternStore content_;
  AsyncMutex room_line_;  // who waits for room in a buffer; the first asks for all

 private:
  void Leave();

  std::string name_;
  uint32_t queue_depth_;
  uint32_t inside_ = 0;
  Event place_free_;
};

}  // namespace eplog::sim
