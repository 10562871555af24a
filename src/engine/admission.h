// Admission: space is promised to a foreground request before it takes any lock and before anything
// is acknowledged (section 5): one slot on each SSD that it writes, and log room. First come, first
// served.
#pragma once

#include <array>
#include <cstdint>

#include "engine/appender.h"
#include "engine/core.h"

namespace eplog {

class Keeper;

// What one request holds until it hands it on. Gives back on destruction what was not taken.
class [[nodiscard]] Grant {
 public:
  Grant(Core& core, Appender& appender) : core_(core), appender_(appender) {
    slots_.fill(SlotWord::Absent());
  }
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;
  ~Grant();

  // The slot claimed on this SSD, or `absent` if the SSD is not there. From now on the caller's.
  SlotWord TakeSlot(DeviceIndex ssd);
  // The promise passes to a piece that is submitted now.
  void TakeLog() { blocks_ = 0; }

 private:
  friend class Admission;
  Core& core_;
  Appender& appender_;
  std::array<SlotWord, kMaxSsds> slots_{};
  uint64_t claimed_ = 0;  // mask
  uint64_t blocks_ = 0;
};

class Admission {
 public:
  Admission(Core& core, Appender& appender) : core_(core), appender_(appender), turn_(core.loop) {}

  // Claims a slot on every live SSD of `ssd_mask` and promises `blocks` of log into `grant`. Waits
  // while there is no room. Fails only if the array stops.
  Task<Status> Admit(Grant& grant, uint64_t ssd_mask, uint64_t blocks);

  // Somebody waits for this now.
  [[nodiscard]] bool waiting_for_log() const { return waiting_ && !appender_.CanPromise(blocks_); }
  [[nodiscard]] bool waiting_for_slots() const { return waiting_ && !HaveSlots(ssd_mask_); }
  [[nodiscard]] bool waiting() const { return waiting_; }
  void set_keeper(Keeper& keeper) { keeper_ = &keeper; }

 private:
  [[nodiscard]] bool HaveSlots(uint64_t ssd_mask) const;
  void Take(Grant& grant, uint64_t ssd_mask, uint64_t blocks);

  Core& core_;
  Appender& appender_;
  Keeper* keeper_ = nullptr;
  AsyncMutex turn_;
  bool waiting_ = false;
  uint64_t ssd_mask_ = 0;
  uint64_t blocks_ = 0;
};

}  // namespace eplog
