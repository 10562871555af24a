// What the array tells about itself: the facts behind `eplog status`, with the same names as its
// JSON. All counters are since the array was opened, unless they stand in `lifetime`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eplog/options.h"

namespace eplog {

// Bytes and events by class. The byte classes add up to what the devices counted, to the byte.
struct Traffic {
  uint64_t user_writes = 0;
  uint64_t user_bytes_written = 0;
  uint64_t user_reads = 0;
  uint64_t user_bytes_read = 0;
  uint64_t user_flushes = 0;
  uint64_t full_stripe_writes = 0;
  uint64_t log_stripes = 0;
  uint64_t log_stripe_members = 0;
  uint64_t log_stripes_dead_early = 0;  // died by being superseded, without a commit
  uint64_t log_appends = 0;
  uint64_t commits = 0;
  uint64_t committed_stripes = 0;
  uint64_t commit_read_bytes = 0;
  uint64_t checkpoints = 0;
  uint64_t buffer_hits = 0;
  uint64_t ssd_data_bytes = 0;
  uint64_t ssd_parity_bytes = 0;
  uint64_t ssd_metadata_bytes = 0;  // superblocks, checkpoints, journal rings on SSDs
  uint64_t ssd_repair_bytes = 0;    // chunks put back by recovery
  uint64_t log_chunk_bytes = 0;
  uint64_t log_header_bytes = 0;  // headers and superblocks on log devices
  // What read-modify-write RAID would have written to its SSDs for the same requests, each by
  // itself.
  uint64_t md_equivalent_ssd_bytes = 0;
  uint64_t user_trims = 0;
  uint64_t user_bytes_trimmed = 0;
};

// Traffic as a list, in the order of its declaration, which is also that of a checkpoint root.
template <typename T, typename Visit>
void ForEachCounter(T& traffic, Visit&& visit) {
  visit(traffic.user_writes);
  visit(traffic.user_bytes_written);
  visit(traffic.user_reads);
  visit(traffic.user_bytes_read);
  visit(traffic.user_flushes);
  visit(traffic.full_stripe_writes);
  visit(traffic.log_stripes);
  visit(traffic.log_stripe_members);
  visit(traffic.log_stripes_dead_early);
  visit(traffic.log_appends);
  visit(traffic.commits);
  visit(traffic.committed_stripes);
  visit(traffic.commit_read_bytes);
  visit(traffic.checkpoints);
  visit(traffic.buffer_hits);
  visit(traffic.ssd_data_bytes);
  visit(traffic.ssd_parity_bytes);
  visit(traffic.ssd_metadata_bytes);
  visit(traffic.ssd_repair_bytes);
  visit(traffic.log_chunk_bytes);
  visit(traffic.log_header_bytes);
  visit(traffic.md_equivalent_ssd_bytes);
  visit(traffic.user_trims);
  visit(traffic.user_bytes_trimmed);
}
static_assert(sizeof(Traffic) == 24 * sizeof(uint64_t), "every counter is kept in the checkpoint");

enum class DeviceRole : uint8_t { kSsd = 1, kLog = 2, kSpare = 3 };
enum class DeviceState : uint8_t { kOk = 1, kFailed = 2, kMissing = 3, kRebuilding = 4 };
enum class ArrayState : uint8_t { kClean, kActive, kDegraded, kRebuilding, kFailed };

// The words for them, as scripts read them. Here, so that every room has the same.
constexpr const char* DeviceRoleName(DeviceRole role) {
  switch (role) {
    case DeviceRole::kSsd:
      return "ssd";
    case DeviceRole::kLog:
      return "log";
    case DeviceRole::kSpare:
      return "spare";
  }
  return "unknown";
}

constexpr const char* DeviceStateName(DeviceState state) {
  switch (state) {
    case DeviceState::kOk:
      return "ok";
    case DeviceState::kFailed:
      return "failed";
    case DeviceState::kMissing:
      return "missing";
    case DeviceState::kRebuilding:
      return "rebuilding";
  }
  return "unknown";
}

constexpr const char* ArrayStateName(ArrayState state) {
  switch (state) {
    case ArrayState::kClean:
      return "clean";
    case ArrayState::kActive:
      return "active";
    case ArrayState::kDegraded:
      return "degraded";
    case ArrayState::kRebuilding:
      return "rebuilding";
    case ArrayState::kFailed:
      return "failed";
  }
  return "unknown";
}

constexpr const char* JournalModeName(JournalMode mode) {
  return mode == JournalMode::kFull ? "full" : "log";
}

struct DeviceStatus {
  std::string name;  // ssd0 ..., log0 ...; spare0 ...
  std::string path;  // empty if missing
  DeviceRole role = DeviceRole::kSsd;
  DeviceState state = DeviceState::kOk;
  bool direct = true;
  uint64_t size_bytes = 0;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t read_errors = 0;
  uint64_t write_errors = 0;
  uint64_t corrupt_chunks = 0;
  uint64_t latency_us_p99 = 0;
  std::string failed_because;  // lost in this life, and why; of a spare: why it is no use
};

struct ArrayStatus {
  std::string uuid;
  std::string name;
  uint32_t level = 0;  // m + 4: 5, 6, ... (m > 2 has no common name)
  uint32_t data_chunks = 0;
  uint32_t parity_chunks = 0;
  uint32_t chunk_bytes = 0;
  JournalMode journal = JournalMode::kFull;
  ArrayState state = ArrayState::kClean;
  std::string stopped_because;  // not empty: acknowledges nothing any more, and why
  bool read_only = false;
  uint64_t capacity_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t free_bytes = 0;

  std::vector<DeviceStatus> devices;

  // exposure
  uint64_t pending_chunks = 0;
  uint64_t pending_bytes = 0;
  double oldest_pending_seconds = 0;
  uint64_t live_log_stripes = 0;
  uint32_t further_ssd_losses_survived = 0;
  uint32_t further_log_losses_survived = 0;
  uint64_t unstable_bytes = 0;

  // rebuild of devices that joined; all 0 when none does
  uint64_t rebuild_total_bytes = 0;  // since the array was opened or they joined
  uint64_t rebuild_left_bytes = 0;
  uint64_t rebuild_lost_bytes = 0;        // of them, what cannot be decoded: named by events
  uint64_t rebuild_bytes_per_second = 0;  // lately
  uint64_t rebuild_eta_seconds = 0;

  // space
  uint64_t slots_free_min = 0;  // on the SSD that has fewest
  uint64_t slots_used = 0;      // on all SSDs together
  uint64_t slots_reserved = 0;
  uint64_t log_used_bytes = 0;
  uint64_t log_size_bytes = 0;

  Traffic traffic;
  Traffic lifetime;

  // memory
  uint64_t metadata_bytes = 0;
  uint64_t slots = 0;
  uint64_t pending_entries = 0;

  // recovery
  double recovery_seconds = 0;
  uint64_t recovery_entries_replayed = 0;
};

}  // namespace eplog
