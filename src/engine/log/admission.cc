#include "engine/log/admission.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace eplog {
namespace {

template <typename Visit>
void ForEachBit(uint64_t mask, Visit&& visit) {
  for (; mask != 0; mask &= mask - 1) {
    visit(DeviceIndex(static_cast<uint8_t>(std::countr_zero(mask))));
  }
}

}  // namespace

Grant::~Grant() {
  if (admitted_) {
    admission_.GiveBack(*this);
  }
}

SlotWord Grant::TakeSlot(DeviceIndex ssd) {
  claimed_ &= ~(uint64_t{1} << ssd.value);
  return admission_.core_.devices().IsCurrent(ssd, states_) ? slots_[ssd.value]
                                                            : SlotWord::Absent();
}

void Admission::GiveBack(Grant& grant) {
  ForEachBit(grant.claimed_, [&](DeviceIndex ssd) {
    if (core_.devices().IsCurrent(ssd, grant.states_)) {
      core_.space.Unclaim(ssd, grant.slots_[ssd.value].slot());
    }
  });
  if (auto of = granted_.find(grant.states_); --of->second == 0) {
    granted_.erase(of);
  }
  ForEachBit(grant.owing_, [&](DeviceIndex ssd) { --owing_[ssd.value]; });
  appender_.TakeBack(grant.blocks_);
  core_.space_changed.NotifyAll();
}

bool Admission::HaveSlots(const Need& need) const {
  const uint32_t closed = core_.geometry.commit_width();
  const uint64_t live = core_.members.live_mask();
  bool have = true;
  if (core_.canary(Canary::kCommitWithoutReserve)) {
    ForEachBit(need.ssds & live,
               [&](DeviceIndex ssd) { have = have && core_.space.free(ssd) != 0; });
    return have;
  }
  ForEachBit((need.ssds | need.owing) & live, [&](DeviceIndex ssd) {
    have = have && core_.SlotsToSpare(ssd) > closed + owing_[ssd.value];
  });
  return have;
}

void Admission::Take(Grant& grant, const Need& need) {
  // Of the devices that are there now, whoever was when it began to wait.
  const uint64_t live = core_.members.live_mask();
  grant.claimed_ = need.ssds & live;
  ForEachBit(grant.claimed_, [&](DeviceIndex ssd) {
    grant.slots_[ssd.value] = SlotWord::At(core_.space.Claim(ssd));
  });
  grant.owing_ = need.owing & live;
  ForEachBit(grant.owing_, [&](DeviceIndex ssd) { ++owing_[ssd.value]; });
  appender_.Promise(need.blocks);
  grant.blocks_ = need.blocks;
  grant.states_ = core_.devices().number();
  grant.admitted_ = true;
  ++granted_[grant.states_];
}

bool Admission::TryAdmit(Grant& grant, Need need) {
  if (core_.stop_error || turn_.locked() || !HaveRoom(need)) {
    return false;
  }
  Take(grant, need);
  LookSoon();
  return true;
}

bool Admission::TryAdmitFreeing(Grant& grant, Need need) {
  need.frees = true;
  // A quarter of what is closed to others is left to requests that free what they had themselves.
  const uint64_t closed = appender_.ClosedBlocks(need.blocks);
  Need with_rest = need;
  with_rest.blocks += (closed - std::min(closed, appender_.ClosedBlocks(need.blocks, true))) / 4;
  const bool may = !core_.stop_error && HaveRoom(with_rest);
  if (may) {
    Take(grant, need);
  }
  return may;
}

Task<Status> Admission::Admit(Grant& grant, Need need) {
  Status running = core_.Running();
  EPLOG_CO_TRY(running);
  if (TryAdmit(grant, need)) {
    co_return OkStatus();
  }
  ++core_.hooks.space_waits;
  const uint64_t ticket = next_ticket_++;
  Task<AsyncMutex::Guard> lock = turn_.Lock();
  const AsyncMutex::Guard guard = co_await lock;
  waiting_ = true;
  need_ = need;
  while (!core_.stop_error && ticket >= refused_tickets_ && !HaveRoom(need)) {
    core_.kick.NotifyAll();
    co_await core_.space_changed.Wait();
  }
  waiting_ = false;
  running = core_.Running();
  EPLOG_CO_TRY(running);
  if (!HaveRoom(need)) {
    Error error = refusal_;
    co_return Fail(std::move(error));
  }
  Take(grant, need);
  LookSoon();
  co_return OkStatus();
}

void Admission::Refuse(const Error& error) {
  refused_tickets_ = next_ticket_;
  refusal_ = error;
  core_.space_changed.NotifyAll();
}

// ------------------------------------------------------------------------- what begins to run
// short

bool Admission::LogShort() const {
  if (!core_.options.auto_commit) {
    return waiting_for_log();
  }
  // Five sevenths of what the foreground may have.
  const uint64_t blocks = core_.geometry.log_blocks;
  const uint64_t open = blocks - std::min(blocks, appender_.ClosedBlocks(0));
  return appender_.log_charged() * 7 > open * 5 || waiting_for_log();
}

bool Admission::SlotsShort() const {
  if (!core_.options.auto_commit) {
    return waiting_for_slots();
  }
  const uint32_t closed = core_.geometry.commit_width();
  const uint32_t least = closed + (core_.geometry.reserve_slots() - closed) / 2;
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    if (core_.members.live(DeviceIndex(i)) && core_.SlotsToSpare(DeviceIndex(i)) < least) {
      return true;
    }
  }
  return waiting_for_slots();
}

bool Admission::RingsShort() const {
  const uint64_t all = (core_.geometry.ring_blocks - JournalRings::kReserveBlocks) *
                       core_.devices().live_ssds() / (1 + core_.devices().lost_logs());
  return core_.rings.Room(JournalRings::kReserveBlocks) * 4 < all || appender_.RingShort();
}

void Admission::LookSoon() {
  if (LogShort() || SlotsShort() || RingsShort() || CheckpointFar()) {
    core_.kick.NotifyAll();
  }
}

}  // namespace eplog
