#include "report/plan_json.h"

#include <optional>
#include <string>
#include <utility>

#include "report/arguments.h"

namespace eplog {
namespace {

Json StandingToJson(const Standing& standing) {
  return {{"state", ArrayStateName(standing.state)},
          {"devices_not_ok", standing.devices_not_ok},
          {"further_ssd_losses_survived", standing.further_ssd_losses_survived},
          {"further_log_losses_survived", standing.further_log_losses_survived},
          {"pending_chunks", standing.pending_chunks},
          {"log_stripes", standing.log_stripes},
          {"allocated_bytes", standing.allocated_bytes},
          {"free_bytes", standing.free_bytes}};
}

struct Asked {
  Change change;
  Json document;  // what is said of it whatever the plan is
};

Result<Asked> AskedOfDevice(const Array& array, const Json& request, Asked asked) {
  const Result<uint32_t> device = DeviceArgument(request);
  EPLOG_TRY(device);
  const ArrayStatus status = array.GetStatus();
  if (*device >= status.devices.size()) {
    return Fail(ErrorCode::kInvalidArgument, "no such device");
  }
  asked.change.device = *device;
  asked.document["device"] = status.devices[*device].name;
  asked.document["path"] = status.devices[*device].path;
  return asked;
}

Result<Asked> Understand(const Array& array, const Json& request) {
  const std::string change = TextArgument(request, "change");
  Asked asked{Change(), {{"dry_run", true}, {"change", change}}};
  if (change == "scrub") {
    return asked;
  }
  if (change == "fail") {
    asked.change.kind = Change::Kind::kFailDevice;
    return AskedOfDevice(array, request, std::move(asked));
  }
  if (change == "replace") {
    const Result<uint64_t> size = SizeArgument(request);
    EPLOG_TRY(size);
    asked.change.kind = Change::Kind::kReplaceDevice;
    asked.change.replacement = TextArgument(request, "path");
    const Result<DeviceIdentity> identity = IdentityArgument(request);
    EPLOG_TRY(identity);
    asked.change.replacement_identity = *identity;
    asked.change.replacement_bytes = *size;
    asked.document["replacement"] = {{"path", asked.change.replacement}, {"size_bytes", *size}};
    return AskedOfDevice(array, request, std::move(asked));
  }
  if (change == "volume-delete") {
    const Result<std::string> name = NameArgument(request);
    EPLOG_TRY(name);
    const std::optional<VolumeInfo> volume = array.FindVolume(*name);
    if (!volume) {
      return NoSuchVolume(*name);
    }
    asked.change.kind = Change::Kind::kDeleteVolume;
    asked.change.volume = volume->id;
    asked.document["volume"] = {{"name", *name},
                                {"size_bytes", volume->size_bytes},
                                {"allocated_bytes", volume->allocated_bytes}};
    return asked;
  }
  return Fail(ErrorCode::kUnsupported, "there are no plans for '" + change + "'");
}

void AddFigures(const Change& change, const ChangePlan& plan, Json& document) {
  switch (change.kind) {
    case Change::Kind::kFailDevice:
      document["chunks_losing_copy"] = plan.chunks_losing_copy;
      document["commit_chunks"] = plan.commit_chunks;
      break;
    case Change::Kind::kReplaceDevice:
      document["rebuild_bytes"] = plan.rebuild_bytes;
      document["commit_chunks"] = plan.commit_chunks;
      break;
    case Change::Kind::kDeleteVolume:
      document["freed_bytes"] = plan.freed_bytes;
      break;
    case Change::Kind::kScrub:
      document["read_bytes"] = plan.read_bytes;
      break;
  }
}

}  // namespace

Json IdentityToJson(const DeviceIdentity& identity) {
  return {{"block", identity.block}, {"device", identity.device}, {"inode", identity.inode}};
}

Task<Result<Json>> PlanAsJson(Array& array, Json request) {
  Result<Asked> asked = Understand(array, request);
  EPLOG_CO_TRY(asked);
  Task<Result<ChangePlan>> planning = array.Plan(asked->change);
  Result<ChangePlan> plan = co_await planning;
  EPLOG_CO_TRY(plan);
  Json document = std::move(asked->document);
  document["before"] = StandingToJson(plan->before);
  document["after"] = StandingToJson(plan->after);
  AddFigures(asked->change, *plan, document);
  co_return document;
}

}  // namespace eplog
