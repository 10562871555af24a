#include "engine/core/traffic.h"

namespace eplog {
std::vector<uint64_t> TrafficToCounters(const Traffic& traffic) {
  std::vector<uint64_t> counters;
  ForEachCounter(traffic, [&](uint64_t value) { counters.push_back(value); });
  return counters;
}

Traffic CountersToTraffic(const std::vector<uint64_t>& counters) {
  Traffic traffic;
  size_t i = 0;
  ForEachCounter(traffic, [&](uint64_t& value) {
    value = i < counters.size() ? counters[i] : 0;
    ++i;
  });
  return traffic;
}

Traffic AddTraffic(const Traffic& a, const Traffic& b) {
  const std::vector<uint64_t> other = TrafficToCounters(b);
  Traffic sum = a;
  size_t i = 0;
  ForEachCounter(sum, [&](uint64_t& value) { value += other[i++]; });
  return sum;
}

}  // namespace eplog
