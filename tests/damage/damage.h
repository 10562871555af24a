// What is done to the blocks of a base: which block of which area, and what it is replaced by.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/damage/base.h"

namespace eplog::damage {

enum class Area : uint8_t { kSuperblock, kMetadata, kRing, kLog, kSlots };
inline constexpr int kAreas = 5;
constexpr unsigned AreaBit(Area area) {
  return 1U << static_cast<unsigned>(area);
}
const char* AreaName(Area area);

enum class Kind : uint8_t {
  kBit,          // one bit is another
  kZeros,        // nothing is there any more
  kOlder,        // the last write to it was lost
  kSameDevice,   // any block of the device
  kOtherDevice,  // any block of another device
  kSamePlace,    // what another device has at the same place
  kSameArea,     // another block of its kind: copy A for B, an older page, another header or chunk
  kSwapped,      // changed with another block of that area of the device
};
inline constexpr int kKinds = 8;
const char* KindName(Kind kind);

struct Damage {
  Area area = Area::kSlots;
  Kind kind = Kind::kBit;
  size_t device = 0;
  uint64_t block = 0;
  // Where what lies there now comes from, if it is another block of the array.
  size_t from_device = 0;
  uint64_t from_block = 0;
  uint64_t bit = 0;  // kBit
  size_t older = 0;  // kOlder: which of them
};

// Finds blocks worth damaging in a base.
class Picker {
 public:
  explicit Picker(const Base& base);

  // On a device that is not `spared` (bits), in one of `areas` (bits). Nothing if nothing was
  // written there.
  [[nodiscard]] std::optional<Damage> Pick(Random& random, unsigned areas, uint64_t spared) const;
  void Apply(const Damage& damage, std::vector<ImageDevice>& devices) const;
  // In words: "ssd1 ring block 12 (device block 345) replaced by ...".
  [[nodiscard]] std::string Describe(const Damage& damage) const;

 private:
  struct Span {
    uint64_t first = 0;
    uint64_t end = 0;
  };
  [[nodiscard]] Span BlocksOf(size_t device, Area area) const;
  [[nodiscard]] std::string Place(size_t device, uint64_t block) const;
  [[nodiscard]] uint64_t AnyBlock(Random& random, size_t device) const;
  bool Source(Random& random, Damage& damage) const;

  const Base& base_;
  unsigned areas_ = 0;  // with something in them
  // By device and area: blocks with something in them.
  std::vector<std::array<std::vector<uint64_t>, kAreas>> written_;
};

}  // namespace eplog::damage
