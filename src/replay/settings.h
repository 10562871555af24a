// What is replayed, against what, on what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eplog/options.h"
#include "trace/open.h"

namespace eplog {

enum class Policy : uint8_t {
  kEplog,
  kPaper,  // EPLOG as its paper has it: what overwrites something is logged, whole stripes too
  kMd,     // Linux MD
  kPl,     // classic parity logging
};
inline constexpr int kPolicies = 4;
[[nodiscard]] const char* PolicyName(Policy policy);

enum class DeviceKind : uint8_t {
  kSimulated,  // sim/: with the times of real drives
  kMemory,     // takes no time at all
  kFiles,      // member files on a real disk, made for this and gone afterwards
  kArray,      // an array that is there: a volume of it, made for this
};
[[nodiscard]] const char* DeviceKindName(DeviceKind kind);
// Times mean something.
[[nodiscard]] constexpr bool HasTimes(DeviceKind kind) {
  return kind != DeviceKind::kMemory;
}

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order of meaning
struct ReplaySettings {
  std::vector<std::string> traces;  // one after the other, as if they were one
  TraceOptions trace;
  uint64_t repeat = 1;  // the whole trace so many times
  uint64_t limit = 0;   // requests in all; 0 = all

  uint32_t ssds = 8;  // n
  uint32_t parity = 2;
  uint32_t chunk_bytes = 4096;
  // Of md and pl: another size of chunks than EPLOG's, and RAM for what was written since the last
  // flush (0: none, as with O_DIRECT).
  uint32_t baseline_chunk_bytes = 0;
  uint64_t page_cache_bytes = 0;
  BufferSizes buffers;
  // Parity is committed after each so many write requests; 0: never; nothing: as the array sees
  // fit, which for pl is when its log is full.
  std::optional<uint64_t> commit_every;
  bool commit_at_end = false;
  uint64_t flush_every =
      0;  // a flush of everything after each so many requests; 0: only the trace's

  DeviceKind devices = DeviceKind::kSimulated;
  std::string directory;  // of kFiles
  std::string drive = "samsung-pm9a3";
  std::string log_drive = "seagate-st1000dm003";
  uint64_t ssd_bytes = 0;  // each; 0 = what the trace needs
  uint64_t log_bytes = 0;
  bool prefill = false;       // all that the trace touches lies there before, as whole stripes
  bool precondition = false;  // the flash has been in use for long
  bool trim_spare = false;    // and what md and pl leave alone was trimmed (EPLOG does by itself)
  std::vector<uint32_t> failed_ssds;

  // Requests come when the trace says, so many times faster; 0: as soon as another has ended.
  double speed = 0;
  uint32_t queue_depth = 32;  // in flight at most, of speed 0
  uint64_t seed = 1;
  // At the end everything is read twice, the second time without as many SSDs as parity can
  // replace: so parity is right. For tests.
  bool check_parity = false;
};

}  // namespace eplog
