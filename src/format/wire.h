// The fixed parts of every on-disk structure, as they lie (docs/format.md): plain structs without
// padding, copied in and out whole. Private to this room. It may know bytes and their places, not
// what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/types.h"
#include "layout/geometry.h"
#include "layout/slot_word.h"

namespace eplog::wire {

// Sequences, places, and numbers of epochs, generations and ring blocks are counted up from the
// first; none comes near this, and what follows on one below it does not overflow.
inline constexpr uint64_t kMostNumber = uint64_t{1} << 62;

// ---- superblock
inline constexpr std::array<char, 8> kSuperblockMagic = {'E', 'P', 'L', 'O', 'G', 'S', 'B', '1'};
inline constexpr size_t kNameBytes = kMaxArrayNameBytes + 1;
inline constexpr size_t kMemberTableOffset = 512;

struct MemberBytes {
  Uuid uuid;
  uint64_t joined;
  uint8_t state;
  std::array<uint8_t, 7> reserved;
};
static_assert(sizeof(MemberBytes) == 32);
static_assert(offsetof(MemberBytes, joined) == 16);
static_assert(offsetof(MemberBytes, state) == 24);

struct SuperblockBytes {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t crc;
  Uuid array_uuid;
  Uuid device_uuid;
  uint8_t index;
  uint8_t journal_mode;
  uint8_t n;
  uint8_t m;
  uint32_t chunk_bytes;
  uint32_t stripes;
  uint32_t slots;
  uint32_t extent_stripes;
  uint32_t reserved0;
  uint64_t metadata_offset_bytes;
  uint64_t metadata_blocks;
  uint64_t ring_offset_bytes;
  uint64_t ring_blocks;
  uint64_t slots_offset_bytes;
  uint64_t log_offset_bytes;
  uint64_t log_blocks;
  uint64_t generation;
  Epoch epoch;
  Epoch base;
  uint64_t checkpoint_generation;
  uint64_t checkpoint_random;
  uint64_t root_block;
  uint32_t root_blocks;
  uint32_t root_crc;
  uint64_t root_ssd_mask;
  std::array<char, kNameBytes> name;
  uint8_t member_count;
  uint8_t base_on_rings;
  std::array<uint8_t, 238> reserved1;
  std::array<MemberBytes, kMaxDevices> members;
  std::array<uint8_t, kSuperblockCopyBytes - kMemberTableOffset - kMaxDevices * 32> reserved2;
};
static_assert(sizeof(Epoch) == 16 && offsetof(Epoch, random) == 8);
static_assert(sizeof(SuperblockBytes) == kSuperblockCopyBytes);
static_assert(std::is_trivially_copyable_v<SuperblockBytes>);
static_assert(offsetof(SuperblockBytes, version) == 8);
static_assert(offsetof(SuperblockBytes, crc) == 12);
static_assert(offsetof(SuperblockBytes, array_uuid) == 16);
static_assert(offsetof(SuperblockBytes, device_uuid) == 32);
static_assert(offsetof(SuperblockBytes, index) == 48);
static_assert(offsetof(SuperblockBytes, chunk_bytes) == 52);
static_assert(offsetof(SuperblockBytes, metadata_offset_bytes) == 72);
static_assert(offsetof(SuperblockBytes, log_blocks) == 120);
static_assert(offsetof(SuperblockBytes, generation) == 128);
static_assert(offsetof(SuperblockBytes, epoch) == 136);
static_assert(offsetof(SuperblockBytes, base) == 152);
static_assert(offsetof(SuperblockBytes, checkpoint_generation) == 168);
static_assert(offsetof(SuperblockBytes, root_blocks) == 192);
static_assert(offsetof(SuperblockBytes, root_ssd_mask) == 200);
static_assert(offsetof(SuperblockBytes, name) == 208);
static_assert(offsetof(SuperblockBytes, member_count) == 272);
static_assert(offsetof(SuperblockBytes, members) == kMemberTableOffset);

// ---- entry header
inline constexpr uint32_t kEntryMagic = 0x454C5045;  // "EPLE"
inline constexpr uint16_t kFirstOfEpoch = 1;         // the only flag; any other is refused

struct EntryBytes {
  uint32_t magic;
  uint32_t crc;
  uint16_t used_bytes;
  uint16_t flags;
  uint32_t length_blocks;
  Uuid array_uuid;
  Epoch epoch;
  uint64_t sequence;
  uint64_t mark;
  uint64_t place;
};
static_assert(sizeof(EntryBytes) == 72);
static_assert(std::is_trivially_copyable_v<EntryBytes>);
static_assert(offsetof(EntryBytes, crc) == 4);
static_assert(offsetof(EntryBytes, used_bytes) == 8);
static_assert(offsetof(EntryBytes, length_blocks) == 12);
static_assert(offsetof(EntryBytes, array_uuid) == 16);
static_assert(offsetof(EntryBytes, epoch) == 32);
static_assert(offsetof(EntryBytes, sequence) == 48);
static_assert(offsetof(EntryBytes, place) == 64);

// Follows EntryBytes in the first entry of an epoch.
struct FollowsBytes {
  Epoch epoch;
  uint64_t sequence;
};
static_assert(sizeof(FollowsBytes) == 24);

// Numbers are for ever. 3 (slot moved) and 12 (checkpoint) are reserved.
enum class RecordType : uint8_t {
  kLogStripe = 1,
  kRowInstalled = 2,
  kStripesTrimmed = 4,
  kChunksTrimmed = 5,
  kVolumeCreated = 6,
  kVolumeResized = 7,
  kVolumeRenamed = 8,
  kVolumeDeleted = 9,
  kExtentAssigned = 10,
  kExtentsFreed = 11,
};
inline constexpr uint8_t kHasVersion =
    0x80;  // in the index byte of a row change: a version follows
// What a size on the devices may say at most. What a volume may be given is less, and not for ever.
inline constexpr uint64_t kMaxToldVolumeBytes = uint64_t{INT64_MAX};

// ---- journal ring block
inline constexpr uint32_t kRingMagic = 0x524C5045;  // "EPLR"

struct RingBytes {
  uint32_t magic;
  uint32_t crc;
  Uuid array_uuid;
  uint8_t ssd;
  std::array<uint8_t, 3> reserved0;
  uint16_t payload_bytes;
  uint16_t count;
  uint64_t number;
  uint64_t first_sequence;
  uint64_t last_sequence;
  std::array<uint8_t, 8> reserved1;
};
static_assert(sizeof(RingBytes) == 64);
static_assert(std::is_trivially_copyable_v<RingBytes>);
static_assert(offsetof(RingBytes, array_uuid) == 8);
static_assert(offsetof(RingBytes, ssd) == 24);
static_assert(offsetof(RingBytes, payload_bytes) == 28);
static_assert(offsetof(RingBytes, number) == 32);
static_assert(offsetof(RingBytes, last_sequence) == 48);

// ---- checkpoint page and root
inline constexpr uint32_t kPageMagic = 0x504C5045;  // "EPLP"

struct PageBytes {
  uint32_t magic;
  uint32_t crc;
  Uuid array_uuid;
  uint64_t generation;
  uint64_t random;
  uint64_t block;
  uint32_t index;
  uint16_t payload_bytes;
  uint8_t kind;
  std::array<uint8_t, 9> reserved;
};
static_assert(sizeof(PageBytes) == 64);
static_assert(std::is_trivially_copyable_v<PageBytes>);
static_assert(offsetof(PageBytes, array_uuid) == 8);
static_assert(offsetof(PageBytes, generation) == 24);
static_assert(offsetof(PageBytes, block) == 40);
static_assert(offsetof(PageBytes, index) == 48);
static_assert(offsetof(PageBytes, payload_bytes) == 52);
static_assert(offsetof(PageBytes, kind) == 54);

struct RootBytes {
  Epoch epoch;
  uint64_t sequence;
  uint64_t place;
  uint32_t next_volume_id;
  uint16_t run_count;
  uint16_t counter_count;
};
static_assert(sizeof(RootBytes) == 40);
static_assert(offsetof(RootBytes, next_volume_id) == 32);

inline constexpr uint8_t kFullRun = 1;

struct RunBytes {
  uint64_t ssd_mask;
  uint64_t first_block;
  uint64_t blocks;
  uint64_t stream_bytes;
  uint64_t generation;
  uint64_t random;
  uint32_t stream_crc;
  uint8_t flags;
  std::array<uint8_t, 3> reserved;
};
static_assert(sizeof(RunBytes) == 56);
static_assert(offsetof(RunBytes, stream_crc) == 48);
static_assert(offsetof(RunBytes, flags) == 52);

// ---- items of a run
enum class ItemType : uint8_t {
  kRowGroup = 1,
  kLogStripe = 2,
  kVolume = 3,
  kExtent = 4,
  kZeros = 5,
  kRows = 6,
  kExtentFreed = 7,
  kAllVolumes = 8,
  kEnd = 255,
};
enum class ColumnMode : uint8_t { kRuns = 0, kRaw = 1 };
inline constexpr uint8_t kDeletingVolume = 1;

// ---- helpers
template <typename T>
[[nodiscard]] T Load(std::span<const std::byte> in) {
  T value;
  std::memcpy(&value, in.data(), sizeof(T));
  return value;
}
template <typename T>
void Store(const T& value, std::span<std::byte> out) {
  std::memcpy(out.data(), &value, sizeof(T));
}

// CRC32C of `bytes` as if the four bytes at `field_offset`, where it is kept, were zero.
[[nodiscard]] inline uint32_t CrcAround(std::span<const std::byte> bytes, size_t field_offset) {
  static constexpr std::array<std::byte, 4> kZero{};
  const uint32_t head = Crc32c(bytes.first(field_offset));
  return Crc32c(bytes.subspan(field_offset + kZero.size()), Crc32c(kZero, head));
}

[[nodiscard]] inline size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) {
    ++bytes;
  }
  return bytes;
}

// Raw slot words below this are `zero` and `absent` (layout/slot_word.h).
inline constexpr uint32_t kFirstSlotWord = 2;
static_assert(SlotWord::At(SlotIndex(0)).raw() == kFirstSlotWord);

}  // namespace eplog::wire
