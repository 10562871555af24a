#include "host/plan_change.h"

#include <string>
#include <utility>

#include "eplog/device.h"
#include "report/arguments.h"
#include "report/plan_json.h"

namespace eplog {
namespace {

Task<Status> LookAtReplacement(ArrayOwner& owner, Array& array, std::string path,
                               DeviceIdentity looked_at) {
  Task<Result<Device*>> opening = owner.OpenDevice(std::move(path), looked_at);
  const Result<Device*> opened = co_await opening;
  EPLOG_CO_TRY(opened);
  Task<Status> looking = array.CheckNotInUse(**opened);
  Status status = co_await looking;
  owner.CloseDevice(**opened);
  co_return status;
}

}  // namespace

Task<Result<Json>> PlanWithDevices(ArrayOwner& owner, Array& array, Json request) {
  Task<Result<Json>> planning = PlanAsJson(array, request);
  Result<Json> plan = co_await planning;
  if (!plan.ok() || TextArgument(request, "change") != "replace") {
    co_return plan;
  }
  const Result<DeviceIdentity> looked_at = IdentityArgument(request);
  EPLOG_CO_TRY(looked_at);
  if (*looked_at != DeviceIdentity()) {
    EPLOG_CO_AWAIT(LookAtReplacement(owner, array, TextArgument(request, "path"), *looked_at));
  }
  co_return plan;
}

}  // namespace eplog
