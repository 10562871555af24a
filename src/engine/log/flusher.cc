#include "engine/log/flusher.h"

#include <algorithm>

#include "base/check.h"
#include "engine/log/appender.h"

namespace eplog {

void Flusher::Open(uint64_t stable, uint64_t stable_place) {
  stable_ = flushed_ = cover_ = stable;
  stable_place_ = stable_place;
}

void Flusher::Applied(UnstableEntry entry) {
  entry.applied_us = core_.loop.NowUs();
  const bool had_much = has_much_unstable();
  unstable_.push_back(entry);
  if (unstable_.size() == 1 || (!had_much && has_much_unstable())) {
    core_.kick.NotifyAll();  // the keeper's clock for the engine's own flush starts, or has ended
  }
  if (core_.rings.HasFullBlock()) {
    core_.rings.Pack(entry.sequence, true, JournalRings::kReserveBlocks);
  }
}

bool Flusher::has_much_unstable() const {
  constexpr uint64_t kMuch = Appender::kMaxUnstableBytes / 2;
  return !unstable_.empty() && (unstable_.back().end_place - stable_place_) * kBlockBytes >= kMuch;
}

Task<Status> Flusher::FlushAll() {
  Task<Status> flush = FlushTo(appender_.applied().sequence, Upto::kStable);
  co_return co_await flush;
}

Task<Status> Flusher::FlushAndMark() {
  EPLOG_CO_AWAIT(FlushAll());
  if (core_.space.newest_waiting().value_or(0) <= cover_) {
    co_return OkStatus();
  }
  EPLOG_CO_AWAIT(appender_.AppendMark());
  Task<Status> second = FlushAll();
  co_return co_await second;
}

Task<Status> Flusher::TryFlushAll() {
  Task<Status> flush = TryFlushTo(appender_.applied().sequence, Upto::kStable);
  co_return co_await flush;
}

Task<Status> Flusher::FlushTo(uint64_t sequence, Upto upto, uint64_t own_ssds) {
  while (true) {
    Task<Status> trying = TryFlushTo(sequence, upto, own_ssds);
    Status status = co_await trying;
    if (status.ok() || status.error().code != ErrorCode::kBusy) {
      co_return status;
    }
    core_.kick.NotifyAll();  // a checkpoint makes room
    co_await core_.append.Wait();
  }
}

Task<Status> Flusher::TryFlushTo(uint64_t sequence, Upto upto, uint64_t own_ssds) {
  EPLOG_CHECK(sequence <= appender_.applied().sequence, "I4: a flush of what is not applied");
  while (!Done(sequence, upto)) {
    const Status running = core_.Running();
    if (!running.ok()) {
      co_return running;
    }
    wanted_ = std::max(wanted_, sequence);
    wanted_rings_ |= WantsRings(upto);
    wanted_own_ |= own_ssds;
    if (busy_) {
      co_await changed_.Wait();
      continue;
    }
    busy_ = true;
    // Let everybody who is ready now join.
    co_await core_.loop.Yield();
    const uint64_t target = std::exchange(wanted_, 0);
    const bool with_rings = std::exchange(wanted_rings_, false);
    const uint64_t own = std::exchange(wanted_own_, 0);
    Task<Status> once = FlushOnce(target, with_rings, own);
    Status status = co_await once;
    bool no_room = !status.ok() && status.error().code == ErrorCode::kBusy;
    if (no_room && !WantsRings(upto)) {  // others do: a checkpoint would wait for the room it makes
      ++core_.hooks.flushes_beside_full_rings;
      Task<Status> without = FlushOnce(target, false, own);
      status = co_await without;
      no_room = false;
    }
    busy_ = false;
    if (!status.ok() && !no_room) {
      core_.Stop(status.error());  // I7
    }
    changed_.NotifyAll();
    if (no_room && !Done(sequence, upto)) {
      co_return status;
    }
  }
  co_return OkStatus();
}

Task<Status> Flusher::FlushForCheckpoint(uint64_t sequence) {
  Task<Status> stable = TryFlushTo(sequence, Upto::kStable);
  Status status = co_await stable;
  if (status.ok() || status.error().code != ErrorCode::kBusy) {
    co_return status;
  }
  // Ring blocks on their way must have landed before their places may be used again.
  Task<Result<uint64_t>> landing = core_.rings.Written(sequence);
  const Result<uint64_t> landed = co_await landing;
  if (!landed.ok()) {
    core_.Stop(landed.error());  // I7
  }
  EPLOG_CO_TRY(landed);
  Task<Status> flush = TryFlushTo(sequence, Upto::kDevices);
  co_return co_await flush;
}

void Flusher::CheckpointCounts(uint64_t sequence) {
  if (sequence > stable_) {
    core_.rings.Forget(sequence);
    Advance(sequence);
  }
}

Task<Status> Flusher::FlushOnce(uint64_t target, bool rings, uint64_t own_ssds) {
  if (target <= stable_) {
    co_return OkStatus();
  }
  uint64_t ring_mask = 0;
  if (rings) {
    const uint64_t packed = core_.rings.Pack(target, false, JournalRings::kReserveBlocks);
    if (packed < target) {
      // There was room when the entries were made; since then a device was lost.
      EPLOG_CHECK(core_.devices().number() != 0, "I4: no ring room for applied headers");
      ++core_.hooks.flushes_without_ring_room;
      co_return Fail(ErrorCode::kBusy, "no room in the journal rings");
    }
    Task<Result<uint64_t>> wait = core_.rings.Written(target);
    Result<uint64_t> written = co_await wait;
    EPLOG_CO_TRY(written);
    ring_mask = *written;
  }
  // The devices' flushes are submitted only now, after everything up to `target` has completed.
  uint64_t dirty = 0;
  for (const UnstableEntry& entry : unstable_) {
    if (entry.sequence > target) {
      break;
    }
    dirty |= entry.ssd_mask;
  }
  if (core_.canary(Canary::kFlushOwnSsd) && own_ssds != 0) {
    dirty &= own_ssds;
  }
  if (core_.canary(Canary::kRingUnflushed)) {
    ring_mask &=
        ~(ring_mask & (ring_mask - 1));  // forgets all but one of the SSDs with ring blocks
  }
  EPLOG_CO_AWAIT(core_.members.FlushMask((dirty | ring_mask | core_.devices().log_mask()) &
                                         core_.members.live_mask()));
  Task<void> settling = core_.Settled();
  co_await settling;
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  flushed_ = std::max(flushed_, target);
  if (rings && target > stable_) {  // a checkpoint may have made it stable meanwhile
    Advance(target);
  }
  co_return OkStatus();
}

void Flusher::Advance(uint64_t target) {
  while (!unstable_.empty() && unstable_.front().sequence <= target) {
    cover_ = std::max(cover_, unstable_.front().mark);
    stable_place_ = unstable_.front().end_place;
    unstable_.pop_front();
  }
  EPLOG_CHECK(target >= stable_, "stability never goes back");
  stable_ = target;
  core_.rings.Stable(target);
  core_.state->Stable(target);
  core_.space.Covered(core_.canary(Canary::kSlotReuse) ? target : cover_);
  core_.space_changed.NotifyAll();
  core_.kick.NotifyAll();
  core_.append.NotifyAll();
}

}  // namespace eplog
