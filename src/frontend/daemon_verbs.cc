#include "frontend/daemon_verbs.h"

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/spare_keeper.h"
#include "host/array_owner.h"
#include "host/plan_change.h"
#include "report/arguments.h"
#include "report/report_json.h"

namespace eplog {
namespace {

Result<std::string> SparePath(const Json& request, const SpareKeeper* spares) {
  const auto path = request.find("path");
  if (path == request.end() || !path->is_string()) {
    return Fail(ErrorCode::kInvalidArgument, "the request lacks the path of a spare");
  }
  if (spares == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "the array is mounted read-only: umount it, or mount it for writing");
  }
  return path->get<std::string>();
}

}  // namespace

DaemonVerbs::DaemonVerbs(EventLoop& loop, Array& array, FuseServer& fuse, ServingInfo serving,
                         Served served)
    : array_(array),
      fuse_(fuse),
      serving_(std::move(serving)),
      served_(std::move(served)),
      closed_event_(loop) {}

DaemonVerbs::Handler DaemonVerbs::HandlerOf(const std::string& verb) {
  struct Entry {
    const char* verb;
    Handler handler;
  };
  static constexpr Entry kVerbs[] = {
      {"status", &DaemonVerbs::GetStatus},
      {"serving", &DaemonVerbs::GetServing},
      {"lost", &DaemonVerbs::FindLost},
      {"commit", &DaemonVerbs::Commit},
      {"checkpoint", &DaemonVerbs::Checkpoint},
      {"volume-create", &DaemonVerbs::CreateVolume},
      {"volume-list", &DaemonVerbs::ListVolumes},
      {"volume-resize", &DaemonVerbs::ResizeVolume},
      {"volume-delete", &DaemonVerbs::DeleteVolume},
      {"umount", &DaemonVerbs::Umount},
      {"discard", &DaemonVerbs::Discard},
      {"buffers", &DaemonVerbs::SetBuffers},
      {"pace", &DaemonVerbs::SetPace},
      {"fail", &DaemonVerbs::FailDevice},
      {"replace", &DaemonVerbs::ReplaceDevice},
      {"scrub", &DaemonVerbs::Scrub},
      {"plan", &DaemonVerbs::Plan},
      {"inject", &DaemonVerbs::InjectFaults},
      {"spare-add", &DaemonVerbs::AddSpare},
      {"spare-remove", &DaemonVerbs::RemoveSpare},
  };
  for (const Entry& entry : kVerbs) {
    if (verb == entry.verb) {
      return entry.handler;
    }
  }
  return nullptr;
}

Task<Result<Json>> DaemonVerbs::Run(Json request, ProgressSink progress) {
  const std::string verb = request["verb"].get<std::string>();
  const Handler handler = HandlerOf(verb);
  if (handler == nullptr) {
    co_return Fail(ErrorCode::kUnsupported, "the serving process knows no verb " + verb);
  }
  if (closed_) {
    co_return Fail(ErrorCode::kShutdown, "the array is being unmounted");
  }
  Task<Result<Json>> task = (this->*handler)(std::move(request), std::move(progress));
  Result<Json> result = co_await task;
  co_return result;
}

void DaemonVerbs::Closed(Status status) {
  closed_ = true;
  close_status_ = std::move(status);
  closed_event_.NotifyAll();
}

Task<Result<Json>> DaemonVerbs::GetStatus(Json /*request*/, ProgressSink /*progress*/) {
  ArrayStatus status = array_.GetStatus();
  if (served_.spares != nullptr) {
    std::vector<DeviceStatus> spares = served_.spares->List();
    std::move(spares.begin(), spares.end(), std::back_inserter(status.devices));
  }
  co_return StatusToJson(status, serving_);
}

Task<Result<Json>> DaemonVerbs::GetServing(Json /*request*/, ProgressSink /*progress*/) {
  Json told = served_.owner.Describe(served_.directory);
  if (told.is_object()) {
    told["mount_device"] = uint64_t{fuse_.device()};
  }
  co_return told;
}

Task<Result<Json>> DaemonVerbs::FindLost(Json /*request*/, ProgressSink /*progress*/) {
  Task<Result<LossReport>> finding = array_.FindLost();
  const Result<LossReport> found = co_await finding;
  EPLOG_CO_TRY(found);
  co_return LossToJson(*found);
}

Task<Result<Json>> DaemonVerbs::Commit(Json /*request*/, ProgressSink progress) {
  EPLOG_CO_AWAIT(array_.Commit(std::move(progress)));
  co_return Json();
}

Task<Result<Json>> DaemonVerbs::Checkpoint(Json /*request*/, ProgressSink /*progress*/) {
  Status status = co_await array_.Checkpoint(CheckpointKind::kAuto);
  EPLOG_CO_TRY(status);
  co_return Json();
}

Task<Result<Json>> DaemonVerbs::Discard(Json /*request*/, ProgressSink progress) {
  Task<Result<uint64_t>> task = array_.DiscardFree(std::move(progress));
  Result<uint64_t> bytes = co_await task;
  EPLOG_CO_TRY(bytes);
  Json result = {{"bytes", *bytes}};
  co_return result;
}

// {"device": N}
Task<Result<Json>> DaemonVerbs::FailDevice(Json request, ProgressSink /*progress*/) {
  Result<uint32_t> device = DeviceArgument(request);
  EPLOG_CO_TRY(device);
  EPLOG_CO_AWAIT(array_.FailDevice(*device, "failed by hand"));
  co_return Json();
}

// {"device": N, "path": "...", "identity": {...}}: what is at the path is overwritten, if it is
// that.
Task<Result<Json>> DaemonVerbs::ReplaceDevice(Json request, ProgressSink /*progress*/) {
  Result<uint32_t> device = DeviceArgument(request);
  EPLOG_CO_TRY(device);
  const auto path = request.find("path");
  if (path == request.end() || !path->is_string()) {
    co_return Fail(ErrorCode::kInvalidArgument, "the request lacks the path of the replacement");
  }
  Result<DeviceIdentity> looked_at = IdentityArgument(request);
  EPLOG_CO_TRY(looked_at);
  Task<Result<Device*>> opening = served_.owner.OpenDevice(path->get<std::string>(), *looked_at);
  const Result<Device*> opened = co_await opening;
  EPLOG_CO_TRY(opened);
  if (closed_) {  // opening may take long, and nobody waited for it: there is no array any more
    served_.owner.CloseDevice(**opened);
    co_return Fail(ErrorCode::kShutdown, "the array is closing; nothing was replaced");
  }
  Task<Result<std::string>> replacing = PutInPlace(*device, **opened);
  Result<std::string> unwritten = co_await replacing;
  served_.owner.CloseDevice(**opened);
  EPLOG_CO_TRY(unwritten);
  Json result = {{"unwritten", *unwritten}};
  co_return result;
}

Task<Result<std::string>> DaemonVerbs::PutInPlace(uint32_t device, Device& replacement) {
  if (served_.spares != nullptr) {
    Task<Result<std::string>> replacing = served_.spares->Replace(device, replacement);
    co_return co_await replacing;
  }
  EPLOG_CO_AWAIT(array_.ReplaceDevice(device, replacement));
  co_return "the process that serves the array keeps no list of its devices";
}

// {"repair": bool, "restart": bool}
Task<Result<Json>> DaemonVerbs::Scrub(Json request, ProgressSink progress) {
  const auto repair = request.find("repair");
  const bool heal = repair != request.end() && repair->is_boolean() && repair->get<bool>();
  const auto restart = request.find("restart");
  if (restart != request.end() && *restart == true) {
    served_.owner.ForgetScrubMark();
  }
  Task<Result<CheckReport>> scrubbing = array_.Scrub(heal, std::move(progress));
  Result<CheckReport> report = co_await scrubbing;
  EPLOG_CO_TRY(report);
  co_return ReportToJson(*report, array_.GetStatus());
}

// As report/plan_json.h says. A verb of its own: a process that does not know it must not take a question
// for an order.
Task<Result<Json>> DaemonVerbs::Plan(Json request, ProgressSink /*progress*/) {
  if (array_.GetStatus().read_only) {
    co_return Fail(ErrorCode::kReadOnly, "the array is open read-only");
  }
  if (TextArgument(request, "change") == "volume-delete") {
    Status may = MayDelete(request);
    EPLOG_CO_TRY(may);
  }
  Task<Result<Json>> planning = PlanWithDevices(served_.owner, array_, std::move(request));
  co_return co_await planning;
}

// {"device": N, "read_error_rate": R, "write_error_rate": R, "corrupt": N, "misdirect": N,
// "slow_us": N, "hang": bool, "drop": bool}; without a device all are cleared.
Task<Result<Json>> DaemonVerbs::InjectFaults(Json request, ProgressSink /*progress*/) {
  std::string path;
  Injection injection;
  if (request.contains("device")) {
    Result<uint32_t> device = DeviceArgument(request);
    EPLOG_CO_TRY(device);
    const ArrayStatus status = array_.GetStatus();
    if (*device >= status.devices.size() || status.devices[*device].path.empty()) {
      co_return Fail(ErrorCode::kNotFound, "the device is not part of the array now");
    }
    path = status.devices[*device].path;
    const auto rate = [&request](const char* name) {
      const auto found = request.find(name);
      return found != request.end() && found->is_number() ? found->get<double>() : 0.0;
    };
    const auto number = [&request](const char* name) {
      const auto found = request.find(name);
      return found != request.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
    };
    const auto flag = [&request](const char* name) {
      const auto found = request.find(name);
      return found != request.end() && found->is_boolean() && found->get<bool>();
    };
    injection.read_error_rate = rate("read_error_rate");
    injection.write_error_rate = rate("write_error_rate");
    injection.corrupt = number("corrupt");
    injection.misdirect = number("misdirect");
    injection.slow_us = number("slow_us");
    injection.hang = flag("hang");
    injection.drop = flag("drop");
  }
  Status status = served_.owner.Inject(path, injection);
  EPLOG_CO_TRY(status);
  co_return Json();
}

// {"path": "...", "identity": {...}}: what is at the path is overwritten, if it is that.
// NOLINTNEXTLINE(readability-make-member-function-const): a Handler like the others
Task<Result<Json>> DaemonVerbs::AddSpare(Json request, ProgressSink /*progress*/) {
  Result<std::string> path = SparePath(request, served_.spares);
  EPLOG_CO_TRY(path);
  Result<DeviceIdentity> looked_at = IdentityArgument(request);
  EPLOG_CO_TRY(looked_at);
  EPLOG_CO_AWAIT(served_.spares->Add(*path, *looked_at));
  co_return Json();
}

// {"path": "..."}
// NOLINTNEXTLINE(readability-make-member-function-const): a Handler like the others
Task<Result<Json>> DaemonVerbs::RemoveSpare(Json request, ProgressSink /*progress*/) {
  Result<std::string> path = SparePath(request, served_.spares);
  EPLOG_CO_TRY(path);
  EPLOG_CO_AWAIT(served_.spares->Remove(*path));
  co_return Json();
}

// {"device_chunks": N, "stripes": N}, both needed.
Task<Result<Json>> DaemonVerbs::SetBuffers(Json request, ProgressSink /*progress*/) {
  const auto number = [&](const char* name) -> std::optional<uint32_t> {
    const auto found = request.find(name);
    const bool fits = found != request.end() && found->is_number_unsigned() &&
                      found->get<uint64_t>() <= kMaxBufferChunks;
    return fits ? std::optional(found->get<uint32_t>()) : std::nullopt;
  };
  const auto chunks = number("device_chunks");
  const auto stripes = number("stripes");
  if (!chunks || !stripes) {
    co_return Fail(ErrorCode::kInvalidArgument, "device_chunks and stripes are numbers up to " +
                                                    std::to_string(kMaxBufferChunks));
  }
  Status set = array_.SetBuffers({.device_chunks = *chunks, .stripes = *stripes});
  EPLOG_CO_TRY(set);
  co_return Json();
}

// {"yields": bool, "bytes_per_second": N}, both needed.
Task<Result<Json>> DaemonVerbs::SetPace(Json request, ProgressSink /*progress*/) {
  const auto yields = request.find("yields");
  const auto most = request.find("bytes_per_second");
  if (yields == request.end() || !yields->is_boolean() || most == request.end() ||
      !most->is_number_unsigned()) {
    co_return Fail(ErrorCode::kInvalidArgument, "yields is a boolean, bytes_per_second a number");
  }
  array_.SetRebuildPace({.yields = yields->get<bool>(), .bytes_per_second = most->get<uint64_t>()});
  co_return Json();
}

Task<Result<Json>> DaemonVerbs::CreateVolume(Json request, ProgressSink /*progress*/) {
  Result<std::string> name = NameArgument(request);
  EPLOG_CO_TRY(name);
  Result<uint64_t> size = SizeArgument(request);
  EPLOG_CO_TRY(size);
  Task<Result<VolumeId>> creating = array_.CreateVolume(*name, *size);
  Result<VolumeId> id = co_await creating;
  EPLOG_CO_TRY(id);
  Json result = {{"id", id->value}};
  co_return result;
}

Task<Result<Json>> DaemonVerbs::ListVolumes(Json /*request*/, ProgressSink /*progress*/) {
  Json list = Json::array();
  for (const VolumeInfo& volume : array_.Volumes()) {
    list.push_back({{"name", volume.name},
                    {"id", volume.id.value},
                    {"size_bytes", volume.size_bytes},
                    {"allocated_bytes", volume.allocated_bytes}});
  }
  co_return list;
}

Task<Result<Json>> DaemonVerbs::ResizeVolume(Json request, ProgressSink /*progress*/) {
  Result<std::string> name = NameArgument(request);
  EPLOG_CO_TRY(name);
  Result<uint64_t> size = SizeArgument(request);
  EPLOG_CO_TRY(size);
  const std::optional<VolumeInfo> volume = array_.FindVolume(*name);
  if (!volume) {
    co_return NoSuchVolume(*name);
  }
  Status status = co_await array_.ResizeVolume(volume->id, *size);
  EPLOG_CO_TRY(status);
  Task<void> notify = fuse_.NotifyVolumeChanged(volume->id);
  co_await notify;
  co_return Json();
}

Status DaemonVerbs::MayDelete(const Json& request) const {
  const Result<std::string> name = NameArgument(request);
  EPLOG_TRY(name);
  const std::optional<VolumeInfo> volume = array_.FindVolume(*name);
  if (!volume) {
    return NoSuchVolume(*name);
  }
  if (fuse_.IsOpen(volume->id)) {
    return Fail(ErrorCode::kBusy,
                "volume " + *name + " is open in " + fuse_.mountpoint() + ": close it first");
  }
  return OkStatus();
}

Task<Result<Json>> DaemonVerbs::DeleteVolume(Json request, ProgressSink /*progress*/) {
  Result<std::string> name = NameArgument(request);
  EPLOG_CO_TRY(name);
  EPLOG_CO_AWAIT(fuse_.DeleteVolume(*name));
  co_return Json();
}

Task<Result<Json>> DaemonVerbs::Umount(Json /*request*/, ProgressSink /*progress*/) {
  EPLOG_CO_AWAIT(fuse_.Unmount());
  while (!closed_) {
    co_await closed_event_.Wait();
  }
  Status status = close_status_;  // others may wait for it, too
  EPLOG_CO_TRY(status);
  co_return Json();
}

}  // namespace eplog
