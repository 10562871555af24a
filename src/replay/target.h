// Target: a policy under replay: a volume that takes requests, and what it tells of itself.
#pragma once

#include <cstdint>
#include <memory>

#include "baseline/block_target.h"
#include "eplog/array.h"
#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "eplog/status.h"
#include "eplog/task.h"
#include "replay/rig.h"
#include "replay/settings.h"

namespace eplog {

// How things stand at an instant.
struct TargetState {
  uint64_t pending_bytes = 0;
  uint64_t used_slot_bytes = 0;  // on all SSDs
  uint64_t metadata_bytes = 0;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
  virtual Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
  virtual Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) = 0;
  virtual Task<Status> Flush(uint64_t offset_bytes, uint64_t length_bytes) = 0;
  virtual Task<Status> FlushAll() = 0;
  virtual Task<Status> Commit() = 0;
  // After a prefill: parity everywhere, metadata small.
  virtual Task<Status> Settle() = 0;
  // What lies beyond the volume on the SSDs is needed by nobody, and the owner says so.
  virtual Task<Status> TrimSpare() { co_return OkStatus(); }
  virtual Task<Status> FailSsd(uint32_t ssd) = 0;
  virtual Task<Status> Close() = 0;
  // Requests are fastest when they are this large and aligned to it: a stripe's data.
  [[nodiscard]] virtual uint64_t stripe_bytes() const = 0;
  // Since it was made.
  [[nodiscard]] virtual Traffic traffic() const = 0;
  [[nodiscard]] virtual TargetState state() const = 0;
};

// Devices that hold a volume of `volume_bytes`, for every policy alike. kNoSpace, kInvalidArgument.
Result<RigSizes> SizesFor(const ReplaySettings& settings, uint64_t volume_bytes);

Task<Result<std::unique_ptr<Target>>> MakeEplogTarget(EventLoop& loop, Rig& rig,
                                                      const ReplaySettings& settings, bool paper,
                                                      uint64_t volume_bytes);
// A new volume of an open array, which outlives it; Close deletes it.
Task<Result<std::unique_ptr<Target>>> MakeVolumeTarget(Array& array, uint64_t volume_bytes);
Result<std::unique_ptr<Target>> MakeMdTarget(EventLoop& loop, Rig& rig,
                                             const ReplaySettings& settings, uint64_t volume_bytes);
Result<std::unique_ptr<Target>> MakePlTarget(EventLoop& loop, Rig& rig,
                                             const ReplaySettings& settings, uint64_t volume_bytes);

}  // namespace eplog
