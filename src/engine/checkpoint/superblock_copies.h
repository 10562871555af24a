// Reading superblocks: both copies of each device, and which of them counts. Writes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "eplog/device.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "format/superblock.h"

namespace eplog {

// A device, and both copies of its superblock.
struct SuperblockCopies {
  Device* device = nullptr;
  std::vector<Result<Superblock>> of;

  [[nodiscard]] uint32_t whole() const;  // of the two
  // One of them could not be read or is damaged: it may have been the newest.
  [[nodiscard]] bool doubtful() const;
  // The one that counts. kNotFound if there is no magic in either, kUnsupported if either is of a
  // newer format, kCorrupt, kIo or kDeviceFailed if none can be had.
  [[nodiscard]] Result<Superblock> Newest() const;
};

// kInvalidArgument: too small to be a member of any array.
Task<Result<SuperblockCopies>> ReadCopies(Device& device);

// A copy that was meant for another of these devices is not believed; where it cannot be told which
// of two that is, neither.
void DropStrays(std::vector<SuperblockCopies>& all);

// The newest valid copy on one device.
Task<Result<Superblock>> ReadSuperblock(Device& device);

// Both copies torn, or a device that does not answer: it counts as missing.
[[nodiscard]] bool CannotBeRead(ErrorCode code);

}  // namespace eplog
