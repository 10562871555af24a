// Checkpoint bytes: framed pages in the metadata area, a root that names runs of pages, and the
// stream of items inside a run. Bytes: docs/format.md. No I/O here.
//
// A run is a sequence of items; its bytes are cut into pages, which lie one after the other in the
// metadata area, round its end. A full run holds the whole state. An incremental one holds what
// changed since the run before it: rows, extents, the volumes if any of them changed; and always
// all that is pending, which older runs then no longer tell. The root names the runs, newest first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"
#include "layout/geometry.h"
#include "layout/slot_word.h"

namespace eplog {

inline constexpr size_t kPageHeaderBytes = 64;
inline constexpr size_t kPagePayloadBytes = kBlockBytes - kPageHeaderBytes;

enum class PageKind : uint8_t { kRoot = 1, kRun = 2 };

struct PageHeader {
  PageKind kind = PageKind::kRun;
  uint64_t generation = 0;  // of the checkpoint that wrote it
  uint64_t random = 0;
  uint64_t block = 0;  // where it lies in the metadata area
  uint32_t index = 0;  // of the page in its root or run
  uint32_t payload_bytes = 0;
  bool operator==(const PageHeader&) const = default;
};

// `page` has kBlockBytes with the payload already at kPageHeaderBytes; the rest is zeroed, header
// and CRC filled in.
void FinishPage(const PageHeader& header, const Uuid& array, std::span<std::byte> page);
// Checks magic, array, CRC. The caller compares kind, generation, random, block, index.
Result<PageHeader> DecodePage(std::span<const std::byte> page, const Uuid& array);

struct RunDescriptor {
  bool full = true;
  uint64_t ssd_mask = 0;     // which SSDs hold its pages
  uint64_t first_block = 0;  // in the metadata area; the others follow, round its end
  uint64_t blocks = 0;
  uint64_t stream_bytes = 0;
  uint32_t stream_crc = 0;
  uint64_t generation = 0;  // in its pages' headers
  uint64_t random = 0;
  bool operator==(const RunDescriptor&) const = default;
};

struct CheckpointRoot {
  // The state is that after this entry; the log goes on at `place`.
  Epoch epoch;
  uint64_t sequence = 0;
  uint64_t place = 0;
  uint32_t next_volume_id = 1;
  std::vector<RunDescriptor> runs;  // newest first; the last is full
  // Traffic, in the order of its declaration; may be shorter.
  std::vector<uint64_t> lifetime_counters;
  bool operator==(const CheckpointRoot&) const = default;
};

std::vector<std::byte> EncodeRoot(const CheckpointRoot& root);
// kCorrupt if the bytes are not exactly a root's, kUnsupported for a run of unknown kind. The
// caller compares the runs' blocks with the metadata area.
Result<CheckpointRoot> DecodeRoot(std::span<const std::byte> in);

// ---- items of a run's stream
struct LogStripeItem {
  struct Member {
    ChunkIndex chunk;
    SlotWord word;
    uint32_t crc = 0;
    bool superseded = false;
    bool operator==(const Member&) const = default;
  };
  uint64_t sequence = 0;  // of its entry
  uint64_t place = 0;     // of its log chunks
  std::vector<Member> members;
  std::vector<uint32_t> log_crcs;  // m
  bool operator==(const LogStripeItem&) const = default;
};

// What is left of a ChunksTrimmed record: consecutive chunks of one stripe, pending zeros.
struct ZerosItem {
  uint64_t sequence = 0;  // of its entry
  uint64_t place = 0;     // of its entry
  ChunkIndex first;
  uint32_t count = 0;
  uint32_t superseded = 0;  // mask
  bool operator==(const ZerosItem&) const = default;
};

struct VolumeItem {
  VolumeId id;
  uint64_t size_bytes = 0;
  bool deleting = false;
  std::string name;
  bool operator==(const VolumeItem&) const = default;
};

struct ExtentItem {
  ExtentIndex extent;
  VolumeId volume;
  uint32_t logical = 0;
  bool operator==(const ExtentItem&) const = default;
};

// No encoded item is longer.
inline constexpr size_t kMaxRunItemBytes = size_t{32} << 10;

// Appends items to a byte vector. Rows: `words` holds kRowGroupStripes x n words (fewer stripes in
// the last group), stripe by stripe. RowGroup codes runs of consecutive slots on an SSD as runs,
// and CRCs only for words that are not `zero`. Rows writes only the stripes of the mask, which is
// shorter for a few of them.
class RunWriter {
 public:
  // Rows of more stripes are shorter as a RowGroup.
  static constexpr int kMostLoneRows = 32;

  RunWriter(const Geometry& geometry, std::vector<std::byte>& out)
      : geometry_(geometry), out_(out) {}
  void RowGroup(uint32_t group, std::span<const RowWord> words);
  void Rows(uint32_t group, uint64_t stripes, std::span<const RowWord> words);
  void LogStripe(const LogStripeItem& item);
  void Zeros(const ZerosItem& item);
  void Volume(const VolumeItem& item);
  void Extent(const ExtentItem& item);
  void ExtentFreed(ExtentIndex extent);
  // The volumes of this run are all there are; those of older runs are void.
  void AllVolumes();
  void End();

 private:
  const Geometry& geometry_;
  std::vector<std::byte>& out_;
};

// Receives the items in their order. Every index has been checked against the geometry.
class RunVisitor {
 public:
  virtual ~RunVisitor() = default;
  virtual void RowGroup(uint32_t group, std::span<const RowWord> words) = 0;
  virtual void Row(StripeIndex stripe, std::span<const RowWord> words) = 0;
  virtual void LogStripe(const LogStripeItem& item) = 0;
  virtual void Zeros(const ZerosItem& item) = 0;
  virtual void Volume(const VolumeItem& item) = 0;
  virtual void Extent(const ExtentItem& item) = 0;
  virtual void ExtentFreed(ExtentIndex extent) = 0;
  virtual void AllVolumes() = 0;
};

// Decodes a run that comes in pieces of any size. kCorrupt if anything is wrong or the end is
// missing, kUnsupported for an unknown item; items may have been delivered by then.
class RunDecoder {
 public:
  RunDecoder(const Geometry& geometry, RunVisitor& visitor)
      : geometry_(geometry), visitor_(visitor) {}
  Status Feed(std::span<const std::byte> bytes);
  // After the last piece.
  Status Finish();

 private:
  Status Parse(size_t keep);

  const Geometry& geometry_;
  RunVisitor& visitor_;
  std::vector<std::byte> waiting_;
  std::vector<RowWord> words_;
  bool ended_ = false;
};
Status DecodeRun(std::span<const std::byte> stream, const Geometry& geometry, RunVisitor& visitor);

}  // namespace eplog
