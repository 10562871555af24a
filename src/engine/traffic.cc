#include "engine/traffic.h"

namespace eplog {
namespace {

// Traffic as a list, in the order of its declaration: how it lies in a checkpoint root.
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

}  // namespace

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
