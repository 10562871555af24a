// SlotWord: what a row or a log stripe says of one chunk's place: a slot of its SSD, or `zero`
// (never written or trimmed: reads as zeros, CRC field 0), or `absent` (its SSD is gone, the
// content exists only in the parity).
#pragma once

#include <cstdint>

#include "base/types.h"

namespace eplog {

class SlotWord {
 public:
  constexpr SlotWord() = default;
  static constexpr SlotWord Zero() { return SlotWord(0); }
  static constexpr SlotWord Absent() { return SlotWord(1); }
  static constexpr SlotWord At(SlotIndex slot) { return SlotWord(slot.value + 2); }
  static constexpr SlotWord FromRaw(uint32_t raw) { return SlotWord(raw); }

  [[nodiscard]] constexpr bool is_zero() const { return raw_ == 0; }
  [[nodiscard]] constexpr bool is_absent() const { return raw_ == 1; }
  [[nodiscard]] constexpr bool has_slot() const { return raw_ >= 2; }
  [[nodiscard]] constexpr SlotIndex slot() const { return SlotIndex(raw_ - 2); }
  [[nodiscard]] constexpr uint32_t raw() const { return raw_; }  // as it lies on disk
  constexpr bool operator==(const SlotWord&) const = default;

 private:
  constexpr explicit SlotWord(uint32_t raw) : raw_(raw) {}
  uint32_t raw_ = 0;
};

// One word of a row: place and CRC32C of the content (0 for `zero`).
struct RowWord {
  SlotWord word;
  uint32_t crc = 0;
  constexpr bool operator==(const RowWord&) const = default;
};

}  // namespace eplog
