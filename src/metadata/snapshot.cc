#include "metadata/snapshot.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace eplog {
namespace {

constexpr uint32_t kGroup = 64;  // extents or rows
static_assert(kGroup == kRowGroupStripes);

uint64_t UsedRows(std::span<const RowWord> words, uint32_t n) {
  uint64_t mask = 0;
  for (size_t s = 0; s * n < words.size(); ++s) {
    const auto row = words.subspan(s * n, n);
    const bool used = std::any_of(row.begin(), row.end(),
                                  [](const RowWord& word) { return !word.word.is_zero(); });
    mask |= uint64_t{used ? 1U : 0U} << s;
  }
  return mask;
}

}  // namespace

Snapshot::Snapshot(State& state, bool full, uint64_t sequence, bool without_pendings)
    : state_(state),
      full_(full),
      sequence_(sequence),
      without_pendings_(without_pendings),
      changes_(std::exchange(state.changes_, Changes())) {
  EPLOG_CHECK(state.snapshot_ == nullptr, "one snapshot at a time");
  state.snapshot_ = this;
  log_stripe_ = state.pending.FirstLive();
  if (full_ || changes_.volumes) {
    PutVolumes();
  }
  part_ = Part::kExtents;
}

Snapshot::~Snapshot() {
  state_.snapshot_ = nullptr;
}

void Snapshot::PutVolumes() {
  RunWriter writer(state_.geometry(), early_);
  writer.AllVolumes();
  for (const auto& [id, volume] : state_.volumes.all()) {
    writer.Volume({volume.id, volume.size_bytes, volume.deleting, volume.name});
  }
}

uint32_t Snapshot::NextExtentGroup(uint32_t from) const {
  const uint32_t end = (state_.geometry().extents() + kGroup - 1) / kGroup;
  return full_ ? std::min(from, end) : changes_.extents.NextGroup(from, end);
}

uint32_t Snapshot::NextRowGroup(uint32_t from) const {
  const uint32_t end = state_.rows.groups();
  if (!full_) {
    return changes_.rows.NextGroup(from, end);
  }
  while (from < end && state_.rows.Group(from).empty()) {
    ++from;
  }
  return from;
}

void Snapshot::PutExtentGroup(uint32_t group, std::vector<std::byte>& out) const {
  RunWriter writer(state_.geometry(), out);
  const uint64_t changed = full_ ? ~uint64_t{0} : changes_.extents.Group(group);
  const uint32_t end = std::min(state_.geometry().extents(), (group + 1) * kGroup);
  for (uint32_t i = group * kGroup; i < end; ++i) {
    if ((changed >> (i % kGroup) & 1) == 0) {
      continue;
    }
    const VolumeTable::Owner owner = state_.volumes.OwnerOf(ExtentIndex(i));
    if (owner.volume.value != 0) {
      writer.Extent({ExtentIndex(i), owner.volume, owner.logical});
    } else if (!full_) {
      writer.ExtentFreed(ExtentIndex(i));
    }
  }
}

void Snapshot::PutRowGroup(uint32_t group, std::vector<std::byte>& out) const {
  const Geometry& g = state_.geometry();
  auto words = state_.rows.Group(group);
  std::vector<RowWord> zeros;
  if (words.empty()) {
    zeros.resize(size_t{state_.rows.StripesIn(group)} * g.n);
    words = zeros;
  }
  const uint64_t rows = full_ ? UsedRows(words, g.n) : changes_.rows.Group(group);
  RunWriter writer(g, out);
  if (std::popcount(rows) > RunWriter::kMostLoneRows) {
    writer.RowGroup(group, words);
  } else if (rows != 0) {
    writer.Rows(group, rows, words);
  }
}

void Snapshot::PutLogStripe(LogStripeId id, std::vector<std::byte>& out) const {
  if (without_pendings_) {
    return;
  }
  const LogStripeView view = state_.pending.View(id);
  RunWriter writer(state_.geometry(), out);
  if (view.zeros) {
    ZerosItem zeros{view.sequence, view.place, view.members.front().chunk,
                    static_cast<uint32_t>(view.members.size()), 0};
    for (size_t i = 0; i < view.members.size(); ++i) {
      zeros.superseded |= (view.superseded[i] ? 1U : 0U) << i;
    }
    writer.Zeros(zeros);
    return;
  }
  LogStripeItem item;
  item.sequence = view.sequence;
  item.place = view.place;
  for (size_t i = 0; i < view.members.size(); ++i) {
    const LogStripeMember& member = view.members[i];
    item.members.push_back({member.chunk, member.word, member.crc, view.superseded[i]});
  }
  item.log_crcs.assign(view.log_crcs.begin(), view.log_crcs.begin() + state_.geometry().m);
  writer.LogStripe(item);
}

bool Snapshot::Next(std::vector<std::byte>& out, size_t least) {
  const size_t end = out.size() + least;
  out.insert(out.end(), early_.begin(), early_.end());
  early_.clear();
  while (out.size() < end && part_ != Part::kDone) {
    Step(out);
  }
  return part_ != Part::kDone;
}

// One group or one log stripe further.
void Snapshot::Step(std::vector<std::byte>& out) {
  switch (part_) {
    case Part::kExtents: {
      const uint32_t group = NextExtentGroup(extent_group_);
      extent_group_ = group + 1;
      if (group * kGroup >= state_.geometry().extents()) {
        part_ = Part::kRows;
      } else if (!early_extents_.contains(group)) {
        PutExtentGroup(group, out);
      }
      return;
    }
    case Part::kRows: {
      const uint32_t group = NextRowGroup(row_group_);
      row_group_ = group + 1;
      if (group >= state_.rows.groups()) {
        part_ = Part::kPendings;
      } else if (!early_rows_.contains(group)) {
        PutRowGroup(group, out);
      }
      return;
    }
    case Part::kPendings:
      StepPendings(out);
      return;
    case Part::kEnd:
      // What changed since the last piece was handed out comes before the end.
      out.insert(out.end(), early_.begin(), early_.end());
      early_.clear();
      RunWriter(state_.geometry(), out).End();
      part_ = Part::kDone;
      return;
    case Part::kVolumes:
    case Part::kDone:
      return;
  }
}

void Snapshot::StepPendings(std::vector<std::byte>& out) {
  BeforeReclaim();
  if (log_stripe_ == kNone || state_.pending.SequenceOf(log_stripe_) > sequence_) {
    part_ = Part::kEnd;
    return;
  }
  const uint64_t sequence = state_.pending.SequenceOf(log_stripe_);
  if (sequence != walked_sequence_) {
    walked_sequence_ = sequence;
    walked_.clear();
  }
  walked_.insert(log_stripe_);
  if (early_stripes_.erase(log_stripe_) == 0) {
    PutLogStripe(log_stripe_, out);
  }
  log_stripe_ = state_.pending.Next(log_stripe_);
}

void Snapshot::BeforeRow(StripeIndex stripe) {
  const uint32_t group = stripe.value / kRowGroupStripes;
  const bool written = part_ > Part::kRows || (part_ == Part::kRows && group < row_group_);
  if (written || (!full_ && changes_.rows.Group(group) == 0) || !early_rows_.insert(group).second) {
    return;
  }
  PutRowGroup(group, early_);
}

void Snapshot::BeforeExtent(ExtentIndex extent) {
  const uint32_t group = extent.value / kGroup;
  const bool written = part_ > Part::kExtents || group < extent_group_;
  if (written || (!full_ && changes_.extents.Group(group) == 0) ||
      !early_extents_.insert(group).second) {
    return;
  }
  PutExtentGroup(group, early_);
}

void Snapshot::BeforeChunk(ChunkIndex chunk) {
  if (part_ > Part::kPendings) {
    return;
  }
  const auto pending = state_.pending.Find(chunk);
  if (!pending || pending->version > sequence_) {
    return;
  }
  const LogStripeId id = pending->log_stripe;
  const bool walked = pending->version < walked_sequence_ ||
                      (pending->version == walked_sequence_ && walked_.contains(id));
  if (walked) {
    return;
  }
  if (early_stripes_.insert(id).second) {
    PutLogStripe(id, early_);
  }
}

// The walk must not stand on a log stripe that goes. What is dead has been written: every change of
// it was told.
void Snapshot::BeforeReclaim() {
  while (log_stripe_ != kNone && !state_.pending.IsLive(log_stripe_)) {
    early_stripes_.erase(log_stripe_);
    log_stripe_ = state_.pending.Next(log_stripe_);
  }
}

uint64_t Snapshot::MaxBytes(const State& state, bool full) {
  const Geometry& g = state.geometry();
  if (full) {
    return (g.max_checkpoint_blocks() - 1) * kPagePayloadBytes;
  }
  const Changes& changes = state.changes();
  // Worst for a group whose rows are just too many to stand alone.
  constexpr uint64_t kFewest = RunWriter::kMostLoneRows + 1;
  const uint64_t group = uint64_t{kRowGroupStripes} * g.n * 8 + uint64_t{g.n} * 4 + 16;
  const uint64_t row = std::max<uint64_t>(9 * uint64_t{g.n} + 19, DivideUp(group, kFewest));
  const uint64_t volumes = changes.volumes ? state.volumes.all().size() * 256 + 1 : 0;
  return changes.rows.count() * row + changes.extents.count() * 16 + volumes +
         state.pending.live_records() * 40 + state.pending.live_members() * 16 + 1;
}

}  // namespace eplog
