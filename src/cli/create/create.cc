// eplog create: a new array. Everything is planned and checked first (create_plan.h); then the
// member files are made, the array written, array.toml put in place. When something fails, what was
// made goes away again.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cli/create/plan.h"
#include "cli/verb/verbs.h"
#include "device/file_device.h"
#include "eplog/array.h"
#include "host/array_file.h"
#include "host/candidate.h"
#include "host/device_content.h"
#include "host/members.h"
#include "host/session.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "create";

// Files and directories that this run made: removed unless kept, also when the user interrupts.
class MadeThings {
 public:
  MadeThings() {
    current = this;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      action.sa_handler = &MadeThings::OnSignal;
      action.sa_flags = static_cast<int>(SA_RESETHAND);
      ::sigaction(signal, &action, nullptr);
    }
  }
  MadeThings(const MadeThings&) = delete;
  MadeThings& operator=(const MadeThings&) = delete;
  ~MadeThings() {
    current = nullptr;
    if (!kept_) {
      RemoveAll();
    }
  }

  // Room for all entries beforehand: a signal may come while one is added.
  void Reserve(size_t count) { paths_.reserve(count); }
  void Add(const std::filesystem::path& path) {
    EPLOG_CHECK(paths_.size() < paths_.capacity(), "more things made than announced");
    paths_.push_back(path.string());
  }
  void Keep() { kept_ = true; }

 private:
  // Newest first: files before the directory that holds them. Only what a signal handler may call.
  void RemoveAll() {
    for (size_t i = paths_.size(); i-- > 0;) {
      if (::unlink(paths_[i].c_str()) != 0) {
        ::rmdir(paths_[i].c_str());
      }
    }
  }
  static void OnSignal(int signal) {
    if (current != nullptr && !current->kept_) {
      current->RemoveAll();
    }
    ::raise(signal);  // by its default now: the caller sees how we ended
  }

  static inline MadeThings* current = nullptr;
  std::vector<std::string> paths_;
  bool kept_ = false;
};

// Nobody uses what will be overwritten: each is locked, and let go again, before anything is
// changed.
Status CheckFree(IoUringLoop& loop, const CreatePlan& plan) {
  std::map<std::filesystem::path, std::optional<DeviceIdentity>> paths;
  for (const auto& path : plan.removed_files) {
    paths[path] = {};
  }
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      if (member.there) {
        paths[member.path] = member.there->identity;
      }
    }
  }
  for (const auto& [path, only] : paths) {
    auto device = OpenFile(loop, path.string(), MemberOptions{}, only);
    if (!device.ok() &&
        (device.error().code == ErrorCode::kBusy ||
         device.error().code == ErrorCode::kDeviceFailed || device.error().errno_value != 0)) {
      return Fail(std::move(device).error());
    }
  }
  return OkStatus();
}

Status MakeDirectories(const std::filesystem::path& directory, MadeThings& made) {
  std::vector<std::filesystem::path> absent;
  std::filesystem::path at = directory;
  std::error_code error;
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) {
    absent.push_back(at);
    at = at.parent_path();
  }
  made.Reserve(absent.size() + kMaxDevices + 1);
  for (size_t i = absent.size(); i-- > 0;) {
    std::filesystem::create_directory(absent[i], error);
    if (error) {
      return FailErrno(error.value(), "cannot make the directory " + absent[i].string());
    }
    made.Add(absent[i]);
  }
  return OkStatus();
}

Status MakeFile(IoUringLoop& loop, PlannedMember& member, CreateFileOptions options,
                MadeThings& made) {
  options.overwrite = member.there.has_value();
  options.looked_at = options.overwrite ? std::optional(member.there->identity) : std::nullopt;
  if (!std::filesystem::exists(member.path)) {
    made.Add(member.path);
  }
  const auto file =
      RunTask(loop, CreateMemberFile(loop, member.path.string(), member.size_bytes, options));
  EPLOG_TRY(file);
  auto probed = ProbeDevice(member.path, *file);
  EPLOG_TRY(probed);
  member.there = std::move(*probed);
  return OkStatus();
}

Status MakeFiles(IoUringLoop& loop, CreatePlan& plan, MadeThings& made) {
  ProgressBar bar(kVerb, "writing out member files", ProgressBar::Unit::kBytes);
  uint64_t before = 0;
  for (auto* members : {&plan.ssds, &plan.logs}) {
    for (PlannedMember& member : *members) {
      if (!member.make) {
        continue;
      }
      CreateFileOptions options;
      options.sparse = plan.sparse;
      options.progress = [&](uint64_t done, uint64_t) {
        bar.Update(before + done, plan.bytes_to_make());
      };
      EPLOG_TRY(MakeFile(loop, member, options, made));
      before += member.size_bytes;
    }
  }
  return OkStatus();
}

Status WriteArray(IoUringLoop& loop, CreatePlan& plan) {
  std::vector<std::unique_ptr<FileDevice>> devices;
  std::vector<Device*> ssds;
  std::vector<Device*> logs;
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      EPLOG_TRY(CheckNotServed(member.path, member.there.value()));  // since it was looked at
      auto device = FileDevice::Open(loop, member.path.string(),
                                     {.looked_at = member.there.value().identity});
      if (!device.ok()) {
        return Fail(std::move(device).error());
      }
      (members == &plan.ssds ? ssds : logs).push_back(device->get());
      devices.push_back(std::move(*device));
    }
  }
  CreateOptions options = plan.options;
  options.entropy = Entropy();
  EPLOG_TRY(RunTask(loop, Array::Create(loop, ssds, logs, options)));
  auto superblock = ReadSuperblock(plan.ssds.front().path);
  if (!superblock.ok()) {
    return Fail(std::move(superblock).error());
  }
  plan.file.uuid = UuidToString(superblock->array_uuid);
  return OkStatus();
}

void RemoveOldFiles(const CreatePlan& plan) {
  std::set<std::filesystem::path> kept;
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      kept.insert(member.path);
    }
  }
  for (const auto& path : plan.removed_files) {
    if (!kept.contains(path)) {
      ::unlink(path.c_str());
    }
  }
}

}  // namespace

Status CarryOut(CreatePlan& plan, bool dry_run) {
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  EPLOG_TRY(CheckFree(**loop, plan));
  if (dry_run) {
    return OkStatus();
  }
  MadeThings made;
  EPLOG_TRY(MakeDirectories(plan.file.file.parent_path(), made));
  RemoveOldFiles(plan);
  EPLOG_TRY(MakeFiles(**loop, plan, made));
  EPLOG_TRY(WriteArray(**loop, plan));
  EPLOG_TRY(WriteArrayFile(plan.file));
  made.Keep();
  return OkStatus();
}

namespace {

struct CreateCommand {
  CreateRequest request;
  bool dry_run = false;
  bool json = false;
};

Result<int> RunCreate(const CreateCommand& command) {
  auto plan = PlanCreate(command.request);
  EPLOG_TRY(plan);
  // Said while the plan is there: its devices are closed with it, which may take as long as they like.
  if (const Status done = CarryOut(*plan, command.dry_run); !done.ok()) {
    return ReportError(kVerb, done.error());
  }
  if (command.json) {
    Json json = PlanToJson(*plan);
    json["dry_run"] = command.dry_run;
    PrintJson(json);
  } else if (command.dry_run) {
    Print("would create, changing nothing now:\n" + PlanText(*plan));
  } else {
    const std::string argument = ShellWord(command.request.array);
    Print(fmt::format("created '{}': {}, {} usable\nnext: eplog mount {} DIR", plan->options.name,
                      ShapeText(plan->geometry), HumanBytes(plan->geometry.capacity_bytes()),
                      argument));
  }
  return kDone;
}

}  // namespace

void AddCreate(Parser app, Run& run) {
  auto command = std::make_shared<CreateCommand>();
  CreateRequest& request = command->request;
  Parser verb = app.AddVerb(kVerb, "make a new array");
  verb.Add("ARRAY", request.array, "directory to make the array in, or an array.toml to write")
      .Required();
  verb.Add("--level", request.level, "RAID level: 5 survives one failure, 6 two, 7 three, 8 four")
      .TypeName("5|6|7|8");
  verb.Add("--ssds", request.ssds, "number of SSD member files to make, or a list of devices")
      .TypeName("N|DEV,...");
  verb.Add("--logs", request.logs, "the same for log devices; as many as failures are survived")
      .TypeName("M|DEV,...");
  verb.Add("--parity", request.parity, "failures to survive, 1 to 4, instead of --level")
      .TypeName("M");
  verb.Add("--device-size", request.device_size, "size of each SSD member file (1G)")
      .TypeName("SIZE");
  verb.Add("--log-size", request.log_size, "size of each log member file (1G)").TypeName("SIZE");
  verb.Add("--chunk", request.chunk, "unit of striping, 4K to 1M (4K)").TypeName("SIZE");
  verb.Add("--reserve", request.reserve, "share of each SSD kept for new versions (10%)")
      .TypeName("PERCENT");
  verb.Add("--journal", request.journal,
           "full: keeps every promise; log: fewer SSD writes, weaker if all logs and power "
           "go at once (full)")
      .TypeName("full|log");
  verb.Add("--name", request.name, "name of the array (that of the directory)").TypeName("NAME");
  verb.AddFlag("--sparse", request.sparse,
               "do not write member files out: quick now, slower to write later");
  verb.AddFlag("--force", request.force,
               "overwrite devices that hold data, and an array that is there");
  verb.AddFlag("--no-discard", request.no_discard,
               "do not tell devices (TRIM) that nothing they held is needed");
  verb.AddFlag("--dry-run", command->dry_run,
               "check everything and print the plan, change nothing");
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer(
      "Examples:\n  eplog create ./array --level 6 --ssds 8 --logs 2\n"
      "  eplog create /etc/eplog/db.toml --level 5 --ssds /dev/sdb,/dev/sdc,/dev/sdd --logs "
      "/dev/sde\n"
      "  eplog create /etc/eplog/db.toml --level 5 --ssds /dev/sdb,/dev/sdc,/dev/sdd --force "
      "--dry-run    what would be overwritten");
  verb.OnChosen([command, &run] { run = [command] { return RunCreate(*command); }; });
}

}  // namespace eplog::cli
