// eplog umount: end the serving of an array. The serving process flushes, checkpoints, unmounts and
// answers when all is durable; this waits for its end, so that the members are free when the
// command returns. A mount whose process was killed is taken away.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/bounded_call.h"
#include "host/fuse_mount.h"
#include "host/mount_table.h"
#include "host/removed.h"
#include "host/server.h"
#include "host/typed_path.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kUmountVerb[] = "umount";
// The members are let go before it ends; only one that does not answer keeps it.
constexpr int kWaitForEndMs = 10'000;
constexpr int kTriesWhileDying = 50;
constexpr int kTriesInTurn = 200;
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

using Connecting = std::function<Result<ServerLink>()>;

// A process that is dying breaks the connection off: soon nobody will be there.
Result<ServerLink> Connect(const Connecting& connect) {
  auto link = connect();
  for (int i = 0; i < kTriesWhileDying && !link.ok() && link.error().code == ErrorCode::kIo; ++i) {
    ::usleep(kTryEveryUs);
    link = connect();
  }
  return link;
}

bool IsMounted(const Server& server) {
  const std::vector<MountEntry> mounts = ReadMountTable();
  return server.mount == 0 ||
         std::any_of(mounts.begin(), mounts.end(),
                     [&](const MountEntry& mount) { return mount.device == server.mount; });
}

// The members are free when the process has ended.
Status TellUnmounted(const Server& server, const OtherProcess& process) {
  if (!process.WaitForEnd(kWaitForEndMs)) {
    Warn(kUmountVerb, fmt::format("all is durable, but process {} does not end yet: a device that "
                                  "does not answer may keep it; the others are free",
                                  server.pid));
  }
  Print(fmt::format("unmounted '{}' from {}", server.name, server.directory));
  return OkStatus();
}

// Of the devices that are well, more than parity replaces end with the process, and each of them could be replaced as long
// as it lives: not where the array is read only or has stopped, nor where too few are left anyway.
bool RemovedLeaveTooFew(const Json& status, const std::vector<std::string>& removed) {
  const Json& array = status.at("array");
  const uint64_t parity = array.value("parity_chunks", uint64_t{0});
  uint64_t out = 0;
  uint64_t ending = 0;
  for (const Json& device : status.at("devices")) {
    const bool well = device.value("state", "") == "ok";
    const auto name = device.value("name", "");
    out += well ? 0 : 1;
    ending += well && std::find(removed.begin(), removed.end(), name) != removed.end() ? 1 : 0;
  }
  const bool changeable = !array.value("read_only", false) && !array.contains("stopped_because");
  return changeable && out <= parity && out + ending > parity;
}

// Members whose files were removed end with the process that has them open. They are asked
// over a connection of their own: an answer that comes late is not to be taken for another.
Status CheckLeavesEnough(const Server& server, const Connecting& connect) {
  const std::vector<std::string> removed = FindRemoved(server);
  if (removed.empty()) {
    return OkStatus();
  }
  auto asking = Connect(connect);
  const auto status =
      asking.ok() ? asking->client.RequestSoon({{"verb", "status"}}) : Fail(asking.error());
  if (!status.ok()) {
    return IsMounted(server) ? Status(Fail(status.error())) : OkStatus();
  }
  const std::string names = fmt::format("{}", fmt::join(removed, ", "));
  if (RemovedLeaveTooFew(*status, removed)) {
    return Fail(ErrorCode::kTooManyFailures,
                fmt::format("'{}' stays mounted: the files of {} were removed, and it could not be "
                            "opened again without them; give them new ones with eplog fail, "
                            "replace and rebuild, one after the other, or give them up with "
                            "eplog umount --force",
                            server.name, names));
  }
  Warn(kUmountVerb,
       fmt::format("the files of {} were removed: the next mount will be without them", names));
  return OkStatus();
}

// An array that had stopped, or stops while it is closed, is unmounted all the same: nothing more
// can be done with it. An error nevertheless, since who writes, unmounts and goes on would take it
// for durable.
Status EndServing(ServerLink link, const Connecting& connect, bool force) {
  if (!force) {
    EPLOG_TRY(CheckLeavesEnough(link.server, connect));
  }
  OtherProcess process(link.server.pid);
  auto closed = link.client.Request({{"verb", kUmountVerb}});
  for (int i = 0; i < kTriesInTurn && !closed.ok() && link.client.sent_away(); ++i) {
    ::usleep(kTryEveryUs);  // too many ask at once
    auto again = Connect(connect);
    if (!again.ok() && again.error().code == ErrorCode::kNotFound && !IsMounted(link.server)) {
      return TellUnmounted(link.server, process);  // somebody who asked at the same time ended it
    }
    if (!again.ok()) {
      return Fail(std::move(again).error());
    }
    link = std::move(*again);
    process = OtherProcess(link.server.pid);
    closed = link.client.Request({{"verb", kUmountVerb}});
  }
  if (!closed.ok() && IsMounted(link.server)) {
    return Fail(closed.error());
  }
  if (!closed.ok()) {
    static_cast<void>(process.WaitForEnd(kWaitForEndMs));
    return Fail(
        closed.error().code,
        fmt::format("unmounted '{}' from {}, but it was not closed: {}; what was flushed is "
                    "safe, what was written after that is not durable",
                    link.server.name, link.server.directory, closed.error().ToString()));
  }
  return TellUnmounted(link.server, process);
}

// `unknown`: why nobody is known who answers for this mount.
Status EndMount(const MountEntry& mount, const Error& unknown) {
  const std::string& directory = mount.directory;
  const bool dead = CoveredBy(mount).empty() && MountIsDead(directory);
  if (!dead && unknown.code != ErrorCode::kNotFound) {
    return Fail(unknown);
  }
  EPLOG_TRY(TakeMountAway(mount.device, directory, dead ? TakeAway::kAtOnce : TakeAway::kIfUnused));
  Print(dead ? fmt::format("took away the dead mount at {}: its process had been killed. What was "
                           "flushed is safe; "
                           "the next mount recovers",
                           directory)
             : fmt::format("unmounted {}; its process ends by itself", directory));
  return OkStatus();
}

// What is mounted on this directory, whatever array that is: at the path from which it was mounted
// may be another by now.
Status UnmountDirectory(const MountEntry& mount, bool force) {
  const Connecting connect = [&] { return ConnectServerOf(mount); };
  auto link = Connect(connect);
  return link.ok() ? EndServing(std::move(*link), connect, force) : EndMount(mount, link.error());
}

Status UnmountArray(const ArrayFile& array, const std::string& typed, bool force) {
  const Connecting connect = [&] { return ConnectServer(array); };
  auto link = Connect(connect);
  if (link.ok()) {
    return EndServing(std::move(*link), connect, force);
  }
  if (link.error().code != ErrorCode::kNotFound) {
    return Fail(std::move(link).error());
  }
  const auto mount = FindMountOf(array.Argument());
  if (!mount) {
    return Fail(ErrorCode::kNotFound, fmt::format("{} is not mounted", typed));
  }
  const auto other = Connect([&] { return ConnectServerOf(*mount); });
  return other.ok() ? Fail(ErrorCode::kNotFound,
                           fmt::format("{} is not mounted; what is mounted at {} came from there, "
                                       "and is another array",
                                       typed, mount->directory))
                    : EndMount(*mount, other.error());
}

Status Unmount(const std::string& typed, bool force) {
  CutMountsOfTheDying(kUmountVerb);
  const auto resolved = Bounded<std::string>(typed, [typed] { return ResolveMountpoint(typed); });
  if (const auto mount = resolved.ok() ? FindMountOn(*resolved) : std::nullopt) {
    return UnmountDirectory(*mount, force);
  }
  const auto array = FindArray(kUmountVerb, typed);
  if (array.ok()) {
    return UnmountArray(*array, typed, force);
  }
  const auto looked = LookAtArray(typed);
  const auto there = looked.ok() ? IsThere(looked->file) : Fail(looked.error());
  EPLOG_TRY(there);
  return *there ? Status(Fail(array.error()))
                : Status(Fail(ErrorCode::kNotFound,
                              fmt::format("nothing of ours is mounted at {}", typed)));
}

}  // namespace

void AddUmount(Parser app, Run& run) {
  struct Command {
    std::string where;
    bool force = false;
  };
  auto command = std::make_shared<Command>();
  Parser verb = app.AddVerb(kUmountVerb, "end a mount; returns when everything is durable");
  verb.Add("DIR", command->where, "where it is mounted, or the array").Required();
  verb.AddFlag("-f,--force", command->force,
               "also where members' files were removed meanwhile, more than parity replaces");
  verb.Footer("Example:\n  eplog umount ./mnt");
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(Unmount(command->where, command->force));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
