// Rig: the devices that a policy is replayed on, all counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/wrappers.h"
#include "eplog/array.h"
#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "replay/settings.h"
#include "runtime/io_uring_loop.h"
#include "sim/sim_hdd.h"
#include "sim/sim_ssd.h"

namespace eplog {

struct RigSizes {
  uint64_t ssd_bytes = 0;
  uint64_t log_bytes = 0;
};

// What the flash of all SSDs did.
struct FlashTotals {
  uint64_t host_pages = 0;
  uint64_t programmed_pages = 0;
  uint64_t erases = 0;
  uint64_t gc_runs = 0;
};

class Rig {
 public:
  // Of kFiles the loop is an IoUringLoop, and `name` is in the files' names while they are made.
  static Result<std::unique_ptr<Rig>> Make(EventLoop& loop, const ReplaySettings& settings,
                                           const RigSizes& sizes, const std::string& name);
  // The devices of an open array, which outlives this: they are counted and not handed out.
  static std::unique_ptr<Rig> Of(const Array& array);

  [[nodiscard]] std::vector<Device*> ssds() const { return DevicesFrom(0, ssd_count_); }
  [[nodiscard]] std::vector<Device*> logs() const {
    return DevicesFrom(ssd_count_, counting_.size());
  }
  [[nodiscard]] DeviceCounters ssd_counters(size_t ssd) const { return CountersOf(ssd); }
  [[nodiscard]] DeviceCounters log_counters(size_t log) const {
    return CountersOf(ssd_count_ + log);
  }
  // From now on everything counts from zero.
  void ResetCounters();
  // Of simulated SSDs; empty for others.
  [[nodiscard]] std::vector<sim::Wear> wear() const;
  [[nodiscard]] bool has_flash() const { return !flash_.empty(); }
  [[nodiscard]] FlashTotals flash() const;

 private:
  Rig() = default;
  [[nodiscard]] std::vector<Device*> DevicesFrom(size_t first, size_t end) const;
  [[nodiscard]] DeviceCounters CountersOf(size_t device) const;
  Status MakeFiles(IoUringLoop& loop, const ReplaySettings& settings, const RigSizes& sizes,
                   const std::string& name);
  Status MakeOthers(EventLoop& loop, const ReplaySettings& settings, const RigSizes& sizes);

  size_t ssd_count_ = 0;
  const Array* array_ = nullptr;
  std::vector<DeviceCounters> base_;  // of its devices
  std::vector<std::unique_ptr<CountingDevice>> counting_;
  std::vector<sim::SimSsd*> flash_;  // of SSDs; log devices are not looked into
};

}  // namespace eplog
