#include "cli/inspect/raw_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <variant>

namespace eplog::cli {
namespace {

// Calls the visitor with every item of the checkpoint, older runs first; what an older one said of
// the same row, extent or volume, or of anything pending, is void then.
template <typename Visitor>
Status VisitRuns(const Superblock& identity, const RawCheckpoint& checkpoint, Visitor& visitor) {
  for (size_t i = checkpoint.streams.size(); i-- > 0;) {
    visitor.BeginRun();
    EPLOG_TRY(DecodeRun(checkpoint.streams[i], identity.geometry, visitor));
  }
  return OkStatus();
}

class VolumeReplay {
 public:
  explicit VolumeReplay(RawVolumes& out) : out_(out) {}

  void Apply(const VolumeItem& item) {
    out_.volumes[item.id] = {item.name, item.size_bytes, item.deleting, 0};
  }
  void Apply(const ExtentItem& item) {
    Free(item.extent);
    Assign(item.volume, item.logical, item.extent);
  }
  void Apply(const VolumeRecord& record) {
    std::visit([this](const auto& change) { Change(change); }, record);
  }
  void Free(ExtentIndex extent) {
    const auto owner = out_.owners.find(extent);
    if (owner != out_.owners.end()) {
      out_.extents.erase(owner->second);
      out_.owners.erase(owner);
    }
  }
  // The counts, and who is forgotten, when all is applied.
  void Finish() {
    for (auto& [id, volume] : out_.volumes) {
      volume.extents = 0;
    }
    for (const auto& [place, extent] : out_.extents) {
      ++out_.volumes[place.first].extents;
    }
    std::erase_if(out_.volumes, [](const auto& entry) {
      return entry.second.deleting && entry.second.extents == 0;
    });
  }

 private:
  // A run goes by extents: where a place has moved to a lower one, it has that before it is said
  // that the other is free.
  void Assign(VolumeId id, uint32_t logical, ExtentIndex extent) {
    const auto [at, fresh] = out_.extents.emplace(std::pair(id, logical), extent);
    if (!fresh) {
      out_.owners.erase(at->second);
      at->second = extent;
    }
    out_.owners[extent] = {id, logical};
  }
  void Change(const VolumeCreated& record) {
    out_.volumes[record.id] = {record.name, record.size_bytes, false, 0};
  }
  void Change(const VolumeResized& record) {
    out_.volumes[record.id].size_bytes = record.size_bytes;
  }
  void Change(const VolumeRenamed& record) { out_.volumes[record.id].name = record.name; }
  void Change(const VolumeDeleted& record) { out_.volumes[record.id].deleting = true; }
  void Change(const ExtentAssigned& record) { Assign(record.id, record.logical, record.extent); }
  void Change(const ExtentsFreed& record) {
    for (uint32_t i = 0; i < record.count; ++i) {
      Free(ExtentIndex(record.first.value + i));
    }
  }

  RawVolumes& out_;
};

class ContentVisitor final : public RunVisitor {
 public:
  ContentVisitor(const Geometry& geometry, CheckpointContent& out)
      : geometry_(geometry), out_(out), volumes_(out.volumes), rows_(geometry.stripes) {}
  void BeginRun() { out_.log_stripes = out_.pending_chunks = 0; }
  void RowGroup(uint32_t group, std::span<const RowWord> words) override {
    for (size_t i = 0; i * geometry_.n < words.size(); ++i) {
      Row(StripeIndex(group * kRowGroupStripes + static_cast<uint32_t>(i)),
          words.subspan(i * geometry_.n, geometry_.n));
    }
  }
  void Row(StripeIndex stripe, std::span<const RowWord> words) override {
    const auto in_slots = std::count_if(words.begin(), words.end(),
                                        [](const RowWord& w) { return w.word.has_slot(); });
    const auto absent = std::count_if(words.begin(), words.end(),
                                      [](const RowWord& w) { return w.word.is_absent(); });
    rows_[stripe.value] = {static_cast<uint8_t>(in_slots), static_cast<uint8_t>(absent)};
  }
  // The counts that only the newest state of each row gives.
  void Finish() {
    for (const RowCount& row : rows_) {
      out_.words_in_slots += row.in_slots;
      out_.words_absent += row.absent;
      out_.rows += row.in_slots + row.absent > 0 ? 1 : 0;
    }
  }
  void LogStripe(const LogStripeItem& item) override {
    ++out_.log_stripes;
    for (const auto& member : item.members) {
      out_.pending_chunks += member.superseded ? 0 : 1;
    }
  }
  void Zeros(const ZerosItem& item) override {
    out_.pending_chunks += item.count - static_cast<uint32_t>(std::popcount(item.superseded));
  }
  void Volume(const VolumeItem& item) override { volumes_.Apply(item); }
  void Extent(const ExtentItem& item) override { volumes_.Apply(item); }
  void ExtentFreed(ExtentIndex extent) override { volumes_.Free(extent); }
  void AllVolumes() override { out_.volumes.volumes.clear(); }

 private:
  struct RowCount {
    uint8_t in_slots = 0;
    uint8_t absent = 0;
  };
  const Geometry& geometry_;
  CheckpointContent& out_;
  VolumeReplay volumes_;
  std::vector<RowCount> rows_;
};

// One row through the checkpoint and the log.
class RowReplay final : public RunVisitor {
 public:
  RowReplay(const Superblock& identity, const Epoch& checkpoint_epoch, RawRow& row)
      : identity_(identity), g_(identity.geometry), epoch_(checkpoint_epoch), row_(row) {
    row_.words.resize(g_.n);
  }

  // A run says anew what is pending.
  void BeginRun() {
    row_.pending.clear();
    row_.history.clear();
  }
  void RowGroup(uint32_t group, std::span<const RowWord> words) override {
    if (group == row_.stripe.value / kRowGroupStripes) {
      Row(row_.stripe, words.subspan(size_t{row_.stripe.value % kRowGroupStripes} * g_.n, g_.n));
    }
  }
  void Row(StripeIndex stripe, std::span<const RowWord> words) override {
    for (uint32_t i = 0; stripe == row_.stripe && i < g_.n; ++i) {
      row_.words[i] = {AsOf(epoch_, i, words[i].word), words[i].crc};
    }
  }
  void LogStripe(const LogStripeItem& item) override {
    for (const auto& member : item.members) {
      if (!member.superseded && g_.StripeOf(member.chunk) == row_.stripe) {
        const uint32_t i = g_.IndexInStripe(member.chunk);
        row_.pending[i] = {item.sequence, AsOf(epoch_, i, member.word), member.crc};
        Say(item.sequence,
            fmt::format("checkpoint: data {} pending in {}", i, WordText(row_.pending[i].word)));
      }
    }
  }
  void Zeros(const ZerosItem& item) override {
    for (uint32_t at = 0; at < item.count; ++at) {
      const ChunkIndex chunk(item.first.value + at);
      if ((item.superseded >> at & 1) == 0 && g_.StripeOf(chunk) == row_.stripe) {
        const uint32_t i = g_.IndexInStripe(chunk);
        row_.pending[i] = {item.sequence, SlotWord::Zero(), 0};
        Say(item.sequence, fmt::format("checkpoint: data {} pending, trimmed", i));
      }
    }
  }
  void Volume(const VolumeItem& /*item*/) override {}
  void Extent(const ExtentItem& /*item*/) override {}
  void ExtentFreed(ExtentIndex /*extent*/) override {}
  void AllVolumes() override {}

  void Apply(const EntryHeader& entry) {
    for (const VolumeRecord& record : entry.volumes) {
      if (const auto* freed = std::get_if<ExtentsFreed>(&record)) {
        Apply(entry, *freed);
      }
    }
    for (const RowRecord& record : entry.rows) {
      if (record.stripe == row_.stripe) {
        Apply(entry, record);
      }
    }
    for (const TrimRecord& record : entry.trims) {
      std::visit([&](const auto& trim) { Apply(entry, trim); }, record);
    }
    for (const LogStripeRecord& record : entry.log_stripes) {
      Apply(entry, record);
    }
  }

 private:
  // Words on a device from before it joined do not count.
  [[nodiscard]] SlotWord AsOf(const Epoch& epoch, uint32_t index, SlotWord word) const {
    const DeviceIndex ssd = g_.SsdOf(row_.stripe, index);
    return word.has_slot() && epoch.number < identity_.members[ssd.value].joined
               ? SlotWord::Absent()
               : word;
  }
  void Say(uint64_t sequence, std::string what) {
    row_.history.push_back(fmt::format("entry {}: {}", sequence, what));
  }
  void Apply(const EntryHeader& entry, const ExtentsFreed& freed) {
    const uint32_t extent = row_.stripe.value / g_.extent_stripes;
    if (extent >= freed.first.value && extent - freed.first.value < freed.count) {
      std::fill(row_.words.begin(), row_.words.end(), RowWord{});
      row_.pending.clear();
      Say(entry.sequence, "its extent was freed: all zero");
    }
  }
  void Apply(const EntryHeader& entry, const StripesTrimmed& trim) {
    if (row_.stripe.value >= trim.first.value &&
        row_.stripe.value - trim.first.value < trim.count) {
      std::fill(row_.words.begin(), row_.words.end(), RowWord{});
      row_.pending.clear();
      Say(entry.sequence, "trimmed: all zero");
    }
  }
  void Apply(const EntryHeader& entry, const ChunksTrimmed& trim) {
    for (uint32_t at = 0; g_.StripeOf(trim.first) == row_.stripe && at < trim.count; ++at) {
      const uint32_t i = g_.IndexInStripe(trim.first) + at;
      row_.pending[i] = {entry.sequence, SlotWord::Zero(), 0};
      Say(entry.sequence, fmt::format("data {} pending, trimmed", i));
    }
  }
  void Apply(const EntryHeader& entry, const RowRecord& record) {
    std::string changes;
    for (const RowChange& change : record.changes) {
      const SlotWord word = AsOf(entry.epoch, change.index, change.word);
      row_.words[change.index] = {word, change.crc};
      const auto pending = row_.pending.find(change.index);
      if (pending != row_.pending.end() && pending->second.version <= change.version) {
        row_.pending.erase(pending);
      }
      const bool data = change.index < g_.k();
      changes += fmt::format("{}{} {} to {}", changes.empty() ? "" : ", ", data ? "data" : "parity",
                             data ? change.index : change.index - g_.k(), WordText(word));
    }
    Say(entry.sequence, "row installed: " + changes);
  }
  void Apply(const EntryHeader& entry, const LogStripeRecord& record) {
    for (const LogStripeMember& member : record.members) {
      if (g_.StripeOf(member.chunk) == row_.stripe) {
        const uint32_t i = g_.IndexInStripe(member.chunk);
        const SlotWord word = AsOf(entry.epoch, i, member.word);
        row_.pending[i] = {entry.sequence, word, member.crc};
        Say(entry.sequence, fmt::format("log stripe of {}: data {} pending in {}",
                                        record.members.size(), i, WordText(word)));
      }
    }
  }

  const Superblock& identity_;
  const Geometry& g_;
  Epoch epoch_;
  RawRow& row_;
};

}  // namespace

Result<CheckpointContent> CountCheckpoint(const Superblock& identity,
                                          const RawCheckpoint& checkpoint) {
  CheckpointContent content;
  ContentVisitor visitor(identity.geometry, content);
  EPLOG_TRY(VisitRuns(identity, checkpoint, visitor));
  visitor.Finish();
  VolumeReplay(content.volumes).Finish();
  return content;
}

Result<RawRow> ReplayRow(const Superblock& identity, const RawCheckpoint& checkpoint,
                         const JoinedLog& log, StripeIndex stripe) {
  RawRow row;
  row.stripe = stripe;
  RowReplay replay(identity, checkpoint.root.epoch, row);
  EPLOG_TRY(VisitRuns(identity, checkpoint, replay));
  for (const FoundEntry& entry : log.entries) {
    replay.Apply(entry.header);
  }
  return row;
}

Result<RawVolumes> ReplayVolumes(const Superblock& identity, const RawCheckpoint& checkpoint,
                                 const JoinedLog& log) {
  CheckpointContent content;
  ContentVisitor visitor(identity.geometry, content);
  EPLOG_TRY(VisitRuns(identity, checkpoint, visitor));
  VolumeReplay replay(content.volumes);
  for (const FoundEntry& entry : log.entries) {
    for (const VolumeRecord& record : entry.header.volumes) {
      replay.Apply(record);
    }
  }
  replay.Finish();
  return std::move(content.volumes);
}

std::string WordText(SlotWord word) {
  return word.is_zero()     ? "zero"
         : word.is_absent() ? "absent"
                            : fmt::format("slot {}", word.slot().value);
}

}  // namespace eplog::cli
