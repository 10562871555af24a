// What a change would do (report/plan_json.h), with what the array alone cannot see of it: whether
// what is to become a member is in use by another node.
#pragma once

#include "eplog/array.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "host/array_owner.h"
#include "report/json.h"

namespace eplog {

// Of an open array, also one that is open read-only; nothing is changed. The error is that with
// which the change would be refused. A replacement that is there is opened for a moment.
Task<Result<Json>> PlanWithDevices(ArrayOwner& owner, Array& array, Json request);

}  // namespace eplog
