// Traffic counters as they lie in a checkpoint root, and their sums.
#pragma once

#include <cstdint>
#include <vector>

#include "eplog/status.h"

namespace eplog {

std::vector<uint64_t> TrafficToCounters(const Traffic& traffic);
// Counters that are missing (written by an older program) are 0.
Traffic CountersToTraffic(const std::vector<uint64_t>& counters);
Traffic AddTraffic(const Traffic& a, const Traffic& b);

}  // namespace eplog
