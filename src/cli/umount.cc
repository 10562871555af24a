// eplog umount: end the serving of an array. The serving process flushes, checkpoints, unmounts and
// answers when all is durable; this waits for its end, so that the members are free when the
// command returns. A mount whose process was killed is taken away.
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/array_file.h"
#include "cli/console.h"
#include "cli/file_descriptor.h"
#include "cli/mount_table.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "frontend/control.h"
#include "frontend/fuse_mount.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "umount";
constexpr int kWaitForEndMs = 60'000;
constexpr int kTriesWhileDying = 50;
constexpr useconds_t kTryEveryUs = 100'000;

// A running process that can be waited for without being its parent.
class OtherProcess {
 public:
  explicit OtherProcess(int pid) {
    if (pid > 0) {
      fd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
  }
  // False: it still runs.
  [[nodiscard]] bool WaitForEnd(int timeout_ms) const {
    pollfd poll = {fd_.get(), POLLIN, 0};
    return !fd_.ok() || ::poll(&poll, 1, timeout_ms) != 0;
  }

 private:
  FileDescriptor fd_;
};

struct Target {
  std::optional<ArrayFile> array;
  std::string directory;  // empty: no mount is known
};

Result<Target> FindTarget(const std::string& typed) {
  const auto resolved = ResolveMountpoint(typed);
  const auto mount = resolved.ok() ? FindMountOn(*resolved) : std::nullopt;
  if (mount) {
    auto array = FindArray(kVerb, mount->source);
    return Target{array.ok() ? std::optional(*array) : std::nullopt, mount->directory};
  }
  auto array = FindArray(kVerb, typed);
  if (!array.ok()) {
    std::error_code ignored;
    if (!std::filesystem::exists(ArrayFilePath(typed), ignored)) {
      return Fail(ErrorCode::kNotFound, fmt::format("nothing of ours is mounted at {}", typed));
    }
    return Fail(std::move(array).error());
  }
  const auto mounted = FindMountOf(array->Argument());
  return Target{*array, mounted ? mounted->directory : ""};
}

// Nobody answers for this mount.
Status TakeAway(const std::string& directory) {
  const bool dead = MountIsDead(directory);
  const int error = dead ? DetachPath(directory) : UnmountPath(directory);
  if (error != 0) {
    return FailErrno(error, "cannot unmount " + directory);
  }
  Print(dead ? fmt::format("took away the dead mount at {}: its process had been killed. What was "
                           "flushed is safe; "
                           "the next mount recovers",
                           directory)
             : fmt::format("unmounted {}; its process ends by itself", directory));
  return OkStatus();
}

// Without array.toml (moved since) its process cannot be asked, only deprived of the mount:
// kNotFound. A process that is dying breaks the connection off: soon nobody will be there.
Result<Json> AskStatus(const Target& target) {
  if (!target.array) {
    return Fail(ErrorCode::kNotFound, "unknown array");
  }
  auto status = AskServer(*target.array, {{"verb", "status"}});
  for (int i = 0; i < kTriesWhileDying && !status.ok() && status.error().code == ErrorCode::kIo;
       ++i) {
    ::usleep(kTryEveryUs);
    status = AskServer(*target.array, {{"verb", "status"}});
  }
  return status;
}

Status Unmount(const std::string& typed) {
  CutMountsOfTheDying(kVerb);
  auto target = FindTarget(typed);
  if (!target.ok()) {
    return Fail(std::move(target).error());
  }
  const auto status = AskStatus(*target);
  if (!status.ok() && status.error().code == ErrorCode::kNotFound) {
    return target->directory.empty()
               ? Fail(ErrorCode::kNotFound, fmt::format("{} is not mounted", typed))
               : TakeAway(target->directory);
  }
  if (!status.ok()) {
    return Fail(status.error());
  }
  const Json& array = status->at("array");
  const OtherProcess server(
      array.contains("pid") && array["pid"].is_number_integer() ? array["pid"].get<int>() : 0);
  EPLOG_TRY(AskServer(*target->array, {{"verb", kVerb}}));
  if (!server.WaitForEnd(kWaitForEndMs)) {
    Warn(kVerb, fmt::format("all is durable, but process {} still runs", array["pid"].get<int>()));
  }
  Print(fmt::format("unmounted '{}'{}", array.value("name", ""),
                    target->directory.empty() ? "" : " from " + target->directory));
  return OkStatus();
}

}  // namespace

void AddUmount(CLI::App& app, Run& run) {
  auto where = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(kVerb, "end a mount; returns when everything is durable");
  verb->add_option("DIR", *where, "where it is mounted, or the array")->required();
  verb->footer("Example:\n  eplog umount ./mnt");
  verb->callback([where, &run] {
    run = [where] {
      const Status done = Unmount(*where);
      return done.ok() ? kDone : ReportError(kVerb, done.error());
    };
  });
}

}  // namespace eplog::cli
