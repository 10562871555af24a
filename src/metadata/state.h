// State: rows, pending chunks and volumes after some entry of the log. Apply is the one meaning of
// a record; normal running, recovery and check all go through it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"
#include "format/checkpoint.h"
#include "format/entry.h"
#include "layout/geometry.h"
#include "metadata/dirty_map.h"
#include "metadata/pending_table.h"
#include "metadata/row_table.h"
#include "metadata/volume_table.h"

namespace eplog {

struct SsdSlot {
  DeviceIndex ssd;
  SlotIndex slot;
  auto operator<=>(const SsdSlot&) const = default;
};

// What an entry means for slots. `freed`: this state no longer needs them (I3); when they may be
// used again is not decided here (I1). `kept`: freed by an earlier entry and now needed again,
// since a commit installed a version that a newer write had superseded meanwhile (I5).
struct SlotChanges {
  std::vector<SsdSlot> freed;
  std::vector<SsdSlot> kept;
};

// What has changed since the changes were last taken: what an incremental checkpoint holds, next to
// all that is pending.
struct Changes {
  DirtyMap rows;  // by stripe
  DirtyMap extents;
  bool volumes = false;
};

class Snapshot;

class State {
 public:
  explicit State(const Geometry& geometry);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  RowTable rows;
  PendingTable pending;
  VolumeTable volumes;

  // Rules that tests break on purpose.
  struct Broken {
    bool ignore_versions = false;   // "row installed" supersedes whatever is pending
    bool trim_frees_slots = false;  // a trimmed chunk's slot is freed at once
  };
  // Records of an entry that recovery found not to be whole: they mean nothing. Empty: none.
  struct Dropped {
    std::vector<bool> rows;
    std::vector<bool> log_stripes;
    [[nodiscard]] bool row(size_t i) const { return i < rows.size() && rows[i]; }
    [[nodiscard]] bool log_stripe(size_t i) const {
      return i < log_stripes.size() && log_stripes[i];
    }
  };
  // Applies one entry, in the order of the log, and appends to `changes`.
  void Apply(const EntryHeader& entry, SlotChanges& changes, const Broken& broken,
             const Dropped& dropped);
  void Apply(const EntryHeader& entry, SlotChanges& changes, const Broken& broken) {
    Apply(entry, changes, broken, Dropped());
  }
  void Apply(const EntryHeader& entry, SlotChanges& changes) { Apply(entry, changes, Broken()); }

  // Everything up to `sequence` is stable (PendingTable::Stable).
  void Stable(uint64_t sequence);
  [[nodiscard]] const Changes& changes() const { return changes_; }

  // ---- replaced SSDs: a word is of the device of its time, so one that an entry of an earlier
  // epoch than `joined` brings is `absent`
  void SetJoined(DeviceIndex ssd, uint64_t epoch_number);
  [[nodiscard]] SlotWord WordOf(const EntryHeader& entry, DeviceIndex ssd, SlotWord word) const {
    const bool older = word.has_slot() && entry.epoch.number < joined_[ssd.value];
    return older ? SlotWord::Absent() : word;
  }
  // Every word on this SSD becomes `absent`. A running Snapshot is not told: its root is of an
  // earlier epoch, and who loads it does the same.
  void ForgetSsd(DeviceIndex ssd);
  // Row words on this SSD that are `absent`.
  [[nodiscard]] uint32_t absent(DeviceIndex ssd) const { return absent_[ssd.value]; }
  // The newest entry that described a member of a log stripe on this SSD as `absent`.
  [[nodiscard]] uint64_t newest_absent_member(DeviceIndex ssd) const {
    return newest_absent_member_[ssd.value];
  }

  // Where a chunk's latest version lies: its pending version, or its row's word.
  [[nodiscard]] RowWord Latest(ChunkIndex chunk) const;
  // Every data chunk of the stripe reads as zeros and has no place.
  [[nodiscard]] bool LatestIsZero(StripeIndex stripe) const;
  [[nodiscard]] bool RowIsZero(StripeIndex stripe) const;

  // ---- what parity commit will need (section 5)
  // Parity words that are `zero` on this SSD, of stripes with a pending chunk: committing these
  // takes a slot and gives none back.
  [[nodiscard]] uint32_t owed(DeviceIndex ssd) const { return owed_[ssd.value]; }
  // The SSDs (mask) that a first pending chunk in this stripe will owe a slot.
  [[nodiscard]] uint64_t WouldOwe(StripeIndex stripe) const {
    return notes_[stripe.value] == kBare ? BareParity(stripe) : 0;
  }
  // The same for one that comes later, when others may have been superseded.
  [[nodiscard]] uint64_t MayOwe(StripeIndex stripe) const {
    return (notes_[stripe.value] & kBare) != 0 ? BareParity(stripe) : 0;
  }
  [[nodiscard]] bool HasPending(StripeIndex stripe) const {
    return (notes_[stripe.value] & ~kBare) != 0;
  }
  [[nodiscard]] uint64_t pending_stripes() const { return pending_stripes_; }
  // After loading: the counts above, from the tables.
  void CountAnew();
  [[nodiscard]] bool CountsAreRight() const;

  // Calls visit(ssd, slot) for every slot that this state needs, each once.
  template <typename Visit>
  void ForEachSlot(Visit&& visit) const;

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] size_t memory_bytes() const {
    return rows.memory_bytes() + pending.memory_bytes() + volumes.memory_bytes() + notes_.size();
  }

 private:
  friend class Snapshot;
  void ChangeExtent(ExtentIndex extent);
  void ApplyVolume(const VolumeRecord& record, uint64_t sequence, SlotChanges& changes);
  void ApplyRow(const RowRecord& record, const EntryHeader& entry, bool ignore_versions,
                SlotChanges& changes);
  void ApplyLogStripe(const LogStripeRecord& record, uint64_t place, const EntryHeader& entry,
                      SlotChanges& changes);
  void ApplyTrim(const TrimRecord& record, const EntryHeader& entry, SlotChanges& changes);
  void ZeroStripe(StripeIndex stripe, uint64_t sequence, SlotChanges& changes);
  void FreeExtent(ExtentIndex extent, uint64_t sequence, SlotChanges& changes);
  void SetRowWord(StripeIndex stripe, uint32_t index, RowWord word, SlotChanges& changes);
  void Supersede(ChunkIndex chunk, uint64_t upto, uint64_t by, bool commit, SlotChanges& changes);
  [[nodiscard]] uint64_t BareParity(StripeIndex stripe) const;
  void Owe(StripeIndex stripe, bool more);
  void NotePending(StripeIndex stripe);
  void NoteSuperseded(StripeIndex stripe);

  const Geometry& geometry_;
  // For each stripe how many of its chunks are pending, and kBare if a parity word is `zero`.
  static constexpr uint8_t kBare = 0x80;
  static_assert(kMaxSsds < kBare);
  std::vector<uint8_t> notes_;
  uint64_t pending_stripes_ = 0;
  std::array<uint32_t, kMaxSsds> owed_{};
  std::array<uint32_t, kMaxSsds> absent_{};
  std::array<uint64_t, kMaxSsds> joined_{};
  std::array<uint64_t, kMaxSsds> newest_absent_member_{};
  Changes changes_;
  Snapshot* snapshot_ = nullptr;  // being encoded: told of every change before it is made
};

template <typename Visit>
void State::ForEachSlot(Visit&& visit) const {
  std::array<std::array<DeviceIndex, kMaxSsds>, kMaxSsds> ssd_at;  // by FirstParitySsd, position
  for (uint32_t p = 0; p < geometry_.n; ++p) {
    for (uint32_t i = 0; i < geometry_.n; ++i) {
      ssd_at[p][i] = geometry_.SsdAt(p, i);
    }
  }
  for (uint32_t group = 0; group < rows.groups(); ++group) {
    const auto words = rows.Group(group);
    for (size_t at = 0; at < words.size(); at += geometry_.n) {
      const StripeIndex stripe(group * kRowGroupStripes + static_cast<uint32_t>(at / geometry_.n));
      const auto& ssds = ssd_at[geometry_.FirstParitySsd(stripe)];
      for (uint32_t i = 0; i < geometry_.n; ++i) {
        if (words[at + i].word.has_slot()) {
          visit(ssds[i], words[at + i].word.slot());
        }
      }
    }
  }
  pending.ForEachLive([&](LogStripeId id) {
    for (const LogStripeMember& member : pending.View(id).members) {
      const StripeIndex stripe = geometry_.StripeOf(member.chunk);
      const bool in_row =
          rows.Get(stripe, geometry_.IndexInStripe(member.chunk)).word == member.word;
      if (member.word.has_slot() && !in_row) {
        visit(geometry_.SsdOf(member.chunk), member.word.slot());
      }
    }
    return true;
  });
}

}  // namespace eplog
