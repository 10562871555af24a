#include "metadata/state.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "metadata/snapshot.h"

namespace eplog {

State::State(const Geometry& geometry)
    : rows(geometry),
      pending(geometry),
      volumes(geometry),
      geometry_(geometry),
      notes_(geometry.stripes, kBare) {}

RowWord State::Latest(ChunkIndex chunk) const {
  if (const auto found = pending.Find(chunk)) {
    return {found->word, found->crc};
  }
  return rows.Get(geometry_.StripeOf(chunk), geometry_.IndexInStripe(chunk));
}

bool State::LatestIsZero(StripeIndex stripe) const {
  for (uint32_t i = 0; i < geometry_.k(); ++i) {
    const RowWord word =
        HasPending(stripe) ? Latest(geometry_.Chunk(stripe, i)) : rows.Get(stripe, i);
    if (!word.word.is_zero()) {
      return false;
    }
  }
  return true;
}

bool State::RowIsZero(StripeIndex stripe) const {
  for (uint32_t i = 0; i < geometry_.n; ++i) {
    if (!rows.Get(stripe, i).word.is_zero()) {
      return false;
    }
  }
  return true;
}

uint64_t State::BareParity(StripeIndex stripe) const {
  uint64_t mask = 0;
  const uint32_t parity = geometry_.FirstParitySsd(stripe);
  for (uint32_t i = geometry_.k(); i < geometry_.n; ++i) {
    if (rows.Get(stripe, i).word.is_zero()) {
      mask |= uint64_t{1} << geometry_.SsdAt(parity, i).value;
    }
  }
  return mask;
}

void State::Owe(StripeIndex stripe, bool more) {
  for (uint64_t mask = BareParity(stripe); mask != 0; mask &= mask - 1) {
    uint32_t& owed = owed_[static_cast<size_t>(std::countr_zero(mask))];
    owed = more ? owed + 1 : owed - 1;
  }
}

void State::NotePending(StripeIndex stripe) {
  uint8_t& note = notes_[stripe.value];
  if ((note & ~kBare) == 0) {
    ++pending_stripes_;
    if (note == kBare) {
      Owe(stripe, true);
    }
  }
  ++note;
}

void State::NoteSuperseded(StripeIndex stripe) {
  uint8_t& note = notes_[stripe.value];
  EPLOG_DCHECK((note & ~kBare) != 0, "a stripe has as many pending chunks as were noted");
  --note;
  if ((note & ~kBare) == 0) {
    --pending_stripes_;
    if (note == kBare) {
      Owe(stripe, false);
    }
  }
}

void State::CountAnew() {
  pending_stripes_ = 0;
  owed_.fill(0);
  absent_.fill(0);
  std::fill(notes_.begin(), notes_.end(), kBare);
  for (uint32_t group = 0; group < rows.groups(); ++group) {
    const uint32_t first = group * kRowGroupStripes;
    for (uint32_t s = 0; !rows.Group(group).empty() && s < rows.StripesIn(group); ++s) {
      const StripeIndex stripe(first + s);
      const auto words = rows.Group(group).subspan(size_t{s} * geometry_.n, geometry_.n);
      bool bare = false;
      for (uint32_t i = geometry_.k(); i < geometry_.n; ++i) {
        bare |= words[i].word.is_zero();
      }
      notes_[stripe.value] = bare ? kBare : 0;
      bool gaps = false;  // seldom; where they lie takes a division
      for (const RowWord& word : words) {
        gaps |= word.word.is_absent();
      }
      for (uint32_t i = 0; gaps && i < geometry_.n; ++i) {
        absent_[geometry_.SsdOf(stripe, i).value] += words[i].word.is_absent() ? 1 : 0;
      }
    }
  }
  std::vector<ChunkIndex> chunks;
  pending.ForEachLive([&](LogStripeId id) {
    chunks.clear();
    pending.PendingChunksOf(id, chunks);
    for (const ChunkIndex chunk : chunks) {
      NotePending(geometry_.StripeOf(chunk));
    }
    return true;
  });
}

bool State::CountsAreRight() const {
  uint64_t stripes = 0;
  std::array<uint32_t, kMaxSsds> owed{};
  for (uint32_t s = 0; s < geometry_.stripes; ++s) {
    const StripeIndex stripe(s);
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < geometry_.k(); ++i) {
      chunks += pending.Find(geometry_.Chunk(stripe, i)) ? 1U : 0U;
    }
    const uint64_t bare = BareParity(stripe);
    if (notes_[s] != (chunks | (bare != 0 ? kBare : 0U))) {
      return false;
    }
    stripes += chunks != 0 ? 1 : 0;
    for (uint32_t ssd = 0; ssd < geometry_.n && chunks != 0; ++ssd) {
      owed[ssd] += static_cast<uint32_t>(bare >> ssd & 1);
    }
  }
  return stripes == pending_stripes_ && owed == owed_;
}

void State::SetRowWord(StripeIndex stripe, uint32_t index, RowWord word, SlotChanges& changes) {
  const RowWord old = rows.Get(stripe, index);
  if (old == word) {
    return;
  }
  if (snapshot_ != nullptr) {
    snapshot_->BeforeRow(stripe);
  }
  changes_.rows.Set(stripe.value);
  rows.Set(stripe, index, word);
  if (old.word.is_absent() != word.word.is_absent()) {
    uint32_t& absent = absent_[geometry_.SsdOf(stripe, index).value];
    absent = word.word.is_absent() ? absent + 1 : absent - 1;
  }
  if (index >= geometry_.k() && old.word.is_zero() != word.word.is_zero()) {
    uint8_t& note = notes_[stripe.value];
    if ((note & ~kBare) != 0) {
      uint32_t& owed = owed_[geometry_.SsdOf(stripe, index).value];
      owed = word.word.is_zero() ? owed + 1 : owed - 1;
    }
    note = static_cast<uint8_t>((note & ~kBare) | (BareParity(stripe) != 0 ? kBare : 0));
  }
  if (old.word.has_slot() && old.word != word.word) {
    const DeviceIndex ssd = geometry_.SsdOf(stripe, index);
    if (!pending.Holds(ssd, old.word.slot())) {
      changes.freed.push_back({ssd, old.word.slot()});
    }
  }
}

void State::SetJoined(DeviceIndex ssd, uint64_t epoch_number) {
  joined_[ssd.value] = epoch_number;
}

void State::ForgetSsd(DeviceIndex ssd) {
  for (uint32_t group = 0; group < rows.groups(); ++group) {
    const std::span<RowWord> words = rows.MutableGroup(group);
    for (size_t at = 0; at < words.size(); at += geometry_.n) {
      const StripeIndex stripe(group * kRowGroupStripes + static_cast<uint32_t>(at / geometry_.n));
      RowWord& word = words[at + geometry_.IndexOn(stripe, ssd)];
      if (word.word.has_slot()) {
        word.word = SlotWord::Absent();
        ++absent_[ssd.value];
      }
    }
  }
  pending.ForgetSsd(ssd);
}

void State::Supersede(ChunkIndex chunk, uint64_t upto, uint64_t by, bool commit,
                      SlotChanges& changes) {
  const auto died = [this, &changes](const LogStripeMember& member) {
    const RowWord row =
        rows.Get(geometry_.StripeOf(member.chunk), geometry_.IndexInStripe(member.chunk));
    if (member.word.has_slot() && row.word != member.word) {
      changes.freed.push_back({geometry_.SsdOf(member.chunk), member.word.slot()});
    }
  };
  if (snapshot_ != nullptr) {
    snapshot_->BeforeChunk(chunk);
  }
  if (pending.Supersede(chunk, upto, by, commit, died)) {
    NoteSuperseded(geometry_.StripeOf(chunk));
  }
}

void State::ZeroStripe(StripeIndex stripe, uint64_t sequence, SlotChanges& changes) {
  for (uint32_t i = 0; i < geometry_.n; ++i) {
    SetRowWord(stripe, i, RowWord{}, changes);
  }
  for (uint32_t i = 0; i < geometry_.k() && HasPending(stripe); ++i) {
    Supersede(geometry_.Chunk(stripe, i), sequence, sequence, false, changes);
  }
}

void State::FreeExtent(ExtentIndex extent, uint64_t sequence, SlotChanges& changes) {
  const uint32_t first = extent.value * geometry_.extent_stripes;
  for (uint32_t s = first; s < first + geometry_.extent_stripes; ++s) {
    ZeroStripe(StripeIndex(s), sequence, changes);
  }
  ChangeExtent(extent);
  const Volume* owner = volumes.Find(volumes.OwnerOf(extent).volume);
  changes_.volumes |= owner != nullptr && owner->deleting;  // it may go with this extent
  volumes.Free(extent);
}

void State::ChangeExtent(ExtentIndex extent) {
  if (snapshot_ != nullptr) {
    snapshot_->BeforeExtent(extent);
  }
  changes_.extents.Set(extent.value);
}

void State::Stable(uint64_t sequence) {
  if (snapshot_ != nullptr) {
    snapshot_->BeforeReclaim();
  }
  pending.Stable(sequence);
}

void State::ApplyTrim(const TrimRecord& record, const EntryHeader& entry, SlotChanges& changes) {
  if (const auto* stripes = std::get_if<StripesTrimmed>(&record)) {
    for (uint32_t i = 0; i < stripes->count; ++i) {
      ZeroStripe(StripeIndex(stripes->first.value + i), entry.sequence, changes);
    }
    return;
  }
  const auto& chunks = std::get<ChunksTrimmed>(record);
  std::array<LogStripeMember, kMaxSsds> members;
  for (uint32_t i = 0; i < chunks.count; ++i) {
    members[i].chunk = ChunkIndex(chunks.first.value + i);
    Supersede(members[i].chunk, entry.sequence, entry.sequence, false, changes);
  }
  pending.Add(entry.sequence, entry.place, std::span(members).first(chunks.count), {});
  for (uint32_t i = 0; i < chunks.count; ++i) {
    NotePending(geometry_.StripeOf(chunks.first));
  }
}

void State::ApplyVolume(const VolumeRecord& record, uint64_t sequence, SlotChanges& changes) {
  changes_.volumes |= !std::holds_alternative<ExtentAssigned>(record) &&
                      !std::holds_alternative<ExtentsFreed>(record);
  if (const auto* created = std::get_if<VolumeCreated>(&record)) {
    volumes.Create(created->id, created->name, created->size_bytes);
  } else if (const auto* resized = std::get_if<VolumeResized>(&record)) {
    volumes.Resize(resized->id, resized->size_bytes);
  } else if (const auto* renamed = std::get_if<VolumeRenamed>(&record)) {
    volumes.Rename(renamed->id, renamed->name);
  } else if (const auto* deleted = std::get_if<VolumeDeleted>(&record)) {
    volumes.Delete(deleted->id);
  } else if (const auto* assigned = std::get_if<ExtentAssigned>(&record)) {
    ChangeExtent(assigned->extent);
    volumes.Assign(assigned->id, assigned->logical, assigned->extent);
  } else if (const auto* extents = std::get_if<ExtentsFreed>(&record)) {
    for (uint32_t i = 0; i < extents->count; ++i) {
      FreeExtent(ExtentIndex(extents->first.value + i), sequence, changes);
    }
  }
}

void State::ApplyRow(const RowRecord& record, const EntryHeader& entry, bool ignore_versions,
                     SlotChanges& changes) {
  for (const RowChange& change : record.changes) {
    // Without a version a chunk only has a new place (rebuilt or healed).
    const bool commit = change.version != entry.sequence && change.version != 0;
    const DeviceIndex ssd = geometry_.SsdOf(record.stripe, change.index);
    const SlotWord word = WordOf(entry, ssd, change.word);
    if (commit && word.has_slot() && !pending.Holds(ssd, word.slot())) {
      changes.kept.push_back({ssd, word.slot()});
    }
    // The row first: a log stripe that dies of this must see that the row now needs the slot.
    SetRowWord(record.stripe, change.index, {word, change.crc}, changes);
    if (change.index < geometry_.k() && change.version != 0) {
      const uint64_t upto = ignore_versions ? entry.sequence : change.version;
      Supersede(geometry_.Chunk(record.stripe, change.index), upto, entry.sequence, commit,
                changes);
    }
  }
}

void State::ApplyLogStripe(const LogStripeRecord& record, uint64_t place, const EntryHeader& entry,
                           SlotChanges& changes) {
  for (const LogStripeMember& member : record.members) {
    Supersede(member.chunk, entry.sequence, entry.sequence, false, changes);
  }
  std::array<LogStripeMember, kMaxSsds> members;
  for (size_t i = 0; i < record.members.size(); ++i) {
    const LogStripeMember& member = record.members[i];
    const DeviceIndex ssd = geometry_.SsdOf(member.chunk);
    members[i] = {member.chunk, WordOf(entry, ssd, member.word), member.crc};
    if (members[i].word.is_absent()) {
      newest_absent_member_[ssd.value] = entry.sequence;
    }
  }
  pending.Add(entry.sequence, place, std::span(members).first(record.members.size()),
              record.log_crcs);
  for (const LogStripeMember& member : record.members) {
    NotePending(geometry_.StripeOf(member.chunk));
  }
}

void State::Apply(const EntryHeader& entry, SlotChanges& changes, const Broken& broken,
                  const Dropped& dropped) {
  for (const VolumeRecord& record : entry.volumes) {
    ApplyVolume(record, entry.sequence, changes);
  }
  for (size_t i = 0; i < entry.rows.size(); ++i) {
    if (!dropped.row(i)) {
      ApplyRow(entry.rows[i], entry, broken.ignore_versions, changes);
    }
  }
  for (const TrimRecord& record : entry.trims) {
    ApplyTrim(record, entry, changes);
    const auto* chunks = std::get_if<ChunksTrimmed>(&record);
    for (uint32_t i = 0; broken.trim_frees_slots && chunks != nullptr && i < chunks->count; ++i) {
      const ChunkIndex chunk(chunks->first.value + i);
      SetRowWord(geometry_.StripeOf(chunk), geometry_.IndexInStripe(chunk), RowWord{}, changes);
    }
  }
  uint64_t place = entry.place + 1;
  for (size_t i = 0; i < entry.log_stripes.size(); ++i) {
    if (!dropped.log_stripe(i)) {
      ApplyLogStripe(entry.log_stripes[i], place, entry, changes);
    }
    place += geometry_.chunk_blocks();
  }
}

}  // namespace eplog
