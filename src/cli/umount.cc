// eplog umount: end the serving of an array. The serving process flushes, checkpoints, unmounts and
// answers when all is durable; this waits for its end, so that the members are free when the
// command returns. A mount whose process was killed is taken away.
#include <fmt/format.h>
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
#include "host/displaced.h"
#include "host/fuse_mount.h"
#include "host/mount_table.h"
#include "host/server.h"
#include "host/typed_path.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kUmountVerb[] = "umount";
constexpr int kWaitForEndMs = 60'000;
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
    Warn(kUmountVerb, fmt::format("all is durable, but process {} still runs", server.pid));
  }
  Print(fmt::format("unmounted '{}' from {}", server.name, server.directory));
  return OkStatus();
}

// Members whose files were removed while the array was mounted end with its process. As long as it runs, each can be
// replaced; with more of them gone than parity replaces, ending it would lose everything.
Status CheckLeavesEnough(ServerLink& link) {
  const std::vector<DisplacedMember> displaced = FindDisplaced(link.client);
  if (displaced.empty()) {
    return OkStatus();
  }
  const std::string names = NamesOf(displaced);
  const auto status = link.client.RequestSoon({{"verb", "status"}});
  EPLOG_TRY(status);
  uint64_t gone = 0;
  for (const Json& device : status->at("devices")) {
    const auto removed = [&](const DisplacedMember& member) {
      return member.removed && member.name == device.value("name", "");
    };
    const bool spare = device.value("role", "") == "spare";
    const bool well = device.value("state", "") == "ok";
    gone += !spare && (!well || std::any_of(displaced.begin(), displaced.end(), removed)) ? 1 : 0;
  }
  const auto parity = status->at("array").value("parity_chunks", uint64_t{0});
  const bool any_removed = std::any_of(displaced.begin(), displaced.end(),
                                       [](const auto& member) { return member.removed; });
  if (any_removed && gone > parity) {
    return Fail(ErrorCode::kTooManyFailures,
                fmt::format("'{}' stays mounted: the files of {} were removed meanwhile, and it "
                            "could not be opened again without them; give them new ones with "
                            "eplog fail, replace and rebuild, one after the other. umount(8) "
                            "gives them up",
                            link.server.name, names));
  }
  Warn(kUmountVerb, fmt::format("{} not at {} any more: the next mount will not find {}",
                                names + (displaced.size() == 1 ? " is" : " are"),
                                displaced.size() == 1 ? displaced.front().path : "their paths",
                                displaced.size() == 1 ? "it" : "them"));
  return OkStatus();
}

// An array that had stopped, or stops while it is closed, is unmounted all the same: nothing more
// can be done with it. An error nevertheless, since who writes, unmounts and goes on would take it
// for durable.
Status EndServing(ServerLink link, const Connecting& connect) {
  EPLOG_TRY(CheckLeavesEnough(link));
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
Status UnmountDirectory(const MountEntry& mount) {
  const Connecting connect = [&] { return ConnectServerOf(mount); };
  auto link = Connect(connect);
  return link.ok() ? EndServing(std::move(*link), connect) : EndMount(mount, link.error());
}

Status UnmountArray(const ArrayFile& array, const std::string& typed) {
  const Connecting connect = [&] { return ConnectServer(array); };
  auto link = Connect(connect);
  if (link.ok()) {
    return EndServing(std::move(*link), connect);
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

Status Unmount(const std::string& typed) {
  CutMountsOfTheDying(kUmountVerb);
  const auto resolved = Bounded<std::string>(typed, [typed] { return ResolveMountpoint(typed); });
  if (const auto mount = resolved.ok() ? FindMountOn(*resolved) : std::nullopt) {
    return UnmountDirectory(*mount);
  }
  const auto array = FindArray(kUmountVerb, typed);
  if (array.ok()) {
    return UnmountArray(*array, typed);
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
  auto where = std::make_shared<std::string>();
  Parser verb = app.AddVerb(kUmountVerb, "end a mount; returns when everything is durable");
  verb.Add("DIR", *where, "where it is mounted, or the array").Required();
  verb.Footer("Example:\n  eplog umount ./mnt");
  verb.OnChosen([where, &run] {
    run = [where]() -> Result<int> {
      EPLOG_TRY(Unmount(*where));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
