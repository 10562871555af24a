// What a check or scrub found, as one JSON document (`eplog check --json`, `eplog scrub --json`).
#pragma once

#include "eplog/array.h"
#include "frontend/json.h"

namespace eplog {

[[nodiscard]] Json ReportToJson(const CheckReport& report);

}  // namespace eplog
