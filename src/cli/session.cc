#include "cli/session.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <utility>

#include "cli/console.h"
#include "cli/limits.h"
#include "cli/mount_table.h"
#include "cli/scrub_mark.h"
#include "eplog/examine.h"
#include "frontend/control.h"

namespace eplog::cli {

uint64_t Entropy() {
  uint64_t value = 0;
  const ssize_t got = ::getrandom(&value, sizeof(value), 0);
  EPLOG_CHECK(got == ssize_t{sizeof(value)}, "the kernel gives no random numbers");
  return value;
}

namespace {

// Told before the array is opened, since opening for writing leaves its mark on the devices. If the
// members do not agree among themselves, that is for the engine to say.
Status CheckUuid(const ArrayFile& file, const Examination& found) {
  if (found.arrays.size() == 1 && found.arrays.front().uuid != file.uuid) {
    return Fail(
        ErrorCode::kCorrupt,
        fmt::format(
            "{} names the array {}, but its members belong to {}; put the right members or the "
            "right uuid into it",
            file.file.string(), file.uuid, found.arrays.front().uuid));
  }
  return OkStatus();
}

// Those that are there, and that the array goes on without.
void WarnOfLeftOut(std::string_view verb, const ArrayFile& file, const Examination& found) {
  for (const ExaminedDevice& device : found.devices) {
    for (const MemberPath& member : file.members) {
      if (device.verdict != MemberVerdict::kPart &&
          file.Locate(member).string() == device.device->name()) {
        Warn(verb, fmt::format("{} ({}) is {} and left out: {}", member.name, device.device->name(),
                               MemberVerdictName(device.verdict), device.why));
      }
    }
  }
}

}  // namespace

std::string EventsPath(const ArrayFile& file) {
  return (file.file.parent_path() / "events.jsonl").string();
}

Result<std::unique_ptr<Session>> Session::Open(std::string_view verb, const ArrayFile& file,
                                               const MemberOptions& options, OpenOptions open) {
  EPLOG_TRY(options.read_only ? OkStatus() : CheckFileSizes(file));
  std::unique_ptr<Session> session(new Session());
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  session->loop_ = std::move(*loop);
  auto members = OpenMembers(*session->loop_, file, options);
  if (!members.ok()) {
    return Fail(std::move(members).error());
  }
  session->options_ = options;
  session->members_ = std::move(*members);
  const Examination found = session->Run(ExamineDevices(session->members_.Pointers()));
  EPLOG_TRY(CheckUuid(file, found));
  for (const std::string& missing : session->members_.missing) {
    Warn(verb, missing);
  }
  open.read_only = options.read_only;
  open.entropy = Entropy();
  if (!options.read_only) {
    session->events_ = std::make_unique<EventLog>(EventsPath(file), options.event_hook, file.name);
    open.scrub_mark = KeepScrubMark(file);
    open.on_event = [raw = session.get()](const ArrayEvent& event) {
      raw->Tell(event);
      if (raw->listener_) {
        raw->listener_(event);
      }
    };
  }
  auto array = session->Run(Array::Open(*session->loop_, session->members_.Pointers(), open));
  if (!array.ok()) {
    Error error = std::move(array).error();
    if (error.code == ErrorCode::kInvalidArgument) {
      error.code = ErrorCode::kCorrupt;  // the devices are wrong, not the command
    }
    return Fail(std::move(error));
  }
  session->array_ = std::move(*array);
  WarnOfLeftOut(verb, file, found);
  return session;
}

Result<Device*> Session::OpenDevice(const std::string& path) {
  for (const Member& member : members_.opened) {
    if (member.device->name() != path) {
      continue;
    }
    // One that failed and is to come back.
    if (member.deadline != nullptr && member.deadline->unanswered() != 0) {
      return Fail(ErrorCode::kBusy,
                  fmt::format("{} still has {} requests that it did not answer: unmount, and mount "
                              "again when it is well",
                              path, member.deadline->unanswered()));
    }
    if (member.deadline != nullptr) {
      member.deadline->TakeBack();
    }
    return member.device.get();
  }
  auto member = OpenMember(*loop_, path, options_);
  if (!member.ok()) {
    return Fail(std::move(member).error());
  }
  members_.opened.push_back(std::move(*member));
  return members_.opened.back().device.get();
}

void Session::CloseDevice(const std::string& path) {
  std::erase_if(members_.opened, [&](const Member& member) {
    return member.device->name() == path &&
           (member.deadline == nullptr || member.deadline->unanswered() == 0);
  });
}

void Session::Tell(const ArrayEvent& event) {
  if (events_ != nullptr) {
    events_->Add(event);
  }
}

Status Session::Inject(const std::string& path, const Injection& injection) {
  bool found = false;
  for (const Member& member : members_.opened) {
    if (path.empty() || member.device->name() == path) {
      member.inject->Set(injection);
      found = true;
    }
  }
  return found ? OkStatus()
               : Status(Fail(ErrorCode::kNotFound, path + " is not open: is it missing?"));
}

Status Session::Close() {
  Status closed = Run(array_->Close());
  Release();
  return closed;
}

// What has not answered stays until the loop is gone.
void Session::Release() {
  array_.reset();
  std::erase_if(members_.opened, [](const Member& member) {
    return member.deadline == nullptr || member.deadline->unanswered() == 0;
  });
}

Session::~Session() {
  if (array_ != nullptr) {
    loop_->Abort();
    array_.reset();
  }
}

Result<Json> AskServer(const ArrayFile& file, const Json& request,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  return ControlRequest(ControlSocketPath(file.uuid), request, progress);
}

std::optional<Server> FindServer(const ArrayFile& file) {
  const auto status = AskServer(file, {{"verb", "status"}});
  if (!status.ok() || !status->contains("array")) {
    return std::nullopt;
  }
  const Json& array = status->at("array");
  Server server;
  if (array.contains("pid") && array["pid"].is_number_integer()) {
    server.pid = array["pid"].get<int>();
  }
  const auto mount = FindMountOf(file.Argument());
  server.directory = mount ? mount->directory : "";
  return server;
}

namespace {

// `not found` may also be the server's answer about a volume.
bool NobodyServes(const Result<Json>& answer, const ArrayFile& file) {
  return !answer.ok() && answer.error().code == ErrorCode::kNotFound && !FindServer(file);
}

}  // namespace

Result<Json> AskOrOpen(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& offline,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  auto answer = AskServer(file, request, progress);
  if (!NobodyServes(answer, file)) {
    return answer;
  }
  auto session = Session::Open(verb, file, MemberOptions{});
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  auto result = offline(**session);
  Status closed = (*session)->Close();
  if (result.ok() && !closed.ok()) {
    return Fail(std::move(closed).error());
  }
  return result;
}

Result<Json> AskOrLook(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& look, const OpenOptions& open) {
  auto answer = AskServer(file, request);
  if (!NobodyServes(answer, file)) {
    return answer;
  }
  MemberOptions options;
  options.read_only = true;
  auto session = Session::Open(verb, file, options, open);
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  return look(**session);
}

}  // namespace eplog::cli
