#include "report/status_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace eplog {
namespace {

Json ArrayToJson(const ArrayStatus& status, const ServingInfo& serving) {
  Json array = {
      {"uuid", status.uuid},
      {"name", status.name},
      {"level", status.level},
      {"data_chunks", status.data_chunks},
      {"parity_chunks", status.parity_chunks},
      {"chunk_bytes", status.chunk_bytes},
      {"journal", JournalModeName(status.journal)},
      {"state", ArrayStateName(status.state)},
      {"capacity_bytes", status.capacity_bytes},
      {"allocated_bytes", status.allocated_bytes},
      {"free_bytes", status.free_bytes},
      {"mounted_at", serving.mounted_at.empty() ? Json(nullptr) : Json(serving.mounted_at)},
      {"pid", serving.pid == 0 ? Json(nullptr) : Json(serving.pid)},
  };
  // Rare facts appear only when they are so.
  if (status.read_only) {
    array["read_only"] = true;
  }
  if (!status.stopped_because.empty()) {
    array["stopped_because"] = status.stopped_because;
  }
  return array;
}

// Null if no device is being rebuilt.
Json RebuildToJson(const ArrayStatus& status) {
  const bool any = std::any_of(
      status.devices.begin(), status.devices.end(),
      [](const DeviceStatus& device) { return device.state == DeviceState::kRebuilding; });
  if (!any) {
    return nullptr;
  }
  // A log device has nothing to be written to it: what it waits for is a commit.
  const uint64_t rebuilt = status.rebuild_total_bytes - status.rebuild_left_bytes;
  Json rebuild = {
      {"percent", status.rebuild_total_bytes == 0
                      ? 100.0
                      : 100.0 * static_cast<double>(rebuilt) /
                            static_cast<double>(status.rebuild_total_bytes)},
      {"eta_seconds", status.rebuild_eta_seconds},
      {"bytes_per_second", status.rebuild_bytes_per_second},
      {"left_bytes", status.rebuild_left_bytes},
  };
  if (status.rebuild_lost_bytes != 0) {
    rebuild["lost_bytes"] = status.rebuild_lost_bytes;  // of them
  }
  return rebuild;
}

}  // namespace

Json TrafficToJson(const Traffic& traffic) {
  return {
      {"user_writes", traffic.user_writes},
      {"user_bytes_written", traffic.user_bytes_written},
      {"user_reads", traffic.user_reads},
      {"user_bytes_read", traffic.user_bytes_read},
      {"user_flushes", traffic.user_flushes},
      {"full_stripe_writes", traffic.full_stripe_writes},
      {"log_stripes", traffic.log_stripes},
      {"log_stripe_members", traffic.log_stripe_members},
      {"log_stripes_dead_early", traffic.log_stripes_dead_early},
      {"log_appends", traffic.log_appends},
      {"commits", traffic.commits},
      {"committed_stripes", traffic.committed_stripes},
      {"commit_read_bytes", traffic.commit_read_bytes},
      {"checkpoints", traffic.checkpoints},
      {"buffer_hits", traffic.buffer_hits},
      {"ssd_data_bytes", traffic.ssd_data_bytes},
      {"ssd_parity_bytes", traffic.ssd_parity_bytes},
      {"ssd_metadata_bytes", traffic.ssd_metadata_bytes},
      {"ssd_repair_bytes", traffic.ssd_repair_bytes},
      {"log_chunk_bytes", traffic.log_chunk_bytes},
      {"log_header_bytes", traffic.log_header_bytes},
      {"md_equivalent_ssd_bytes", traffic.md_equivalent_ssd_bytes},
      {"user_trims", traffic.user_trims},
      {"user_bytes_trimmed", traffic.user_bytes_trimmed},
  };
}

Json DeviceToJson(const DeviceStatus& device) {
  Json json = {
      {"name", device.name},
      {"path", device.path},
      {"role", DeviceRoleName(device.role)},
      {"state", DeviceStateName(device.state)},
      {"size_bytes", device.size_bytes},
      {"reads", device.reads},
      {"writes", device.writes},
      {"flushes", device.flushes},
      {"bytes_read", device.bytes_read},
      {"bytes_written", device.bytes_written},
      {"read_errors", device.read_errors},
      {"write_errors", device.write_errors},
      {"corrupt_chunks", device.corrupt_chunks},
      {"latency_us_p99", device.latency_us_p99},
  };
  // Of one that is well again it would be taken for the state.
  if (!device.failed_because.empty() && device.state != DeviceState::kOk) {
    json["failed_because"] = device.failed_because;
  }
  if (!device.direct) {
    json["direct"] = false;  // the file system below refused O_DIRECT
  }
  return json;
}

Json StatusToJson(const ArrayStatus& status, const ServingInfo& serving) {
  Json devices = Json::array();
  for (const DeviceStatus& device : status.devices) {
    devices.push_back(DeviceToJson(device));
  }
  Json json;
  json["array"] = ArrayToJson(status, serving);
  json["devices"] = std::move(devices);
  json["exposure"] = {
      {"pending_chunks", status.pending_chunks},
      {"pending_bytes", status.pending_bytes},
      {"oldest_pending_seconds", status.oldest_pending_seconds},
      {"log_stripes", status.live_log_stripes},
      {"further_ssd_losses_survived", status.further_ssd_losses_survived},
      {"further_log_losses_survived", status.further_log_losses_survived},
      {"unstable_bytes", status.unstable_bytes},
  };
  json["space"] = {
      {"slots_free_min", status.slots_free_min},
      {"slots_reserved", status.slots_reserved},
      {"log_used_bytes", status.log_used_bytes},
      {"log_size_bytes", status.log_size_bytes},
  };
  json["traffic"] = TrafficToJson(status.traffic);
  json["memory"] = {
      {"metadata_bytes", status.metadata_bytes},
      {"slots", status.slots},
      {"pending", status.pending_entries},
  };
  json["recovery"] = {
      {"seconds", status.recovery_seconds},
      {"entries_replayed", status.recovery_entries_replayed},
  };
  json["rebuild"] = RebuildToJson(status);
  json["lifetime"] = TrafficToJson(status.lifetime);
  return json;
}

}  // namespace eplog
