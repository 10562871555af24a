// SlotPool: many small pieces of memory of one size, by number. Pieces that were given back are
// handed out again before new memory is taken, so that the pool is never larger than the most
// pieces that were in use at once (rounded up to a segment of 256 KiB). Pieces never move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace eplog::sim {

class SlotPool {
 public:
  // `slot_bytes`: a power of two from 16 to 4096.
  explicit SlotPool(uint32_t slot_bytes)
      : slot_bytes_(slot_bytes),
        slots_per_segment_(static_cast<uint32_t>(kSegmentBytes / slot_bytes)) {}

  // A piece with undefined content.
  uint32_t Take() {
    ++in_use_;
    if (first_free_ != kNone) {
      const uint32_t slot = first_free_;
      std::memcpy(&first_free_, At(slot), sizeof first_free_);
      return slot;
    }
    if (fresh_ == segments_.size() * slots_per_segment_) {
      segments_.push_back(std::make_unique_for_overwrite<std::byte[]>(kSegmentBytes));
    }
    return fresh_++;
  }

  void GiveBack(uint32_t slot) {
    --in_use_;
    std::memcpy(At(slot), &first_free_, sizeof first_free_);
    first_free_ = slot;
  }

  [[nodiscard]] std::byte* At(uint32_t slot) const {
    return segments_[slot / slots_per_segment_].get() +
           size_t{slot % slots_per_segment_} * slot_bytes_;
  }

  [[nodiscard]] uint64_t in_use() const { return in_use_; }
  [[nodiscard]] uint64_t memory_bytes() const { return segments_.size() * kSegmentBytes; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kSegmentBytes = size_t{256} << 10;

  uint32_t slot_bytes_;
  uint32_t slots_per_segment_;
  std::vector<std::unique_ptr<std::byte[]>> segments_;
  uint32_t first_free_ = kNone;  // each free piece begins with the number of the next
  uint32_t fresh_ = 0;
  uint64_t in_use_ = 0;
};

}  // namespace eplog::sim
