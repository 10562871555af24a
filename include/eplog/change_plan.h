// What a change would do to an array, told without making it: behind every --dry-run.
#pragma once

#include <cstdint>
#include <string>

#include "eplog/device.h"
#include "eplog/status.h"
#include "eplog/types.h"

namespace eplog {

struct Change {
  enum class Kind : uint8_t { kFailDevice, kReplaceDevice, kDeleteVolume, kScrub };
  Kind kind = Kind::kScrub;
  uint32_t device = 0;      // of the first two: its place in ArrayStatus::devices
  std::string replacement;  // kReplaceDevice: what is to take its place, as devices are named
  DeviceIdentity replacement_identity;
  uint64_t replacement_bytes = 0;  // its size
  VolumeId volume;                 // kDeleteVolume
};

// How well data is kept, and what room there is.
struct Standing {
  ArrayState state = ArrayState::kClean;
  uint32_t devices_not_ok = 0;  // lost, or not everything is on them yet
  uint32_t further_ssd_losses_survived = 0;
  uint32_t further_log_losses_survived = 0;
  uint64_t pending_chunks = 0;  // that parity does not cover
  uint64_t log_stripes = 0;     // that cover them meanwhile
  uint64_t allocated_bytes = 0;
  uint64_t free_bytes = 0;
};

// `after`: when everything that the change sets going in the background has ended, if nothing else
// happens. What a change has nothing to do with is 0.
struct ChangePlan {
  Standing before;
  Standing after;
  uint64_t chunks_losing_copy = 0;  // kFailDevice: what it holds, to be decoded from the others
  uint64_t commit_chunks = 0;       // pending chunks that are committed on the way
  uint64_t rebuild_bytes = 0;       // kReplaceDevice: to be decoded and written to it
  uint64_t freed_bytes = 0;         // kDeleteVolume: that other volumes may have
  uint64_t read_bytes = 0;          // kScrub
};

}  // namespace eplog
