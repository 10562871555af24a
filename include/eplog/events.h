// What happens to an array that its owner wants to hear of. Told at once, in the order in which it
// happened.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace eplog {

enum class EventKind : uint8_t {
  kDeviceFailed,      // a device is lost: it failed, or was failed by hand
  kLogDeviceLost,     // the same of a log device
  kDegraded,          // fewer losses are survived than the array was made for
  kStopped,           // nothing is acknowledged any more
  kRebuildStarted,    // a replacement has joined
  kRebuildFinished,   // everything is on it
  kCorruptionHealed,  // a chunk was wrong or unreadable; its content was decoded and written anew
  kCorruptionLost,    // it could not be decoded
  kSpaceLow,          // little is left that volumes could get
  kSlowDevice,        // answers much later than its peers
  kSpareJoined,       // a spare has stepped in for a device that is lost
  kSpareFailed,       // it was to, and failed
  kNoSpare,           // a device is lost, and of the array's spares none that fits is left
  kCommitBehind,      // parity commit does not keep up: writes wait for it
  kScrubFinished,     // everything has been read and verified
  kWritesDropped,  // an opening found writes that are not whole on the devices: they read as before
};

// As scripts read them.
constexpr const char* EventKindName(EventKind kind) {
  switch (kind) {
    case EventKind::kDeviceFailed:
      return "device_failed";
    case EventKind::kLogDeviceLost:
      return "log_device_lost";
    case EventKind::kDegraded:
      return "degraded";
    case EventKind::kStopped:
      return "stopped";
    case EventKind::kRebuildStarted:
      return "rebuild_started";
    case EventKind::kRebuildFinished:
      return "rebuild_finished";
    case EventKind::kCorruptionHealed:
      return "corruption_healed";
    case EventKind::kCorruptionLost:
      return "corruption_lost";
    case EventKind::kSpaceLow:
      return "space_low";
    case EventKind::kSlowDevice:
      return "slow_device";
    case EventKind::kSpareJoined:
      return "spare_joined";
    case EventKind::kSpareFailed:
      return "spare_failed";
    case EventKind::kNoSpare:
      return "no_spare";
    case EventKind::kCommitBehind:
      return "commit_behind";
    case EventKind::kScrubFinished:
      return "scrub_finished";
    case EventKind::kWritesDropped:
      return "writes_dropped";
  }
  return "unknown";
}

struct ArrayEvent {
  EventKind kind = EventKind::kStopped;
  std::string device;         // ssd3, log0; empty if it is about no device
  std::string volume;         // for corruption of a volume's data
  uint64_t offset_bytes = 0;  // in the volume
  std::string text;           // one line for people
};

// Called on the array's thread, in the middle of its work: does not block and does not call the
// array.
using EventSink = std::function<void(const ArrayEvent&)>;

}  // namespace eplog
