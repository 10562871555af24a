// Plug: holds requests to devices back until everything that is ready has run, so that those which
// lie side by side on a device leave as one, as a plug of Linux does. It counts what it sends.
//
// The parts that come together are those which were added in one turn of the loop: by one request,
// by the handling of several lines, or by several coroutines that were woken together. Only parts
// of one device and direction that touch without overlapping are joined, up to a limit; the order
// among others is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "baseline/block_target.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

// Hears of the end of parts.
class PartWaiter {
 public:
  // `tag` is the part's. The memory is the caller's again.
  virtual void PartDone(uint32_t tag, const Status& status) = 0;

 protected:
  ~PartWaiter() = default;
};

struct Part {
  DeviceIndex device;
  IoClass io_class = IoClass::kUserRead;
  uint64_t offset_bytes = 0;
  std::byte* memory = nullptr;  // only read for a write
  uint64_t length_bytes = 0;
  PartWaiter* waiter = nullptr;
  uint32_t tag = 0;
};

struct PlugLimits {
  // A request is no longer, unless a part is by itself.
  uint64_t request_bytes = uint64_t{1} << 20;
  // With so many requests it lets go at once.
  size_t requests = SIZE_MAX;
};

class Plug {
 public:
  // `devices`: SSDs, then log devices, as many as `traffic` has; borrowed; null where failed (never
  // asked).
  Plug(EventLoop& loop, std::vector<Device*> devices, const PlugLimits& limits,
       TargetTraffic& traffic);

  // The part is done later, never before this returns; parts added before it may be.
  void Add(const Part& part);
  // All that are there.
  Task<Status> FlushDevices();
  // Until nothing waits and nothing is in flight.
  Task<void> Idle();

 private:
  [[nodiscard]] DeviceTraffic& TrafficOf(DeviceIndex device);
  // Whether the part goes on where the last one of its device begins or ends.
  [[nodiscard]] bool Joins(const Part& part);
  Task<void> Leave();
  void Send();
  Task<void> Issue(std::vector<Part> parts);
  Task<Status> FlushDevice(DeviceIndex device);

  EventLoop& loop_;
  std::vector<Device*> devices_;
  PlugLimits limits_;
  TargetTraffic& traffic_;
  std::vector<Part> waiting_;
  struct Run {
    bool write = false;
    uint64_t begin_bytes = 0;
    uint64_t end_bytes = 0;  // = begin: nothing of this device waits
  };
  std::vector<Run> runs_;  // what was added last, of each device
  size_t requests_ = 0;    // that wait, about
  bool leaving_ = false;
  WaitGroup in_flight_;
};

// The parts that a coroutine waits for.
class PartGroup final : public PartWaiter {
 public:
  PartGroup(EventLoop& loop, Plug& plug) : plug_(plug), done_(loop) {}

  // Its waiter and tag are set here.
  void Add(Part part);
  // The first error, when all are done. The group may then be used again.
  Task<Status> Wait();
  void PartDone(uint32_t tag, const Status& status) override;

 private:
  Plug& plug_;
  WaitGroup done_;
  Status status_;
};

}  // namespace eplog
