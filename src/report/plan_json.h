// What a change would do, as one JSON document (--dry-run), asked for by one as well:
//
//   {"change":"fail","device":N}
//   {"change":"replace","device":N,"path":"...","size_bytes":N,
//    "identity":{"block":BOOL,"device":N,"inode":N}}     of the replacement; zeros: it is not there
//   {"change":"volume-delete","name":"..."}
//   {"change":"scrub"}
#pragma once

#include "eplog/array.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "report/json.h"

namespace eplog {

// DeviceIdentity as requests have it.
[[nodiscard]] Json IdentityToJson(const DeviceIdentity& identity);

// Of an open array, also one that is open read-only; nothing is changed. The error is that with
// which the change would be refused.
Task<Result<Json>> PlanAsJson(Array& array, Json request);

}  // namespace eplog
