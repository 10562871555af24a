// eplog rebuild: wait until everything is on the devices that joined. Rebuilding goes on by itself
// while an array is mounted; this shows how far it is, and does it where it is not mounted.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kRebuildVerb[] = "rebuild";
constexpr auto kLookAtProgress = std::chrono::milliseconds(200);

using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

struct Left {
  uint64_t total_bytes = 0;
  uint64_t left_bytes = 0;
  uint64_t lost_bytes = 0;  // of what is left, cannot be rebuilt
  bool rebuilding = false;
  bool only_lost = false;  // nothing else is left
  bool read_only = false;
  std::string state;            // of the array
  std::string stopped_because;  // empty: it has not
};

Left LeftOf(const ArrayStatus& status) {
  Left left;
  left.total_bytes = status.rebuild_total_bytes;
  left.left_bytes = status.rebuild_left_bytes;
  left.lost_bytes = status.rebuild_lost_bytes;
  left.only_lost = left.lost_bytes != 0 && left.left_bytes == left.lost_bytes;
  left.read_only = status.read_only;
  left.state = ArrayStateName(status.state);
  left.stopped_because = status.stopped_because;
  for (const DeviceStatus& device : status.devices) {
    left.rebuilding = left.rebuilding || device.state == DeviceState::kRebuilding;
  }
  return left;
}

Left LeftOf(const Json& status) {
  Left left;
  const Json& array = status.at("array");
  left.read_only = array.value("read_only", false);
  left.state = array.value("state", "unknown");
  left.stopped_because = array.value("stopped_because", "");
  for (const Json& device : status["devices"]) {
    left.rebuilding = left.rebuilding || device.value("state", "") == "rebuilding";
  }
  if (status["rebuild"].is_object()) {
    // Only a share is told: of a million parts.
    const double percent = status["rebuild"].value("percent", 0.0);
    left.total_bytes = 1'000'000;
    left.left_bytes = static_cast<uint64_t>((100.0 - percent) * 10'000);
    left.lost_bytes = status["rebuild"].value("lost_bytes", uint64_t{0});
    left.only_lost = left.lost_bytes != 0 &&
                     left.lost_bytes == status["rebuild"].value("left_bytes", uint64_t{0});
  }
  return left;
}

// What no waiting brings to an end.
Status CheckComing(const Left& left) {
  if (!left.stopped_because.empty()) {
    return Fail(ErrorCode::kTooManyFailures,
                "nothing is rebuilt: the array has stopped: " + left.stopped_because);
  }
  if (left.rebuilding && left.read_only) {
    return Fail(ErrorCode::kReadOnly,
                "nothing is rebuilt: the array is mounted read-only; unmount it, and this does it");
  }
  return OkStatus();
}

template <typename Look>
Result<Left> WaitUntilRebuilt(Look&& look, const ProgressFn& progress) {
  while (true) {
    Result<Left> left = look();
    EPLOG_TRY(left);
    EPLOG_TRY(CheckComing(*left));
    if (!left->rebuilding || left->only_lost) {
      return left;
    }
    if (left->total_bytes != 0) {
      progress(left->total_bytes - std::min(left->left_bytes, left->total_bytes),
               left->total_bytes);
    }
  }
}

// gentle: beside requests, which come first; full: as fast as it goes; a size: at most so much each
// second, beside requests.
Result<RebuildPace> ParsePace(const std::string& text) {
  if (text == "gentle" || text == "full") {
    return RebuildPace{.yields = text == "gentle"};
  }
  const auto bytes = ParseSize(text);
  if (!bytes.ok() || *bytes == 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--pace {}: needs 'gentle', 'full', or a size each second, such as 50M", text));
  }
  return RebuildPace{.bytes_per_second = *bytes};
}

Status SetPaceOfServer(const ArrayFile& file, const RebuildPace& pace) {
  const auto set = AskServer(
      file,
      {{"verb", "pace"}, {"yields", pace.yields}, {"bytes_per_second", pace.bytes_per_second}});
  return set.ok() ? OkStatus() : Status(Fail(Error(set.error())));
}

Result<Left> Mounted(const ArrayFile& file, const ProgressFn& progress) {
  return WaitUntilRebuilt(
      [&file]() -> Result<Left> {
        std::this_thread::sleep_for(kLookAtProgress);
        const auto status = AskServer(file, {{"verb", "status"}});
        EPLOG_TRY(status);
        return LeftOf(*status);
      },
      progress);
}

Result<Left> NotMounted(const ArrayFile& file, const RebuildPace& pace,
                        const ProgressFn& progress) {
  auto session = Session::Open(kRebuildVerb, file, MemberOptions{});
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  Session& open = **session;
  open.array().SetRebuildPace(pace);
  auto left = WaitUntilRebuilt(
      [&open]() -> Result<Left> {
        EPLOG_TRY(open.Run([](EventLoop& loop) -> Task<Status> {
          co_await loop.Sleep(
              static_cast<uint64_t>(std::chrono::microseconds(kLookAtProgress).count()));
          co_return OkStatus();
        }(open.loop())));
        return LeftOf(open.array().GetStatus());
      },
      progress);
  Status closed = open.Close();
  if (left.ok() && !closed.ok()) {
    return Fail(std::move(closed).error());
  }
  return left;
}

struct RebuildCommand {
  std::string array;
  std::string pace;  // empty: as it is
};

Result<int> RunRebuild(const RebuildCommand& command) {
  const std::string& argument = command.array;
  auto file = FindArray(kRebuildVerb, argument);
  EPLOG_TRY(file);
  const auto pace = ParsePace(command.pace.empty() ? "gentle" : command.pace);
  EPLOG_TRY(pace);
  const auto server = FindServer(*file);
  EPLOG_TRY(server);
  const bool mounted = server->has_value();
  if (mounted && !command.pace.empty()) {
    EPLOG_TRY(SetPaceOfServer(*file, *pace));
  }
  ProgressBar bar(kRebuildVerb, "rebuilding", ProgressBar::Unit::kCount);
  const auto left = mounted ? Mounted(*file, bar.Sink()) : NotMounted(*file, *pace, bar.Sink());
  bar.Finish();
  EPLOG_TRY(left);
  if (left->only_lost) {
    Print(
        fmt::format("{} of '{}' cannot be rebuilt: more of their stripes is wrong or missing than "
                    "parity replaces; all else is\nnext: eplog events {} names them; what is "
                    "written anew is whole again",
                    HumanBytes(left->lost_bytes), file->name, ShellWord(argument)));
    return kDoneWithFindings;
  }
  const bool degraded = left->state == "degraded" || left->state == "failed";
  Print(degraded ? fmt::format("nothing is left to rebuild, and '{}' still lacks a device: "
                               "eplog status {}",
                               file->name, ShellWord(argument))
                 : fmt::format("everything is on all devices of '{}'", file->name));
  return degraded ? kDoneWithFindings : kDone;
}

}  // namespace

void AddRebuild(Parser app, Run& run) {
  auto command = std::make_shared<RebuildCommand>();
  Parser verb =
      app.AddVerb(kRebuildVerb,
                  "wait until replaced devices are rebuilt, with progress; does it if not mounted");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("--pace", command->pace,
           "gentle: requests come first (the default); full: as fast as it goes; a size: "
           "at most so much each second. Holds until the array is unmounted")
      .TypeName("gentle|full|SIZE");
  verb.Footer("Example:\n  eplog rebuild ./array --pace 50M");
  verb.OnChosen([command, &run] { run = [command] { return RunRebuild(*command); }; });
}

}  // namespace eplog::cli
