// ArrayStatus as one JSON document (`eplog status --json`, docs/status.md) and as a table for a
// person. Both show the same facts.
#pragma once

#include <string>

#include "eplog/status.h"
#include "report/json.h"

namespace eplog {

// Who serves the array, if anybody.
struct ServingInfo {
  std::string mounted_at;  // empty: not mounted
  int pid = 0;             // 0: nobody
};

// "traffic", "lifetime".
[[nodiscard]] Json TrafficToJson(const Traffic& traffic);
// A row of "devices".
[[nodiscard]] Json DeviceToJson(const DeviceStatus& device);
[[nodiscard]] Json StatusToJson(const ArrayStatus& status, const ServingInfo& serving);

// The table of a document made by StatusToJson, here or in the serving process. Several lines, each
// ended.
[[nodiscard]] std::string StatusTable(const Json& status);

// 1234567 -> "1.2 MiB". Exact below 1 KiB.
[[nodiscard]] std::string HumanBytes(uint64_t bytes);

}  // namespace eplog
