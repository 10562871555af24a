#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "format/checkpoint.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "tests/format/content.h"
#include "tests/fuzz/text_targets.h"
#include "tests/fuzz/trace_targets.h"

namespace eplog::fuzz {
namespace {

using format_test::kArray;
using Bytes = std::vector<std::byte>;

// ---- offsets of docs/format.md, for mending
constexpr size_t kCrcAt = 4;
constexpr size_t kSuperblockCrcAt = 12;
constexpr size_t kUsedAt = 8;
constexpr size_t kEntryBytes = 72;
constexpr size_t kSequenceAt = 48;

void FixCrc(std::span<std::byte> bytes, size_t at) {
  StoreLe(bytes.data() + at, uint32_t{0});
  StoreLe(bytes.data() + at, Crc32c(bytes));
}

template <typename T>
Outcome OutcomeOf(const Result<T>& result) {
  if (result.ok()) {
    return Outcome::kAccepted;
  }
  switch (result.error().code) {
    case ErrorCode::kNotFound:
      return Outcome::kNotFound;
    case ErrorCode::kCorrupt:
      return Outcome::kCorrupt;
    case ErrorCode::kUnsupported:
      return Outcome::kUnsupported;
    default:
      EPLOG_CHECK(false, "a decoder fails in one of three ways");
  }
  return Outcome::kCorrupt;
}

// Laid out once: planning costs more than decoding.
const Geometry& GeometryOf(unsigned number) {
  static const std::array<Geometry, 4> geometries = {
      format_test::GeometryNumber(0), format_test::GeometryNumber(1),
      format_test::GeometryNumber(2), format_test::GeometryNumber(3)};
  return geometries[number & 3];
}

struct Control {
  const Geometry& geometry;
  bool mend_lengths;
};

Control TakeControl(std::span<const std::byte>& in) {
  const unsigned byte = in.empty() ? 0 : static_cast<unsigned>(in[0]);
  in = in.empty() ? in : in.subspan(1);
  return {GeometryOf(byte), (byte & 4) != 0};
}

Bytes WithControl(uint64_t seed, const Bytes& bytes) {
  Bytes out(1 + bytes.size(), static_cast<std::byte>(seed & 7));
  std::copy(bytes.begin(), bytes.end(), out.begin() + 1);
  return out;
}

Bytes PaddedTo(std::span<const std::byte> bytes, size_t size) {
  Bytes out(bytes.begin(),
            bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), size)));
  out.resize(size);
  return out;
}

// ---- superblock

Outcome DecodeOneSuperblock(std::span<const std::byte> bytes) {
  const auto sb = DecodeSuperblock(bytes);
  if (sb.ok()) {
    EPLOG_CHECK(sb->geometry.Validate().ok() && sb->name.size() < 64 &&
                    (sb->is_spare() ? sb->members.empty()
                                    : sb->members.size() == sb->geometry.devices() &&
                                          sb->index.value < sb->members.size()),
                "an accepted superblock is sane");
    Bytes again(kSuperblockCopyBytes);
    EncodeSuperblock(*sb, again);
    const auto back = DecodeSuperblock(again);
    EPLOG_CHECK(back.ok() && *back == *sb, "an accepted superblock comes back");
  }
  return OutcomeOf(sb);
}

Outcome RunSuperblock(std::span<const std::byte> in) {
  static_cast<void>(DecodeOneSuperblock(in));
  Bytes bytes = PaddedTo(in, kSuperblockCopyBytes);
  FixCrc(bytes, kSuperblockCrcAt);
  return DecodeOneSuperblock(bytes);
}

Bytes SeedSuperblock(uint64_t seed) {
  Random random(seed);
  Bytes bytes(kSuperblockCopyBytes);
  Superblock superblock = format_test::AnySuperblock(random);
  if (random.OneIn(4)) {
    superblock = SpareSuperblock(superblock, superblock.device_uuid);
  }
  EncodeSuperblock(superblock, bytes);
  return bytes;
}

// ---- entry header

bool WordIsSane(SlotWord word, const Geometry& g) {
  return !word.has_slot() || word.slot().value < g.slots;
}

void CheckLogStripe(const LogStripeRecord& record, const Geometry& g, std::set<uint64_t>& chunks) {
  EPLOG_CHECK(!record.members.empty() && record.log_crcs.size() == g.m, "a log stripe is whole");
  std::set<uint8_t> ssds;
  for (const LogStripeMember& member : record.members) {
    EPLOG_CHECK(member.chunk.value < g.data_chunks() && WordIsSane(member.word, g) &&
                    !member.word.is_zero(),
                "a member is in range");
    EPLOG_CHECK(ssds.insert(g.SsdOf(member.chunk).value).second, "members are on distinct SSDs");
    EPLOG_CHECK(chunks.insert(member.chunk.value).second, "a chunk occurs once");
  }
}

void CheckRow(const RowRecord& record, const Geometry& g, uint64_t sequence,
              std::set<uint64_t>& chunks) {
  EPLOG_CHECK(!record.changes.empty() && record.stripe.value < g.stripes, "a row is in range");
  int last = -1;
  for (const RowChange& change : record.changes) {
    const bool data = change.index < g.k();
    EPLOG_CHECK(change.index > last && change.index < g.n, "indexes ascend");
    EPLOG_CHECK(WordIsSane(change.word, g) && (!change.word.is_zero() || change.crc == 0),
                "a word is in range");
    EPLOG_CHECK(change.version <= sequence && (data || change.version == 0),
                "a version is of the past");
    EPLOG_CHECK(!data || chunks.insert(g.Chunk(record.stripe, change.index).value).second,
                "a chunk occurs once");
    last = change.index;
  }
}

void CheckTrim(const TrimRecord& record, const Geometry& g, std::set<uint64_t>& chunks) {
  uint64_t first = 0;
  uint64_t count = 0;
  if (const auto* stripes = std::get_if<StripesTrimmed>(&record)) {
    EPLOG_CHECK(stripes->count != 0 && stripes->first.value < g.stripes &&
                    stripes->count <= g.stripes - stripes->first.value,
                "trimmed stripes are in range");
    first = g.Chunk(stripes->first, 0).value;
    count = uint64_t{stripes->count} * g.k();
  } else {
    const auto& trimmed = std::get<ChunksTrimmed>(record);
    EPLOG_CHECK(trimmed.count != 0 && trimmed.first.value < g.data_chunks() &&
                    g.IndexInStripe(trimmed.first) + trimmed.count <= g.k(),
                "trimmed chunks are in one stripe");
    first = trimmed.first.value;
    count = trimmed.count;
  }
  const auto next = chunks.lower_bound(first);
  EPLOG_CHECK(next == chunks.end() || *next >= first + count, "a chunk occurs once");
  chunks.insert(first);  // enough to meet another trim of the same
}

void CheckEntry(const EntryHeader& header, const Geometry& g) {
  EPLOG_CHECK(header.mark < header.sequence &&
                  header.length_blocks == 1 + header.log_stripes.size() * g.chunk_blocks(),
              "an accepted entry is sane");
  std::set<uint64_t> chunks;
  for (const LogStripeRecord& record : header.log_stripes) {
    CheckLogStripe(record, g, chunks);
  }
  for (const RowRecord& record : header.rows) {
    CheckRow(record, g, header.sequence, chunks);
  }
  for (const TrimRecord& record : header.trims) {
    CheckTrim(record, g, chunks);
  }
  for (const VolumeRecord& record : header.volumes) {
    if (const auto* assigned = std::get_if<ExtentAssigned>(&record)) {
      EPLOG_CHECK(assigned->extent.value < g.extents(), "an extent is in range");
    } else if (const auto* freed = std::get_if<ExtentsFreed>(&record)) {
      EPLOG_CHECK(freed->count != 0 && freed->first.value < g.extents() &&
                      freed->count <= g.extents() - freed->first.value,
                  "extents are in range");
    }
  }
  const Bytes again = format_test::Encoded(header);
  const auto back = DecodeEntryHeader(again, kArray, g);
  EPLOG_CHECK(back.ok() && *back == header, "an accepted entry comes back");
}

Outcome DecodeOneEntry(std::span<const std::byte> bytes, const Geometry& g) {
  size_t used = 0;
  const auto header = DecodeEntryHeader(bytes, kArray, g, &used);
  if (header.ok()) {
    EPLOG_CHECK(used <= bytes.size() && used <= kMaxEntryHeaderBytes, "used bytes are there");
    CheckEntry(*header, g);
  }
  return OutcomeOf(header);
}

Outcome RunEntry(std::span<const std::byte> in) {
  const Control control = TakeControl(in);
  static_cast<void>(DecodeOneEntry(in, control.geometry));
  Bytes bytes(in.begin(),
              in.begin() + static_cast<std::ptrdiff_t>(std::min(in.size(), kMaxEntryHeaderBytes)));
  if (bytes.size() >= kEntryBytes) {
    if (control.mend_lengths) {
      StoreLe(bytes.data() + kUsedAt, static_cast<uint16_t>(bytes.size()));
    }
    const auto used = LoadLe<uint16_t>(bytes.data() + kUsedAt);
    if (used >= kEntryBytes && used <= bytes.size()) {
      FixCrc(std::span(bytes).first(used), kCrcAt);
    }
  }
  return DecodeOneEntry(bytes, control.geometry);
}

Bytes SeedEntry(uint64_t seed) {
  Random random(seed);
  return WithControl(seed, format_test::Encoded(format_test::AnyEntry(
                               random, format_test::GeometryNumber(seed & 3))));
}

// ---- journal ring block

Outcome DecodeOneRingBlock(std::span<const std::byte> bytes, const Geometry& g) {
  const auto block = DecodeRingBlock(bytes, kArray, g, DeviceIndex(1));
  if (block.ok()) {
    Bytes again(kBlockBytes);
    RingBlockBuilder builder(again);
    for (const EntryHeader& header : block->headers) {
      CheckEntry(header, g);
      EPLOG_CHECK(builder.Add(format_test::Encoded(header), header.sequence), "headers fit again");
    }
    builder.Finish(kArray, DeviceIndex(1), block->number);
    const auto back = DecodeRingBlock(again, kArray, g, DeviceIndex(1));
    EPLOG_CHECK(back.ok() && back->headers == block->headers && back->number == block->number,
                "an accepted ring block comes back");
  }
  return OutcomeOf(block);
}

// Puts the CRCs of the headers inside right, and with `lengths` lets the head name what is there.
void MendRingBlock(Bytes& bytes, bool lengths) {
  size_t at = kRingBlockHeaderBytes;
  uint16_t count = 0;
  uint64_t last = 0;
  while (bytes.size() - at >= kEntryBytes) {
    const auto used = LoadLe<uint16_t>(bytes.data() + at + kUsedAt);
    if (used < kEntryBytes || used > bytes.size() - at) {
      break;
    }
    FixCrc(std::span(bytes).subspan(at, used), kCrcAt);
    last = LoadLe<uint64_t>(bytes.data() + at + kSequenceAt);
    ++count;
    at += used;
  }
  if (lengths && count != 0) {
    StoreLe(bytes.data() + 28, static_cast<uint16_t>(at - kRingBlockHeaderBytes));
    StoreLe(bytes.data() + 30, count);
    std::copy_n(bytes.begin() + kRingBlockHeaderBytes + kSequenceAt, 8, bytes.begin() + 40);
    StoreLe(bytes.data() + 48, last);
  }
  FixCrc(bytes, kCrcAt);
}

Outcome RunRingBlock(std::span<const std::byte> in) {
  const Control control = TakeControl(in);
  static_cast<void>(DecodeOneRingBlock(in, control.geometry));
  Bytes bytes = PaddedTo(in, kBlockBytes);
  MendRingBlock(bytes, control.mend_lengths);
  return DecodeOneRingBlock(bytes, control.geometry);
}

Bytes SeedRingBlock(uint64_t seed) {
  Random random(seed);
  return WithControl(seed,
                     format_test::AnyRingBlock(random, format_test::GeometryNumber(seed & 3)));
}

// ---- checkpoint page, root, run

Outcome DecodeOnePage(std::span<const std::byte> bytes) {
  const auto header = DecodePage(bytes, kArray);
  if (header.ok()) {
    EPLOG_CHECK(header->payload_bytes <= kPagePayloadBytes, "a payload fits its page");
    Bytes again(bytes.begin(), bytes.begin() + kBlockBytes);
    FinishPage(*header, kArray, again);
    const auto back = DecodePage(again, kArray);
    EPLOG_CHECK(back.ok() && *back == *header, "an accepted page comes back");
  }
  return OutcomeOf(header);
}

Outcome RunPage(std::span<const std::byte> in) {
  static_cast<void>(DecodeOnePage(in));
  Bytes bytes = PaddedTo(in, kBlockBytes);
  FixCrc(bytes, kCrcAt);
  return DecodeOnePage(bytes);
}

Bytes SeedPage(uint64_t seed) {
  Random random(seed);
  const Bytes root = EncodeRoot(format_test::AnyRoot(random));
  Bytes page(kBlockBytes);
  std::copy(root.begin(), root.end(), page.begin() + kPageHeaderBytes);
  FinishPage({random.OneIn(2) ? PageKind::kRoot : PageKind::kRun, random.Next(), random.Next(),
              random.Next(), 0, static_cast<uint32_t>(root.size())},
             kArray, page);
  return page;
}

Outcome RunRoot(std::span<const std::byte> in) {
  const auto root = DecodeRoot(in);
  if (root.ok()) {
    const auto back = DecodeRoot(EncodeRoot(*root));
    EPLOG_CHECK(back.ok() && *back == *root, "an accepted root comes back");
  }
  return OutcomeOf(root);
}

Bytes SeedRoot(uint64_t seed) {
  Random random(seed);
  return EncodeRoot(format_test::AnyRoot(random));
}

Outcome RunRun(std::span<const std::byte> in) {
  const Control control = TakeControl(in);
  const Geometry& g = control.geometry;
  format_test::RunContent content;
  const Status status = DecodeRun(in, g, content);
  if (status.ok()) {
    format_test::RunContent back;
    EPLOG_CHECK(DecodeRun(format_test::Encoded(content, g), g, back).ok() && back == content,
                "an accepted run comes back");
  }
  return OutcomeOf(status);
}

Bytes SeedRun(uint64_t seed) {
  Random random(seed);
  const Geometry g = format_test::GeometryNumber(seed & 3);
  return WithControl(seed, format_test::Encoded(format_test::AnyRun(random, g, 1), g));
}

Outcome RunCanary(std::span<const std::byte> in) {
  const Outcome outcome = RunEntry(in);
  EPLOG_CHECK(outcome != Outcome::kUnsupported, "the canary dies");
  return outcome;
}

constexpr Target kTargets[] = {
    {"superblock", "superblock", RunSuperblock, SeedSuperblock},
    {"entry", "entry", RunEntry, SeedEntry},
    {"ring_block", "ring_block", RunRingBlock, SeedRingBlock},
    {"page", "page", RunPage, SeedPage},
    {"root", "root", RunRoot, SeedRoot},
    {"run", "run", RunRun, SeedRun},
    {"trace", "trace", RunTrace, SeedTrace},
    {"columns", "columns", RunColumns, SeedColumns},
    {"packed", "packed", RunPackedTrace, SeedPackedTrace},
    {"profile", "profile", RunProfile, SeedProfile},
    {"array_file", "array_file", RunArrayFile, SeedArrayFile},
    {"control", "control", RunControl, SeedControl},
    {"units", "units", RunUnits, SeedUnits},
    {"canary", "entry", RunCanary, SeedEntry},
};

}  // namespace

std::span<const Target> Targets() {
  return std::span(kTargets).first(std::size(kTargets) - 1);
}

const Target* FindTarget(const std::string& name) {
  for (const Target& target : kTargets) {
    if (target.name == name) {
      return &target;
    }
  }
  return nullptr;
}

}  // namespace eplog::fuzz
