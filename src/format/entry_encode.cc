// Writing entry headers: one pass over the records, one CRC, no allocation. It trusts its caller
// about content (entry_decode.cc is what checks) and stops the program if a header does not fit.
#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "format/entry.h"
#include "format/wire.h"

namespace eplog {
namespace {

using wire::RecordType;
using wire::VarintBytes;

// Upper bounds of varints, from the ranges of what they hold.
constexpr size_t kTypeBytes = 1;
constexpr size_t kCountBytes = 1;  // at most kMaxSsds
constexpr size_t kCrcBytes = 4;
constexpr size_t kU32Bytes = 5;  // stripes, words, volumes, extents
constexpr size_t kU64Bytes = 10;
constexpr size_t kChunkBytes = 6;    // chunks: below 2^32 stripes * kMaxSsds
constexpr size_t kVersionBytes = 7;  // distance of two sequences: 2^49 entries outlast any array
constexpr size_t kIndexBytes = 1;

static_assert(kEntryFixedBytes == sizeof(wire::EntryBytes) + sizeof(wire::FollowsBytes));
static_assert(kMaxSsds < 0x80, "a count fits one byte, and an index leaves room for kHasVersion");
static_assert(kRingBlockHeaderBytes == sizeof(wire::RingBytes));

size_t NameBytes(const std::string& name) {
  return VarintBytes(name.size()) + name.size();
}

void PutType(ByteWriter& out, RecordType type) {
  out.U8(static_cast<uint8_t>(type));
}

void PutName(ByteWriter& out, const std::string& name) {
  out.Varint(name.size());
  out.Bytes(std::as_bytes(std::span(name)));
}

struct VolumeRecordWriter {
  ByteWriter& out;

  void operator()(const VolumeCreated& r) const {
    PutType(out, RecordType::kVolumeCreated);
    out.Varint(r.id.value);
    out.Varint(r.size_bytes);
    PutName(out, r.name);
  }
  void operator()(const VolumeResized& r) const {
    PutType(out, RecordType::kVolumeResized);
    out.Varint(r.id.value);
    out.Varint(r.size_bytes);
  }
  void operator()(const VolumeRenamed& r) const {
    PutType(out, RecordType::kVolumeRenamed);
    out.Varint(r.id.value);
    PutName(out, r.name);
  }
  void operator()(const VolumeDeleted& r) const {
    PutType(out, RecordType::kVolumeDeleted);
    out.Varint(r.id.value);
  }
  void operator()(const ExtentAssigned& r) const {
    PutType(out, RecordType::kExtentAssigned);
    out.Varint(r.id.value);
    out.Varint(r.logical);
    out.Varint(r.extent.value);
  }
  void operator()(const ExtentsFreed& r) const {
    PutType(out, RecordType::kExtentsFreed);
    out.Varint(r.first.value);
    out.Varint(r.count);
  }
};

struct VolumeRecordSize {
  size_t operator()(const VolumeCreated& r) const {
    return kTypeBytes + kU32Bytes + kU64Bytes + NameBytes(r.name);
  }
  size_t operator()(const VolumeResized& /*r*/) const { return kTypeBytes + kU32Bytes + kU64Bytes; }
  size_t operator()(const VolumeRenamed& r) const {
    return kTypeBytes + kU32Bytes + NameBytes(r.name);
  }
  size_t operator()(const VolumeDeleted& /*r*/) const { return kTypeBytes + kU32Bytes; }
  size_t operator()(const ExtentAssigned& /*r*/) const { return kTypeBytes + 3 * kU32Bytes; }
  size_t operator()(const ExtentsFreed& /*r*/) const { return kTypeBytes + 2 * kU32Bytes; }
};

void PutRow(ByteWriter& out, const RowRecord& record, uint64_t sequence) {
  PutType(out, RecordType::kRowInstalled);
  out.Varint(record.stripe.value);
  out.Varint(record.changes.size());
  for (const RowChange& change : record.changes) {
    const bool has_version = change.version != 0;
    EPLOG_DCHECK(change.version <= sequence, "a row covers no version from the future");
    EPLOG_DCHECK(!change.word.is_zero() || change.crc == 0, "a zero word carries no CRC");
    out.U8(static_cast<uint8_t>(change.index | (has_version ? wire::kHasVersion : 0)));
    out.Varint(change.word.raw());
    out.U32(change.crc);
    if (has_version) {
      out.Varint(sequence - change.version);
    }
  }
}

struct TrimRecordWriter {
  ByteWriter& out;

  void operator()(const StripesTrimmed& r) const {
    PutType(out, RecordType::kStripesTrimmed);
    out.Varint(r.first.value);
    out.Varint(r.count);
  }
  void operator()(const ChunksTrimmed& r) const {
    PutType(out, RecordType::kChunksTrimmed);
    out.Varint(r.first.value);
    out.Varint(r.count);
  }
};

struct TrimRecordSize {
  size_t operator()(const StripesTrimmed& /*r*/) const { return kTypeBytes + 2 * kU32Bytes; }
  size_t operator()(const ChunksTrimmed& /*r*/) const {
    return kTypeBytes + kChunkBytes + kCountBytes;
  }
};

void PutLogStripe(ByteWriter& out, const LogStripeRecord& record) {
  PutType(out, RecordType::kLogStripe);
  out.Varint(record.members.size());
  for (const LogStripeMember& member : record.members) {
    out.Varint(member.chunk.value);
    out.Varint(member.word.raw());
    out.U32(member.crc);
  }
  for (const uint32_t crc : record.log_crcs) {
    out.U32(crc);
  }
}

}  // namespace

size_t MaxRecordBytes(const VolumeRecord& record) {
  return std::visit(VolumeRecordSize{}, record);
}

size_t MaxRecordBytes(const TrimRecord& record) {
  return std::visit(TrimRecordSize{}, record);
}

size_t MaxRecordBytes(const RowRecord& record) {
  size_t bytes = kTypeBytes + VarintBytes(record.stripe.value) + kCountBytes;
  for (const RowChange& change : record.changes) {
    bytes += kIndexBytes + VarintBytes(change.word.raw()) + kCrcBytes +
             (change.version != 0 ? kVersionBytes : 0);
  }
  return bytes;
}

size_t MaxLogStripeRecordBytes(size_t members, size_t parity) {
  return kTypeBytes + kCountBytes + members * (kChunkBytes + kU32Bytes + kCrcBytes) +
         parity * kCrcBytes;
}

size_t MaxRowRecordBytes(size_t changes) {
  return kTypeBytes + kU32Bytes + kCountBytes +
         changes * (kIndexBytes + kU32Bytes + kCrcBytes + kVersionBytes);
}

size_t EncodeEntryHeader(const EntryHeader& header, const Uuid& array, std::span<std::byte> out) {
  EPLOG_CHECK(out.size() >= kMaxEntryHeaderBytes, "room for the largest header");
  out = out.first(kMaxEntryHeaderBytes);
  ByteWriter writer(out);
  writer.Zeros(sizeof(wire::EntryBytes));
  if (header.first_of_epoch) {
    writer.U64(header.follows_epoch.number);
    writer.U64(header.follows_epoch.random);
    writer.U64(header.follows_sequence);
  }
  for (const VolumeRecord& record : header.volumes) {
    std::visit(VolumeRecordWriter{writer}, record);
  }
  for (const RowRecord& record : header.rows) {
    PutRow(writer, record, header.sequence);
  }
  for (const TrimRecord& record : header.trims) {
    std::visit(TrimRecordWriter{writer}, record);
  }
  for (const LogStripeRecord& record : header.log_stripes) {
    PutLogStripe(writer, record);
  }
  EPLOG_CHECK(writer.ok(), "an entry's records fit its header");

  wire::EntryBytes fixed{};
  fixed.magic = wire::kEntryMagic;
  fixed.used_bytes = static_cast<uint16_t>(writer.size());
  fixed.flags = header.first_of_epoch ? wire::kFirstOfEpoch : uint16_t{0};
  fixed.length_blocks = header.length_blocks;
  fixed.array_uuid = array;
  fixed.epoch = header.epoch;
  fixed.sequence = header.sequence;
  fixed.mark = header.mark;
  fixed.place = header.place;
  wire::Store(fixed, out);
  StoreLe(out.data() + offsetof(wire::EntryBytes, crc), Crc32c(writer.written()));
  return writer.size();
}

}  // namespace eplog
