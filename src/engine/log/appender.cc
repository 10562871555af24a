#include "engine/log/appender.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/log/flusher.h"

namespace eplog {

Appender::Appender(Core& core)
    : core_(core),
      applied_changed_(core.loop),
      queue_(core),
      maker_(core, queue_),
      writer_(core),
      last_write_(core.geometry.extents(), 0) {}

Appender::~Appender() = default;

void Appender::Open(const Epoch& epoch, const Position& position, uint64_t checkpoint_place,
                    Flusher& flusher) {
  maker_.Open(epoch, position);
  applied_ = position;
  checkpoint_place_ = checkpoint_place;
  flusher_ = &flusher;
  // Whatever was found was there already: a flush of it has nothing to wait for, and it is as old
  // as the opening.
  ages_.Open(position.sequence, core_.loop.NowUs());
}

uint64_t Appender::log_tail() const {
  uint64_t tail = checkpoint_place_;
  if (const auto oldest = core_.state->pending.OldestPlace()) {
    tail = std::min(tail, *oldest);
  }
  for (const uint64_t place : log_pins_) {
    tail = std::min(tail, place);
  }
  return tail;
}

bool Appender::RoomInLog(uint64_t blocks, uint64_t reserve) const {
  return log_used() + blocks + reserve <= core_.geometry.log_blocks;
}

// A promise of two blocks may become one pending chunk, in a stripe of its own.
uint64_t Appender::ClosedBlocks(uint64_t promised, bool frees) const {
  if (core_.canary(Canary::kCommitWithoutReserve)) {
    return kLogReserveForRecovery;
  }
  const uint64_t stripes = core_.state->pending_stripes() + promised / 2;
  const uint64_t chunks = core_.state->pending.pending_chunks() + promised / 2;
  return frees ? core_.commit_cost.NeededBlocks(stripes, chunks)
               : core_.commit_cost.ClosedBlocks(stripes, chunks);
}

bool Appender::CanPromise(uint64_t blocks, bool frees) const {
  const uint64_t promised = queue_.promised_blocks() + blocks;
  return log_charged() + promised + ClosedBlocks(promised, frees) <= core_.geometry.log_blocks;
}

uint64_t Appender::UrgentRoom() const {
  const uint64_t taken =
      log_used() + queue_.promised_blocks() + queue_.urgent() + kLogReserveForRecovery;
  return core_.geometry.log_blocks - std::min(core_.geometry.log_blocks, taken);
}

uint64_t Appender::CheckpointGain() const {
  const uint64_t oldest = core_.state->pending.OldestLivePlace().value_or(applied_.place);
  return std::min(oldest, applied_.place) - std::min(oldest, log_tail());
}

void Appender::CheckpointCounts(uint64_t place) {
  checkpoint_place_ = place;
  core_.append.NotifyAll();
}

void Appender::UnpinLog(uint64_t place) {
  log_pins_.erase(std::find(log_pins_.begin(), log_pins_.end(), place));
  core_.space_changed.NotifyAll();
  LetOn();
}

bool Appender::RingShort() const {
  // Every header that is applied or on its way can be put on the rings, even if each gets a block
  // of its own: then a flush never waits for ring room, and a checkpoint (which needs a flush) can
  // always make some.
  const uint64_t need = core_.rings.queued() + in_flight_.size() + 1;
  return core_.rings.Room(JournalRings::kReserveBlocks) < need;
}

bool Appender::CanAppend() {
  blocked_ = false;
  if (in_flight_.size() >= kMaxInFlight || core_.devices().changing() || paused_) {
    return false;
  }
  queue_.DropOutdated();
  if (queue_.empty()) {
    return false;
  }
  const bool urgent = queue_.urgent() != 0;
  if (!urgent && !queue_.WideEnough(in_flight_.size())) {
    return false;
  }
  const uint64_t unstable = (next_place() - flusher_->stable_place()) * kBlockBytes;
  blocked_ = unstable >= kMaxUnstableBytes || RingShort() ||
             (urgent && !RoomInLog(1 + queue_.promised_blocks(), kLogReserveForRecovery));
  if (blocked_) {
    core_.kick.NotifyAll();
  }
  return !blocked_;
}

Task<void> Appender::InFlightWritten() {
  const auto written = [this] {
    return std::all_of(in_flight_.begin(), in_flight_.end(),
                       [](const auto& entry) { return entry->written; });
  };
  while (!written()) {
    co_await applied_changed_.Wait();
  }
}

Task<Status> Appender::AppendMark() {
  RecordWrite mark;
  Submit(mark, true);
  co_await mark.completion;
  co_return mark.completion.status();
}

Task<void> Appender::End() {
  ending_ = true;
  core_.append.NotifyAll();
  while (running_ || !in_flight_.empty()) {
    co_await applied_changed_.Wait();
  }
}

Task<void> Appender::Run() {
  running_ = true;
  while (true) {
    while (!core_.stop_error && !CanAppend() && !ending_) {
      co_await core_.append.Wait();
    }
    if (core_.stop_error) {
      FailAll();
    }
    if (ending_) {
      break;
    }
    if (core_.stop_error) {
      co_await core_.append.Wait();
      continue;
    }
    std::unique_ptr<LogEntry> entry = maker_.Make(flusher_->mark());
    EPLOG_CHECK(RoomInLog(0, kLogReserveForRecovery), "I1: the log would overwrite itself");
    in_flight_.push_back(std::move(entry));
    core_.loop.Start(Write(*in_flight_.back()));
    // Those whose writes are acknowledged by now may have more: the next log stripe is the wider
    // for it.
    co_await core_.loop.Yield();
  }
  running_ = false;
  applied_changed_.NotifyAll();
}

Task<void> Appender::Write(LogEntry& entry) {
  Task<Status> writing = writer_.Write(entry);
  entry.status = co_await writing;
  entry.written = true;
  CompleteInOrder();
}

Task<void> Appender::Pause() {
  paused_ = true;
  while (!in_flight_.empty() && !core_.stop_error) {
    co_await applied_changed_.Wait();
  }
}

// A device may be lost on the way, by a ring write that fails at once.
void Appender::CompleteInOrder() {
  const auto may = [this] { return !core_.devices().changing() || core_.stop_error; };
  if (!may()) {
    applied_changed_.NotifyAll();
    return;
  }
  while (may() && !in_flight_.empty() && in_flight_.front()->written) {
    std::unique_ptr<LogEntry> entry = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (!entry->status.ok()) {
      core_.Stop(entry->status.error());
    }
    Finish(*entry);
    maker_.Recycle(std::move(entry));
  }
  core_.append.NotifyAll();
  applied_changed_.NotifyAll();
}

void Appender::Finish(LogEntry& entry) {
  const EntryHeader& header = entry.header;
  // After a failure nothing more is applied: what comes later in the log may not become visible
  // without it.
  const Status status = core_.Running();
  queue_.TakeBack(entry.held_blocks);
  const bool none_pending = core_.state->pending.pending_chunks() == 0;
  if (status.ok()) {
    slot_changes_.freed.clear();
    slot_changes_.kept.clear();
    core_.state->Apply(header, slot_changes_, core_.broken());
    if (core_.canary(Canary::kEarlyDeathUnstable)) {
      core_.state->Stable(header.sequence);
    }
    core_.space.FreedBy(header.sequence, slot_changes_.freed);
    // Slots were freed, promises given back, stripes committed: whoever waits looks again.
    core_.space_changed.NotifyAll();
    for (const SsdSlot& slot : slot_changes_.kept) {
      core_.space.KeepAfterAll(slot.ssd, slot.slot);
    }
    applied_ = {header.epoch, header.sequence, header.place + header.length_blocks};
    core_.rings.Enqueue(header.sequence, entry.header_block.span().first(entry.used_bytes));
    flusher_->Applied({header.sequence, header.mark, applied_.place, entry.ssd_mask});
    NoteWrites(entry);
    Count(entry);
    if (none_pending || header.place == checkpoint_place_) {
      core_.kick.NotifyAll();  // the keeper's clocks for commits and checkpoints start
    }
#ifndef NDEBUG
    CheckInvariants(header);
#endif
  }
  for (ChunkWrite* write : entry.chunk_writes) {
    write->completion.Finish(core_.loop, status, header.sequence);
  }
  for (RecordWrite* record : entry.records) {
    record->completion.Finish(core_.loop, status, header.sequence);
  }
}

// What must hold after every entry; the walk over everything only now and then, and on small
// arrays.
void Appender::CheckInvariants(const EntryHeader& header) const {
  const Geometry& g = core_.geometry;
  const State& state = *core_.state;
  for (const LogStripeRecord& record : header.log_stripes) {
    uint64_t ssds = 0;
    for (const LogStripeMember& member : record.members) {
      const auto pending = state.pending.Find(member.chunk);
      EPLOG_CHECK(pending && pending->version == header.sequence && pending->word == member.word,
                  "I2: the latest version of a chunk is a member of a live log stripe");
      const uint64_t bit = uint64_t{1} << g.SsdOf(member.chunk).value;
      EPLOG_CHECK((ssds & bit) == 0, "I2: members of a log stripe are on distinct SSDs");
      ssds |= bit;
    }
  }
  EPLOG_CHECK(header.mark <= flusher_->stable() && flusher_->stable() <= header.sequence,
              "I4: the mark is a stable sequence");
  EPLOG_CHECK(log_tail() <= header.place && log_used() <= g.log_blocks,
              "I1: the log holds what is still needed");
  constexpr uint64_t kWalkEvery = 64;
  constexpr uint64_t kWalkSlots = 4096;
  if (header.sequence % kWalkEvery == 0 && uint64_t{g.slots} * g.n <= kWalkSlots) {
    state.ForEachSlot([&](DeviceIndex ssd, SlotIndex slot) {
      EPLOG_CHECK(core_.space.IsUsed(ssd, slot), "I1: a slot that is needed is free");
    });
    EPLOG_CHECK(state.CountsAreRight(), "section 5: what commit will need is counted wrongly");
  }
}

void Appender::NoteWrites(const LogEntry& entry) {
  const Geometry& g = core_.geometry;
  for (const ChunkWrite* write : entry.chunk_writes) {
    last_write_[g.StripeOf(write->chunk).value / g.extent_stripes] = entry.header.sequence;
  }
  for (const RecordWrite* record : entry.records) {
    if (record->own_version) {
      last_write_[record->row->stripe.value / g.extent_stripes] = entry.header.sequence;
    }
    if (record->trim) {
      const auto* stripes = std::get_if<StripesTrimmed>(&*record->trim);
      const StripeIndex first = stripes != nullptr
                                    ? stripes->first
                                    : g.StripeOf(std::get<ChunksTrimmed>(*record->trim).first);
      last_write_[first.value / g.extent_stripes] = entry.header.sequence;
    }
  }
  const uint64_t now = core_.loop.NowUs();
  if (!entry.chunk_writes.empty() && ages_.Due(now)) {
    ages_.Note(entry.header.sequence, now, OldestPending());
  }
}

// Its sequence; 0 if nothing is pending.
uint64_t Appender::OldestPending() const {
  uint64_t oldest = 0;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    oldest = core_.state->pending.SequenceOf(id);
    return false;
  });
  return oldest;
}

std::optional<uint64_t> Appender::OldestPendingUs() const {
  const uint64_t oldest = OldestPending();
  return oldest == 0 ? std::nullopt : std::optional(ages_.AppendedUs(oldest));
}

void Appender::Count(const LogEntry& entry) {
  Traffic& traffic = core_.traffic;
  ++traffic.log_appends;
  traffic.log_stripes += entry.header.log_stripes.size();
  traffic.log_stripe_members += entry.chunk_writes.size();
}

void Appender::FailAll() {
  queue_.FailAll();
  applied_changed_.NotifyAll();
}

}  // namespace eplog
