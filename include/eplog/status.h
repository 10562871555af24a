// What the array tells about itself: the facts behind `eplog status`, with the same names as its
// JSON. All counters are since the array was opened, unless they stand in `lifetime`.
#pragma once

#include <array>
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

// A counter and what scripts call it: the one list by which counters are written and read.
template <typename T>
struct NamedCounter {
  const char* name;
  uint64_t T::*counter;
};

// In the order of their declaration, which is also that of a checkpoint root.
inline constexpr std::array<NamedCounter<Traffic>, 24> kTrafficCounters = {{
    {"user_writes", &Traffic::user_writes},
    {"user_bytes_written", &Traffic::user_bytes_written},
    {"user_reads", &Traffic::user_reads},
    {"user_bytes_read", &Traffic::user_bytes_read},
    {"user_flushes", &Traffic::user_flushes},
    {"full_stripe_writes", &Traffic::full_stripe_writes},
    {"log_stripes", &Traffic::log_stripes},
    {"log_stripe_members", &Traffic::log_stripe_members},
    {"log_stripes_dead_early", &Traffic::log_stripes_dead_early},
    {"log_appends", &Traffic::log_appends},
    {"commits", &Traffic::commits},
    {"committed_stripes", &Traffic::committed_stripes},
    {"commit_read_bytes", &Traffic::commit_read_bytes},
    {"checkpoints", &Traffic::checkpoints},
    {"buffer_hits", &Traffic::buffer_hits},
    {"ssd_data_bytes", &Traffic::ssd_data_bytes},
    {"ssd_parity_bytes", &Traffic::ssd_parity_bytes},
    {"ssd_metadata_bytes", &Traffic::ssd_metadata_bytes},
    {"ssd_repair_bytes", &Traffic::ssd_repair_bytes},
    {"log_chunk_bytes", &Traffic::log_chunk_bytes},
    {"log_header_bytes", &Traffic::log_header_bytes},
    {"md_equivalent_ssd_bytes", &Traffic::md_equivalent_ssd_bytes},
    {"user_trims", &Traffic::user_trims},
    {"user_bytes_trimmed", &Traffic::user_bytes_trimmed},
}};
static_assert(sizeof(Traffic) == kTrafficCounters.size() * sizeof(uint64_t),
              "every counter is told, and kept in the checkpoint");

template <typename T, typename Visit>
void ForEachCounter(T& traffic, Visit&& visit) {
  for (const NamedCounter<Traffic>& each : kTrafficCounters) {
    visit(traffic.*each.counter);
  }
}

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

inline constexpr std::array<NamedCounter<DeviceStatus>, 10> kDeviceCounters = {{
    {"size_bytes", &DeviceStatus::size_bytes},
    {"reads", &DeviceStatus::reads},
    {"writes", &DeviceStatus::writes},
    {"flushes", &DeviceStatus::flushes},
    {"bytes_read", &DeviceStatus::bytes_read},
    {"bytes_written", &DeviceStatus::bytes_written},
    {"read_errors", &DeviceStatus::read_errors},
    {"write_errors", &DeviceStatus::write_errors},
    {"corrupt_chunks", &DeviceStatus::corrupt_chunks},
    {"latency_us_p99", &DeviceStatus::latency_us_p99},
}};

struct ArrayStatus {
  std::string uuid;
  std::string name;
  uint32_t level = 0;  // LevelOfParity
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
