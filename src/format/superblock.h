// The superblock: who a device is, the array's geometry, epoch and newest checkpoint. Two copies on
// every device. Bytes: docs/format.md. No I/O here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"
#include "layout/geometry.h"

namespace eplog {

// Raised when a reader of the old version could misread the new. A reader refuses a higher version,
// and opens lower ones as they are (docs/format.md, section 11).
inline constexpr uint32_t kFormatVersion = 2;

// Epochs, generations, sequences, places and ring blocks are counted up, and numbers from 2^62 on are
// believed by no reader. Nothing comes near that by itself: who would have to go on from here has
// met what is no number of this array, and writes nothing.
inline constexpr uint64_t kLastToGoOnFrom = uint64_t{1} << 61;

enum class MemberState : uint8_t {
  kOk = 1,         // trusted
  kLost = 2,       // not part of this epoch: what it holds is stale
  kJoining = 3,    // replaced, not everything is on it
  kFailed = 4,     // as kLost, since it failed or was taken out: it does not return by itself
  kReturning = 5,  // was lost and is back: what it held is being verified, what it missed written
};

struct MemberEntry {
  Uuid uuid{};
  MemberState state = MemberState::kOk;
  uint64_t joined = 0;  // number of the epoch in which this device joined
  bool operator==(const MemberEntry&) const = default;
  // Part of the epoch.
  [[nodiscard]] bool is_live() const {
    return state != MemberState::kLost && state != MemberState::kFailed;
  }
};

// Newest checkpoint that counts (I9). Root pages lie at the same blocks of every SSD in ssd_mask.
struct CheckpointPointer {
  uint64_t generation = 0;  // 0 = none
  uint64_t random = 0;      // with the generation names one checkpoint
  uint64_t root_block = 0;  // in the metadata area
  uint32_t root_blocks = 0;
  uint32_t root_crc = 0;  // CRC32C of the root's payload
  uint64_t ssd_mask = 0;  // bit i: SSD i
  bool operator==(const CheckpointPointer&) const = default;
};

// A device that belongs to an array and has no place in it yet.
inline constexpr DeviceIndex kSpareIndex(255);

// Only `device_uuid`, `index` and `generation` are of the device; all else is the array's, and
// Superblocks (src/engine/checkpoint) writes it alike to each. An array that is open has three of
// them: Assembly::winner, from which it was opened; Core::identity, a copy of that, for what never
// changes; and Superblocks::current, which alone is up to date.
struct Superblock {
  uint32_t version = kFormatVersion;
  Uuid array_uuid{};
  Uuid device_uuid{};
  DeviceIndex index;  // SSDs first; says the role too
  Geometry geometry;
  uint8_t journal_mode = 1;  // JournalMode
  std::string name;          // at most kMaxArrayNameBytes
  uint64_t generation = 0;   // of this device's superblock; copy = generation mod 2
  Epoch epoch;
  Epoch base;  // the last epoch that opened
  // What flushes answered under `base` is on the journal rings too. False where that is not known.
  bool base_on_rings = false;
  CheckpointPointer checkpoint;
  std::vector<MemberEntry> members;  // n + m; a spare has none
  bool operator==(const Superblock&) const = default;

  // Then it tells the array and its geometry, and nothing of the array's state.
  [[nodiscard]] bool is_spare() const { return index == kSpareIndex; }
  // ssd3, log0, spare
  [[nodiscard]] std::string DeviceName() const {
    return is_spare() ? "spare" : geometry.DeviceName(index);
  }
};

// What a spare of the array bears, with a uuid of its own. `member`: of any of its devices.
Superblock SpareSuperblock(const Superblock& member, const Uuid& device_uuid);

// Writes exactly kSuperblockCopyBytes.
void EncodeSuperblock(const Superblock& superblock, std::span<std::byte> out);

// kNotFound: no magic (not ours). kUnsupported: newer version. kCorrupt: CRC or content wrong.
Result<Superblock> DecodeSuperblock(std::span<const std::byte> in);

}  // namespace eplog
