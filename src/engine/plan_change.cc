// ArrayImpl::Plan: the checks of a change, and what it would mean. The tables are walked a piece at
// a time, so that a look does not hold up those who work; what changes meanwhile may be counted or
// not.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/array_impl.h"

namespace eplog {
namespace {

constexpr uint32_t kGroupsAtOnce = 256;
constexpr size_t kLogStripesAtOnce = 1024;

}  // namespace

// Row words of each SSD that are no zeros: `slots` lie somewhere, `absent` have to be rebuilt.
struct ArrayImpl::RowCounts {
  std::array<uint64_t, kMaxSsds> slots{};
  std::array<uint64_t, kMaxSsds> absent{};
};

Task<void> ArrayImpl::CountRows(RowCounts& counts) {
  const Geometry& g = core_.geometry;
  for (uint32_t group = 0; group < core_.state->rows.groups(); ++group) {
    const auto words = core_.state->rows.Group(group);
    for (size_t at = 0; at < words.size(); ++at) {
      const StripeIndex stripe(group * kRowGroupStripes + static_cast<uint32_t>(at / g.n));
      const SlotWord word = words[at].word;
      if (word.has_slot() || word.is_absent()) {
        auto& count = word.has_slot() ? counts.slots : counts.absent;
        ++count[g.SsdOf(stripe, static_cast<uint32_t>(at % g.n)).value];
      }
    }
    if (group % kGroupsAtOnce == kGroupsAtOnce - 1) {
      co_await core_.loop.Yield();
    }
  }
}

// Chunks of live log stripes, by the SSD that they lie on: all, and those that no row names.
struct ArrayImpl::LogStripeCounts {
  std::array<uint64_t, kMaxSsds> slots{};
  std::array<uint64_t, kMaxSsds> unnamed{};
};

Task<void> ArrayImpl::CountInLogStripes(LogStripeCounts& counts) {
  const Geometry& g = core_.geometry;
  std::vector<std::pair<LogStripeId, uint64_t>> live;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    live.emplace_back(id, core_.state->pending.SequenceOf(id));
    return true;
  });
  for (size_t at = 0; at < live.size(); ++at) {
    if (at % kLogStripesAtOnce == kLogStripesAtOnce - 1) {
      co_await core_.loop.Yield();
    }
    if (!core_.state->pending.IsLive(live[at].first, live[at].second)) {
      continue;
    }
    for (const LogStripeMember& member : core_.state->pending.View(live[at].first).members) {
      if (!member.word.has_slot()) {
        continue;
      }
      const uint8_t ssd = g.SsdOf(member.chunk).value;
      const RowWord row =
          core_.state->rows.Get(g.StripeOf(member.chunk), g.IndexInStripe(member.chunk));
      ++counts.slots[ssd];
      counts.unnamed[ssd] += row.word != member.word ? 1 : 0;
    }
  }
}

Standing ArrayImpl::StandingNow() const {
  const ArrayStatus status = GetStatus();
  return {.state = status.state,
          .devices_not_ok = core_.devices().not_ok(),
          .further_ssd_losses_survived = status.further_ssd_losses_survived,
          .further_log_losses_survived = status.further_log_losses_survived,
          .pending_chunks = status.pending_chunks,
          .log_stripes = status.live_log_stripes,
          .allocated_bytes = status.allocated_bytes,
          .free_bytes = status.free_bytes};
}

// What follows from the devices and from what is pending.
void ArrayImpl::Conclude(Standing& standing, bool lost) const {
  standing.log_stripes = standing.pending_chunks == 0 ? 0 : standing.log_stripes;
  const uint32_t further = FurtherLosses(standing.devices_not_ok);
  standing.further_ssd_losses_survived = standing.further_log_losses_survived = further;
  standing.state = lost                           ? ArrayState::kDegraded
                   : standing.devices_not_ok != 0 ? ArrayState::kRebuilding
                   : standing.pending_chunks != 0 ? ArrayState::kActive
                                                  : ArrayState::kClean;
}

Task<Status> ArrayImpl::PlanFail(DeviceIndex device, ChangePlan& plan) {
  Status may = membership_.MayFail(device);
  EPLOG_CO_TRY(may);
  const bool log = core_.geometry.IsLog(device);
  const bool was_ok = !core_.devices().IsJoining(device);
  if (log) {
    plan.chunks_losing_copy = core_.state->pending.live_log_stripes();
    // Everything that its log protected.
    plan.commit_chunks = plan.before.pending_chunks;
    plan.after.pending_chunks = 0;
  } else {
    RowCounts rows;
    Task<void> counting = CountRows(rows);
    co_await counting;
    LogStripeCounts in_log_stripes;
    Task<void> counting_others = CountInLogStripes(in_log_stripes);
    co_await counting_others;
    plan.chunks_losing_copy = rows.slots[device.value] + in_log_stripes.unnamed[device.value];
  }
  plan.after.devices_not_ok += was_ok ? 1 : 0;
  Conclude(plan.after, true);
  co_return OkStatus();
}

Task<Status> ArrayImpl::PlanReplace(const Change& change, ChangePlan& plan) {
  const DeviceIndex device(static_cast<uint8_t>(change.device));
  Status may = membership_.MayReplace(device, change.replacement, change.replacement_identity,
                                      change.replacement_bytes);
  EPLOG_CO_TRY(may);
  const bool log = core_.geometry.IsLog(device);
  if (!log) {
    RowCounts rows;
    Task<void> counting = CountRows(rows);
    co_await counting;
    plan.rebuild_bytes =
        (rows.slots[device.value] + rows.absent[device.value]) * core_.geometry.chunk_bytes;
  }
  plan.commit_chunks = plan.before.pending_chunks;
  plan.after.pending_chunks = 0;
  --plan.after.devices_not_ok;
  Conclude(plan.after, core_.devices().lost() > 1);
  co_return OkStatus();
}

Task<Status> ArrayImpl::PlanDelete(VolumeId id, ChangePlan& plan) {
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume == nullptr || volume->deleting) {
    co_return Fail(ErrorCode::kNotFound, "no such volume");
  }
  const Geometry& g = core_.geometry;
  plan.freed_bytes = volume->extents.count() * g.extent_data_bytes();
  plan.after.free_bytes += plan.freed_bytes;
  plan.after.allocated_bytes -= std::min(plan.after.allocated_bytes, plan.freed_bytes);
  std::vector<ExtentIndex> extents;
  volume->extents.ForEach(0, UINT32_MAX, [&](ExtentIndex extent) { extents.push_back(extent); });
  uint64_t pending = 0;
  for (const ExtentIndex extent : extents) {
    for (uint32_t s = 0; s < g.extent_stripes; ++s) {
      const StripeIndex stripe(extent.value * g.extent_stripes + s);
      for (uint32_t i = 0; core_.state->HasPending(stripe) && i < g.k(); ++i) {
        pending += core_.state->pending.Find(g.Chunk(stripe, i)) ? 1 : 0;
      }
    }
    co_await core_.loop.Yield();
  }
  plan.after.pending_chunks -= std::min(plan.after.pending_chunks, pending);
  Conclude(plan.after, core_.devices().lost() != 0);
  co_return OkStatus();
}

Task<Status> ArrayImpl::PlanScrub(ChangePlan& plan) {
  if (scrubbing_) {
    co_return Fail(ErrorCode::kBusy, "the array is being scrubbed already");
  }
  RowCounts rows;
  Task<void> counting = CountRows(rows);
  co_await counting;
  LogStripeCounts in_log_stripes;
  Task<void> counting_others = CountInLogStripes(in_log_stripes);
  co_await counting_others;
  const uint32_t logs = core_.geometry.m - core_.devices().logs_not_ok();
  uint64_t chunks = core_.state->pending.live_log_stripes() * logs;
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    chunks += core_.members.live(DeviceIndex(i)) ? rows.slots[i] + in_log_stripes.slots[i] : 0;
  }
  plan.read_bytes = chunks * core_.geometry.chunk_bytes;
  co_return OkStatus();
}

Task<Result<ChangePlan>> ArrayImpl::Plan(Change change) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  status = core_.Running();
  EPLOG_CO_TRY(status);
  const bool device =
      change.kind == Change::Kind::kFailDevice || change.kind == Change::Kind::kReplaceDevice;
  if (device && change.device >= core_.geometry.devices()) {
    co_return Fail(ErrorCode::kInvalidArgument, "no such device");
  }
  const Request request(*this);
  ChangePlan plan;
  plan.before = StandingNow();
  plan.after = plan.before;
  switch (change.kind) {
    case Change::Kind::kFailDevice: {
      Task<Status> planning = PlanFail(DeviceIndex(static_cast<uint8_t>(change.device)), plan);
      status = co_await planning;
      break;
    }
    case Change::Kind::kReplaceDevice: {
      Task<Status> planning = PlanReplace(change, plan);
      status = co_await planning;
      break;
    }
    case Change::Kind::kDeleteVolume: {
      Task<Status> planning = PlanDelete(change.volume, plan);
      status = co_await planning;
      break;
    }
    case Change::Kind::kScrub: {
      Task<Status> planning = PlanScrub(plan);
      status = co_await planning;
      break;
    }
  }
  EPLOG_CO_TRY(status);
  co_return plan;
}

}  // namespace eplog
