#include "replay/replay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "layout/geometry.h"
#include "replay/feed.h"
#include "replay/player.h"
#include "replay/target.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr uint64_t kSettleUs = 10'000'000;

Status Refuse(std::string what) {
  return Fail(ErrorCode::kInvalidArgument, std::move(what));
}

Status CheckSettings(const ReplaySettings& settings, std::span<const Policy> policies) {
  if (settings.traces.empty()) {
    return Refuse("no trace is given");
  }
  if (settings.parity == 0 || settings.parity > 4 || settings.ssds <= settings.parity) {
    return Refuse(
        "level and SSDs do not fit: level 4 + m has m parity chunks, from 1 to 4, and "
        "needs more than m SSDs");
  }
  if (settings.ssds > kMaxSsds) {
    return Refuse("--ssds " + std::to_string(settings.ssds) + ": there may be at most " +
                  std::to_string(kMaxSsds));
  }
  const bool others = std::any_of(policies.begin(), policies.end(), [](Policy policy) {
    return policy == Policy::kMd || policy == Policy::kPl;
  });
  if (others && settings.ssds - settings.parity < 2) {
    return Refuse("md and pl need two data chunks a stripe: give more --ssds, or --policy eplog");
  }
  if (settings.buffers.device_chunks > kMaxBufferChunks / settings.ssds ||
      settings.buffers.stripes > kMaxBufferChunks / settings.ssds) {
    return Refuse("the buffers are larger than " + std::to_string(kMaxBufferChunks) +
                  " chunks together");
  }
  if (settings.ssd_bytes > (uint64_t{8} << 40)) {
    return Refuse("an SSD has at most 8 TiB here: give a smaller --ssd-size");
  }
  if (settings.queue_depth == 0 || settings.queue_depth > 4096) {
    return Refuse("the queue depth must be from 1 to 4096");
  }
  if (settings.repeat == 0) {
    return Refuse("--repeat 0 replays nothing");
  }
  if (settings.failed_ssds.size() > settings.parity) {
    return Refuse("more SSDs are to fail than parity can replace (" +
                  std::to_string(settings.parity) + ")");
  }
  for (const uint32_t ssd : settings.failed_ssds) {
    if (ssd >= settings.ssds) {
      return Refuse("there is no ssd" + std::to_string(ssd) + ": they are ssd0 to ssd" +
                    std::to_string(settings.ssds - 1));
    }
  }
  if (settings.devices == DeviceKind::kArray && !settings.failed_ssds.empty()) {
    return Refuse("the devices of an array are failed by eplog fail, not by --fail");
  }
  if (settings.precondition && settings.devices != DeviceKind::kSimulated) {
    return Refuse("only simulated devices have flash that can be aged: use --devices sim");
  }
  return OkStatus();
}

Task<Result<std::unique_ptr<Target>>> MakeTarget(EventLoop& loop, Rig& rig,
                                                 const ReplaySettings& settings, Policy policy,
                                                 uint64_t volume_bytes) {
  if (policy == Policy::kMd) {
    co_return MakeMdTarget(loop, rig, settings, volume_bytes);
  }
  if (policy == Policy::kPl) {
    co_return MakePlTarget(loop, rig, settings, volume_bytes);
  }
  Task<Result<std::unique_ptr<Target>>> making =
      MakeEplogTarget(loop, rig, settings, policy == Policy::kPaper, volume_bytes);
  co_return co_await making;
}

Traffic Since(const Traffic& now, const Traffic& then) {
  std::vector<uint64_t> old;
  ForEachCounter(then, [&](uint64_t value) { old.push_back(value); });
  Traffic since = now;
  size_t i = 0;
  ForEachCounter(since, [&](uint64_t& value) { value -= old[i++]; });
  return since;
}

struct Run {
  EventLoop& loop;
  const ReplaySettings& settings;
  Feed& feed;
  Rig& rig;
  PolicyResult& result;
  std::function<void(uint64_t)> progress;
};

void TakeCounters(const Run& run, const Target& target, const Traffic& before) {
  PolicyResult& result = run.result;
  result.traffic = Since(target.traffic(), before);
  for (uint32_t i = 0; i < run.settings.ssds; ++i) {
    result.ssds.push_back(run.rig.ssd_counters(i));
  }
  for (uint32_t i = 0; i < run.settings.parity; ++i) {
    result.logs.push_back(run.rig.log_counters(i));
  }
  result.has_flash = run.rig.has_flash();
  result.flash = run.rig.flash();
  result.wear = run.rig.wear();
}

// Asked for none, and had to, since slots or log ran out: the figures are of something else.
Status CheckNoCommits(const Run& run) {
  const bool none = run.settings.commit_every == 0U && !run.settings.commit_at_end;
  if (!none || run.result.traffic.commits == 0) {
    return OkStatus();
  }
  return Fail(ErrorCode::kNoSpace,
              "space ran out and parity had to be committed " +
                  std::to_string(run.result.traffic.commits) +
                  " times, with --commit-every off: give a larger --ssd-size or --log-size");
}

Task<Status> PlayOn(Run& run, Target& target) {
  Player player(run.loop, run.settings, run.feed, target, run.rig, run.result);
  Status status;
  if (run.settings.prefill) {
    EPLOG_CO_AWAIT(player.Prefill());
  }
  if (run.settings.trim_spare) {
    EPLOG_CO_AWAIT(target.TrimSpare());
  }
  for (const uint32_t ssd : run.settings.failed_ssds) {
    EPLOG_CO_AWAIT(target.FailSsd(ssd));
  }
  // What is in the devices' buffers is no work of the run.
  if (run.settings.devices == DeviceKind::kSimulated) {
    co_await run.loop.Sleep(kSettleUs);
  }
  run.rig.ResetCounters();
  const Traffic before = target.traffic();
  EPLOG_CO_AWAIT(player.Play(run.progress));
  TakeCounters(run, target, before);
  Status enough = CheckNoCommits(run);
  EPLOG_CO_TRY(enough);
  EPLOG_CO_AWAIT(player.Verify());
  if (!run.settings.check_parity) {
    co_return OkStatus();
  }
  for (auto ssd = static_cast<uint32_t>(run.settings.failed_ssds.size()); ssd < run.settings.parity;
       ++ssd) {
    EPLOG_CO_AWAIT(target.FailSsd(run.settings.ssds - 1 - ssd));
  }
  Task<Status> again = player.Verify();
  co_return co_await again;
}

uint64_t VolumeBytes(const Run& run) {
  const uint64_t stripe =
      uint64_t{run.settings.ssds - run.settings.parity} * run.settings.chunk_bytes;
  return RoundUp(run.feed.span_bytes(), stripe);
}

Task<Status> PlayAndClose(Run& run, Result<std::unique_ptr<Target>> target) {
  if (!target.ok()) {
    co_return Fail(std::move(target).error());
  }
  Task<Status> play = PlayOn(run, **target);
  Status played = co_await play;
  Task<Status> close = (*target)->Close();
  Status closed = co_await close;
  co_return played.ok() ? closed : played;
}

Task<Status> RunPolicy(Run run) {
  Task<Result<std::unique_ptr<Target>>> making =
      MakeTarget(run.loop, run.rig, run.settings, run.result.policy, VolumeBytes(run));
  Task<Status> play = PlayAndClose(run, co_await making);
  co_return co_await play;
}

Task<Status> RunOnArray(Run run, Array& array) {
  Task<Result<std::unique_ptr<Target>>> making = MakeVolumeTarget(array, VolumeBytes(run));
  Task<Status> play = PlayAndClose(run, co_await making);
  co_return co_await play;
}

Status Named(Policy policy, const Status& status) {
  if (status.ok()) {
    return status;
  }
  Error error = status.error();
  error.message = std::string(PolicyName(policy)) + ": " + error.message;
  return Fail(std::move(error));
}

Result<std::unique_ptr<Feed>> OpenFeed(const ReplaySettings& settings,
                                       const ReplayProgress& progress) {
  auto opened = Feed::Open(settings, [&](uint64_t done) { progress("reading", done, 0); });
  if (opened.ok() && settings.speed > 0 && !(*opened)->has_times()) {
    return Fail(ErrorCode::kInvalidArgument, "the trace has no times to keep: use --speed max");
  }
  return opened;
}

// One policy on devices of its own, by a clock of its own.
Status RunAlone(const ReplaySettings& settings, const RigSizes& sizes, Feed& feed,
                PolicyResult& out, const ReplayProgress& progress) {
  const std::string name = PolicyName(out.policy);
  const auto run = [&](EventLoop& loop) -> Status {
    auto rig = Rig::Make(loop, settings, sizes, name);
    if (!rig.ok()) {
      return Fail(std::move(rig).error());
    }
    EPLOG_TRY(feed.Rewind());
    const auto told = [&](uint64_t done) { progress(name, done, feed.total()); };
    const Status status = RunTask(loop, RunPolicy({loop, settings, feed, **rig, out, told}));
    if (auto* timeless = dynamic_cast<VirtualLoop*>(&loop)) {
      timeless->Abort();  // what still sleeps ends with its devices
    }
    return Named(out.policy, status);
  };
  if (settings.devices == DeviceKind::kFiles) {
    auto loop = IoUringLoop::Create();
    return loop.ok() ? run(**loop) : Status(Fail(std::move(loop).error()));
  }
  VirtualLoop loop;
  return run(loop);
}

}  // namespace

const char* PolicyName(Policy policy) {
  static constexpr const char* kNames[kPolicies] = {"eplog", "paper", "md", "pl"};
  return kNames[static_cast<size_t>(policy)];
}

const char* DeviceKindName(DeviceKind kind) {
  static constexpr const char* kNames[] = {"sim", "mem", "file", "array"};
  return kNames[static_cast<size_t>(kind)];
}

Result<ReplayResult> Replay(const ReplaySettings& settings, std::span<const Policy> policies,
                            const ReplayProgress& progress) {
  EPLOG_TRY(CheckSettings(settings, policies));
  auto feed = OpenFeed(settings, progress);
  if (!feed.ok()) {
    return Fail(std::move(feed).error());
  }
  const uint64_t stripe = uint64_t{settings.ssds - settings.parity} * settings.chunk_bytes;
  const auto sizes = SizesFor(settings, RoundUp((*feed)->span_bytes(), stripe));
  EPLOG_TRY(sizes);
  ReplayResult result;
  result.working_set_bytes = (*feed)->span_bytes();
  result.ssd_bytes = sizes->ssd_bytes;
  result.log_bytes = sizes->log_bytes;
  for (const Policy policy : policies) {
    PolicyResult& out = result.policies.emplace_back();
    out.policy = policy;
    EPLOG_TRY(RunAlone(settings, *sizes, **feed, out, progress));
  }
  return result;
}

Result<ReplayResult> ReplayOn(EventLoop& loop, Array& array, ReplaySettings& settings,
                              const ReplayProgress& progress) {
  const ArrayStatus status = array.GetStatus();
  settings.ssds = status.data_chunks + status.parity_chunks;
  settings.parity = status.parity_chunks;
  settings.chunk_bytes = status.chunk_bytes;
  const Policy policy = Policy::kEplog;
  EPLOG_TRY(CheckSettings(settings, {&policy, 1}));
  auto feed = OpenFeed(settings, progress);
  if (!feed.ok()) {
    return Fail(std::move(feed).error());
  }
  ReplayResult result;
  result.working_set_bytes = (*feed)->span_bytes();
  result.ssd_bytes = status.devices.front().size_bytes;
  result.log_bytes = status.devices[settings.ssds].size_bytes;
  const std::unique_ptr<Rig> rig = Rig::Of(array);
  PolicyResult& out = result.policies.emplace_back();
  out.policy = policy;
  const auto told = [&](uint64_t done) { progress(PolicyName(policy), done, (*feed)->total()); };
  const Run run{loop, settings, **feed, *rig, out, told};
  EPLOG_TRY(Named(policy, RunTask(loop, RunOnArray(run, array))));
  return result;
}

}  // namespace eplog
