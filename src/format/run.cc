// The stream of items inside a run of checkpoint pages: rows by column, live log stripes, volumes,
// extents. It may know what is possible under the geometry, not what the items mean together.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "format/checkpoint.h"
#include "format/wire.h"

namespace eplog {
namespace {

using wire::ColumnMode;
using wire::ItemType;

// Appends to a vector; grows it, so nothing can overflow.
class Appender {
 public:
  explicit Appender(std::vector<std::byte>& out) : out_(out) {}

  void Type(ItemType type) { U8(static_cast<uint8_t>(type)); }
  void U8(uint8_t value) { out_.push_back(std::byte{value}); }
  void U32(uint32_t value) { Fixed(value); }
  void U64(uint64_t value) { Fixed(value); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      U8(static_cast<uint8_t>(value | 0x80));
    }
    U8(static_cast<uint8_t>(value));
  }
  void Bytes(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

 private:
  template <typename T>
  void Fixed(T value) {
    std::array<std::byte, sizeof(T)> bytes{};
    StoreLe(bytes.data(), value);
    Bytes(bytes);
  }

  std::vector<std::byte>& out_;
};

uint32_t StripesOfGroup(const Geometry& geometry, uint32_t group) {
  return std::min(kRowGroupStripes, geometry.stripes - group * kRowGroupStripes);
}

// One SSD's words over the stripes of a group, in stripe order.
struct Column {
  std::array<uint32_t, kRowGroupStripes> raw{};
  std::array<uint32_t, kRowGroupStripes> crcs{};
  uint32_t stripes = 0;
};

// Where the word of an SSD stands among a group's words, which are stripe by stripe.
class WordPlaces {
 public:
  WordPlaces(const Geometry& geometry, uint32_t group) : n_(geometry.n) {
    for (uint32_t p = 0; p < n_; ++p) {
      for (uint8_t ssd = 0; ssd < n_; ++ssd) {
        index_at_[p][ssd] = static_cast<uint8_t>(geometry.IndexAt(p, DeviceIndex(ssd)));
      }
    }
    for (uint32_t i = 0; i < kRowGroupStripes; ++i) {
      parity_[i] = geometry.FirstParitySsd(StripeIndex(group * kRowGroupStripes + i));
    }
  }
  [[nodiscard]] size_t At(uint32_t i, DeviceIndex ssd) const {
    return size_t{i} * n_ + index_at_[parity_[i]][ssd.value];
  }

 private:
  uint32_t n_;
  std::array<std::array<uint8_t, kMaxSsds>, kMaxSsds> index_at_{};  // by FirstParitySsd, SSD
  std::array<uint32_t, kRowGroupStripes> parity_{};
};

// Consecutive slots, or all `zero`, or all `absent`.
bool Continues(uint32_t first, uint32_t length, uint32_t next) {
  return first < wire::kFirstSlotWord ? next == first : uint64_t{first} + length == next;
}

struct WordRun {
  uint32_t length = 0;
  uint32_t first = 0;
};

struct WordRuns {
  std::array<WordRun, kRowGroupStripes> runs;
  size_t count = 0;
  size_t bytes = 0;  // encoded
};

WordRuns FindRuns(const Column& column) {
  WordRuns found;
  for (uint32_t i = 0; i < column.stripes;) {
    WordRun run{1, column.raw[i]};
    while (i + run.length < column.stripes &&
           Continues(run.first, run.length, column.raw[i + run.length])) {
      ++run.length;
    }
    i += run.length;
    found.runs[found.count++] = run;
    found.bytes += wire::VarintBytes(run.length) + wire::VarintBytes(run.first);
  }
  found.bytes += wire::VarintBytes(found.count);
  return found;
}

void PutColumn(Appender& out, const Column& column) {
  const WordRuns found = FindRuns(column);
  if (found.bytes < column.stripes * sizeof(uint32_t)) {
    out.U8(static_cast<uint8_t>(ColumnMode::kRuns));
    out.Varint(found.count);
    for (size_t i = 0; i < found.count; ++i) {
      out.Varint(found.runs[i].length);
      out.Varint(found.runs[i].first);
    }
  } else {
    out.U8(static_cast<uint8_t>(ColumnMode::kRaw));
    for (uint32_t i = 0; i < column.stripes; ++i) {
      out.U32(column.raw[i]);
    }
  }
  for (uint32_t i = 0; i < column.stripes; ++i) {
    if (column.raw[i] != SlotWord::Zero().raw()) {
      out.U32(column.crcs[i]);
    }
  }
}

tl::unexpected<Error> WrongRun(const char* what) {
  return Fail(ErrorCode::kCorrupt, std::string("checkpoint run: ") + what);
}

class ItemReader {
 public:
  ItemReader(std::span<const std::byte> in, const Geometry& geometry, RunVisitor& visitor,
             std::vector<RowWord>& words)
      : in_(in), geometry_(geometry), visitor_(visitor), words_(words) {}

  [[nodiscard]] size_t remaining() const { return in_.remaining(); }

  // One item and all that belongs to it; `ended` if it was the end.
  Status Read(bool& ended) {
    const uint8_t type = in_.U8();
    if (!in_.ok()) {
      return WrongRun("its end is missing");
    }
    ended = static_cast<ItemType>(type) == ItemType::kEnd;
    return ended ? OkStatus() : ReadItem(static_cast<ItemType>(type));
  }

 private:
  Status ReadItem(ItemType type) {
    switch (type) {
      case ItemType::kRowGroup:
        return ReadRowGroup();
      case ItemType::kRows:
        return ReadRows();
      case ItemType::kExtentFreed:
        return ReadExtentFreed();
      case ItemType::kAllVolumes:
        visitor_.AllVolumes();
        return OkStatus();
      case ItemType::kLogStripe:
        return ReadLogStripe();
      case ItemType::kZeros:
        return ReadZeros();
      case ItemType::kVolume:
        return ReadVolume();
      case ItemType::kExtent:
        return ReadExtent();
      case ItemType::kEnd:
        break;
    }
    return Fail(ErrorCode::kUnsupported, "checkpoint run: an item of type " +
                                             std::to_string(static_cast<int>(type)) +
                                             ", unknown to this version of eplog");
  }

  template <typename T>
  T Below(uint64_t bound) {
    const uint64_t value = in_.Varint();
    if (value >= bound) {
      in_.Fail();
      return 0;
    }
    return static_cast<T>(value);
  }

  uint64_t WordBound() const { return uint64_t{geometry_.slots} + wire::kFirstSlotWord; }

  void ReadRuns(Column& column) {
    const auto count = Below<uint32_t>(uint64_t{column.stripes} + 1);
    uint32_t filled = 0;
    for (uint32_t run = 0; run < count && in_.ok(); ++run) {
      const auto length = Below<uint32_t>(uint64_t{column.stripes} - filled + 1);
      const auto first = Below<uint32_t>(WordBound());
      const bool slots = first >= wire::kFirstSlotWord;
      if (length == 0 || (slots && uint64_t{first} + length > WordBound())) {
        in_.Fail();
        return;
      }
      for (uint32_t i = 0; i < length; ++i) {
        column.raw[filled++] = slots ? first + i : first;
      }
    }
    if (filled != column.stripes) {
      in_.Fail();
    }
  }

  void ReadRaw(Column& column) {
    for (uint32_t i = 0; i < column.stripes; ++i) {
      column.raw[i] = in_.U32();
      if (column.raw[i] >= WordBound()) {
        in_.Fail();
      }
    }
  }

  void ReadColumn(Column& column) {
    switch (static_cast<ColumnMode>(in_.U8())) {
      case ColumnMode::kRuns:
        ReadRuns(column);
        break;
      case ColumnMode::kRaw:
        ReadRaw(column);
        break;
      default:
        in_.Fail();
    }
    size_t crcs = 0;
    for (uint32_t i = 0; i < column.stripes; ++i) {
      crcs += column.raw[i] != SlotWord::Zero().raw() ? 1 : 0;
    }
    ByteReader stored(in_.Bytes(crcs * sizeof(uint32_t)));
    for (uint32_t i = 0; i < column.stripes && in_.ok(); ++i) {
      column.crcs[i] = column.raw[i] != SlotWord::Zero().raw() ? stored.U32() : 0;
    }
  }

  Status ReadRowGroup() {
    const auto group = Below<uint32_t>(geometry_.row_groups());
    Column column;
    column.stripes = StripesOfGroup(geometry_, group);
    words_.resize(size_t{column.stripes} * geometry_.n);
    const WordPlaces places(geometry_, group);
    for (uint8_t d = 0; d < geometry_.n && in_.ok(); ++d) {
      ReadColumn(column);
      for (uint32_t i = 0; i < column.stripes && in_.ok(); ++i) {
        words_[places.At(i, DeviceIndex(d))] = {SlotWord::FromRaw(column.raw[i]), column.crcs[i]};
      }
    }
    if (!in_.ok()) {
      return WrongRun("rows that cannot be");
    }
    visitor_.RowGroup(group, words_);
    return OkStatus();
  }

  Status ReadRows() {
    const auto group = Below<uint32_t>(geometry_.row_groups());
    const uint64_t mask = in_.U64();
    const uint32_t stripes = StripesOfGroup(geometry_, group);
    if (!in_.ok() || mask == 0 || (stripes < 64 && mask >> stripes != 0)) {
      return WrongRun("rows that cannot be");
    }
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(rest));
      const auto used = Below<uint64_t>(uint64_t{1} << geometry_.n);
      words_.assign(geometry_.n, RowWord{});
      for (uint32_t position = 0; position < geometry_.n && in_.ok(); ++position) {
        if ((used >> position & 1) != 0) {
          words_[position].word = SlotWord::FromRaw(Below<uint32_t>(WordBound()));
          words_[position].crc = in_.U32();
        }
        if ((used >> position & 1) != (words_[position].word.is_zero() ? 0U : 1U)) {
          in_.Fail();
        }
      }
      if (!in_.ok()) {
        return WrongRun("rows that cannot be");
      }
      visitor_.Row(StripeIndex(group * kRowGroupStripes + i), words_);
    }
    return OkStatus();
  }

  Status ReadLogStripe() {
    LogStripeItem item;
    item.sequence = in_.Varint();
    item.place = in_.Varint();
    const auto count = Below<size_t>(uint64_t{geometry_.n} + 1);
    item.members.reserve(count);
    uint64_t ssds = 0;
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      const LogStripeItem::Member member = ReadMember();
      const uint64_t ssd = uint64_t{1} << geometry_.SsdOf(member.chunk).value;
      if (member.word.is_zero() || (ssds & ssd) != 0) {
        in_.Fail();
      }
      ssds |= ssd;
      item.members.push_back(member);
    }
    item.log_crcs.resize(geometry_.m);
    for (uint32_t& crc : item.log_crcs) {
      crc = in_.U32();
    }
    if (!in_.ok() || count == 0 || item.sequence == 0) {
      return WrongRun("a log stripe that cannot be");
    }
    visitor_.LogStripe(item);
    return OkStatus();
  }

  Status ReadZeros() {
    ZerosItem item;
    item.sequence = in_.Varint();
    item.place = in_.Varint();
    item.first = ChunkIndex(Below<uint64_t>(geometry_.data_chunks()));
    const uint32_t index = geometry_.IndexInStripe(item.first);
    item.count = Below<uint32_t>(uint64_t{geometry_.k()} - index + 1);
    item.superseded = Below<uint32_t>(uint64_t{1} << item.count);
    if (!in_.ok() || item.count == 0 || item.sequence == 0) {
      return WrongRun("trimmed chunks that cannot be");
    }
    visitor_.Zeros(item);
    return OkStatus();
  }

  LogStripeItem::Member ReadMember() {
    LogStripeItem::Member member;
    member.chunk = ChunkIndex(Below<uint64_t>(geometry_.data_chunks()));
    // The lowest bit says whether the member is superseded.
    const auto word = Below<uint64_t>(2 * WordBound());
    member.superseded = (word & 1) != 0;
    member.word = SlotWord::FromRaw(static_cast<uint32_t>(word >> 1));
    member.crc = in_.U32();
    return member;
  }

  VolumeId ReadVolumeId() {
    const VolumeId id(Below<uint32_t>(uint64_t{1} << 32));
    if (id.value == 0) {
      in_.Fail();
    }
    return id;
  }

  Status ReadVolume() {
    VolumeItem item;
    item.id = ReadVolumeId();
    item.size_bytes = Below<uint64_t>(wire::kMaxToldVolumeBytes + 1);
    item.deleting = Below<uint8_t>(wire::kDeletingVolume + 1) != 0;
    const auto name = in_.Bytes(Below<size_t>(kMaxVolumeNameBytes + 1));
    if (!in_.ok() || name.empty()) {
      return WrongRun("a volume that cannot be");
    }
    item.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    visitor_.Volume(item);
    return OkStatus();
  }

  Status ReadExtent() {
    ExtentItem item;
    item.extent = ExtentIndex(Below<uint32_t>(geometry_.extents()));
    item.volume = ReadVolumeId();
    item.logical = Below<uint32_t>(uint64_t{1} << 32);
    if (!in_.ok()) {
      return WrongRun("an extent that cannot be");
    }
    visitor_.Extent(item);
    return OkStatus();
  }

  Status ReadExtentFreed() {
    const ExtentIndex extent(Below<uint32_t>(geometry_.extents()));
    if (!in_.ok()) {
      return WrongRun("an extent that cannot be");
    }
    visitor_.ExtentFreed(extent);
    return OkStatus();
  }

  ByteReader in_;
  const Geometry& geometry_;
  RunVisitor& visitor_;
  std::vector<RowWord>& words_;
};

static_assert(kMaxRunItemBytes >= 16 + kRowGroupStripes * (5 + kMaxSsds * 9),
              "the longest item: rows, all in slots");

}  // namespace

void RunWriter::RowGroup(uint32_t group, std::span<const RowWord> words) {
  EPLOG_CHECK(group < geometry_.row_groups(), "a row group of this array");
  Column column;
  column.stripes = StripesOfGroup(geometry_, group);
  EPLOG_CHECK(words.size() == size_t{column.stripes} * geometry_.n, "a row group is whole");
  Appender out(out_);
  out.Type(ItemType::kRowGroup);
  out.Varint(group);
  const WordPlaces places(geometry_, group);
  for (uint8_t d = 0; d < geometry_.n; ++d) {
    for (uint32_t i = 0; i < column.stripes; ++i) {
      const RowWord& word = words[places.At(i, DeviceIndex(d))];
      column.raw[i] = word.word.raw();
      column.crcs[i] = word.crc;
    }
    PutColumn(out, column);
  }
}

void RunWriter::Rows(uint32_t group, uint64_t stripes, std::span<const RowWord> words) {
  EPLOG_CHECK(group < geometry_.row_groups() && stripes != 0, "a row group of this array");
  Appender out(out_);
  out.Type(ItemType::kRows);
  out.Varint(group);
  out.U64(stripes);
  for (uint64_t rest = stripes; rest != 0; rest &= rest - 1) {
    const auto row =
        words.subspan(static_cast<size_t>(std::countr_zero(rest)) * geometry_.n, geometry_.n);
    uint64_t used = 0;
    for (uint32_t i = 0; i < geometry_.n; ++i) {
      used |= uint64_t{row[i].word.is_zero() ? 0U : 1U} << i;
    }
    out.Varint(used);
    for (const RowWord& word : row) {
      if (!word.word.is_zero()) {
        out.Varint(word.word.raw());
        out.U32(word.crc);
      }
    }
  }
}

void RunWriter::LogStripe(const LogStripeItem& item) {
  EPLOG_CHECK(item.log_crcs.size() == geometry_.m, "one CRC for each log chunk");
  Appender out(out_);
  out.Type(ItemType::kLogStripe);
  out.Varint(item.sequence);
  out.Varint(item.place);
  out.Varint(item.members.size());
  for (const LogStripeItem::Member& member : item.members) {
    out.Varint(member.chunk.value);
    out.Varint(uint64_t{member.word.raw()} << 1 | (member.superseded ? 1 : 0));
    out.U32(member.crc);
  }
  for (const uint32_t crc : item.log_crcs) {
    out.U32(crc);
  }
}

void RunWriter::Zeros(const ZerosItem& item) {
  Appender out(out_);
  out.Type(ItemType::kZeros);
  out.Varint(item.sequence);
  out.Varint(item.place);
  out.Varint(item.first.value);
  out.Varint(item.count);
  out.Varint(item.superseded);
}

void RunWriter::Volume(const VolumeItem& item) {
  EPLOG_CHECK(!item.name.empty() && item.name.size() <= kMaxVolumeNameBytes,
              "a volume's name is neither empty nor too long");
  Appender out(out_);
  out.Type(ItemType::kVolume);
  out.Varint(item.id.value);
  out.Varint(item.size_bytes);
  out.U8(item.deleting ? wire::kDeletingVolume : uint8_t{0});
  out.Varint(item.name.size());
  out.Bytes(std::as_bytes(std::span(item.name)));
}

void RunWriter::Extent(const ExtentItem& item) {
  Appender out(out_);
  out.Type(ItemType::kExtent);
  out.Varint(item.extent.value);
  out.Varint(item.volume.value);
  out.Varint(item.logical);
}

void RunWriter::ExtentFreed(ExtentIndex extent) {
  Appender out(out_);
  out.Type(ItemType::kExtentFreed);
  out.Varint(extent.value);
}

void RunWriter::AllVolumes() {
  Appender(out_).Type(ItemType::kAllVolumes);
}

void RunWriter::End() {
  Appender(out_).Type(ItemType::kEnd);
}

// Items as long as `keep` bytes or more are there: then the next one is whole.
Status RunDecoder::Parse(size_t keep) {
  ItemReader reader(waiting_, geometry_, visitor_, words_);
  while (!ended_ && reader.remaining() >= keep) {
    EPLOG_TRY(reader.Read(ended_));
  }
  waiting_.erase(waiting_.begin(),
                 waiting_.end() - static_cast<std::ptrdiff_t>(reader.remaining()));
  return ended_ && !waiting_.empty() ? Status(WrongRun("bytes after its end")) : OkStatus();
}

Status RunDecoder::Feed(std::span<const std::byte> bytes) {
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  return Parse(kMaxRunItemBytes);
}

Status RunDecoder::Finish() {
  return Parse(0);
}

Status DecodeRun(std::span<const std::byte> stream, const Geometry& geometry, RunVisitor& visitor) {
  RunDecoder decoder(geometry, visitor);
  EPLOG_TRY(decoder.Feed(stream));
  return decoder.Finish();
}

}  // namespace eplog
