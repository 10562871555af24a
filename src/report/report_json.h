// What a check, a scrub or a look for losses found, each as one JSON document (`eplog check
// --json`, `eplog scrub --json`, `eplog status --lost --json`).
#pragma once

#include "eplog/array.h"
#include "report/json.h"

namespace eplog {

// With "degraded": what is missing, or on its way back, could not be verified.
[[nodiscard]] Json ReportToJson(const CheckReport& report, const ArrayStatus& status);
// {"lost_bytes","lost":[{"volume","offset_bytes","length_bytes"}...],"log_damage": text or null,
//  "unsure": names or null, "left_behind": bool}
[[nodiscard]] Json LossToJson(const LossReport& report);

}  // namespace eplog
