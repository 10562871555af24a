// Assembly: from a heap of devices to an array (I11): who is who, which epoch counts, which devices
// may be trusted. Reads superblocks, writes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "engine/hooks.h"
#include "format/superblock.h"
#include "runtime/task.h"

namespace eplog {

struct Assembly {
  Superblock winner;  // epoch, base and members that count, with the newest checkpoint pointer
  std::vector<Device*> devices;  // by index; null where missing or stale
  std::vector<bool> stale;       // present, but not to be trusted
  // Stale, and the member itself, not one that it replaced; with its newest superblock's
  // generation.
  struct Away {
    Device* device = nullptr;
    uint64_t generation = 0;
  };
  std::vector<Away> away;
  std::string beyond;                 // why it may only be opened by force; else empty
  std::vector<uint64_t> generations;  // of each trusted member's newest superblock
  uint64_t highest_epoch = 0;         // highest epoch number seen anywhere
};

// Refuses by name: a device that is no member (any more), of another array, doubled, truncated, of
// a newer format; more than m devices missing or stale.
// With `force` the last is told in `beyond` instead.
Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary, bool force = false);

// The newest valid copy on one device. `doubtful`, if given, says whether the other one could not
// be read or is damaged: then that may have been the newest.
Task<Result<Superblock>> ReadSuperblock(Device& device, bool* doubtful = nullptr);

}  // namespace eplog
