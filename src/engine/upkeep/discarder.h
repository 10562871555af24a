// Discarder: tells SSDs which slots hold nothing (TRIM), where they can be told; member files never
// are. In the background slots that have been free for a while, in runs worth a request; or all
// free slots at once. A run is borrowed while its request is on its way: nobody can take it, and
// enough is left for all others.
#pragma once

#include <cstdint>

#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "eplog/array.h"

namespace eplog {

class Discarder {
 public:
  Discarder(Core& core, const Admission& admission)
      : core_(core), admission_(admission), running_(core.loop), ended_(core.loop) {}

  // Starts the background task, if any SSD takes discards.
  void Open();
  Task<void> Close();

  // All free slots, in batches. The bytes that were discarded.
  Task<Result<uint64_t>> DiscardAll(Progress progress);

 private:
  [[nodiscard]] bool Takes(DeviceIndex ssd) const;
  [[nodiscard]] uint32_t MostSlots(DeviceIndex ssd) const;
  Task<Status> Send(DeviceIndex ssd, SlotSpace::Run run);
  Task<void> DiscardOld(DeviceIndex ssd);
  Task<void> Background();

  Core& core_;
  const Admission& admission_;
  WaitGroup running_;
  Event ended_;
  bool closing_ = false;
};

}  // namespace eplog
