// Superblocks: the newest epoch, base, member states and checkpoint pointer, on all live devices
// (I9, I11). One write at a time; copies A and B alternate, and each write is flushed before the
// next, so that a copy is overwritten only when the other is durable (I8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/core.h"

namespace eplog {

// For a new array or member.
Uuid RandomUuid(Random& random);

class Superblocks {
 public:
  // `generations`: of each member's newest copy, as found; `damaged`: mask of those whose other
  // copy is damaged.
  Superblocks(Core& core, const Superblock& newest, std::vector<uint64_t> generations,
              uint64_t damaged)
      : core_(core),
        current_(newest),
        generations_(std::move(generations)),
        damaged_(damaged),
        turn_(core.loop) {}

  void SetEpoch(const Epoch& epoch, std::vector<MemberEntry> members) {
    current_.epoch = epoch;
    current_.members = std::move(members);
  }
  // A device in the place of another: it bears no superblock yet.
  void Join(DeviceIndex device) {
    generations_[device.value] = 0;
    damaged_ &= ~(uint64_t{1} << device.value);
  }
  // The device that was away is part of the next epoch; its newest superblock is of this
  // generation. `damaged`: its other copy is.
  void Return(DeviceIndex device, uint64_t generation, bool damaged);
  // `on_rings`: all that was flushed until now is there, as long as some log device is not `ok`.
  void SetBase(const Epoch& base, bool on_rings);
  void SetCheckpoint(const CheckpointPointer& pointer) { current_.checkpoint = pointer; }
  [[nodiscard]] const Superblock& current() const { return current_; }
  // Mask of those that were away and do not bear the epoch yet.
  [[nodiscard]] uint64_t returning() const { return returning_; }

  // Writes the current content to every live device and flushes it there. First to those that were
  // away: while they do not bear an epoch that calls them live, nobody else may, or it could not be
  // valid and the one before it would be nowhere (I11).
  Task<Status> Write();
  // Which of the two copies on a device is not what was written there last (bit 0: A).
  Task<uint32_t> DamagedCopies(DeviceIndex device);

 private:
  Task<Status> WriteTo(uint64_t devices);
  Task<Status> WriteOne(DeviceIndex device);
  Task<Status> WriteCopy(DeviceIndex device, uint64_t generation, std::span<const std::byte> bytes);

  Core& core_;
  Superblock current_;
  std::vector<uint64_t> generations_;
  uint64_t damaged_ = 0;    // mask: the copy that is written next may be half of a superblock
  uint64_t returning_ = 0;  // mask: still bear an epoch that the others have left
  AsyncMutex turn_;
};

}  // namespace eplog
