#include "engine/upkeep/keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace eplog {
namespace {

constexpr uint64_t kRetryUs = 1000;
constexpr uint64_t kLongRetryUs = 100'000;
constexpr uint64_t kRestUs = 1'000'000;
constexpr int kTries = 3;
constexpr int kMostDoublings = 5;     // of kLongRetryUs
constexpr uint32_t kStepBatches = 4;  // of commit_width stripes
constexpr uint32_t kSmallPart = 4;    // of commit_width: a batch while there is no hurry,
constexpr uint32_t kFewAtOnce = 2;    // and so many of its stripes at once
constexpr uint64_t kLeastGain = 64;   // blocks of log, for which a checkpoint may be made

}  // namespace

bool Keeper::FlushDue() const {
  if (!flusher_.has_unstable()) {
    return false;
  }
  return flusher_.has_much_unstable() || appender_.blocked() ||
         core_.loop.NowUs() >= flusher_.oldest_unstable_us() + core_.options.engine_flush_us;
}

// Something freed waits for a covering mark, and no entry carries one yet.
bool Keeper::MarkDue() const {
  const uint64_t waiting = core_.space.newest_waiting().value_or(0);
  return waiting > flusher_.covered() && waiting <= flusher_.stable() &&
         appender_.newest_mark() < waiting;
}

void Keeper::DevicesChanged() {
  flush_now_ = true;
  if (core_.devices().lost_logs() > lost_logs_) {
    commit_upto_ = appender_.newest_sequence();
  }
  lost_logs_ = core_.devices().lost_logs();
  core_.kick.NotifyAll();
}

void Keeper::Start() {
  lost_logs_ = core_.devices().lost_logs();
  space_task_.Add();
  stability_task_.Add();
  core_.loop.Spawn(Stability());
  core_.loop.Spawn(Space());
}

Task<void> Keeper::Stop() {
  stop_space_ = true;
  core_.kick.NotifyAll();
  Task<void> space = space_task_.Wait();
  co_await space;
  stop_stability_ = true;
  core_.kick.NotifyAll();
  Task<void> stability = stability_task_.Wait();
  co_await stability;
}

Task<void> Keeper::Stability() {
  while (!stop_stability_ && !core_.stop_error) {
    if (admission_.RingsShort()) {
      const uint64_t before = checkpointer_.covered();
      Task<Status> relief = FlushAndCheckpoint();
      const Status status = co_await relief;
      if (!status.ok() || checkpointer_.covered() == before) {
        co_await core_.kick.WaitUntil(core_.loop.NowUs() + kRetryUs);
      }
    } else if (FlushDue() || std::exchange(flush_now_, false)) {
      Task<Status> flush = flusher_.TryFlushAll();
      const Status status = co_await flush;
      if (!status.ok() && status.error().code == ErrorCode::kBusy) {
        Task<Status> relief = FlushAndCheckpoint();
        static_cast<void>(co_await relief);  // a failed one has stopped the array
      }
    } else if (flusher_.has_unstable()) {
      co_await core_.kick.WaitUntil(flusher_.oldest_unstable_us() + core_.options.engine_flush_us);
    } else {
      co_await core_.kick.Wait();
    }
  }
  stability_task_.Done();
}

Task<void> Keeper::Space() {
  int fruitless = 0;  // tries in a row that changed nothing
  while (!stop_space_ && !core_.stop_error) {
    if (admission_.LogShort() || admission_.SlotsShort()) {
      const uint64_t before =
          appender_.applied().sequence + appender_.log_tail() + flusher_.covered();
      if (admission_.waiting()) {
        buffer_.DrainSoon();  // what lies there holds slots and log room
      }
      Task<Status> room = fruitless == 0 ? MakeRoom() : TryEverything();
      const Status status = co_await room;
      if (admission_.LogShort()) {
        Task<void> moving = relogger_.MoveOn(InTheWay(), stop_space_);
        co_await moving;
      }
      const uint64_t after =
          appender_.applied().sequence + appender_.log_tail() + flusher_.covered();
      fruitless = before == after ? fruitless + 1 : 0;
      if (fruitless == 0) {
        continue;
      }
      if (!status.ok() && status.error().code != ErrorCode::kBusy && fruitless > kTries) {
        // Nothing but what cannot be committed is left; its space will not come.
        Task<void> refusing = RefuseForAWhile(status.error(), fruitless);
        co_await refusing;
      } else {
        Task<void> pause = Pause(fruitless);
        co_await pause;
      }
      continue;
    }
    fruitless = 0;  // the next shortage has its tries again
    if (MarkDue() && appender_.UrgentRoom() != 0) {
      Task<Status> mark = appender_.AppendMark();
      const Status status = co_await mark;
      static_cast<void>(status);  // a failed append has stopped the array
    } else if (DueUpto() != 0 || CheckpointDue()) {
      Task<void> triggered = Triggered();
      co_await triggered;
    } else if (const uint64_t next = NextDueUs(); next != UINT64_MAX) {
      co_await core_.kick.WaitUntil(next);
    } else {
      co_await core_.kick.Wait();
    }
  }
  space_task_.Done();
}

// Stripes that hold the log, since they cannot be committed.
std::vector<StripeIndex> Keeper::InTheWay() const {
  std::vector<StripeIndex> stripes;
  if (core_.hooks.moves_on) {
    stripes = committer_.OldestStripes(core_.geometry.commit_width());
  }
  for (const auto& [stripe, why] : committer_.failed()) {
    stripes.emplace_back(stripe);
  }
  return stripes;
}

// What holds the space is still in somebody's hands, or nobody can give it back. In earnest, so
// that what fails for a moment has passed; longer when it was in vain again and again and nobody
// waits.
Task<void> Keeper::Pause(int fruitless) {
  co_await core_.loop.Sleep(kRetryUs);
  const uint64_t until = core_.loop.NowUs() + kLongRetryUs;
  while (fruitless > kTries && !admission_.waiting() && !stop_space_ && !core_.stop_error &&
         core_.loop.NowUs() < until) {
    co_await core_.kick.WaitUntil(until);
  }
}

// Each try reads all that cannot be committed, and who is refused may come again at once: the next
// one is twice as far, unless somebody lets go of something.
Task<void> Keeper::RefuseForAWhile(const Error& error, int fruitless) {
  if (fruitless == kTries + 1) {
    core_.Tell(EventKind::kCommitBehind, "",
               "writes are refused for want of log: " + error.message +
                   "; write such stripes anew as a whole, or punch them, and it goes on");
  }
  const uint64_t rest = kLongRetryUs << std::min(fruitless - kTries, kMostDoublings);
  const uint64_t until = core_.loop.NowUs() + rest;
  const StatesNumber states = core_.devices().number();
  const uint64_t applied = appender_.applied().sequence;
  do {
    admission_.Refuse(error);
    co_await core_.kick.WaitUntil(until);
  } while (!stop_space_ && !core_.stop_error && core_.loop.NowUs() < until &&
           core_.devices().number() == states && appender_.applied().sequence == applied);
}

// As far as it goes, whether it pays or not: all that is applied becomes stable, any gain is taken,
// and what failed before is tried again once there is nothing else.
Task<Status> Keeper::TryEverything() {
  EPLOG_CO_AWAIT(appender_.UrgentRoom() != 0 ? flusher_.FlushAndMark() : flusher_.FlushAll());
  const size_t limit = size_t{kStepBatches} * core_.geometry.commit_width();
  std::vector<StripeIndex> stripes = committer_.OldestStripes(limit);
  if (stripes.empty()) {
    committer_.ForgetFailures();
    stripes = committer_.OldestStripes(limit);
  }
  Task<Status> commit = committer_.Commit(stripes);
  Status committed = co_await commit;
  if (appender_.CheckpointGain() != 0 && !core_.stop_error) {
    EPLOG_CO_AWAIT(FlushAndCheckpoint());
  }
  co_return committed;
}

Task<Status> Keeper::FlushAndCheckpoint() {
  Task<Status> flush = flusher_.TryFlushAll();
  Status status = co_await flush;
  if (!status.ok() && status.error().code != ErrorCode::kBusy) {
    co_return status;
  }
  Task<Status> checkpoint = checkpointer_.Checkpoint(CheckpointKind::kAuto);
  co_return co_await checkpoint;
}

// A checkpoint writes the whole table, so it should free a good part of the log; less when somebody
// waits for log, and whatever it frees when commits cannot go on without.
bool Keeper::CheckpointPays() const {
  const uint64_t gain = appender_.CheckpointGain();
  if (gain == 0 || !committer_.HasLogRoom()) {
    return gain != 0;
  }
  const uint64_t blocks = core_.geometry.log_blocks;
  if (!admission_.waiting_for_log()) {
    return gain >= blocks / 4;
  }
  return gain >= std::min(blocks / 8, std::max(kLeastGain, 2 * checkpointer_.written_blocks()));
}

// How little is left of what the foreground may have before commits begin: 0 none used, 1 all.
double Keeper::Pressure() const {
  const auto part = [](double used, double all) { return all <= 0 ? 1.0 : used / all; };
  const uint64_t blocks = core_.geometry.log_blocks;
  const uint64_t open = blocks - std::min(blocks, appender_.ClosedBlocks(0));
  const double log =
      part(static_cast<double>(appender_.log_charged() * 7) - static_cast<double>(open * 5),
           static_cast<double>(open * 2));
  const uint32_t closed = core_.geometry.commit_width();
  const uint32_t least = closed + (core_.geometry.reserve_slots() - closed) / 2;
  double slots = 0;
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    const uint32_t spare = core_.SlotsToSpare(DeviceIndex(i));
    if (core_.members.live(DeviceIndex(i)) && spare < least) {
      slots = std::max(slots, part(least - spare, least - closed));
    }
  }
  return admission_.waiting() ? 1.0 : std::clamp(std::max(log, slots), 0.0, 1.0);
}

// As long as the last batch took, the devices belong to others; shorter with less space left.
Task<void> Keeper::Breathe(uint64_t since_us) {
  const uint64_t now = core_.loop.NowUs();
  const double rest = 1.0 - Pressure();
  const auto pause = static_cast<uint64_t>(static_cast<double>(now - since_us) * rest);
  while (core_.loop.NowUs() < now + pause && !admission_.waiting() && !stop_space_ &&
         !core_.stop_error) {
    co_await core_.kick.WaitUntil(now + pause);
  }
}

// What can be committed, of the oldest log stripes; a checkpoint if there is nothing.
Task<Status> Keeper::CommitOldest(CommitStep step) {
  std::vector<StripeIndex> stripes = committer_.OldestStripes(step.stripes, step.upto);
  if (stripes.empty()) {
    EPLOG_CO_AWAIT(flusher_.FlushAll());
    committer_.ForgetFailures();
    stripes = committer_.OldestStripes(step.stripes, step.upto);
  }
  if (!stripes.empty()) {
    Task<Status> commit = committer_.Commit(stripes, step.batch);
    co_return co_await commit;
  }
  if (admission_.LogShort() && appender_.CheckpointGain() != 0) {
    Task<Status> checkpoint = FlushAndCheckpoint();
    co_return co_await checkpoint;
  }
  co_return OkStatus();
}

// One step towards log room or slots; short, so that what comes next is decided anew. Small batches
// take more log for their installs than was kept free for them: only where there is more.
Task<Status> Keeper::MakeRoom() {
  if (admission_.LogShort() && CheckpointPays()) {
    Task<Status> checkpoint = FlushAndCheckpoint();
    co_return co_await checkpoint;
  }
  const uint32_t most = core_.geometry.commit_width();
  const double pressure = Pressure();
  const bool hurry = pressure >= 1.0 || !appender_.CanPromise(2 * uint64_t{most}, false);
  CommitStep step{kStepBatches * most, UINT64_MAX, {most, most}};
  if (!hurry) {
    step.batch.stripes = step.stripes = std::max(1U, most / kSmallPart);
    // Bursts are what the foreground feels: more at once only when pauses alone are not enough.
    const double more = most * std::max(0.0, pressure - 0.5);
    step.batch.at_once = std::max(kFewAtOnce, static_cast<uint32_t>(more));
  }
  const uint64_t since = core_.loop.NowUs();
  Task<Status> commit = CommitOldest(step);
  Status committed = co_await commit;
  const bool worth = hurry || core_.space.waiting_max() >= most;
  if (admission_.SlotsShort() && worth && appender_.UrgentRoom() != 0 && !core_.stop_error) {
    EPLOG_CO_AWAIT(flusher_.FlushAndMark());
  }
  if (!hurry) {
    Task<void> breathe = Breathe(since);
    co_await breathe;
  }
  co_return committed;
}

// ----------------------------------------------------------------------------------------------
// triggers that have nothing to do with space

// What is pending up to this sequence is to be committed now; 0: nothing.
uint64_t Keeper::DueUpto() const {
  const PendingTable& pending = core_.state->pending;
  const uint64_t now = core_.loop.NowUs();
  if (pending.pending_chunks() == 0 || now < not_before_us_) {
    return 0;
  }
  const CommitTriggers& when = core_.options.commit;
  uint64_t upto = commit_upto_;
  if (when.idle_us != 0 && now >= core_.last_request_us + when.idle_us) {
    upto = UINT64_MAX;
  }
  const uint64_t oldest = pending.SequenceOf(pending.FirstLive());
  if (when.age_us != 0 && now >= appender_.OldestPendingUs().value_or(now) + when.age_us) {
    upto = std::max({upto, oldest, appender_.SequenceAt(now - when.age_us)});
  }
  return oldest <= upto ? upto : 0;
}

bool Keeper::CheckpointDue() const {
  const CheckpointTriggers& when = core_.options.checkpoint;
  const bool any = appender_.applied().sequence != checkpointer_.covered();
  const bool late =
      when.interval_us != 0 && core_.loop.NowUs() >= checkpointer_.written_us() + when.interval_us;
  return any && (admission_.CheckpointFar() || late);
}

// When the next of them may be due, if nothing else happens.
uint64_t Keeper::NextDueUs() const {
  const CommitTriggers& when = core_.options.commit;
  uint64_t next = UINT64_MAX;
  if (core_.state->pending.pending_chunks() != 0) {
    if (when.idle_us != 0) {
      next = std::min(next, core_.last_request_us + when.idle_us);
    }
    if (const auto oldest = appender_.OldestPendingUs(); when.age_us != 0 && oldest) {
      next = std::min(next, *oldest + when.age_us);
    }
    next = std::max(next, not_before_us_);
  }
  if (core_.options.checkpoint.interval_us != 0 &&
      appender_.applied().sequence != checkpointer_.covered()) {
    next = std::min(next, checkpointer_.written_us() + core_.options.checkpoint.interval_us);
  }
  return next;
}

Task<void> Keeper::Triggered() {
  const uint64_t since = core_.loop.NowUs();
  if (CheckpointDue()) {
    Task<Status> checkpoint = checkpointer_.Checkpoint(CheckpointKind::kAuto, true);
    const Status status = co_await checkpoint;
    static_cast<void>(status);  // a failed one has stopped the array
    co_return;
  }
  const uint64_t before = appender_.applied().sequence;
  const uint32_t width = std::max(1U, core_.geometry.commit_width() / kSmallPart);
  Task<Status> commit = CommitOldest({width, DueUpto(), {width, kFewAtOnce}});
  const Status status = co_await commit;
  if (!status.ok() || appender_.applied().sequence == before) {
    not_before_us_ = core_.loop.NowUs() + kRestUs;
  }
  Task<void> breathe = Breathe(since);
  co_await breathe;
}

}  // namespace eplog
