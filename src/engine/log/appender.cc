#include "engine/log/appender.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "engine/log/flusher.h"
#include "rings/log_ring.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMaxMergedBytes = size_t{1} << 20;
constexpr uint64_t kAgeSampleUs = 100'000;
constexpr size_t kMaxAges = 4096;

}  // namespace

// One entry from its making until it is applied. Pooled.
struct Appender::Entry {
  EntryHeader header;
  Buffer header_block;
  size_t used_bytes = 0;
  std::vector<Buffer> log_chunks;  // m for each log stripe
  std::vector<ChunkWrite*> chunk_writes;
  std::vector<RecordWrite*> records;
  std::vector<SlotWrite> slot_writes;
  std::vector<iovec> slot_parts;
  size_t bytes = kEntryFixedBytes;  // upper bound of the header's used bytes
  uint64_t ssd_mask = 0;            // SSDs that must be flushed before it is stable
  uint64_t held_blocks = 0;         // promises that end when it is applied
  bool written = false;
  Status status;

  void Clear() {
    header.volumes.clear();
    header.rows.clear();
    header.trims.clear();
    header.log_stripes.clear();
    header.first_of_epoch = false;
    header.follows_epoch = {};
    header.follows_sequence = 0;
    log_chunks.clear();
    chunk_writes.clear();
    records.clear();
    slot_writes.clear();
    slot_parts.clear();
    bytes = kEntryFixedBytes;
    ssd_mask = 0;
    held_blocks = 0;
    written = false;
    status = OkStatus();
  }
};

Appender::Appender(Core& core)
    : core_(core),
      applied_changed_(core.loop),
      chunks_(core.geometry.n),
      last_write_(core.geometry.extents(), 0) {}

Appender::~Appender() = default;

void Appender::Open(const Epoch& epoch, const Position& position, uint64_t checkpoint_place,
                    Flusher& flusher) {
  epoch_ = epoch;
  next_ = applied_ = position;
  checkpoint_place_ = checkpoint_place;
  flusher_ = &flusher;
  // Whatever was found was there already: a flush of it has nothing to wait for, and it is as old
  // as the opening.
  ages_.emplace_back(position.sequence, core_.loop.NowUs());
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
  const uint64_t promised = promised_blocks_ + blocks;
  return log_charged() + promised + ClosedBlocks(promised, frees) <= core_.geometry.log_blocks;
}

uint64_t Appender::UrgentRoom() const {
  const uint64_t taken = log_used() + promised_blocks_ + urgent_.size() + kLogReserveForRecovery;
  return core_.geometry.log_blocks - std::min(core_.geometry.log_blocks, taken);
}

uint64_t Appender::CheckpointGain() const {
  const uint64_t oldest = core_.state->pending.OldestLivePlace().value_or(applied_.place);
  return std::min(oldest, applied_.place) - std::min(oldest, log_tail());
}

void Appender::Submit(ChunkWrite& write) {
  if (core_.stop_error) {
    TakeBack(BlocksForChunk());
    write.completion.Finish(core_.loop, core_.Running(), 0);
    return;
  }
  write.states = core_.devices().number();
  chunks_[core_.geometry.SsdOf(write.chunk).value].push_back(&write);
  ++queued_chunks_;
  core_.append.NotifyAll();
}

void Appender::Submit(RecordWrite& record, bool urgent) {
  if (core_.stop_error) {
    TakeBack(urgent ? 0 : record.promised);
    record.completion.Finish(core_.loop, core_.Running(), 0);
    return;
  }
  record.submitted_states = core_.devices().number();
  record.max_bytes = record.row ? MaxRecordBytes(*record.row) : 0;
  if (record.row && record.own_version) {
    record.max_bytes +=
        record.row->changes
            .size();  // Number sets their versions: at a distance of 0, one byte each
  }
  for (const VolumeRecord& volume : record.volumes) {
    record.max_bytes += MaxRecordBytes(volume);
  }
  record.max_bytes += record.trim ? MaxRecordBytes(*record.trim) : 0;
  (urgent ? urgent_ : records_).push_back(&record);
  core_.append.NotifyAll();
}

void Appender::CheckpointCounts(uint64_t place) {
  checkpoint_place_ = place;
  core_.append.NotifyAll();
}

void Appender::UnpinLog(uint64_t place) {
  log_pins_.erase(std::find(log_pins_.begin(), log_pins_.end(), place));
  core_.space_changed.NotifyAll();
}

bool Appender::RingShort() const {
  // Every header that is applied or on its way can be put on the rings, even if each gets a block
  // of its own: then a flush never waits for ring room, and a checkpoint (which needs a flush) can
  // always make some.
  const uint64_t need = core_.rings.queued() + in_flight_.size() + 1;
  return core_.rings.Room(JournalRings::kReserveBlocks) < need;
}

uint32_t Appender::Width() const {
  uint32_t width = 0;
  for (const auto& queue : chunks_) {
    width += queue.empty() ? 0 : 1;
  }
  return width;
}

bool Appender::WideEnough() const {
  const uint32_t n = core_.geometry.n;
  const std::array<uint32_t, kMaxInFlight> least = {1, (n + 1) / 2, n * 3 / 4, n - 1};
  return !records_.empty() || Width() >= std::max(1U, least[in_flight_.size()]);
}

bool Appender::CanAppend() {
  blocked_ = false;
  if (in_flight_.size() >= kMaxInFlight || core_.devices().changing() || paused_) {
    return false;
  }
  DropOutdated();
  if (!HasWork()) {
    return false;
  }
  if (urgent_.empty() && !WideEnough()) {
    return false;
  }
  const uint64_t unstable = (next_.place - flusher_->stable_place()) * kBlockBytes;
  blocked_ = unstable >= kMaxUnstableBytes || RingShort() ||
             (!urgent_.empty() && !RoomInLog(1 + promised_blocks_, kLogReserveForRecovery));
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
    std::unique_ptr<Entry> entry = NewEntry();
    if (!urgent_.empty()) {
      TakeRecords(*entry, urgent_, true);
    } else {
      TakeRecords(*entry, records_, false);
      TakeLogStripes(*entry);
    }
    Number(*entry);
    Encode(*entry);
    in_flight_.push_back(std::move(entry));
    core_.loop.Start(Write(*in_flight_.back()));
    // Those whose writes are acknowledged by now may have more: the next log stripe is the wider
    // for it.
    co_await core_.loop.Yield();
  }
  running_ = false;
  applied_changed_.NotifyAll();
}

std::unique_ptr<Appender::Entry> Appender::NewEntry() {
  if (spare_.empty()) {
    return std::make_unique<Entry>();
  }
  std::unique_ptr<Entry> entry = std::move(spare_.back());
  spare_.pop_back();
  entry->Clear();
  return entry;
}

void Appender::TakeRecords(Entry& entry, std::deque<RecordWrite*>& queue, bool urgent) {
  // Without urgent work, leave room for one log stripe of the chunks that wait.
  const size_t keep = urgent || queued_chunks_ == 0
                          ? 0
                          : MaxLogStripeRecordBytes(core_.geometry.n, core_.geometry.m);
  while (!queue.empty() && (entry.bytes + queue.front()->max_bytes + keep <= kMaxEntryHeaderBytes ||
                            entry.records.empty())) {
    RecordWrite* record = queue.front();
    queue.pop_front();
    entry.bytes += record->max_bytes;
    entry.records.push_back(record);
    promised_blocks_ -= urgent ? 0 : 1;
    entry.held_blocks += urgent ? 0 : record->promised - 1;
    WithoutLost(*record);
    if (record->row) {
      entry.header.rows.push_back(*record->row);
    }
    for (const VolumeRecord& volume : record->volumes) {
      entry.header.volumes.push_back(volume);
    }
    if (record->trim) {
      entry.header.trims.push_back(*record->trim);
    }
    entry.slot_writes.insert(entry.slot_writes.end(), record->writes.begin(), record->writes.end());
  }
  EPLOG_CHECK(entry.bytes <= kMaxEntryHeaderBytes, "a record does not fit an entry");
}

void Appender::TakeLogStripes(Entry& entry) {
  const size_t record_bytes = MaxLogStripeRecordBytes(core_.geometry.n, core_.geometry.m);
  // The first log stripe takes what there is; further ones only if they are about as wide as the
  // array.
  while (queued_chunks_ != 0 && entry.bytes + record_bytes <= kMaxEntryHeaderBytes &&
         (entry.header.log_stripes.empty() || Width() + 1 >= core_.geometry.n)) {
    TakeLogStripe(entry);
    entry.bytes += record_bytes;
  }
}

void Appender::TakeLogStripe(Entry& entry) {
  LogStripeRecord& record = entry.header.log_stripes.emplace_back();
  std::array<const std::byte*, kMaxSsds> data{};
  for (auto& queue : chunks_) {
    if (queue.empty()) {
      continue;
    }
    ChunkWrite* write = queue.front();
    queue.pop_front();
    --queued_chunks_;
    promised_blocks_ -=
        BlocksForChunk();  // the log stripe takes less than its members were promised
    WithoutLost(*write);
    data[record.members.size()] = write->data;
    record.members.push_back({write->chunk, write->word, write->crc});
    entry.chunk_writes.push_back(write);
    if (write->word.has_slot()) {
      entry.slot_writes.push_back(
          {core_.geometry.SsdOf(write->chunk), write->word.slot(), write->data, false});
    }
  }
  std::array<std::byte*, kMaxParity> parity{};
  const size_t first = entry.log_chunks.size();
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    entry.log_chunks.push_back(core_.pool.Get(core_.geometry.chunk_bytes));
    parity[j] = entry.log_chunks.back().data();
  }
  core_.code.Encode(std::span(data).first(record.members.size()),
                    std::span(parity).first(core_.geometry.m), core_.geometry.chunk_bytes);
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    record.log_crcs.push_back(core_.checksum(entry.log_chunks[first + j].span()));
  }
}

void Appender::Number(Entry& entry) {
  EntryHeader& header = entry.header;
  header.epoch = epoch_;
  header.sequence = next_.sequence + 1;
  header.mark = newest_mark_ = flusher_->mark();
  header.place = next_.place;
  if (std::exchange(first_of_epoch_, false)) {
    header.first_of_epoch = true;
    header.follows_epoch = next_.epoch;
    header.follows_sequence = next_.sequence;
  }
  header.length_blocks =
      1 + static_cast<uint32_t>(header.log_stripes.size()) * core_.geometry.chunk_blocks();
  EPLOG_CHECK(RoomInLog(header.length_blocks, kLogReserveForRecovery),
              "I1: the log would overwrite itself");
  size_t row = 0;
  for (RecordWrite* record : entry.records) {
    if (!record->row) {
      continue;
    }
    for (RowChange& change : header.rows[row].changes) {
      if (record->own_version && change.index < core_.geometry.k()) {
        change.version = header.sequence;
      }
      if (change.word.has_slot() && (record->own_version || change.version == 0)) {
        entry.ssd_mask |= uint64_t{1}
                          << core_.geometry.SsdOf(header.rows[row].stripe, change.index).value;
      }
    }
    ++row;
  }
  for (const SlotWrite& write : entry.slot_writes) {
    entry.ssd_mask |= uint64_t{1} << write.ssd.value;
  }
  const uint64_t lap = next_.place / core_.geometry.log_blocks;
  next_ = {epoch_, header.sequence, header.place + header.length_blocks};
  core_.hooks.log_wraps += next_.place / core_.geometry.log_blocks != lap ? 1 : 0;
}

void Appender::Encode(Entry& entry) {
  entry.header_block = core_.pool.Get(kBlockBytes);
  const auto block = entry.header_block.span();
  entry.used_bytes = EncodeEntryHeader(entry.header, core_.identity.array_uuid, block);
  std::memset(block.data() + entry.used_bytes, 0, block.size() - entry.used_bytes);
#ifndef NDEBUG
  const auto decoded = DecodeEntryHeader(block, core_.identity.array_uuid, core_.geometry);
  EPLOG_CHECK(decoded.ok() && *decoded == entry.header, "an entry does not decode to itself");
#endif
}

// Neighbouring slots of an SSD go in one request.
void Appender::StartSlotWrites(Entry& entry, TaskGroup& group) {
  auto& writes = entry.slot_writes;
  std::sort(writes.begin(), writes.end(), [](const SlotWrite& a, const SlotWrite& b) {
    return a.ssd != b.ssd ? a.ssd < b.ssd : a.slot < b.slot;
  });
  const size_t chunk = core_.geometry.chunk_bytes;
  entry.slot_parts.resize(writes.size());
  for (size_t i = 0; i < writes.size(); ++i) {
    entry.slot_parts[i] = {const_cast<std::byte*>(writes[i].data), chunk};
  }
  const size_t limit = std::max<size_t>(1, kMaxMergedBytes / chunk);
  for (size_t first = 0; first < writes.size();) {
    size_t last = first + 1;
    while (last < writes.size() && last - first < limit && writes[last].ssd == writes[first].ssd &&
           writes[last].slot.value == writes[last - 1].slot.value + 1) {
      ++last;
    }
    group.Start(WriteSlots(entry, first, last));
    first = last;
  }
}

// One request. Counted when it ends, as the devices count.
Task<Status> Appender::WriteSlots(Entry& entry, size_t first, size_t last) {
  const std::span<const SlotWrite> writes(entry.slot_writes.data() + first, last - first);
  const auto parity = static_cast<size_t>(std::count_if(
      writes.begin(), writes.end(), [](const SlotWrite& write) { return write.parity; }));
  Task<Status> write =
      core_.members.Write(writes[0].ssd, core_.geometry.SlotOffset(writes[0].slot),
                          std::span(entry.slot_parts).subspan(first, last - first),
                          parity == writes.size() ? IoKind::kParity : IoKind::kData);
  Status status = co_await write;
  if (status.ok()) {
    core_.traffic.ssd_parity_bytes += parity * core_.geometry.chunk_bytes;
    core_.traffic.ssd_data_bytes += (writes.size() - parity) * core_.geometry.chunk_bytes;
  }
  co_return core_.members.Absorb(std::move(status));
}

Task<void> Appender::Write(Entry& entry) {
  TaskGroup group(core_.loop);
  StartSlotWrites(entry, group);
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    const DeviceIndex log = core_.geometry.LogDevice(j);
    if (!core_.members.live(log)) {
      continue;
    }
    std::vector<iovec> parts;
    parts.push_back({entry.header_block.data(), kBlockBytes});
    for (size_t i = j; i < entry.log_chunks.size(); i += core_.geometry.m) {
      parts.push_back({entry.log_chunks[i].data(), core_.geometry.chunk_bytes});
    }
    group.Start(WriteLogCopy(log, entry.header.place, std::move(parts)));
  }
  Task<Status> all = group.Wait();
  entry.status = co_await all;
  entry.written = true;
  CompleteInOrder();
}

Task<Status> Appender::WriteLogCopy(DeviceIndex log, uint64_t place, std::vector<iovec> parts) {
  Task<Status> write = WriteLog(core_.members, core_.geometry,
                                {log, place, std::move(parts), IoKind::kEntry, &core_.log_bytes});
  Status status = co_await write;
  co_return core_.members.Absorb(std::move(status));
}

void Appender::CompleteInOrder() {
  if (core_.devices().changing() && !core_.stop_error) {
    applied_changed_.NotifyAll();
    return;
  }
  while (!in_flight_.empty() && in_flight_.front()->written) {
    std::unique_ptr<Entry> entry = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (!entry->status.ok()) {
      core_.Stop(entry->status.error());
    }
    Finish(*entry);
    entry->header_block = Buffer();
    entry->log_chunks.clear();
    spare_.push_back(std::move(entry));
  }
  core_.append.NotifyAll();
  applied_changed_.NotifyAll();
}

void Appender::Finish(Entry& entry) {
  const EntryHeader& header = entry.header;
  // After a failure nothing more is applied: what comes later in the log may not become visible
  // without it.
  const Status status = core_.Running();
  promised_blocks_ -= entry.held_blocks;
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

void Appender::NoteWrites(const Entry& entry) {
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
  if (!entry.chunk_writes.empty() && (ages_.empty() || now >= ages_.back().second + kAgeSampleUs)) {
    ages_.emplace_back(entry.header.sequence, now);
    static_cast<void>(OldestPendingUs());  // forgets what is older than anything pending
    if (ages_.size() > kMaxAges) {
      // Something is pending for very long: half of them tell as much.
      for (size_t i = 1; i < ages_.size(); ++i) {
        ages_.erase(ages_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
}

void Appender::Count(const Entry& entry) {
  Traffic& traffic = core_.traffic;
  ++traffic.log_appends;
  traffic.log_stripes += entry.header.log_stripes.size();
  traffic.log_stripe_members += entry.chunk_writes.size();
}

void Appender::FailAll() {
  const Status status = core_.Running();
  for (auto& queue : chunks_) {
    for (ChunkWrite* write : queue) {
      promised_blocks_ -= BlocksForChunk();
      write->completion.Finish(core_.loop, status, 0);
    }
    queue.clear();
  }
  queued_chunks_ = 0;
  for (RecordWrite* record : records_) {
    promised_blocks_ -= record->promised;
    record->completion.Finish(core_.loop, status, 0);
  }
  records_.clear();
  for (RecordWrite* record : urgent_) {
    record->completion.Finish(core_.loop, status, 0);
  }
  urgent_.clear();
  applied_changed_.NotifyAll();
}

}  // namespace eplog
