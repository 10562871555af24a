#include "report/status_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

template <typename T, size_t kCount>
void WriteCounters(const std::array<NamedCounter<T>, kCount>& table, const T& from, Json& json) {
  for (const NamedCounter<T>& each : table) {
    json[each.name] = from.*each.counter;
  }
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
  // While nothing is written to it, since the array is not mounted, say, nobody knows.
  const bool paced = status.rebuild_bytes_per_second != 0 || status.rebuild_left_bytes == 0;
  Json rebuild = {
      {"percent", status.rebuild_total_bytes == 0
                      ? 100.0
                      : 100.0 * static_cast<double>(rebuilt) /
                            static_cast<double>(status.rebuild_total_bytes)},
      {"eta_seconds", paced ? Json(status.rebuild_eta_seconds) : Json()},
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
  Json json;
  WriteCounters(kTrafficCounters, traffic, json);
  return json;
}

Json DeviceToJson(const DeviceStatus& device) {
  Json json = {
      {"name", device.name},
      {"path", device.path},
      {"role", DeviceRoleName(device.role)},
      {"state", DeviceStateName(device.state)},
  };
  WriteCounters(kDeviceCounters, device, json);
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
