// An entry of the log: the shared header, identical on every copy. It lies in one block of the log
// ring, followed there by that device's log chunks; its used bytes also go, packed, into journal
// ring blocks. Bytes: docs/format.md. No I/O here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"
#include "layout/geometry.h"
#include "layout/slot_word.h"

namespace eplog {

inline constexpr size_t kRingBlockHeaderBytes = 64;
// The used bytes of a header always fit a journal ring block.
inline constexpr size_t kMaxEntryHeaderBytes = kBlockBytes - kRingBlockHeaderBytes;

struct LogStripeMember {
  ChunkIndex chunk;
  SlotWord word;  // a slot or `absent`
  uint32_t crc = 0;
  bool operator==(const LogStripeMember&) const = default;
};

// 1 ... n members on distinct SSDs. Position in `members` is the position in the code. Its log
// chunks lie one chunk on each log device, at: entry place + 1 + (number of the log stripe in the
// entry) * chunk_blocks.
struct LogStripeRecord {
  std::vector<LogStripeMember> members;
  std::vector<uint32_t> log_crcs;  // m: CRC32C of the log chunk of each log device
  bool operator==(const LogStripeRecord&) const = default;
};

struct RowChange {
  uint8_t index = 0;  // 0 ... n-1
  SlotWord word;
  uint32_t crc = 0;  // 0 for `zero`
  // Data (index < k): sequence of the pending version that the row now covers; the entry's own in a
  // full-stripe write; 0 if none is superseded. Parity: 0.
  uint64_t version = 0;
  bool operator==(const RowChange&) const = default;
};

// Only the words that changed. Supersedes pendings of its data words up to `version`.
struct RowRecord {
  StripeIndex stripe;
  std::vector<RowChange> changes;
  bool operator==(const RowRecord&) const = default;
};

// Rows of these stripes become all `zero`, their pendings are superseded.
struct StripesTrimmed {
  StripeIndex first;
  uint32_t count = 0;
  bool operator==(const StripesTrimmed&) const = default;
};
// Consecutive data chunks of one stripe: each gets a pending `zero` of the entry's version. The old
// content stays where it is until a commit, since parity covers it.
struct ChunksTrimmed {
  ChunkIndex first;
  uint32_t count = 0;
  bool operator==(const ChunksTrimmed&) const = default;
};
using TrimRecord = std::variant<StripesTrimmed, ChunksTrimmed>;

struct VolumeCreated {
  VolumeId id;
  uint64_t size_bytes = 0;
  std::string name;
  bool operator==(const VolumeCreated&) const = default;
};
struct VolumeResized {
  VolumeId id;
  uint64_t size_bytes = 0;
  bool operator==(const VolumeResized&) const = default;
};
struct VolumeRenamed {
  VolumeId id;
  std::string name;
  bool operator==(const VolumeRenamed&) const = default;
};
// The name is free again; extents follow in ExtentsFreed batches. Forgotten when the last extent is
// freed.
struct VolumeDeleted {
  VolumeId id;
  bool operator==(const VolumeDeleted&) const = default;
};
struct ExtentAssigned {
  VolumeId id;
  uint32_t logical = 0;  // extent number in the volume
  ExtentIndex extent;
  bool operator==(const ExtentAssigned&) const = default;
};
// Rows of these extents become all `zero`, their pendings are superseded, the extents are free.
struct ExtentsFreed {
  ExtentIndex first;
  uint32_t count = 0;
  bool operator==(const ExtentsFreed&) const = default;
};

using VolumeRecord = std::variant<VolumeCreated, VolumeResized, VolumeRenamed, VolumeDeleted,
                                  ExtentAssigned, ExtentsFreed>;

struct EntryHeader {
  Epoch epoch;
  uint64_t sequence = 0;
  uint64_t mark = 0;           // the newest stable sequence known when it was made
  uint64_t place = 0;          // block of the log ring, counted from creation, never wrapped
  uint32_t length_blocks = 1;  // 1 + log stripes * chunk_blocks
  bool first_of_epoch = false;
  Epoch follows_epoch;  // first_of_epoch only: the entry it follows
  uint64_t follows_sequence = 0;
  // Applied in this order. No chunk occurs in two records of one entry.
  std::vector<VolumeRecord> volumes;
  std::vector<RowRecord> rows;
  std::vector<TrimRecord> trims;
  std::vector<LogStripeRecord> log_stripes;
  bool operator==(const EntryHeader&) const = default;
};

// Behind an entry: its epoch and sequence, and the place of the next one.
struct LogPosition {
  Epoch epoch;
  uint64_t sequence = 0;
  uint64_t place = 0;  // in blocks since the log began
};
// The next entry has the next sequence in the same epoch, or is an epoch's first and names what it
// follows. Log chunks are what users write, and lie among the headers: one who knows all else of a
// header does not know the random part of an epoch.
bool Continues(const EntryHeader& header, const LogPosition& at);

// Room that records take in a header, to fill one without overflowing: upper bounds in bytes.
inline constexpr size_t kEntryFixedBytes = 96;
// A version is taken to be less than 2^49 entries old.
size_t MaxRecordBytes(const VolumeRecord& record);
size_t MaxRecordBytes(const RowRecord& record);
size_t MaxRecordBytes(const TrimRecord& record);
size_t MaxLogStripeRecordBytes(size_t members, size_t parity);
size_t MaxRowRecordBytes(size_t changes);

// Encodes into `out` (at least kMaxEntryHeaderBytes), of which it touches only the used bytes,
// whose number it returns. The caller has kept to the limits; a header that does not fit stops the
// program.
size_t EncodeEntryHeader(const EntryHeader& header, const Uuid& array, std::span<std::byte> out);

// Decodes a header at the start of `in` (a log block, or a place in a ring block); `used_bytes`, if
// given, gets its length. kNotFound: no magic or another array. kUnsupported: a record type that
// this version does not know. kCorrupt: CRC or structure wrong. Checks every index and count
// against the geometry, so that a decoded header can be applied blindly as far as bounds go.
Result<EntryHeader> DecodeEntryHeader(std::span<const std::byte> in, const Uuid& array,
                                      const Geometry& geometry, size_t* used_bytes = nullptr);

// All but the records: also of a header of which this version does not know the rest. kNotFound and
// kCorrupt as above.
Result<EntryHeader> DecodeEntryFixed(std::span<const std::byte> in, const Uuid& array);

// ---- journal ring blocks
struct RingBlock {
  DeviceIndex ssd;
  uint64_t number = 0;  // counts up for ever; lies at number mod ring_blocks
  std::vector<EntryHeader> headers;
};

// Packs already encoded headers (EncodeEntryHeader's used bytes) into one block of kBlockBytes.
class RingBlockBuilder {
 public:
  explicit RingBlockBuilder(std::span<std::byte> block);  // kBlockBytes, overwritten
  // False if it does not fit any more (the block is unchanged). Sequences ascend.
  bool Add(std::span<const std::byte> encoded_header, uint64_t sequence);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  // Not for an empty block.
  void Finish(const Uuid& array, DeviceIndex ssd, uint64_t number);

 private:
  std::span<std::byte> block_;
  size_t used_ = kRingBlockHeaderBytes;
  uint16_t count_ = 0;
  uint64_t first_sequence_ = 0;
  uint64_t last_sequence_ = 0;
};

// What a block says of itself: enough for one whose headers are all older than the checkpoint. The
// same conditions as below, but for the headers in it.
struct RingBlockHead {
  uint64_t number = 0;
  uint64_t last_sequence = 0;
};
Result<RingBlockHead> DecodeRingBlockHead(std::span<const std::byte> in, const Uuid& array,
                                          const Geometry& geometry, DeviceIndex ssd);

// The block must name this array and this SSD (kCorrupt if another). kNotFound / kCorrupt /
// kUnsupported as above. The caller compares the number with where it was found.
Result<RingBlock> DecodeRingBlock(std::span<const std::byte> in, const Uuid& array,
                                  const Geometry& geometry, DeviceIndex ssd);

}  // namespace eplog
