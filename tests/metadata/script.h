// Makes entries that fit a state, as an array at work would, and applies them: writes that are
// logged and whole stripes, commits that end later than they began, trims, volumes, and SSDs that
// are replaced.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "metadata/state.h"

namespace eplog {

inline Geometry SmallGeometry(uint32_t n, uint32_t m, uint32_t stripes) {
  Geometry g;
  g.n = n;
  g.m = m;
  g.chunk_bytes = 4096;
  g.stripes = stripes;
  g.slots = 3 * stripes + 64;
  g.extent_stripes = 4;
  g.log_blocks = 100'000;
  g.ring_blocks = 64;
  return g;
}

class Script {
 public:
  Script(const Geometry& geometry, uint64_t seed) : state(geometry), g_(geometry), random_(seed) {
    for (uint32_t ssd = 0; ssd < g_.n; ++ssd) {
      free_.emplace_back();
      Refill(DeviceIndex(static_cast<uint8_t>(ssd)));
    }
  }

  // What was applied, and what the state said of it.
  struct Applied {
    EntryHeader entry;
    SlotChanges changes;
  };
  Applied Step() {
    Applied applied;
    EntryHeader& entry = applied.entry;
    entry.epoch.number = epoch_;
    entry.sequence = ++sequence_;
    entry.place = place_;
    const uint64_t draw = random_.Below(20);
    if (draw < 9) {
      LogStripe(entry);
    } else if (draw < 13) {
      WholeStripe(entry);
    } else if (draw < 15) {
      Commit(entry);
    } else if (draw < 18) {
      Trim(entry);
    } else {
      Volumes(entry);
    }
    entry.length_blocks = 1 + static_cast<uint32_t>(entry.log_stripes.size());
    place_ += entry.length_blocks;
    state.Apply(entry, applied.changes);
    GiveBack(applied.changes);
    return applied;
  }
  // What is stable by now, now and then.
  std::optional<uint64_t> Stable() {
    if (!random_.OneIn(4)) {
      return std::nullopt;
    }
    const uint64_t sequence = sequence_ - random_.Below(std::min<uint64_t>(sequence_, 5));
    state.Stable(sequence);
    return sequence;
  }
  // Another SSD is in its place, and empty; a commit on its way is given up.
  void Replace(DeviceIndex ssd) {
    state.SetJoined(ssd, ++epoch_);
    state.ForgetSsd(ssd);
    if (late_) {
      for (const RowChange& change : late_->changes) {
        const DeviceIndex on = g_.SsdOf(late_->stripe, change.index);
        if (change.index >= g_.k() && change.word.has_slot()) {
          free_[on.value].push_back(change.word.slot().value);
        }
      }
      late_.reset();
      Unpin({});
    }
    free_[ssd.value].clear();
    Refill(ssd);
  }
  [[nodiscard]] uint64_t sequence() const { return sequence_; }
  [[nodiscard]] uint64_t epoch() const { return epoch_; }

  State state;

 private:
  void Refill(DeviceIndex ssd) {
    for (uint32_t slot = 0; slot < g_.slots; ++slot) {
      free_[ssd.value].push_back(slot);
    }
  }
  // What a commit on its way has read is not given to others meanwhile (I5).
  void GiveBack(const SlotChanges& changes) {
    for (const SsdSlot& slot : changes.freed) {
      if (std::find(changes.kept.begin(), changes.kept.end(), slot) != changes.kept.end()) {
        continue;
      }
      bool pinned = false;
      for (size_t i = 0; late_ && i < late_->changes.size(); ++i) {
        const RowChange& change = late_->changes[i];
        pinned = pinned || (change.word == SlotWord::At(slot.slot) &&
                            g_.SsdOf(late_->stripe, change.index) == slot.ssd);
      }
      if (pinned) {
        pinned_.push_back(slot);
      } else {
        free_[slot.ssd.value].push_back(slot.slot.value);
      }
    }
    if (!late_) {
      Unpin(changes.kept);
    }
  }
  void Unpin(const std::vector<SsdSlot>& kept) {
    for (const SsdSlot& slot : std::exchange(pinned_, {})) {
      if (std::find(kept.begin(), kept.end(), slot) == kept.end()) {
        free_[slot.ssd.value].push_back(slot.slot.value);
      }
    }
  }
  SlotWord Take(DeviceIndex ssd) {
    const uint32_t slot = free_[ssd.value].front();
    free_[ssd.value].pop_front();
    return SlotWord::At(SlotIndex(slot));
  }
  uint32_t Crc() { return static_cast<uint32_t>(random_.Next()) | 1; }

  void LogStripe(EntryHeader& entry) {
    for (uint64_t stripes = random_.Between(1, 2); stripes != 0; --stripes) {
      LogStripeRecord record;
      uint64_t ssds = 0;
      for (uint64_t i = random_.Between(1, g_.n); i != 0; --i) {
        const ChunkIndex chunk(random_.Below(g_.data_chunks()));
        const DeviceIndex ssd = g_.SsdOf(chunk);
        bool taken = (ssds >> ssd.value & 1) != 0;
        for (const auto& other : entry.log_stripes) {
          for (const auto& member : other.members) {
            taken = taken || member.chunk == chunk;
          }
        }
        if (!taken) {
          ssds |= uint64_t{1} << ssd.value;
          // Now and then its SSD is not there.
          record.members.push_back(
              {chunk, random_.OneIn(20) ? SlotWord::Absent() : Take(ssd), Crc()});
        }
      }
      if (!record.members.empty()) {
        record.log_crcs.assign(g_.m, Crc());
        entry.log_stripes.push_back(std::move(record));
      }
    }
  }
  // Whose row's lock no commit holds.
  StripeIndex AnyStripe() {
    const StripeIndex stripe(static_cast<uint32_t>(random_.Below(g_.stripes)));
    return late_ && late_->stripe == stripe ? StripeIndex((stripe.value + 1) % g_.stripes) : stripe;
  }
  void WholeStripe(EntryHeader& entry) {
    RowRecord row;
    row.stripe = AnyStripe();
    for (uint32_t i = 0; i < g_.n; ++i) {
      row.changes.push_back({static_cast<uint8_t>(i), Take(g_.SsdOf(row.stripe, i)), Crc(),
                             i < g_.k() ? entry.sequence : 0});
    }
    entry.rows.push_back(std::move(row));
  }
  void Commit(EntryHeader& entry) {
    if (late_) {
      entry.rows.push_back(*std::exchange(late_, std::nullopt));
      return;
    }
    const StripeIndex stripe(static_cast<uint32_t>(random_.Below(g_.stripes)));
    RowRecord row;
    row.stripe = stripe;
    for (uint32_t i = 0; i < g_.k(); ++i) {
      if (const auto pending = state.pending.Find(g_.Chunk(stripe, i))) {
        row.changes.push_back(
            {static_cast<uint8_t>(i), pending->word, pending->crc, pending->version});
      }
    }
    if (row.changes.empty()) {
      return;
    }
    for (uint32_t i = g_.k(); i < g_.n; ++i) {
      row.changes.push_back({static_cast<uint8_t>(i), Take(g_.SsdOf(stripe, i)), Crc(), 0});
    }
    if (random_.OneIn(2)) {
      entry.rows.push_back(std::move(row));
    } else {
      late_ = std::move(row);
    }
  }
  void Trim(EntryHeader& entry) {
    const StripeIndex stripe = AnyStripe();
    if (random_.OneIn(2)) {
      uint32_t most = std::min(4U, g_.stripes - stripe.value);
      if (late_ && late_->stripe.value > stripe.value) {
        most = std::min(most, late_->stripe.value - stripe.value);
      }
      entry.trims.emplace_back(
          StripesTrimmed{stripe, static_cast<uint32_t>(random_.Between(1, most))});
    } else {
      const auto index = static_cast<uint32_t>(random_.Below(g_.k()));
      entry.trims.emplace_back(ChunksTrimmed{
          g_.Chunk(stripe, index), static_cast<uint32_t>(random_.Between(1, g_.k() - index))});
    }
  }
  void Volumes(EntryHeader& entry) {
    const auto& all = state.volumes.all();
    if (all.empty() || random_.OneIn(3)) {
      const VolumeId id(state.volumes.next_id());
      entry.volumes.emplace_back(
          VolumeCreated{id, random_.Below(1 << 20), "v" + std::to_string(id.value)});
      return;
    }
    auto at = all.begin();
    std::advance(at, static_cast<long>(random_.Below(all.size())));
    const Volume& volume = at->second;
    if (volume.deleting) {
      Free(volume.id, entry);
    } else if (random_.OneIn(6)) {
      entry.volumes.emplace_back(VolumeDeleted{volume.id});
    } else if (random_.OneIn(4)) {
      entry.volumes.emplace_back(VolumeResized{volume.id, random_.Below(1 << 20)});
    } else if (random_.OneIn(6)) {
      entry.volumes.emplace_back(VolumeRenamed{volume.id, "r" + std::to_string(sequence_)});
    } else if (const auto free = state.volumes.LowestFree()) {
      uint32_t logical = 0;
      while (volume.extents.Get(logical)) {
        ++logical;
      }
      entry.volumes.emplace_back(ExtentAssigned{volume.id, logical, *free});
    }
  }
  void Free(VolumeId owner, EntryHeader& entry) {
    for (uint32_t i = 0; i < g_.extents(); ++i) {
      const bool locked = late_ && late_->stripe.value / g_.extent_stripes == i;
      if (state.volumes.OwnerOf(ExtentIndex(i)).volume == owner && !locked) {
        entry.volumes.emplace_back(ExtentsFreed{ExtentIndex(i), 1});
        return;
      }
    }
  }

  const Geometry& g_;
  Random random_;
  std::vector<std::deque<uint32_t>> free_;
  std::optional<RowRecord> late_;  // a commit on its way
  std::vector<SsdSlot> pinned_;    // freed, and it may need them
  uint64_t epoch_ = 1;
  uint64_t sequence_ = 0;
  uint64_t place_ = 0;
};

}  // namespace eplog
