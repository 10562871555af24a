// eplog mount: serve an array's volumes as files in a directory. What can be checked is checked in
// the calling process, so that complaints come at once; the serving process opens the array, under
// its locks.
#include <fmt/format.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/verb/verbs.h"
#include "control/control.h"
#include "frontend/daemon.h"
#include "host/array_file.h"
#include "host/bounded_call.h"
#include "host/file_spare_shelf.h"
#include "host/fuse_mount.h"
#include "host/limits.h"
#include "host/member_name.h"
#include "host/mount_table.h"
#include "host/session.h"
#include "host/typed_path.h"
#include "report/report_json.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "mount";
constexpr int kTries = 5;

struct MountCommand {
  std::string array;
  std::string directory;
  bool foreground = false;
  bool read_only = false;
  bool force = false;
  bool allow_other = false;
  BufferSizes buffers;
  WritesOrOff commit_every;
  DurationOrOff commit_idle;
  DurationOrOff io_deadline;
  std::string event_hook;
  std::vector<std::string> without;  // as typed
  // Not in the help: for crash tests, which kill the serving process (see MemberOptions).
  bool test_volatile_cache = false;
  bool test_ignore_flush = false;
};

// A directory to mount on; what was made of it goes away again unless the mount succeeded.
class MountDirectory {
 public:
  static Result<std::unique_ptr<MountDirectory>> Prepare(const std::string& typed);
  MountDirectory(const MountDirectory&) = delete;
  MountDirectory& operator=(const MountDirectory&) = delete;
  ~MountDirectory() {
    for (size_t i = made_.size(); i-- > 0 && !kept_;) {
      ::rmdir(made_[i].c_str());
    }
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void Keep() { kept_ = true; }

 private:
  MountDirectory() = default;
  Status Make(const std::filesystem::path& path);
  [[nodiscard]] Status CheckUsable() const;

  std::string path_;
  std::vector<std::filesystem::path> made_;  // outermost first
  bool kept_ = false;
};

using Paths = std::vector<std::filesystem::path>;

// Those that are to be made, innermost first.
Result<Paths> Absent(const std::filesystem::path& path) {
  return Bounded<Paths>(path, [path]() -> Result<Paths> {
    std::error_code error;
    Paths absent;
    for (auto at = path; !std::filesystem::exists(at, error) && at.has_relative_path();
         at = at.parent_path()) {
      if (error) {
        return FailErrno(error.value(), "cannot look at " + at.string());
      }
      absent.push_back(at);
    }
    return absent;
  });
}

Result<std::string> Resolve(const std::string& path) {
  return Bounded<std::string>(path, [path] { return ResolveMountpoint(path); });
}

Status MakeOne(const std::filesystem::path& path) {
  return Bounded<void>(path, [path]() -> Status {
    std::error_code error;
    std::filesystem::create_directory(path, error);
    return error ? FailErrno(error.value(), "cannot make the directory " + path.string())
                 : OkStatus();
  });
}

Status MountDirectory::Make(const std::filesystem::path& path) {
  const auto absent = Absent(path);
  EPLOG_TRY(absent);
  for (size_t i = absent->size(); i-- > 0;) {
    EPLOG_TRY(MakeOne((*absent)[i]));
    made_.push_back((*absent)[i]);
  }
  return OkStatus();
}

// An empty directory.
Status CheckEmpty(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return error ? FailErrno(error.value(), "cannot look at " + path)
                 : Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a directory", path));
  }
  const std::filesystem::directory_iterator entries(path, error);
  if (error) {
    return FailErrno(error.value(), "cannot look into " + path);
  }
  if (entries != std::filesystem::directory_iterator()) {
    return Fail(
        ErrorCode::kExists,
        fmt::format(
            "{} is not empty (it holds '{}'), and a mount would hide that; take another directory",
            path, entries->path().filename().string()));
  }
  return OkStatus();
}

Status MountDirectory::CheckUsable() const {
  if (const auto mount = FindMountOn(path_)) {
    return Fail(ErrorCode::kBusy,
                fmt::format("{} is in use: the array at {} is mounted there; eplog umount {}",
                            path_, mount->source, ShellWord(path_)));
  }
  return Bounded<void>(path_, [path = path_] { return CheckEmpty(path); });
}

// Left by a killed process of ours.
Status TakeDeadMountAway(const std::filesystem::path& path) {
  const auto resolved = Resolve(path.string());
  const auto mount = resolved.ok() ? FindMountOn(*resolved) : std::nullopt;
  return mount && CoveredBy(*mount).empty() && MountIsDead(mount->directory)
             ? TakeMountAway(mount->device, mount->directory, TakeAway::kAtOnce)
             : OkStatus();
}

// What is before a ".." may be a link, and is looked at. The directory itself is not: a dead mount
// may cover it.
Result<std::filesystem::path> WhereToMount(const std::string& typed) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(typed, ignored);
  if (std::find(path.begin(), path.end(), "..") == path.end()) {
    path = path.lexically_normal();
  }
  while ((!path.has_filename() || path.filename() == ".") && path.has_relative_path()) {
    path = path.parent_path();
  }
  return std::find(path.begin(), path.end(), "..") == path.end() ? path : ResolveTyped(path);
}

Result<std::unique_ptr<MountDirectory>> MountDirectory::Prepare(const std::string& typed) {
  std::unique_ptr<MountDirectory> directory(new MountDirectory());
  const auto where = WhereToMount(typed);
  EPLOG_TRY(where);
  const std::filesystem::path& path = *where;
  Status made;
  // Again if the process that served it is just dying.
  for (int attempt = 0; attempt < kTries; ++attempt) {
    EPLOG_TRY(TakeDeadMountAway(path));
    made = directory->Make(path);
    if (made.ok() || made.error().errno_value != ENOTCONN) {
      break;
    }
  }
  EPLOG_TRY(made);
  auto resolved = Resolve(path.string());
  if (!resolved.ok()) {
    return Fail(std::move(resolved).error());
  }
  directory->path_ = std::move(*resolved);
  EPLOG_TRY(directory->CheckUsable());
  return directory;
}

Status CheckNotServed(const ArrayFile& file) {
  const auto answers = WhoAnswers(file);
  if (!answers.ok()) {
    return answers.error().code == ErrorCode::kNotFound
               ? OkStatus()
               : Status(Fail(answers.error()));  // it is stopped, say, and opening it would wait
  }
  const Server& server = answers->server;
  if (answers->of_copy) {
    return Fail(ErrorCode::kBusy,
                fmt::format("process {} serves {}, which has the UUID of {} ({}): one is a copy of "
                            "the other; unmount that one first",
                            server.pid, server.file.string(), file.Argument().string(), file.uuid));
  }
  return Fail(ErrorCode::kBusy,
              fmt::format("{} is mounted already, at {} by process {}; eplog umount {} ends that",
                          file.Argument().string(), server.directory, server.pid,
                          ShellWord(file.Argument().string())));
}

Result<OpenOptions> OptionsOf(const MountCommand& command) {
  OpenOptions open;
  if (command.force && !command.read_only) {
    return Fail(ErrorCode::kInvalidArgument,
                "--force opens an array with too many members missing, and only to be read: add "
                "--read-only");
  }
  open.force = command.force;
  open.max_buffer_bytes = MostBufferBytes();
  open.buffers = command.buffers;
  open.commit.every_writes = command.commit_every.count;
  open.commit.idle_us = command.commit_idle.us;
  return open;
}

Result<MemberOptions> MemberOptionsOf(const MountCommand& command, const ArrayFile& file) {
  MemberOptions options;
  for (const std::string& device : command.without) {
    EPLOG_TRY(CheckMember(file, device));
    options.without.push_back(device);
  }
  options.read_only = command.read_only;
  options.volatile_cache = command.test_volatile_cache;
  options.ignore_flush = command.test_ignore_flush;
  options.event_hook = command.event_hook;
  options.io_deadline_us = command.io_deadline.us;
  return options;
}

// What was opened by force may be no more what was last known: nobody should take it for that.
void WarnOfLoss(Session& session) {
  const auto lost = session.Run(session.array().FindLost());
  if (!lost.ok()) {
    Warn(kVerb, "what is lost cannot be told: " + lost.error().message);
    return;
  }
  const Json report = LossToJson(*lost);
  if (report.at("log_damage").is_string()) {
    Warn(kVerb, "what was written last may read as its older content, or cannot be read: " +
                    report.at("log_damage").get<std::string>());
  }
  if (lost->left_behind) {
    Warn(kVerb,
         "all of it may be old: so many devices are missing that they may have gone on without "
         "those that are here");
  }
  if (!lost->unsure.empty()) {
    Warn(kVerb, lost->unsure +
                    " missed something, and is read where that helps: what more cannot "
                    "be read only a read tells");
  }
  if (const auto bytes = report.at("lost_bytes").get<uint64_t>(); bytes != 0) {
    Warn(kVerb, fmt::format("{} cannot be read; 'eplog status {} --lost' lists it",
                            HumanBytes(bytes), ShellWord(session.file().Argument().string())));
  }
}

// In the serving process, which says itself what it could not do, before it lets go of devices that may hang.
int ServeUntilUnmounted(const MountCommand& command, const ArrayFile& file,
                        const std::string& directory, const ReadyFn& ready) {
  const auto options = MemberOptionsOf(command, file);
  if (!options.ok()) {
    return ReportError(kVerb, options.error());
  }
  const auto open = OptionsOf(command);
  if (!open.ok()) {
    return ReportError(kVerb, open.error());
  }
  auto session = Session::Open(kVerb, file, *options, *open);
  if (!session.ok()) {
    return ReportError(kVerb, session.error());
  }
  ServeOptions serve;
  serve.fuse.mountpoint = directory;
  serve.fuse.fsname = file.Argument().string();
  serve.fuse.allow_other = command.allow_other;
  serve.fuse.read_only = command.read_only;
  Session* const opened = session->get();
  if (command.force) {
    WarnOfLoss(*opened);
  }
  serve.owner = opened;
  std::unique_ptr<FileSpareShelf> spares;
  const auto member = opened->Run(opened->AnyMember());
  if (!command.read_only && member.ok()) {
    spares = std::make_unique<FileSpareShelf>(*opened, opened->file(), *member);
  }
  serve.spares = spares.get();
  const Status served = ServeArray((*session)->loop(), (*session)->array(), serve, ready);
  return served.ok() ? kDone : ReportError(kVerb, served.error());
}

// What a person wants to know next. Asked from the serving process, so that it is known to answer.
std::string Welcome(const ArrayFile& file, const MountCommand& command) {
  const std::string directory = ShellWord(command.directory);
  const std::string next =
      command.read_only
          ? fmt::format("next: ls {}; eplog umount {}", directory, directory)
          : fmt::format("next: truncate -s 1G {}/NAME makes a volume; eplog umount {} ends",
                        directory, directory);
  std::string state = "unknown";
  const auto status = AskServer(file, {{"verb", "status"}});
  if (status.ok() && status->contains("array")) {
    state = status->at("array").value("state", state);
  }
  return fmt::format("mounted '{}' ({}{}) at {}\n{}", file.name, state,
                     command.read_only ? ", read-only" : "", command.directory, next);
}

// The array is mounted, and nobody could be told: the error says so.
tl::unexpected<Error> Untold(const ArrayFile& file, const MountCommand& command) {
  ::__fpurge(stdout);  // it would be tried again, and complained of again, at the end
  std::clearerr(stdout);
  return Fail(ErrorCode::kIo,
              fmt::format("mounted '{}' at {}, but standard output cannot be written to; "
                          "eplog umount {} ends it",
                          file.name, command.directory, ShellWord(command.directory)));
}

// Beside the control socket; what the serving process says at its end.
std::string LogPath(const ArrayFile& file) {
  const std::string socket = ControlSocketPath(file.uuid);
  const std::filesystem::path path(socket);
  return PrepareControlDirectory(socket).ok() ? (path.parent_path() / (file.uuid + ".log")).string()
                                              : "";
}

// Nothing was said: no log.
void RemoveIfEmpty(const std::string& log) {
  std::error_code error;
  if (std::filesystem::file_size(log, error) == 0 && !error) {
    std::filesystem::remove(log, error);
  }
}

Result<int> RunMount(const MountCommand& command) {
  EPLOG_TRY(OptionsOf(command));
  CutMountsOfTheDying(kVerb);
  const auto typed = LookAtArray(command.array);
  EPLOG_TRY(typed);
  const auto& file = typed->array;
  EPLOG_TRY(file);
  EPLOG_TRY(CheckNotServed(*file));
  EPLOG_TRY(MakeRoomForDescriptors(*file));
  auto directory = MountDirectory::Prepare(command.directory);
  EPLOG_TRY(directory);
  const pid_t caller = ::getpid();
  const std::string log = LogPath(*file);
  const int status = RunDaemonised(command.foreground, log, [&](const ReadyFn& ready) {
    const auto ready_here = [&] {
      (*directory)->Keep();
      if (command.foreground) {
        Print(fmt::format("serving '{}' at {}; interrupt (Ctrl-C) or 'eplog umount' ends it",
                          file->name, command.directory));
        std::fflush(stdout);
      }
      ready();
    };
    return ServeUntilUnmounted(command, *file, (*directory)->path(), ready_here);
  });
  if (::getpid() != caller) {
    std::fflush(nullptr);
    RemoveIfEmpty(log);
  } else if (status == kDone && !command.foreground) {
    (*directory)->Keep();
    Print(Welcome(*file, command));
    if (std::fflush(stdout) != 0) {
      return Untold(*file, command);
    }
  }
  return status;
}

}  // namespace

void AddMount(Parser app, Run& run) {
  auto command = std::make_shared<MountCommand>();
  Parser verb = app.AddVerb(kVerb, "serve an array's volumes as files in a directory");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("DIR", command->directory, "where; made if it is not there").Required();
  verb.AddFlag("-f,--foreground", command->foreground,
               "stay in front instead of going to the background");
  verb.AddFlag("--read-only", command->read_only, "recover in memory and write nothing");
  verb.AddFlag("--force", command->force,
               "with --read-only: also with too many members missing; reads of what is lost "
               "fail, and 'eplog status --lost' lists it");
  verb.Add("--without", command->without,
           "leave this device out: ssd3, log0 or its path, which is not even opened then; "
           "what is written meanwhile is not on it")
      .TypeName("DEVICE")
      .OneEach();
  verb.AddFlag("--allow-other", command->allow_other,
               "let other users in, by the files' permissions");
  verb.Add("--device-buffer", command->buffers.device_chunks,
           "chunks of each SSD in which updates wait and absorb others; 0 = off")
      .TypeName("CHUNKS")
      .Within(0U, kMaxBufferChunks);
  verb.Add("--stripe-buffer", command->buffers.stripes,
           "stripes in which new data waits to become whole; 0 = off")
      .TypeName("STRIPES")
      .Within(0U, kMaxBufferChunks);
  verb.Add("--commit-every", command->commit_every,
           "commit parity after so many write requests, or off")
      .TypeName("N|off")
      .Default("off");
  verb.Add("--commit-idle", command->commit_idle,
           "commit parity after so long without a request, or off")
      .TypeName("TIME|off")
      .Default("1m");
  verb.Add("--io-deadline", command->io_deadline,
           "a device that does not answer for so long has failed, or off")
      .TypeName("TIME|off")
      .Default("30s");
  verb.Add("--event-hook", command->event_hook,
           "a shell command to run at each event, told in EPLOG_EVENT, EPLOG_DEVICE, "
           "EPLOG_TEXT, EPLOG_ARRAY and EPLOG_JSON")
      .TypeName("CMD");
  verb.AddFlag("--test-volatile-cache", command->test_volatile_cache, "").Group("");
  verb.AddFlag("--test-ignore-flush", command->test_ignore_flush, "").Group("");
  verb.Footer("Example:\n  eplog mount ./array ./mnt");
  verb.OnChosen([command, &run] { run = [command] { return RunMount(*command); }; });
}

}  // namespace eplog::cli
