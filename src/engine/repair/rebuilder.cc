#include "engine/repair/rebuilder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/read/chunk_place.h"
#include "engine/repair/beside_others.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kRebuildsAtOnce = 8;
constexpr uint64_t kRetryUs = 100'000;
constexpr uint64_t kLongestRetryUs = 600'000'000;
constexpr uint64_t kLongestLookUs = 1'000'000;  // whether stuck rows have been written
constexpr size_t kMostStuck = 65536;
constexpr size_t kMostTold = 1000;
constexpr uint64_t kSampleUs = 500'000;
constexpr uint64_t kWindowUs = 30'000'000;

}  // namespace

void Rebuilder::Open() {
  running_.Add();
  core_.loop.Spawn(Run());
}

Task<void> Rebuilder::Close() {
  closing_ = true;
  wake_.NotifyAll();
  Task<void> wait = running_.Wait();
  co_await wait;
}

uint64_t Rebuilder::JoiningSsds() const {
  return core_.devices().joining() & ((uint64_t{1} << core_.geometry.n) - 1);
}

// Positions that are absent on joining SSDs.
uint64_t Rebuilder::Gaps(StripeIndex stripe) const {
  uint64_t gaps = 0;
  for (uint64_t mask = JoiningSsds(); mask != 0; mask &= mask - 1) {
    const DeviceIndex ssd(static_cast<uint8_t>(std::countr_zero(mask)));
    const uint32_t index = core_.geometry.IndexOn(stripe, ssd);
    gaps |= core_.state->rows.Get(stripe, index).word.is_absent() ? uint64_t{1} << index : 0;
  }
  return gaps;
}

void Rebuilder::SetPace(const RebuildPace& pace) {
  pace_ = pace;
  limit_since_us_ = core_.loop.NowUs();
  limited_bytes_ = 0;
  wake_.NotifyAll();
}

// What ran ahead of the limit is made up for. Time in which nothing could be done gives no credit
// for more than a second.
Task<void> Rebuilder::KeepLimit() {
  while (pace_.bytes_per_second != 0 && !Ended()) {
    const uint64_t now = core_.loop.NowUs();
    const uint64_t due = limit_since_us_ + limited_bytes_ * 1'000'000 / pace_.bytes_per_second;
    if (due <= now) {
      if (due + 1'000'000 < now) {
        limit_since_us_ = now;
        limited_bytes_ = 0;
      }
      co_return;
    }
    co_await wake_.WaitUntil(due);
  }
}

// Positions on SSDs that were away: what they hold is verified.
uint64_t Rebuilder::Unverified(StripeIndex stripe) const {
  uint64_t positions = 0;
  for (uint64_t mask = core_.devices().unverified(); mask != 0; mask &= mask - 1) {
    const DeviceIndex ssd(static_cast<uint8_t>(std::countr_zero(mask)));
    const uint32_t index = core_.geometry.IndexOn(stripe, ssd);
    positions |= core_.state->rows.Get(stripe, index).word.has_slot() ? uint64_t{1} << index : 0;
  }
  return positions;
}

bool Rebuilder::Busy() const {
  return pace_.yields && core_.last_request_us + kRecentUs > core_.loop.NowUs();
}

bool Rebuilder::CommitDue() const {
  const PendingTable& pending = core_.state->pending;
  const LogStripeId oldest = pending.FirstLive();
  return oldest != kNone && pending.SequenceOf(oldest) <= membership_.CommitUpto();
}

Task<void> Rebuilder::Run() {
  while (!Ended()) {
    if (core_.devices().joining() == 0) {
      rebuilt_bytes_ = limited_bytes_ = 0;
      stuck_.clear();
      told_.clear();
      stuck_chunks_ = stuck_wait_us_ = 0;
      limit_since_us_ = core_.loop.NowUs();
      samples_.clear();
      co_await wake_.Wait();
      continue;
    }
    const uint64_t begun = core_.loop.NowUs();
    Task<Status> pass = Pass();
    const Status status = co_await pass;
    if (!Ended() && core_.devices().joining() != 0) {
      // Somebody still holds what keeps it from being ok, or a stripe cannot be read at the moment.
      const uint64_t now = core_.loop.NowUs();
      const uint64_t longest = core_.devices().unverified() != 0 ? kLongestRetryUs : kLongestLookUs;
      const uint64_t patience =
          stuck_.empty() ? kRetryUs : std::clamp(stuck_wait_us_, kRetryUs, longest);
      co_await wake_.WaitUntil(now + std::max(patience, now - begun));
    }
  }
  running_.Done();
}

Task<Status> Rebuilder::Pass() {
  // What cannot be committed keeps no row from being rebuilt.
  Status committed;
  if (!core_.canary(Canary::kRebuildForgetsLog)) {
    Task<Status> committing = CommitOld();
    committed = co_await committing;
  }
  const uint64_t verifying = core_.devices().unverified();
  const StatesNumber states = core_.devices().number();
  skipped_ = false;
  verified_chunks_ = 0;
  // What is committed later may have lain there unverified.
  const bool settled = committed.ok() && !CommitDue();
  if (!settled || verified_states_ != states) {
    verified_.clear();
  }
  if (settled && verified_.empty()) {
    verified_.resize(core_.geometry.stripes);
    verified_states_ = states;
  }
  RetryStuck();
  Task<Status> rebuilding = RebuildRows();
  Status status = co_await rebuilding;
  // With nothing old pending any more: a commit of that would install what lies there unverified.
  const bool all = !skipped_ && committed.ok() && !CommitDue();
  if (all && states == core_.devices().number() && !Ended()) {
    membership_.Verified(verifying);  // what is still wrong cannot be decoded
  }
  CountStuck();
  EPLOG_CO_TRY(status);
  EPLOG_CO_TRY(committed);
  const uint64_t upto = appender_.applied().sequence;
  for (uint8_t i = 0; i < core_.geometry.devices() && !Ended(); ++i) {
    if (!core_.devices().IsJoining(DeviceIndex(i)) || !membership_.NothingMissing(DeviceIndex(i))) {
      continue;
    }
    if (!membership_.FullCounts(DeviceIndex(i), upto) && !core_.canary(Canary::kJoinedOkEarly)) {
      EPLOG_CO_AWAIT(checkpointer_.Checkpoint(CheckpointKind::kFull));
    }
    Task<bool> trying = membership_.TryOk(DeviceIndex(i), upto);
    static_cast<void>(co_await trying);
  }
  co_return OkStatus();
}

// As a user's commit: with room that is the foreground's, not what is kept for the keeper.
Task<Status> Rebuilder::CommitOld() {
  while (CommitDue() && !Ended()) {
    EPLOG_CO_AWAIT(flusher_.FlushAll());
    committer_.ForgetFailures();
    const uint64_t since = core_.loop.NowUs();
    const uint32_t width = core_.geometry.commit_width();
    const std::vector<StripeIndex> stripes =
        committer_.OldestStripes(width, membership_.CommitUpto());
    Grant grant(admission_);
    EPLOG_CO_AWAIT(admission_.Admit(
        grant, {.blocks = core_.commit_cost.Blocks(width, uint64_t{width} * core_.geometry.k())}));
    Task<Status> commit = committer_.Commit(stripes);
    Status status = co_await commit;
    if (!status.ok() && status.error().code != ErrorCode::kBusy) {
      co_return status;
    }
    Task<void> breathe = Breathe(since);
    co_await breathe;
  }
  co_return core_.Running();
}

// Under a limit it goes on in steps of a quarter of a second.
size_t Rebuilder::BatchStripes() const {
  uint64_t bytes = Busy() ? kBytesBesideOthers : kBytesAtOnce;
  if (pace_.bytes_per_second != 0) {
    bytes = std::min(bytes, std::max(kBytesBesideOthers, pace_.bytes_per_second / 4));
  }
  return static_cast<size_t>(std::max<uint64_t>(1, bytes / core_.geometry.chunk_bytes));
}

// While nobody else wants the devices the next batch is read while one is written.
Task<Status> Rebuilder::RebuildRows() {
  TaskGroup group(core_.loop);
  const RowTable& rows = core_.state->rows;
  std::vector<StripeIndex> batch;
  Status failure;
  uint64_t since = core_.loop.NowUs();
  for (uint32_t at = 0; at < rows.groups() && !Ended(); ++at) {
    const uint32_t first = at * kRowGroupStripes;
    for (uint32_t s = 0; !rows.Group(at).empty() && s < rows.StripesIn(at) && !Ended(); ++s) {
      const StripeIndex stripe(first + s);
      const bool verified = !verified_.empty() && verified_[stripe.value];
      const uint64_t unverified = verified ? 0 : Unverified(stripe);
      verified_chunks_ += verified ? static_cast<uint64_t>(std::popcount(Unverified(stripe))) : 0;
      if ((Gaps(stripe) | unverified) != 0 && IsStuck(stripe)) {
        // Who is lost may be back one day, and then it can be decoded: until then what is there
        // counts as looked at as little as when it was tried.
        skipped_ = skipped_ || (unverified != 0 && core_.devices().live_ssds() != core_.geometry.n);
      } else if ((Gaps(stripe) | unverified) != 0) {
        batch.push_back(stripe);
      }
      if (batch.size() < BatchStripes()) {
        continue;
      }
      Task<void> limit = KeepLimit();
      co_await limit;
      limited_bytes_ += batch.size() * static_cast<uint64_t>(std::popcount(JoiningSsds())) *
                        core_.geometry.chunk_bytes;
      group.Start(RebuildBatch(std::exchange(batch, {})));
      if (Busy()) {
        Task<Status> done = group.Wait();
        Status status = co_await done;
        failure = failure.ok() ? std::move(status) : failure;
        Task<void> breathe = Breathe(since);
        co_await breathe;
        since = core_.loop.NowUs();
      } else {
        Task<void> below = group.WaitBelow(kRebuildsAtOnce);
        co_await below;
        Sample();
      }
    }
  }
  if (!batch.empty() && !Ended()) {
    group.Start(RebuildBatch(std::move(batch)));
  }
  Task<Status> last = group.Wait();
  Status status = co_await last;
  Sample();
  co_return failure.ok() ? status : failure;
}

// Reads rows as their parity covers them, and writes what is absent on joining SSDs to slots there.
Task<Status> Rebuilder::RebuildBatch(std::vector<StripeIndex> stripes) {
  const auto chunks = static_cast<uint32_t>(std::popcount(core_.devices().joining()));
  Grant grant(admission_);
  Task<Status> admit =
      admission_.Admit(grant, {.blocks = RowMender::Blocks(stripes.size(), chunks)});
  Status status = co_await admit;
  skipped_ = skipped_ || !status.ok();
  EPLOG_CO_TRY(status);
  std::vector<KeyedLocks::Guard> locks;
  for (const StripeIndex stripe : stripes) {
    Task<KeyedLocks::Guard> locking = writer_.rows.Lock(stripe.value);
    locks.push_back(co_await locking);
  }
  const StatesNumber states = core_.devices().number();
  RowBatch batch(core_, reader_, stripes.size());
  std::vector<uint64_t> doubtful;
  for (const StripeIndex stripe : stripes) {
    if ((Gaps(stripe) | Unverified(stripe)) != 0) {
      batch.Add(stripe);
      doubtful.push_back(Unverified(stripe));
      verified_chunks_ += static_cast<uint64_t>(std::popcount(doubtful.back()));
    }
  }
  Task<void> verifying = batch.ReadThese(doubtful);
  co_await verifying;
  const auto missing = [&](size_t at) {
    return Gaps(batch.row(at).stripe) | (batch.row(at).bad & doubtful[at]);
  };
  std::vector<size_t> lacking;
  for (size_t at = 0; at < batch.size(); ++at) {
    if (missing(at) != 0) {
      lacking.push_back(at);
    } else if (!verified_.empty() && verified_states_ == states) {
      verified_[batch.row(at).stripe.value] = true;
    }
  }
  Task<void> reading = batch.ReadEnough(lacking);
  co_await reading;
  std::vector<uint64_t> masks(batch.size());
  for (const size_t at : lacking) {
    const uint64_t gaps = missing(at);
    const Status decoded = batch.Decode(at, gaps);
    masks[at] = decoded.ok() ? gaps : 0;
    if (!decoded.ok()) {
      skipped_ = skipped_ || core_.devices().lost() != 0;  // it may be back one day
      verified_chunks_ -= static_cast<uint64_t>(std::popcount(doubtful[at]));
      NoteStuck(batch.row(at).stripe, gaps);
    }
  }
  Task<Result<uint64_t>> mending = mender_.Mend(batch, masks, states);
  Result<uint64_t> mended = co_await mending;
  uint64_t lacked = 0;
  for (const uint64_t mask : masks) {
    lacked += static_cast<uint64_t>(std::popcount(mask));
  }
  skipped_ = skipped_ || !mended.ok() || *mended != lacked;
  EPLOG_CO_TRY(mended);
  core_.hooks.rebuilt_chunks += *mended;
  rebuilt_bytes_ += *mended * core_.geometry.chunk_bytes;
  co_return status;
}

// ------------------------------------------------------------------- what cannot be decoded

std::vector<RowWord> Rebuilder::WordsOf(StripeIndex stripe) const {
  std::vector<RowWord> words;
  for (uint32_t i = 0; i < core_.geometry.n; ++i) {
    words.push_back(core_.state->rows.Get(stripe, i));
  }
  return words;
}

bool Rebuilder::IsStuck(StripeIndex stripe) const {
  const auto found = stuck_.find(stripe.value);
  return found != stuck_.end() && found->second == WordsOf(stripe);
}

void Rebuilder::NoteStuck(StripeIndex stripe, uint64_t gaps) {
  if (stuck_.empty()) {
    stuck_states_ = core_.devices().number();
  }
  if (stuck_.size() < kMostStuck || stuck_.contains(stripe.value)) {
    stuck_[stripe.value] = WordsOf(stripe);
  }
  if (gaps == 0 || told_.size() >= kMostTold || !told_.insert(stripe.value).second) {
    return;
  }
  for (; gaps != 0; gaps &= gaps - 1) {
    core_.Tell(
        EventOf(*core_.state, EventKind::kCorruptionLost, stripe,
                static_cast<uint32_t>(std::countr_zero(gaps)),
                "cannot be rebuilt: more of its stripe is wrong or missing than parity replaces"));
  }
}

// Each time that nothing has changed the next one is twice as far.
void Rebuilder::RetryStuck() {
  const uint64_t now = core_.loop.NowUs();
  const bool changed = core_.devices().number() != stuck_states_;
  if (stuck_.empty() || changed || now >= stuck_retry_us_) {
    stuck_wait_us_ = stuck_.empty() || changed
                         ? kRetryUs
                         : std::min(kLongestRetryUs, std::max(kRetryUs, 2 * stuck_wait_us_));
    stuck_retry_us_ = now + stuck_wait_us_;
    stuck_.clear();
  }
}

void Rebuilder::CountStuck() {
  stuck_chunks_ = 0;
  for (auto row = stuck_.begin(); row != stuck_.end() && !Ended();) {
    const StripeIndex stripe(row->first);
    if (IsStuck(stripe)) {
      stuck_chunks_ += static_cast<uint64_t>(std::popcount(Gaps(stripe) | Unverified(stripe)));
      ++row;
    } else {
      row = stuck_.erase(row);
    }
  }
}

void Rebuilder::Sample() {
  const uint64_t now = core_.loop.NowUs();
  if (samples_.empty() || now >= samples_.back().first + kSampleUs) {
    samples_.emplace_back(now, rebuilt_bytes_);
  }
  while (samples_.size() > 2 && samples_.front().first + kWindowUs < now) {
    samples_.pop_front();
  }
}

Rebuilder::Progress Rebuilder::GetProgress() const {
  Progress progress;
  for (uint64_t mask = JoiningSsds(); mask != 0; mask &= mask - 1) {
    const DeviceIndex ssd(static_cast<uint8_t>(std::countr_zero(mask)));
    progress.left_bytes += uint64_t{core_.state->absent(ssd)} * core_.geometry.chunk_bytes;
    if (core_.devices().IsUnverified(ssd)) {
      const uint64_t used = core_.geometry.slots - core_.space.free(ssd);
      progress.left_bytes += (used - std::min(used, verified_chunks_)) * core_.geometry.chunk_bytes;
    }
  }
  if (core_.devices().joining() == 0) {
    return progress;
  }
  progress.total_bytes = rebuilt_bytes_ + progress.left_bytes;
  progress.lost_bytes = std::min(progress.left_bytes, stuck_chunks_ * core_.geometry.chunk_bytes);
  if (samples_.size() > 1) {
    const uint64_t us = samples_.back().first - samples_.front().first;
    progress.bytes_per_second =
        (samples_.back().second - samples_.front().second) * 1'000'000 / std::max<uint64_t>(us, 1);
  }
  return progress;
}

// As long as the batch took, the devices belong to others, if there are any.
Task<void> Rebuilder::Breathe(uint64_t since_us) {
  Sample();
  const uint64_t now = core_.loop.NowUs();
  if (Busy() && !Ended()) {
    co_await wake_.WaitUntil(now + (now - since_us));
  } else {
    co_await core_.loop.Yield();
  }
}

}  // namespace eplog
