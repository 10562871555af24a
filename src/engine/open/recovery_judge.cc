// What of the log beyond the newest mark is kept (I8).
//
// A record is what is judged, not the whole entry: it is kept if what it describes is right or can
// be decoded, and dropped otherwise. Then its chunks have the versions that they had before, whose
// slots and log chunks are all still there, since what frees them lies beyond the mark as well.
// That a flush had covered a record cannot be seen from the devices: its chunks may be wrong
// because they were never written, or because more is damaged than parity can replace. In either
// case what else was written is none of its business, and stays. What is whole of a dropped record
// is written again when the array is open.
//
// Dropping a commit or a new place of a chunk changes no content. What later records of that row
// say builds upon it, so they are dropped with it, until one says the whole row.

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "engine/open/recovery.h"
#include "metadata/entry_check.h"

namespace eplog {
namespace {

// So much is kept to be written again. Many records that are half there are those of a power cut,
// and what was not flushed then may go; damage beyond parity meets few.
constexpr uint64_t kMostSalvagedBytes = uint64_t{256} << 20;

// Says all of its row, whatever that was.
bool IsWholeRow(const Geometry& g, const EntryHeader& entry, const RowRecord& record) {
  return record.changes.size() == g.n &&
         std::all_of(record.changes.begin(), record.changes.end(), [&](const RowChange& change) {
           return change.index >= g.k() || change.version == entry.sequence;
         });
}

template <typename Records>
bool AllDropped(const Records& records, const std::vector<bool>& dropped) {
  return static_cast<size_t>(std::count(dropped.begin(), dropped.end(), true)) == records.size();
}

bool DropsAny(const State::Dropped& dropped) {
  const auto any = [](const std::vector<bool>& list) {
    return std::find(list.begin(), list.end(), true) != list.end();
  };
  return any(dropped.rows) || any(dropped.log_stripes);
}

bool KeepsNothing(const EntryHeader& entry, const State::Dropped& dropped) {
  return entry.volumes.empty() && entry.trims.empty() && AllDropped(entry.rows, dropped.rows) &&
         AllDropped(entry.log_stripes, dropped.log_stripes);
}

}  // namespace

Task<Status> Recovery::Replay() {
  position_ = checkpoint_;
  SlotChanges ignored;
  for (size_t i = 0; i < chain_.size(); ++i) {
    const EntryHeader& entry = chain_[i];
    State::Dropped dropped;
    if (entry.sequence > mark_) {
      Task<Result<State::Dropped>> judging = Judge(entry);
      Result<State::Dropped> judged = co_await judging;
      EPLOG_CO_TRY(judged);
      dropped = std::move(*judged);
      if (core_.canary(Canary::kTailCut) && DropsAny(dropped)) {
        break;
      }
      NoteDropped(entry, dropped);
      if (KeepsNothing(entry, dropped) && !dropped_.empty()) {
        continue;  // if nothing follows that is kept, the log ends before it
      }
      EPLOG_CO_AWAIT(NoteHeaderCopies(entry));
    }
    const Status possible = CheckEntry(*core_.state, entry);
    Status borne = Bear(possible);
    EPLOG_CO_TRY(borne);
    if (!possible.ok()) {
      break;  // what follows rests on it
    }
    core_.state->Apply(entry, ignored, core_.broken(), dropped);
    ignored.freed.clear();
    ignored.kept.clear();
    ForgetOlder(entry, dropped);
    Keep(i, entry);
  }
  core_.hooks.recovery_cut_entries += chain_.size() - kept_.entries;
  chain_.resize(kept_.entries);
  mends_.resize(kept_.mends);
  without_ring_.resize(kept_.without_ring);
  core_.state->Stable(position_.sequence);
  co_return OkStatus();
}

void Recovery::Keep(size_t index, const EntryHeader& entry) {
  position_ = {entry.epoch, entry.sequence, entry.place + entry.length_blocks};
  kept_ = {index + 1, mends_.size(), without_ring_.size()};
  dropped_before_kept_ = !dropped_.empty();
}

Task<Result<State::Dropped>> Recovery::Judge(const EntryHeader& entry) {
  State::Dropped dropped;
  for (size_t i = 0; i < entry.log_stripes.size(); ++i) {
    const size_t mends = mends_.size();
    Task<bool> checking = LogStripeIsWhole(entry, i);
    const bool whole = co_await checking;
    const uint32_t missing = Missing(entry, entry.log_stripes[i]);
    dropped.log_stripes.push_back(!whole && missing <= core_.geometry.m);
    if (!whole) {
      mends_.resize(mends);
      Status may = MayDrop(entry, missing);
      EPLOG_CO_TRY(may);
    }
  }
  for (const RowRecord& record : entry.rows) {
    const size_t mends = mends_.size();
    const bool says_all = IsWholeRow(core_.geometry, entry, record);
    if (!says_all && stuck_.contains(record.stripe.value)) {
      dropped.rows.push_back(true);
      continue;
    }
    bool whole = core_.canary(Canary::kTornStripeKept);
    if (!whole) {
      Task<bool> checking = RowIsWhole(entry, record);
      whole = co_await checking;
    }
    const uint32_t missing = Missing(entry, record);
    dropped.rows.push_back(!whole && missing <= core_.geometry.m);
    if (!whole) {
      mends_.resize(mends);
      Status may = MayDrop(entry, missing);
      EPLOG_CO_TRY(may);
    }
    if (dropped.rows.back()) {
      stuck_.insert(record.stripe.value);
    } else if (says_all) {
      stuck_.erase(record.stripe.value);
    }
  }
  co_return dropped;
}

// Too much of a record is missing to tell anything: on devices that are not there, or joined and
// are not whole. It was written, and perhaps flushed: to drop it could lose what bringing back a
// device would save. Opened by force it is kept, since what was before must not be taken for the
// newest.
Status Recovery::MayDrop(const EntryHeader& entry, uint32_t missing) const {
  if (missing <= core_.geometry.m || core_.forced()) {
    return OkStatus();
  }
  return Fail(ErrorCode::kTooManyFailures,
              "entry " + std::to_string(entry.sequence) +
                  " of the log cannot be verified: more devices are missing, or not whole yet, "
                  "than parity can replace; bring back missing members, or mount with --read-only "
                  "--force to read what is left");
}

uint32_t Recovery::Missing(const EntryHeader& entry, const LogStripeRecord& record) const {
  const Geometry& g = core_.geometry;
  uint32_t count = 0;
  for (uint32_t j = 0; j < g.m; ++j) {  // one that joined since has nothing of this entry
    const bool joined_since =
        assembly_.winner.members[g.LogDevice(j).value].joined > entry.epoch.number;
    count += !core_.members.live(g.LogDevice(j)) || joined_since ? 1U : 0U;
  }
  for (const LogStripeMember& member : record.members) {
    const DeviceIndex ssd = core_.geometry.SsdOf(member.chunk);
    const SlotWord word = core_.state->WordOf(entry, ssd, member.word);
    count += word.is_absent() || (word.has_slot() && !core_.members.live(ssd)) ? 1U : 0U;
  }
  return count;
}

uint32_t Recovery::Missing(const EntryHeader& entry, const RowRecord& record) const {
  const Geometry& g = core_.geometry;
  uint32_t count = 0;
  for (uint32_t i = 0; i < g.n; ++i) {
    const DeviceIndex ssd = g.SsdOf(record.stripe, i);
    const auto change = std::find_if(record.changes.begin(), record.changes.end(),
                                     [i](const RowChange& c) { return c.index == i; });
    const SlotWord word = change != record.changes.end()
                              ? core_.state->WordOf(entry, ssd, change->word)
                              : core_.state->rows.Get(record.stripe, i).word;
    count += word.is_absent() || (word.has_slot() && !core_.members.live(ssd)) ? 1U : 0U;
  }
  return count;
}

Task<bool> Recovery::LogStripeIsWhole(const EntryHeader& entry, size_t number) {
  const Geometry& g = core_.geometry;
  const LogStripeRecord& record = entry.log_stripes[number];
  LogStripeView view;
  view.sequence = entry.sequence;
  view.place = entry.place + 1 + number * g.chunk_blocks();
  view.members = record.members;
  for (LogStripeMember& member : view.members) {
    // What was on an SSD that has been replaced since is not to be mended on its successor.
    member.word = core_.state->WordOf(entry, g.SsdOf(member.chunk), member.word);
  }
  std::copy(record.log_crcs.begin(), record.log_crcs.end(), view.log_crcs.begin());
  const size_t d = view.members.size();
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  std::array<const std::byte*, kMaxSsds> content{};
  for (size_t i = 0; i < d; ++i) {
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    data.push_back(buffers.back().span());
    content[i] = buffers.back().data();
  }
  uint64_t bad = 0;
  Task<Status> reading = reader_.ReadLogStripe(view, data, &bad);
  const Status status = co_await reading;
  if (!status.ok()) {
    NoteWrong(view, bad);
    for (size_t i = 0; i < d; ++i) {
      if ((bad >> i & 1) == 0) {
        Salvage(view.members[i].chunk, std::move(buffers[i]));
      }
    }
    co_return false;
  }
  std::vector<Buffer> logs;
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < g.m; ++j) {
    logs.push_back(core_.pool.Get(g.chunk_bytes));
    parity[j] = logs.back().data();
  }
  if (bad >> d != 0) {
    core_.code.Encode(std::span(content).first(d), std::span(parity).first(g.m), g.chunk_bytes);
  }
  for (size_t i = 0; i < d; ++i) {
    const DeviceIndex ssd = g.SsdOf(view.members[i].chunk);
    if ((bad >> i & 1) != 0 && view.members[i].word.has_slot() && core_.members.live(ssd)) {
      mends_.push_back({ssd, Mend::Kind::kSlot, g.SlotOffset(view.members[i].word.slot()),
                        std::move(buffers[i])});
    }
  }
  for (uint32_t j = 0; j < g.m; ++j) {
    if ((bad >> (d + j) & 1) != 0 && core_.members.live(g.LogDevice(j))) {
      mends_.push_back({g.LogDevice(j), Mend::Kind::kLogChunk, view.place, std::move(logs[j])});
    }
  }
  co_return true;
}

Task<bool> Recovery::RowIsWhole(const EntryHeader& entry, const RowRecord& record) {
  const Geometry& g = core_.geometry;
  std::vector<RowWord> words;
  for (uint32_t i = 0; i < g.n; ++i) {
    words.push_back(core_.state->rows.Get(record.stripe, i));
  }
  for (const RowChange& change : record.changes) {
    const DeviceIndex ssd = g.SsdOf(record.stripe, change.index);
    words[change.index] = {core_.state->WordOf(entry, ssd, change.word), change.crc};
  }
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  std::array<const std::byte*, kMaxSsds> content{};
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t i = 0; i < g.n; ++i) {
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    if (i < g.k()) {
      data.push_back(buffers[i].span());
      content[i] = buffers[i].data();
    } else {
      parity[i - g.k()] = buffers[i].data();
    }
  }
  uint64_t bad = 0;
  Task<Status> reading =
      reader_.ReadRow(record.stripe, words, core_.devices().number(), data, &bad);
  const Status status = co_await reading;
  if (!status.ok()) {
    NoteWrong(record.stripe, words, bad);
    for (const RowChange& change : record.changes) {
      if (change.version == entry.sequence && (bad >> change.index & 1) == 0) {
        Salvage(g.Chunk(record.stripe, change.index), std::move(buffers[change.index]));
      }
    }
    co_return false;
  }
  if (bad >> g.k() != 0) {
    core_.code.Encode(std::span(content).first(g.k()), std::span(parity).first(g.m), g.chunk_bytes);
  }
  for (uint32_t i = 0; i < g.n; ++i) {
    const DeviceIndex ssd = g.SsdOf(record.stripe, i);
    if ((bad >> i & 1) != 0 && words[i].word.has_slot() && core_.members.live(ssd)) {
      mends_.push_back(
          {ssd, Mend::Kind::kSlot, g.SlotOffset(words[i].word.slot()), std::move(buffers[i])});
    }
  }
  co_return true;
}

// ---- what is kept by force though it is wrong
//
// Where the record is dropped nobody asks for these.

void Recovery::NoteWrong(const LogStripeView& view, uint64_t bad) {
  const Geometry& g = core_.geometry;
  for (uint64_t mask = core_.forced() ? bad : 0; mask != 0; mask &= mask - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(mask));
    if (i >= view.members.size()) {
      const DeviceIndex log = g.LogDevice(static_cast<uint32_t>(i - view.members.size()));
      if (core_.members.live(log)) {
        core_.found_wrong.emplace(log, view.place);
      }
    } else {
      NoteWrong(g.SsdOf(view.members[i].chunk), view.members[i].word);
    }
  }
}

void Recovery::NoteWrong(StripeIndex stripe, std::span<const RowWord> words, uint64_t bad) {
  const Geometry& g = core_.geometry;
  for (uint64_t mask = core_.forced() ? bad : 0; mask != 0; mask &= mask - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(mask));
    NoteWrong(g.SsdOf(stripe, i), words[i].word);
  }
}

// One that is not there may be lent, once the tables are known.
void Recovery::NoteWrong(DeviceIndex ssd, SlotWord word) {
  if (word.has_slot() && core_.members.live(ssd)) {
    core_.found_wrong.emplace(ssd, core_.geometry.SlotOffset(word.slot()));
  }
}

// ---- what was dropped

void Recovery::Salvage(ChunkIndex chunk, Buffer content) {
  const bool full = salvaged_.size() * core_.geometry.chunk_bytes >= kMostSalvagedBytes;
  if (!full || salvaged_.contains(chunk.value)) {
    salvaged_[chunk.value] = std::move(content);
  }
}

void Recovery::ForgetStripes(StripeIndex first, uint64_t count) {
  const uint64_t k = core_.geometry.k();
  const auto from = salvaged_.lower_bound(first.value * k);
  salvaged_.erase(from, salvaged_.lower_bound((first.value + count) * k));
  for (uint64_t s = first.value; s < first.value + count && !stuck_.empty(); ++s) {
    stuck_.erase(static_cast<uint32_t>(s));
  }
}

// What a kept record overwrites is not to be written again.
void Recovery::ForgetOlder(const EntryHeader& entry, const State::Dropped& dropped) {
  const Geometry& g = core_.geometry;
  for (const VolumeRecord& record : entry.volumes) {
    if (const auto* freed = std::get_if<ExtentsFreed>(&record)) {
      ForgetStripes(StripeIndex(freed->first.value * g.extent_stripes),
                    uint64_t{freed->count} * g.extent_stripes);
    }
  }
  for (const TrimRecord& record : entry.trims) {
    if (const auto* stripes = std::get_if<StripesTrimmed>(&record)) {
      ForgetStripes(stripes->first, stripes->count);
    } else {
      const auto& chunks = std::get<ChunksTrimmed>(record);
      for (uint64_t i = 0; i < chunks.count; ++i) {
        salvaged_.erase(chunks.first.value + i);
      }
    }
  }
  for (size_t i = 0; i < entry.rows.size(); ++i) {
    for (const RowChange& change : entry.rows[i].changes) {
      if (change.version == entry.sequence && !dropped.row(i)) {
        salvaged_.erase(g.Chunk(entry.rows[i].stripe, change.index).value);
      }
    }
  }
  for (size_t i = 0; i < entry.log_stripes.size(); ++i) {
    for (const LogStripeMember& member : entry.log_stripes[i].members) {
      if (!dropped.log_stripe(i)) {
        salvaged_.erase(member.chunk.value);
      }
    }
  }
}

std::vector<Recovery::Salvaged> Recovery::TakeSalvaged() {
  std::vector<Salvaged> list;
  for (auto& [chunk, content] : salvaged_) {
    list.push_back({ChunkIndex(chunk), std::move(content)});
  }
  salvaged_.clear();
  return list;
}

void Recovery::NoteDropped(const EntryHeader& entry, const State::Dropped& dropped) {
  uint64_t chunks = 0;
  bool any = false;
  for (size_t i = 0; i < entry.rows.size(); ++i) {
    for (const RowChange& change : entry.rows[i].changes) {
      chunks += dropped.row(i) && change.version == entry.sequence ? 1 : 0;
    }
    any = any || dropped.row(i);
  }
  for (size_t i = 0; i < entry.log_stripes.size(); ++i) {
    chunks += dropped.log_stripe(i) ? entry.log_stripes[i].members.size() : 0;
    any = any || dropped.log_stripe(i);
  }
  if (any) {
    ++core_.hooks.recovery_dropped;
    dropped_[entry.sequence] = chunks;
  }
}

// Beyond the end of what could be joined.
void Recovery::NoteCut(const EntryHeader& entry) {
  if (entry.sequence <= position_.sequence || entry.epoch.number < position_.epoch.number ||
      dropped_.contains(entry.sequence)) {
    return;
  }
  State::Dropped all;
  all.rows.assign(entry.rows.size(), true);
  all.log_stripes.assign(entry.log_stripes.size(), true);
  NoteDropped(entry, all);
}

void Recovery::TellDropped(uint64_t salvaged) const {
  uint64_t chunks = 0;
  for (const auto& [sequence, count] : dropped_) {
    chunks += count;
  }
  chunks -= std::min(chunks, salvaged);
  if (chunks == 0 || core_.canary(Canary::kDropUntold)) {
    return;
  }
  const std::string what =
      std::to_string(chunks) + " chunks (" + std::to_string(chunks * core_.geometry.chunk_bytes) +
      " bytes), written in " + std::to_string(dropped_.size()) +
      " entries of the log when the array last stopped, are not whole on the devices and read as "
      "before; no flush had covered them, unless more is damaged than parity can replace";
  core_.Tell(EventKind::kWritesDropped, "", what);
  if (core_.forced()) {
    core_.NoteLogDamage(what);
  }
}

}  // namespace eplog
