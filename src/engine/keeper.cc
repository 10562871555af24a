#include "engine/keeper.h"

#include <algorithm>

namespace eplog {
namespace {

constexpr uint64_t kFlushSoonBytes = Appender::kMaxUnstableBytes / 2;
constexpr uint64_t kRetryUs = 1000;

}  // namespace

bool Keeper::LogShort() const {
  if (!core_.options.auto_commit) {
    return admission_.waiting_for_log();
  }
  return appender_.log_used() * 8 > core_.geometry.log_blocks * 5 || admission_.waiting_for_log();
}

bool Keeper::SlotsShort() const {
  if (!core_.options.auto_commit) {
    return admission_.waiting_for_slots();
  }
  const uint32_t closed = core_.geometry.commit_width();
  const uint32_t least = closed + (core_.geometry.reserve_slots() - closed) / 2;
  return core_.space.free_min() < least || admission_.waiting_for_slots();
}

bool Keeper::RingsShort() const {
  const uint64_t all = (core_.geometry.ring_blocks - JournalRings::kReserveBlocks) *
                       core_.geometry.n / (1 + core_.lost_logs());
  return core_.rings.Room(JournalRings::kReserveBlocks) * 4 < all || appender_.RingShort();
}

bool Keeper::FlushDue() const {
  if (!flusher_.has_unstable()) {
    return false;
  }
  const uint64_t unstable = (appender_.applied().place - flusher_.stable_place()) * kBlockBytes;
  return unstable >= kFlushSoonBytes || appender_.blocked() ||
         core_.loop.NowUs() >= flusher_.oldest_unstable_us() + core_.options.engine_flush_us;
}

// Something freed waits for a covering mark, and no entry carries one yet.
bool Keeper::MarkDue() const {
  const uint64_t waiting = core_.space.newest_waiting().value_or(0);
  return waiting > flusher_.covered() && waiting <= flusher_.stable() &&
         appender_.newest_mark() < waiting;
}

void Keeper::Start() {
  tasks_.Add(2);
  core_.loop.Spawn(Stability());
  core_.loop.Spawn(Space());
}

Task<void> Keeper::Stop() {
  stopping_ = true;
  core_.kick.NotifyAll();
  Task<void> wait = tasks_.Wait();
  co_await wait;
}

Task<void> Keeper::Stability() {
  while (!stopping_ && !core_.stop_error) {
    if (RingsShort()) {
      const uint64_t before = checkpointer_.covered();
      Task<Status> relief = FlushAndCheckpoint();
      const Status status = co_await relief;
      if (!status.ok() || checkpointer_.covered() == before) {
        co_await core_.kick.WaitUntil(core_.loop.NowUs() + kRetryUs);
      }
    } else if (FlushDue()) {
      Task<Status> flush = flusher_.FlushAll();
      const Status status = co_await flush;
      static_cast<void>(status);  // a failed flush has stopped the array
    } else if (flusher_.has_unstable()) {
      co_await core_.kick.WaitUntil(flusher_.oldest_unstable_us() + core_.options.engine_flush_us);
    } else {
      co_await core_.kick.Wait();
    }
  }
  tasks_.Done();
}

Task<void> Keeper::Space() {
  while (!stopping_ && !core_.stop_error) {
    if (LogShort() || SlotsShort()) {
      const uint64_t before =
          appender_.applied().sequence + appender_.log_tail() + flusher_.covered();
      Task<Status> room = MakeRoom();
      const Status status = co_await room;
      const uint64_t after =
          appender_.applied().sequence + appender_.log_tail() + flusher_.covered();
      if (before == after || !status.ok()) {
        // Nothing to gain at the moment: what holds the space is still in somebody's hands.
        co_await core_.kick.WaitUntil(core_.loop.NowUs() + kRetryUs);
      }
    } else if (MarkDue()) {
      Task<Status> mark = appender_.AppendMark();
      const Status status = co_await mark;
      static_cast<void>(status);  // a failed append has stopped the array
    } else {
      co_await core_.kick.Wait();
    }
  }
  tasks_.Done();
}

Task<Status> Keeper::FlushAndCheckpoint() {
  Task<Status> flush = flusher_.FlushAll();
  Status status = co_await flush;
  EPLOG_CO_TRY(status);
  Task<Status> checkpoint = checkpointer_.Checkpoint();
  co_return co_await checkpoint;
}

uint64_t Keeper::BlocksABatch() const {
  const size_t installs =
      (kMaxEntryHeaderBytes - kEntryFixedBytes) / MaxRowRecordBytes(core_.geometry.n);
  return DivideUp(core_.geometry.commit_width(), installs);
}

uint64_t Keeper::LogBlocksFor(size_t stripes) const {
  return DivideUp(stripes, core_.geometry.commit_width()) * BlocksABatch();
}

// A pass may append only so much that the part of the log closed to the foreground is enough for
// it; a batch may need a mark before it.
size_t Keeper::StripesThatFitReserve() const {
  const uint64_t blocks = std::max<uint64_t>(1, (core_.geometry.log_reserve_blocks() - 4) / 2);
  return std::max<uint64_t>(1, blocks / BlocksABatch()) * core_.geometry.commit_width();
}

std::vector<StripeIndex> Keeper::ChooseStripes(bool log_short) const {
  const size_t enough = log_short ? SIZE_MAX
                                  : std::max<size_t>(core_.geometry.commit_width(),
                                                     core_.geometry.reserve_slots() / 4);
  // For log room: the older half of what lies in the log.
  const uint64_t before = log_short ? appender_.log_tail() + appender_.log_used() / 2 : UINT64_MAX;
  return committer_.OldestStripes(std::min(enough, StripesThatFitReserve()), before);
}

Task<Status> Keeper::MakeRoom() {
  Task<Status> flush = flusher_.FlushAll();
  Status status = co_await flush;
  EPLOG_CO_TRY(status);
  const bool log_short = LogShort();
  if (log_short || SlotsShort()) {
    const std::vector<StripeIndex> stripes = ChooseStripes(log_short);
    if (!stripes.empty()) {
      Task<Status> commit = committer_.Commit(stripes);
      status = co_await commit;
      EPLOG_CO_TRY(status);
    }
  }
  if (SlotsShort()) {
    Task<Status> mark = flusher_.FlushAndMark();
    status = co_await mark;
    EPLOG_CO_TRY(status);
  }
  if (log_short) {
    Task<Status> checkpoint = checkpointer_.Checkpoint();
    status = co_await checkpoint;
  }
  co_return status;
}

}  // namespace eplog
