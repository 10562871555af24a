// What came out of a replay, for tables, JSON and pictures. Bytes and counts are exact; times are
// those of the devices' clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eplog/status.h"
#include "replay/histogram.h"
#include "replay/rig.h"
#include "replay/settings.h"

namespace eplog {

// Taken every so many write requests, of the time since the last one.
struct ReplaySample {
  uint64_t at_us = 0;
  uint64_t requests = 0;       // so far
  uint64_t ssd_bytes = 0;      // written so far
  uint64_t pending_bytes = 0;  // of data, protected by logs only (or whose parity is old)
};

struct Spread {
  double least = 0;
  double mean = 0;
  double most = 0;
};

struct PolicyResult {
  Policy policy = Policy::kEplog;
  uint64_t requests = 0;
  uint64_t write_requests = 0;
  // The classes of bytes as `status` has them; those that a policy has not are 0. SSDs: data +
  // parity + metadata = what they were written.
  Traffic traffic;
  std::vector<DeviceCounters> ssds;
  std::vector<DeviceCounters> logs;
  bool has_flash = false;
  FlashTotals flash;
  std::vector<sim::Wear> wear;  // of each SSD

  uint64_t duration_us = 0;
  Histogram read_latency_us;
  Histogram write_latency_us;
  Histogram latency_us;
  std::vector<ReplaySample> samples;
  uint64_t share_samples = 0;
  // Of these samples, every 1,000 write requests: slots in use beyond those of the trace's data and
  // parity, as a part of the data that the trace touches.
  Spread space_overhead;
  // Likewise: chunks whose newest version is not under the parity of their stripe.
  Spread pending_share;
  uint64_t metadata_bytes_before = 0;  // in RAM
  uint64_t metadata_bytes_max = 0;

  [[nodiscard]] uint64_t ssd_bytes() const {
    uint64_t sum = 0;
    for (const DeviceCounters& ssd : ssds) {
      sum += ssd.bytes_written;
    }
    return sum;
  }
};

struct ReplayResult {
  uint64_t working_set_bytes = 0;  // what the trace touches, in whole extents of 1 MiB
  uint64_t ssd_bytes = 0;          // size of each device
  uint64_t log_bytes = 0;
  std::vector<PolicyResult> policies;
};

}  // namespace eplog
