#include "engine/rebuilder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/crc32c.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint32_t kStripesAtOnce = 64;  // while nobody else wants the devices
constexpr uint32_t kStripesBesideOthers = 8;
constexpr uint64_t kRecentUs = 100'000;  // a request so long ago counts as work of others
constexpr uint64_t kRetryUs = 100'000;
constexpr uint64_t kSampleUs = 500'000;
constexpr uint64_t kWindowUs = 30'000'000;

}  // namespace

// The gaps of one stripe's row, and what fills them.
struct Rebuilder::Repair {
  Repair(Core& core, StripeIndex s) : stripe(s), pins(core) {}

  StripeIndex stripe;
  KeyedLocks::Guard lock;
  Pins pins;
  uint64_t states = 0;
  RecordWrite record;
  bool ready = false;
  bool submitted = false;
  Status status;
};

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
  return core_.joining & ((uint64_t{1} << core_.geometry.n) - 1);
}

bool Rebuilder::Gaps(StripeIndex stripe) const {
  for (uint64_t mask = JoiningSsds(); mask != 0; mask &= mask - 1) {
    const DeviceIndex ssd(static_cast<uint8_t>(std::countr_zero(mask)));
    if (core_.state->rows.Get(stripe, core_.geometry.IndexOn(stripe, ssd)).word.is_absent()) {
      return true;
    }
  }
  return false;
}

bool Rebuilder::CommitDue() const {
  const PendingTable& pending = core_.state->pending;
  const LogStripeId oldest = pending.FirstLive();
  return oldest != kNone && pending.SequenceOf(oldest) <= membership_.CommitUpto();
}

Task<void> Rebuilder::Run() {
  while (!Ended()) {
    if (core_.joining == 0) {
      rebuilt_bytes_ = 0;
      samples_.clear();
      co_await wake_.Wait();
      continue;
    }
    Task<Status> pass = Pass();
    const Status status = co_await pass;
    if (!Ended() && core_.joining != 0) {
      // Somebody still holds what keeps it from being ok, or a stripe cannot be read at the moment.
      co_await wake_.WaitUntil(core_.loop.NowUs() + kRetryUs);
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
  Task<Status> rebuilding = RebuildRows();
  Status status = co_await rebuilding;
  EPLOG_CO_TRY(status);
  EPLOG_CO_TRY(committed);
  const uint64_t upto = appender_.applied().sequence;
  for (uint8_t i = 0; i < core_.geometry.devices() && !Ended(); ++i) {
    if ((core_.joining >> i & 1) == 0 || !membership_.NothingMissing(DeviceIndex(i))) {
      continue;
    }
    if (!membership_.FullCounts(DeviceIndex(i), upto) && !core_.canary(Canary::kJoinedOkEarly)) {
      Task<Status> full = checkpointer_.Checkpoint(CheckpointKind::kFull);
      status = co_await full;
      EPLOG_CO_TRY(status);
    }
    Task<bool> trying = membership_.TryOk(DeviceIndex(i), upto);
    static_cast<void>(co_await trying);
  }
  co_return OkStatus();
}

// As a user's commit: with room that is the foreground's, not what is kept for the keeper.
Task<Status> Rebuilder::CommitOld() {
  while (CommitDue() && !Ended()) {
    Task<Status> flush = flusher_.FlushAll();
    Status status = co_await flush;
    EPLOG_CO_TRY(status);
    committer_.ForgetFailures();
    const uint64_t since = core_.loop.NowUs();
    const uint32_t width = core_.geometry.commit_width();
    const std::vector<StripeIndex> stripes =
        committer_.OldestStripes(width, membership_.CommitUpto());
    Grant grant(admission_);
    Task<Status> admit = admission_.Admit(
        grant, {.blocks = core_.commit_cost.Blocks(width, uint64_t{width} * core_.geometry.k())});
    status = co_await admit;
    EPLOG_CO_TRY(status);
    Task<Status> commit = committer_.Commit(stripes);
    status = co_await commit;
    if (!status.ok() && status.error().code != ErrorCode::kBusy) {
      co_return status;
    }
    Task<void> breathe = Breathe(since);
    co_await breathe;
  }
  co_return core_.Running();
}

Task<Status> Rebuilder::RebuildRows() {
  Status failure;
  std::vector<StripeIndex> batch;
  const RowTable& rows = core_.state->rows;
  for (uint32_t group = 0; group < rows.groups() && !Ended(); ++group) {
    const uint32_t first = group * kRowGroupStripes;
    for (uint32_t s = 0; !rows.Group(group).empty() && s < rows.StripesIn(group); ++s) {
      if (Gaps(StripeIndex(first + s))) {
        batch.push_back(StripeIndex(first + s));
      }
      const bool busy = core_.last_request_us + kRecentUs > core_.loop.NowUs();
      if (batch.size() >= (busy ? kStripesBesideOthers : kStripesAtOnce)) {
        const uint64_t since = core_.loop.NowUs();
        Task<Status> rebuilding = RebuildBatch(std::exchange(batch, {}));
        Status status = co_await rebuilding;
        failure = failure.ok() ? std::move(status) : failure;
        Task<void> breathe = Breathe(since);
        co_await breathe;
      }
      if (Ended()) {
        break;
      }
    }
  }
  if (!batch.empty() && !Ended()) {
    Task<Status> rebuilding = RebuildBatch(std::move(batch));
    Status status = co_await rebuilding;
    failure = failure.ok() ? std::move(status) : failure;
  }
  co_return failure;
}

Task<Status> Rebuilder::RebuildBatch(std::vector<StripeIndex> stripes) {
  const uint64_t bytes = stripes.size() * MaxRowRecordBytes(std::popcount(core_.joining));
  Grant grant(admission_);
  Task<Status> admit = admission_.Admit(grant, {.blocks = 1 + DivideUp(bytes, kBlockBytes / 2)});
  Status status = co_await admit;
  EPLOG_CO_TRY(status);
  std::vector<std::unique_ptr<Repair>> repairs;
  for (const StripeIndex stripe : stripes) {
    repairs.push_back(std::make_unique<Repair>(core_, stripe));
    Task<KeyedLocks::Guard> locking = writer_.rows.Lock(stripe.value);
    repairs.back()->lock = co_await locking;
  }
  TaskGroup group(core_.loop);
  for (const auto& repair : repairs) {
    group.Start(Decode(*repair));
  }
  Task<Status> all = group.Wait();
  static_cast<void>(co_await all);  // each repair has its own outcome
  for (const auto& repair : repairs) {
    if (repair->ready) {
      repair->submitted = true;
      appender_.Submit(repair->record, true);
    }
  }
  status = OkStatus();
  for (const auto& repair : repairs) {
    if (!repair->submitted) {
      GiveUp(*repair);
      status = status.ok() ? repair->status : status;
      continue;
    }
    Completion& completion = repair->record.completion;
    co_await completion;
    Status done = completion.status();
    if (!done.ok()) {
      GiveUp(*repair);
      status = status.ok() ? std::move(done) : status;
    } else {
      core_.hooks.rebuilt_chunks += repair->record.row->changes.size();
      rebuilt_bytes_ += repair->record.row->changes.size() * core_.geometry.chunk_bytes;
    }
  }
  co_return status;
}

// Its slots are given back: the devices have changed meanwhile.
void Rebuilder::GiveUp(Repair& repair) {
  if (!repair.record.row) {
    return;
  }
  for (const RowChange& change : repair.record.row->changes) {
    const DeviceIndex ssd = core_.geometry.SsdOf(repair.stripe, change.index);
    if (core_.IsCurrent(ssd, repair.states)) {
      core_.space.Unclaim(ssd, change.word.slot());
    }
  }
  core_.space_changed.NotifyAll();
}

Task<Status> Rebuilder::WriteChunk(DeviceIndex ssd, SlotIndex slot, const Buffer& chunk) {
  Task<Status> write =
      core_.members.WriteBytes(ssd, core_.geometry.SlotOffset(slot), chunk.span(), IoKind::kRepair);
  Status status = co_await write;
  core_.traffic.ssd_repair_bytes += status.ok() ? chunk.size() : 0;
  co_return core_.members.Absorb(std::move(status));
}

// Reads the row as its parity covers it, and writes what is absent on joining SSDs to slots there.
Task<Status> Rebuilder::Decode(Repair& repair) {
  const Geometry& g = core_.geometry;
  repair.states = core_.states;
  std::vector<RowWord> words;
  uint64_t gaps = 0;
  for (uint32_t i = 0; i < g.n; ++i) {
    words.push_back(core_.state->rows.Get(repair.stripe, i));
    const DeviceIndex ssd = g.SsdOf(repair.stripe, i);
    repair.pins.Add(ssd, words.back().word);
    const bool gap = words.back().word.is_absent() && (core_.joining >> ssd.value & 1) != 0;
    gaps |= gap ? uint64_t{1} << i : 0;
  }
  if (gaps == 0) {
    co_return OkStatus();
  }
  std::vector<Buffer> data;
  std::vector<std::span<std::byte>> spans;
  std::array<const std::byte*, kMaxSsds> content{};
  for (uint32_t i = 0; i < g.k(); ++i) {
    data.push_back(core_.pool.Get(g.chunk_bytes));
    spans.push_back(data.back().span());
    content[i] = data.back().data();
  }
  Task<Status> reading = reader_.ReadRow(repair.stripe, words, spans);
  repair.status = co_await reading;
  if (!repair.status.ok()) {
    co_return OkStatus();
  }
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < g.m; ++j) {
    data.push_back(core_.pool.Get(g.chunk_bytes));
    parity[j] = data.back().data();
  }
  if (gaps >> g.k() != 0) {
    core_.code.Encode(std::span(content).first(g.k()), std::span(parity).first(g.m), g.chunk_bytes);
  }
  RowRecord row;
  row.stripe = repair.stripe;
  TaskGroup group(core_.loop);
  for (uint32_t i = 0; i < g.n; ++i) {
    const DeviceIndex ssd = g.SsdOf(repair.stripe, i);
    if ((gaps >> i & 1) == 0 || !core_.IsCurrent(ssd, repair.states)) {
      continue;
    }
    if (Crc32c(data[i].span()) != words[i].crc) {
      repair.status =
          Fail(ErrorCode::kCorrupt, "parity of stripe " + std::to_string(repair.stripe.value) +
                                        " does not match its data");
      continue;
    }
    if (core_.space.free(ssd) <= g.commit_width()) {
      continue;  // those are for commits; its turn comes again
    }
    const SlotIndex slot = core_.space.Claim(ssd);
    row.changes.push_back({static_cast<uint8_t>(i), SlotWord::At(slot), words[i].crc, 0});
    group.Start(WriteChunk(ssd, slot, data[i]));
  }
  Task<Status> all = group.Wait();
  Status status = co_await all;
  const bool any = !row.changes.empty();
  repair.record.row = std::move(row);
  repair.record.states = repair.states;
  if (!status.ok()) {
    core_.Stop(status.error());
    repair.status = std::move(status);
  } else {
    repair.ready = any;
  }
  co_return OkStatus();
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
  }
  if (core_.joining == 0) {
    return progress;
  }
  progress.total_bytes = rebuilt_bytes_ + progress.left_bytes;
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
  const bool busy = core_.last_request_us + kRecentUs > now;
  if (busy && !Ended()) {
    co_await wake_.WaitUntil(now + (now - since_us));
  } else {
    co_await core_.loop.Yield();
  }
}

}  // namespace eplog
