// Watch: tells of what creeps up (eplog/events.h): space that runs low, a device that is much
// slower than its peers, writes that wait for parity commit. Looks every few seconds, and only if
// somebody listens.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/core.h"

namespace eplog {

class Watch {
 public:
  explicit Watch(Core& core)
      : core_(core),
        running_(core.loop),
        wake_(core.loop),
        seen_(core.geometry.devices()),
        told_slow_us_(core.geometry.devices(), 0) {}

  void Open();
  Task<void> Close();

 private:
  struct Seen {
    uint64_t requests = 0;
    uint64_t busy_us = 0;
  };
  Task<void> Run();
  void LookAtSpace();
  void LookAtDevices(uint32_t first, uint32_t last);
  void LookAtWaits();
  [[nodiscard]] static Seen Of(const MemberCounters& counters);

  Core& core_;
  WaitGroup running_;
  Event wake_;
  bool closing_ = false;
  bool told_low_ = false;
  uint64_t waits_ = 0;
  uint64_t told_behind_us_ = 0;
  std::vector<Seen> seen_;
  std::vector<uint64_t> told_slow_us_;  // 0: never
};

}  // namespace eplog
