// SlotSpace: which slots may be taken, and when a freed one may be taken again (I1).
//
// A slot is free, claimed (handed out, not yet described), in use, or waiting: freed by some entry
// F, until an entry whose mark covers F is itself stable, and until nobody pins it. How many free
// slots who must leave to others is not decided here (section 5 has a table of who takes some).
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "layout/geometry.h"

namespace eplog {

class SlotSpace {
 public:
  explicit SlotSpace(const Geometry& geometry);

  // Claim the lowest free slot instead of the next one (tests: reuse comes at once).
  void set_lowest_first(bool lowest) { lowest_first_ = lowest; }

  // While loading: these slots, side by side, are in use. False if one of them is already: what was
  // loaded contradicts itself.
  [[nodiscard]] bool TryMarkUsed(DeviceIndex ssd, SlotIndex first, uint32_t count);
  void MarkUsed(DeviceIndex ssd, SlotIndex first, uint32_t count);
  void MarkUsed(DeviceIndex ssd, SlotIndex slot) { MarkUsed(ssd, slot, 1); }

  // The next free slot after the last one handed out, so that fresh stripes get consecutive slots.
  // There is one.
  SlotIndex Claim(DeviceIndex ssd);
  // A claim that no entry describes: free at once.
  void Unclaim(DeviceIndex ssd, SlotIndex slot) { Release(ssd, slot); }

  // Slots freed by entry `sequence`. Sequences ascend.
  template <typename Slots>
  void FreedBy(uint64_t sequence, const Slots& slots) {
    for (const auto& item : slots) {
      waiting_.push_back({sequence, item.ssd, item.slot});
      ++ssds_[item.ssd.value].waiting;
    }
  }
  // A slot that waits is needed again (and has been pinned all the time, so nobody has it).
  void KeepAfterAll(DeviceIndex ssd, SlotIndex slot);
  // An entry with this mark is stable: what entries up to it freed is free.
  void Covered(uint64_t mark);
  // The highest entry that freed something still waiting for a covering mark.
  [[nodiscard]] std::optional<uint64_t> newest_waiting() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.back().sequence);
  }

  // ---- discard: free slots of which the SSD may be told
  struct Run {
    SlotIndex first;
    uint32_t count = 0;
    uint32_t generation = 0;  // of the SSD (Reset)
  };
  enum class Which : uint8_t { kFree, kLongFree };
  // From now on slots that become free are noted.
  void NoteFreed();
  [[nodiscard]] bool any_freed() const { return noted_ != 0; }
  // Those noted before the last call count as free for long now.
  void AgeFreed();
  // The first run of at least `least` such slots from `from` on, at most `most` of it: taken until
  // Return.
  std::optional<Run> Borrow(DeviceIndex ssd, SlotIndex from, uint32_t least, uint32_t most,
                            Which which);
  void Return(DeviceIndex ssd, Run run);

  // Pins count; a slot that becomes free while pinned waits for its last Unpin.
  using PinKey = uint64_t;
  PinKey Pin(DeviceIndex ssd, SlotIndex slot) {
    ++pins_[Key(ssd, slot)].count;
    return Key(ssd, slot);
  }
  void Unpin(PinKey key);

  // The SSD was replaced: all its slots are free. Pins, borrowed runs and claims of the one before
  // mean nothing any more; for claims the holder must know that.
  void Reset(DeviceIndex ssd);

  [[nodiscard]] uint32_t free(DeviceIndex ssd) const { return ssds_[ssd.value].free; }
  [[nodiscard]] uint32_t waiting(DeviceIndex ssd) const { return ssds_[ssd.value].waiting; }
  [[nodiscard]] uint32_t free_min() const;
  // On the SSD that has most.
  [[nodiscard]] uint32_t waiting_max() const;
  [[nodiscard]] uint64_t reuses() const { return reuses_; }
  [[nodiscard]] bool IsUsed(DeviceIndex ssd, SlotIndex slot) const {
    return (ssds_[ssd.value].used[slot.value / 64] >> (slot.value % 64) & 1) != 0;
  }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  struct Ssd {
    std::vector<uint64_t> used;
    uint32_t free = 0;
    uint32_t waiting = 0;
    uint32_t cursor = 0;
    bool wrapped = false;
    uint32_t generation = 0;
    // Free and noted: since the last aging, and before. Empty unless slots are noted.
    std::vector<uint64_t> freed;
    std::vector<uint64_t> long_free;
  };
  struct Waiting {
    uint64_t sequence;
    DeviceIndex ssd;
    SlotIndex slot;
  };
  struct PinState {
    uint32_t count = 0;
    bool release = false;
  };
  static constexpr uint32_t kGenerations = 1U << 24;
  [[nodiscard]] PinKey Key(DeviceIndex ssd, SlotIndex slot) const {
    const uint64_t generation = ssds_[ssd.value].generation % kGenerations;
    return uint64_t{ssd.value} << 56 | generation << 32 | slot.value;
  }
  void Release(DeviceIndex ssd, SlotIndex slot);
  void Note(Ssd& space, SlotIndex slot);
  void Forget(Ssd& space, SlotIndex slot);

  const Geometry& geometry_;
  std::vector<Ssd> ssds_;
  std::deque<Waiting> waiting_;
  std::pmr::unsynchronized_pool_resource pin_memory_;  // pins come and go with every read
  std::pmr::unordered_map<uint64_t, PinState> pins_{&pin_memory_};
  uint64_t reuses_ = 0;
  uint64_t noted_ = 0;
  bool lowest_first_ = false;
};

}  // namespace eplog
