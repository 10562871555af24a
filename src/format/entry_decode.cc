// Reading entry headers. Everything that a header says is checked against the geometry here, so
// that those who apply it need no bounds of their own. It may not know the state that it is applied
// to.
#include <algorithm>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "format/entry.h"
#include "format/wire.h"

namespace eplog {
namespace {

using wire::RecordType;

class RecordReader {
 public:
  RecordReader(std::span<const std::byte> in, const Geometry& geometry, EntryHeader& header)
      : in_(in), geometry_(geometry), header_(header) {}

  Status ReadAll() {
    while (in_.remaining() != 0) {
      EPLOG_TRY(ReadOne());
    }
    return in_.ok() ? CheckWhole() : Wrong("its records end too early");
  }

  tl::unexpected<Error> Wrong(const std::string& what) const {
    return Fail(ErrorCode::kCorrupt, "log entry " + std::to_string(header_.sequence) + ": " + what);
  }

 private:
  Status ReadOne() {
    const uint8_t type = in_.U8();
    switch (static_cast<RecordType>(type)) {
      case RecordType::kLogStripe:
        return ReadLogStripe();
      case RecordType::kRowInstalled:
        return ReadRow();
      case RecordType::kStripesTrimmed:
        return ReadStripesTrimmed();
      case RecordType::kChunksTrimmed:
        return ReadChunksTrimmed();
      case RecordType::kVolumeCreated:
        return ReadVolumeCreated();
      case RecordType::kVolumeResized:
        return ReadVolumeResized();
      case RecordType::kVolumeRenamed:
        return ReadVolumeRenamed();
      case RecordType::kVolumeDeleted:
        return Add(VolumeDeleted{ReadVolumeId()});
      case RecordType::kExtentAssigned:
        return ReadExtentAssigned();
      case RecordType::kExtentsFreed:
        return ReadExtentsFreed();
    }
    return Fail(ErrorCode::kUnsupported, "log entry " + std::to_string(header_.sequence) +
                                             " holds a record of type " + std::to_string(type) +
                                             ", unknown to this version of eplog");
  }

  // A varint that must be below `bound`; marks the input bad otherwise.
  template <typename T>
  T Below(uint64_t bound) {
    const uint64_t value = in_.Varint();
    if (value >= bound) {
      in_.Fail();
      return 0;
    }
    return static_cast<T>(value);
  }

  Status ReadLogStripe() {
    const auto count = Below<size_t>(uint64_t{geometry_.n} + 1);
    LogStripeRecord record;
    record.members.reserve(count);
    uint64_t ssds = 0;
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      LogStripeMember member;
      member.chunk = ChunkIndex(Below<uint64_t>(geometry_.data_chunks()));
      member.word = ReadWord();
      member.crc = in_.U32();
      const uint64_t ssd = uint64_t{1} << geometry_.SsdOf(member.chunk).value;
      if (member.word.is_zero() || (ssds & ssd) != 0) {
        in_.Fail();
      }
      ssds |= ssd;
      chunks_.push_back(member.chunk.value);
      record.members.push_back(member);
    }
    record.log_crcs.resize(geometry_.m);
    for (uint32_t& crc : record.log_crcs) {
      crc = in_.U32();
    }
    if (!in_.ok() || count == 0) {
      return Wrong("a log stripe that cannot be");
    }
    header_.log_stripes.push_back(std::move(record));
    return OkStatus();
  }

  Status ReadRow() {
    RowRecord record;
    record.stripe = StripeIndex(Below<uint32_t>(geometry_.stripes));
    const auto count = Below<size_t>(uint64_t{geometry_.n} + 1);
    record.changes.reserve(count);
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      const RowChange change = ReadRowChange();
      if (i != 0 && change.index <= record.changes.back().index) {
        in_.Fail();
      }
      if (change.index < geometry_.k()) {
        chunks_.push_back(geometry_.Chunk(record.stripe, change.index).value);
      }
      record.changes.push_back(change);
    }
    if (!in_.ok() || count == 0) {
      return Wrong("a row that cannot be");
    }
    stripes_.push_back(record.stripe.value);
    header_.rows.push_back(std::move(record));
    return OkStatus();
  }

  RowChange ReadRowChange() {
    RowChange change;
    const uint8_t byte = in_.U8();
    const bool has_version = (byte & wire::kHasVersion) != 0;
    change.index = static_cast<uint8_t>(byte & ~wire::kHasVersion);
    change.word = ReadWord();
    change.crc = in_.U32();
    if (has_version) {
      // The distance; below the sequence, so that the version is not 0.
      change.version = header_.sequence - Below<uint64_t>(header_.sequence);
    }
    const bool parity = change.index >= geometry_.k();
    if (change.index >= geometry_.n || (parity && has_version) ||
        (change.word.is_zero() && change.crc != 0)) {
      in_.Fail();
    }
    return change;
  }

  Status ReadStripesTrimmed() {
    StripesTrimmed record;
    record.first = StripeIndex(Below<uint32_t>(geometry_.stripes));
    record.count = Below<uint32_t>(uint64_t{geometry_.stripes} - record.first.value + 1);
    if (!in_.ok() || record.count == 0) {
      return Wrong("trimmed stripes that cannot be");
    }
    trimmed_.emplace_back(record.first.value, uint64_t{record.first.value} + record.count);
    header_.trims.emplace_back(record);
    return OkStatus();
  }

  Status ReadChunksTrimmed() {
    ChunksTrimmed record;
    record.first = ChunkIndex(Below<uint64_t>(geometry_.data_chunks()));
    const uint32_t index = geometry_.IndexInStripe(record.first);
    record.count = Below<uint32_t>(uint64_t{geometry_.k()} - index + 1);
    if (!in_.ok() || record.count == 0) {
      return Wrong("trimmed chunks that cannot be");
    }
    for (uint32_t i = 0; i < record.count; ++i) {
      chunks_.push_back(record.first.value + i);
    }
    header_.trims.emplace_back(record);
    return OkStatus();
  }

  SlotWord ReadWord() {
    return SlotWord::FromRaw(Below<uint32_t>(uint64_t{geometry_.slots} + wire::kFirstSlotWord));
  }

  VolumeId ReadVolumeId() {
    const VolumeId id(Below<uint32_t>(uint64_t{1} << 32));
    if (id.value == 0) {
      in_.Fail();
    }
    return id;
  }

  uint64_t ReadVolumeSize() { return Below<uint64_t>(wire::kMaxToldVolumeBytes + 1); }

  std::string ReadName() {
    const auto size = Below<size_t>(kMaxVolumeNameBytes + 1);
    const auto bytes = in_.Bytes(size);
    if (bytes.empty()) {
      in_.Fail();
      return {};
    }
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  template <typename T>
  Status Add(T record) {
    if (!in_.ok()) {
      return Wrong("a volume record that cannot be");
    }
    header_.volumes.emplace_back(std::move(record));
    return OkStatus();
  }

  Status ReadVolumeCreated() {
    VolumeCreated record;
    record.id = ReadVolumeId();
    record.size_bytes = ReadVolumeSize();
    record.name = ReadName();
    return Add(std::move(record));
  }

  Status ReadVolumeResized() {
    VolumeResized record;
    record.id = ReadVolumeId();
    record.size_bytes = ReadVolumeSize();
    return Add(record);
  }

  Status ReadVolumeRenamed() {
    VolumeRenamed record;
    record.id = ReadVolumeId();
    record.name = ReadName();
    return Add(std::move(record));
  }

  Status ReadExtentAssigned() {
    ExtentAssigned record;
    record.id = ReadVolumeId();
    record.logical = Below<uint32_t>(uint64_t{1} << 32);
    record.extent = ExtentIndex(Below<uint32_t>(geometry_.extents()));
    return Add(record);
  }

  Status ReadExtentsFreed() {
    ExtentsFreed record;
    record.first = ExtentIndex(Below<uint32_t>(geometry_.extents()));
    record.count = Below<uint32_t>(uint64_t{geometry_.extents()} - record.first.value + 1);
    if (record.count == 0) {
      in_.Fail();
    }
    return Add(record);
  }

  // What only the whole header shows.
  Status CheckWhole() {
    const uint64_t blocks = 1 + uint64_t{header_.log_stripes.size()} * geometry_.chunk_blocks();
    if (header_.length_blocks != blocks || blocks > geometry_.log_blocks) {
      return Wrong("its length does not fit its log stripes");
    }
    const auto repeats = [](std::vector<uint64_t>& values) {
      std::sort(values.begin(), values.end());
      return std::adjacent_find(values.begin(), values.end()) != values.end();
    };
    if (repeats(chunks_) || repeats(stripes_) || TrimmedAndMore()) {
      return Wrong("two records of one chunk");
    }
    return OkStatus();
  }

  // A stripe is trimmed twice, or trimmed and described by another record. Sorts trimmed_; chunks_
  // and stripes_ are sorted.
  bool TrimmedAndMore() {
    std::sort(trimmed_.begin(), trimmed_.end());
    uint64_t end = 0;
    for (const auto& [first, last] : trimmed_) {
      const auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), first * geometry_.k());
      const auto stripe = std::lower_bound(stripes_.begin(), stripes_.end(), first);
      if (first < end || (chunk != chunks_.end() && *chunk < last * geometry_.k()) ||
          (stripe != stripes_.end() && *stripe < last)) {
        return true;
      }
      end = last;
    }
    return false;
  }

  ByteReader in_;
  const Geometry& geometry_;
  EntryHeader& header_;
  std::vector<uint64_t> chunks_;   // of all records, to find one that occurs twice
  std::vector<uint64_t> stripes_;  // of all row records
  std::vector<std::pair<uint64_t, uint64_t>> trimmed_;  // stripes: first, one past the last
};

size_t FixedBytes(const wire::EntryBytes& fixed) {
  const bool first = (fixed.flags & wire::kFirstOfEpoch) != 0;
  return sizeof(fixed) + (first ? sizeof(wire::FollowsBytes) : 0);
}

Status CheckFixed(const EntryHeader& header) {
  if (std::max({header.sequence, header.place, header.epoch.number}) >= wire::kMostNumber) {
    return Fail(ErrorCode::kCorrupt, "log entry with a number that none is counted up to");
  }
  const bool ordered = header.mark < header.sequence;
  const bool follows =
      !header.first_of_epoch || (header.follows_sequence < header.sequence &&
                                 header.follows_epoch.number < header.epoch.number);
  if (!ordered || !follows) {
    return Fail(ErrorCode::kCorrupt, "log entry " + std::to_string(header.sequence) +
                                         ": sequence, mark and what it follows are out of order");
  }
  return OkStatus();
}

}  // namespace

Result<EntryHeader> DecodeEntryFixed(std::span<const std::byte> in, const Uuid& array) {
  if (in.size() < sizeof(wire::EntryBytes)) {
    return Fail(ErrorCode::kNotFound, "no log entry");
  }
  const auto fixed = wire::Load<wire::EntryBytes>(in);
  if (fixed.magic != wire::kEntryMagic || fixed.array_uuid != array) {
    return Fail(ErrorCode::kNotFound, "no log entry");
  }
  if (fixed.used_bytes < FixedBytes(fixed) ||
      fixed.used_bytes > std::min(in.size(), kMaxEntryHeaderBytes) ||
      wire::CrcAround(in.first(fixed.used_bytes), offsetof(wire::EntryBytes, crc)) != fixed.crc) {
    return Fail(ErrorCode::kCorrupt, "log entry with a wrong CRC");
  }
  EntryHeader header;
  header.epoch = fixed.epoch;
  header.sequence = fixed.sequence;
  header.mark = fixed.mark;
  header.place = fixed.place;
  header.length_blocks = fixed.length_blocks;
  header.first_of_epoch = (fixed.flags & wire::kFirstOfEpoch) != 0;
  if (header.first_of_epoch) {
    const auto follows = wire::Load<wire::FollowsBytes>(in.subspan(sizeof(fixed)));
    header.follows_epoch = follows.epoch;
    header.follows_sequence = follows.sequence;
  }
  EPLOG_TRY(CheckFixed(header));
  return header;
}

Result<EntryHeader> DecodeEntryHeader(std::span<const std::byte> in, const Uuid& array,
                                      const Geometry& geometry, size_t* used_bytes) {
  Result<EntryHeader> header = DecodeEntryFixed(in, array);
  EPLOG_TRY(header);
  const auto fixed = wire::Load<wire::EntryBytes>(in);
  if ((fixed.flags & ~wire::kFirstOfEpoch) != 0) {
    return Fail(ErrorCode::kUnsupported, "log entry with flags unknown to this version of eplog");
  }
  const size_t fixed_bytes = FixedBytes(fixed);
  const auto records = in.subspan(fixed_bytes, fixed.used_bytes - fixed_bytes);
  EPLOG_TRY(RecordReader(records, geometry, *header).ReadAll());
  if (used_bytes != nullptr) {
    *used_bytes = fixed.used_bytes;
  }
  return header;
}

bool Continues(const EntryHeader& header, const LogPosition& at) {
  const bool names_it = header.first_of_epoch && header.follows_epoch == at.epoch &&
                        header.follows_sequence == at.sequence;
  return header.sequence == at.sequence + 1 && header.place == at.place &&
         (header.epoch == at.epoch || names_it);
}

}  // namespace eplog
