// Random valid content of every on-disk structure, for round trips and as seeds of the fuzz corpus.
// Same seed, same content.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "format/checkpoint.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "layout/geometry.h"

namespace eplog::format_test {

inline Geometry MakeGeometry(uint32_t n, uint32_t m, uint32_t chunk_bytes = 4096,
                             uint64_t ssd_bytes = uint64_t{64} << 20,
                             uint64_t log_bytes = uint64_t{64} << 20) {
  GeometryRequest request;
  request.n = n;
  request.m = m;
  request.chunk_bytes = chunk_bytes;
  request.ssd_bytes = ssd_bytes;
  request.log_bytes = log_bytes;
  const auto geometry = PlanGeometry(request);
  EPLOG_CHECK(geometry.ok(), "the test's geometry can be laid out");
  return *geometry;
}

// One of a few shapes, from the smallest array to the largest.
inline Geometry GeometryNumber(uint64_t number) {
  switch (number % 4) {
    case 0:
      return MakeGeometry(3, 1);
    case 1:
      return MakeGeometry(8, 2);
    case 2:
      return MakeGeometry(2, 1, 65536);
    default:
      return MakeGeometry(kMaxSsds, kMaxParity);
  }
}

constexpr Uuid TestUuid(uint8_t first) {
  Uuid uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) {
    uuid[i] = static_cast<std::byte>(first + i);
  }
  return uuid;
}
inline constexpr Uuid kArray = TestUuid(0xA0);

// A number of any magnitude, so that varints of every length occur.
inline uint64_t AnyMagnitude(Random& random) {
  return random.Below(uint64_t{1} << 62) >> random.Below(62);
}
inline uint64_t AnyBelow(Random& random, uint64_t bound) {
  return random.OneIn(4) ? bound - 1 : AnyMagnitude(random) % bound;
}
inline uint32_t Any32(Random& random) {
  return static_cast<uint32_t>(random.Next());
}

inline std::string AnyName(Random& random, size_t longest) {
  std::string name(random.Between(1, longest), ' ');
  for (char& c : name) {
    c = static_cast<char>(random.Between(1, 255));
  }
  return name;
}

inline Superblock AnySuperblock(Random& random) {
  Superblock sb;
  sb.geometry = GeometryNumber(random.Next());
  sb.array_uuid = kArray;
  sb.device_uuid = TestUuid(static_cast<uint8_t>(random.Next()));
  sb.index = DeviceIndex(static_cast<uint8_t>(random.Below(sb.geometry.devices())));
  sb.journal_mode = static_cast<uint8_t>(random.Between(1, 2));
  sb.name = random.OneIn(8) ? std::string() : AnyName(random, 63);
  sb.generation = AnyMagnitude(random);
  sb.base = {AnyMagnitude(random) / 2, random.Next()};
  sb.base_on_rings = random.OneIn(2);
  sb.epoch = {sb.base.number + random.Below(3), random.Next()};
  if (!random.OneIn(4)) {
    CheckpointPointer& p = sb.checkpoint;
    p.generation = random.Between(1, 1000);
    p.random = random.Next();
    p.root_blocks = static_cast<uint32_t>(random.Between(1, 3));
    p.root_block = random.Below(sb.geometry.metadata_blocks - p.root_blocks + 1);
    p.root_crc = Any32(random);
    p.ssd_mask = 1 | (random.Next() & ((uint64_t{1} << sb.geometry.n) - 1));
  }
  for (uint32_t i = 0; i < sb.geometry.devices(); ++i) {
    sb.members.push_back({TestUuid(static_cast<uint8_t>(i)),
                          static_cast<MemberState>(random.Between(1, 5)), AnyMagnitude(random)});
  }
  return sb;
}

inline SlotWord AnyPlacedWord(Random& random, const Geometry& g) {
  return random.OneIn(8)
             ? SlotWord::Absent()
             : SlotWord::At(SlotIndex(static_cast<uint32_t>(AnyBelow(random, g.slots))));
}

// Members on distinct SSDs, of stripes from `first` on, each stripe giving one.
inline std::vector<LogStripeMember> AnyMembers(Random& random, const Geometry& g, uint32_t first) {
  std::vector<LogStripeMember> members;
  uint64_t ssds = 0;
  const uint64_t wanted = random.Between(1, g.n);
  for (uint32_t s = first; s < g.stripes && members.size() < wanted && s < first + 2 * g.n; ++s) {
    const ChunkIndex chunk = g.Chunk(StripeIndex(s), static_cast<uint32_t>(random.Below(g.k())));
    const uint64_t ssd = uint64_t{1} << g.SsdOf(chunk).value;
    if ((ssds & ssd) == 0) {
      ssds |= ssd;
      members.push_back({chunk, AnyPlacedWord(random, g), Any32(random)});
    }
  }
  return members;
}

inline LogStripeRecord AnyLogStripe(Random& random, const Geometry& g, uint32_t first) {
  LogStripeRecord record;
  record.members = AnyMembers(random, g, first);
  for (uint32_t j = 0; j < g.m; ++j) {
    record.log_crcs.push_back(Any32(random));
  }
  return record;
}

inline RowRecord AnyRow(Random& random, const Geometry& g, uint32_t stripe, uint64_t sequence) {
  RowRecord record;
  record.stripe = StripeIndex(stripe);
  const uint64_t must = random.Below(g.n);
  for (uint32_t i = 0; i < g.n; ++i) {
    if (i != must && random.OneIn(2)) {
      continue;
    }
    RowChange change;
    change.index = static_cast<uint8_t>(i);
    if (!random.OneIn(8)) {
      change.word = AnyPlacedWord(random, g);
      change.crc = Any32(random);
    }
    if (i < g.k() && !random.OneIn(8)) {
      change.version = sequence - AnyBelow(random, sequence);
    }
    record.changes.push_back(change);
  }
  return record;
}

// Within the given stripe and the next.
inline TrimRecord AnyTrim(Random& random, const Geometry& g, uint32_t stripe) {
  if (random.OneIn(2)) {
    return StripesTrimmed{StripeIndex(stripe), static_cast<uint32_t>(random.Between(1, 2))};
  }
  const auto index = static_cast<uint32_t>(random.Below(g.k()));
  return ChunksTrimmed{g.Chunk(StripeIndex(stripe), index),
                       static_cast<uint32_t>(random.Between(1, g.k() - index))};
}

inline VolumeRecord AnyVolumeRecord(Random& random, const Geometry& g) {
  const VolumeId id(Any32(random) | 1);
  const uint64_t size = AnyMagnitude(random) >> 1;
  switch (random.Below(6)) {
    case 0:
      return VolumeCreated{id, size, AnyName(random, 200)};
    case 1:
      return VolumeResized{id, size};
    case 2:
      return VolumeRenamed{id, AnyName(random, 200)};
    case 3:
      return VolumeDeleted{id};
    case 4:
      return ExtentAssigned{id, Any32(random),
                            ExtentIndex(static_cast<uint32_t>(random.Below(g.extents())))};
    default: {
      const auto first = static_cast<uint32_t>(random.Below(g.extents()));
      return ExtentsFreed{ExtentIndex(first),
                          static_cast<uint32_t>(random.Between(1, g.extents() - first))};
    }
  }
}

inline EntryHeader AnyEntry(Random& random, const Geometry& g) {
  EntryHeader header;
  header.sequence = 1 + (AnyMagnitude(random) >> 15);  // versions up to 2^49 entries old
  header.mark = random.Below(header.sequence);
  header.place = AnyMagnitude(random);
  header.epoch = {2 + AnyMagnitude(random) / 2, random.Next()};
  header.first_of_epoch = random.OneIn(4);
  if (header.first_of_epoch) {
    header.follows_epoch = {random.Below(header.epoch.number), random.Next()};
    header.follows_sequence = header.sequence - 1;
  }
  // Fill it as the engine does, by the upper bounds; every record on stripes of its own.
  size_t room = kMaxEntryHeaderBytes - kEntryFixedBytes;
  auto stripe = static_cast<uint32_t>(random.Below(g.stripes / 2));
  for (uint64_t records = random.Below(40); records != 0; --records) {
    const uint64_t kind = random.Below(4);
    if (kind == 0) {
      VolumeRecord record = AnyVolumeRecord(random, g);
      if (MaxRecordBytes(record) > room) {
        break;
      }
      room -= MaxRecordBytes(record);
      header.volumes.push_back(std::move(record));
    } else if (kind == 1 && stripe < g.stripes) {
      RowRecord record = AnyRow(random, g, stripe++, header.sequence);
      if (MaxRecordBytes(record) > room) {
        break;
      }
      room -= MaxRecordBytes(record);
      header.rows.push_back(std::move(record));
    } else if (kind == 2 && stripe + 2 < g.stripes) {
      const TrimRecord record = AnyTrim(random, g, stripe);
      stripe += 2;
      if (MaxRecordBytes(record) > room) {
        break;
      }
      room -= MaxRecordBytes(record);
      header.trims.push_back(record);
    } else if (stripe + 2 * g.n < g.stripes) {
      LogStripeRecord record = AnyLogStripe(random, g, stripe);
      stripe += 2 * g.n;
      if (MaxLogStripeRecordBytes(record.members.size(), g.m) > room) {
        break;
      }
      room -= MaxLogStripeRecordBytes(record.members.size(), g.m);
      header.log_stripes.push_back(std::move(record));
    }
  }
  header.length_blocks = static_cast<uint32_t>(1 + header.log_stripes.size() * g.chunk_blocks());
  return header;
}

inline std::vector<std::byte> Encoded(const EntryHeader& header) {
  std::vector<std::byte> bytes(kMaxEntryHeaderBytes);
  bytes.resize(EncodeEntryHeader(header, kArray, bytes));
  return bytes;
}

// A ring block filled with headers in log order.
inline std::vector<std::byte> AnyRingBlock(Random& random, const Geometry& g,
                                           std::vector<EntryHeader>* headers = nullptr) {
  std::vector<std::byte> block(kBlockBytes);
  RingBlockBuilder builder(block);
  uint64_t sequence = random.Below(1000);
  for (uint64_t wanted = random.Between(1, 40); wanted != 0; --wanted) {
    EntryHeader header = AnyEntry(random, g);
    if (header.rows.size() + header.volumes.size() + header.log_stripes.size() > 4 &&
        !random.OneIn(4)) {
      continue;
    }
    header.rows.clear();  // their versions hang on the sequence
    sequence += random.Between(1, 3);
    header.sequence = sequence;
    header.mark = sequence - 1;
    header.follows_sequence = header.first_of_epoch ? sequence - 1 : 0;
    if (!builder.Add(Encoded(header), sequence)) {
      break;
    }
    if (headers != nullptr) {
      headers->push_back(std::move(header));
    }
  }
  if (builder.empty()) {
    EntryHeader header;
    header.sequence = sequence + 1;
    EPLOG_CHECK(builder.Add(Encoded(header), header.sequence), "an empty entry fits");
    if (headers != nullptr) {
      headers->push_back(std::move(header));
    }
  }
  builder.Finish(kArray, DeviceIndex(1), AnyMagnitude(random));
  return block;
}

inline CheckpointRoot AnyRoot(Random& random) {
  CheckpointRoot root;
  root.epoch = {AnyMagnitude(random), random.Next()};
  root.sequence = AnyMagnitude(random);
  root.place = AnyMagnitude(random);
  root.next_volume_id = Any32(random) | 1;
  for (uint64_t runs = random.Between(1, 5); runs != 0; --runs) {
    RunDescriptor run;
    run.full = runs == 1;
    run.ssd_mask = 1 | Any32(random);
    run.stream_bytes = random.Between(1, uint64_t{1} << 30);
    run.blocks = DivideUp(run.stream_bytes, kPagePayloadBytes) + random.Below(2);
    run.first_block = random.Next() >> 20;
    run.stream_crc = Any32(random);
    run.generation = random.Next();
    run.random = random.Next();
    root.runs.push_back(run);
  }
  for (uint64_t counters = random.Below(30); counters != 0; --counters) {
    root.lifetime_counters.push_back(random.Next());
  }
  return root;
}

// ---- runs

// Words of a group: fresh ones are consecutive on every SSD; `disorder` of 256 go elsewhere.
inline std::vector<RowWord> AnyRowGroup(Random& random, const Geometry& g, uint32_t group,
                                        uint32_t disorder) {
  const uint32_t stripes = std::min(kRowGroupStripes, g.stripes - group * kRowGroupStripes);
  std::vector<RowWord> words(size_t{stripes} * g.n);
  const auto from = static_cast<uint32_t>(random.Below(g.slots - kRowGroupStripes));
  for (uint32_t s = 0; s < stripes; ++s) {
    for (uint32_t i = 0; i < g.n; ++i) {
      RowWord& word = words[size_t{s} * g.n + i];
      word = {SlotWord::At(SlotIndex(from + s)), Any32(random)};
      if (random.Below(256) < disorder) {
        word = random.OneIn(3) ? RowWord{} : RowWord{AnyPlacedWord(random, g), Any32(random)};
      }
    }
  }
  return words;
}

// What a visitor was given, to compare with what was written.
struct RunContent final : RunVisitor {
  std::vector<std::pair<uint32_t, std::vector<RowWord>>> groups;
  std::vector<std::pair<uint32_t, std::vector<RowWord>>> rows;  // of single stripes
  std::vector<ExtentIndex> freed;
  bool all_volumes = false;
  std::vector<LogStripeItem> log_stripes;
  std::vector<ZerosItem> zeros;
  std::vector<VolumeItem> volumes;
  std::vector<ExtentItem> extents;

  void RowGroup(uint32_t group, std::span<const RowWord> words) override {
    groups.emplace_back(group, std::vector<RowWord>(words.begin(), words.end()));
  }
  void Row(StripeIndex stripe, std::span<const RowWord> words) override {
    rows.emplace_back(stripe.value, std::vector<RowWord>(words.begin(), words.end()));
  }
  void ExtentFreed(ExtentIndex extent) override { freed.push_back(extent); }
  void AllVolumes() override { all_volumes = true; }
  void LogStripe(const LogStripeItem& item) override { log_stripes.push_back(item); }
  void Zeros(const ZerosItem& item) override { zeros.push_back(item); }
  void Volume(const VolumeItem& item) override { volumes.push_back(item); }
  void Extent(const ExtentItem& item) override { extents.push_back(item); }

  bool operator==(const RunContent& other) const {
    return groups == other.groups && rows == other.rows && freed == other.freed &&
           all_volumes == other.all_volumes && log_stripes == other.log_stripes &&
           zeros == other.zeros && volumes == other.volumes && extents == other.extents;
  }
};

inline RunContent AnyRun(Random& random, const Geometry& g, size_t most) {
  RunContent content;
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    const auto id = VolumeId(Any32(random) | 1);
    content.volumes.push_back(
        {id, AnyMagnitude(random) >> 1, random.OneIn(2), AnyName(random, 200)});
    content.extents.push_back({ExtentIndex(static_cast<uint32_t>(random.Below(g.extents()))), id,
                               static_cast<uint32_t>(AnyMagnitude(random))});
  }
  content.all_volumes = random.OneIn(2);
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    content.freed.emplace_back(static_cast<uint32_t>(random.Below(g.extents())));
  }
  constexpr uint32_t kDisorder[] = {0, 4, 64, 256};
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    const auto group = static_cast<uint32_t>(AnyBelow(random, g.row_groups()));
    const auto words = AnyRowGroup(random, g, group, kDisorder[random.Below(4)]);
    const uint64_t keep = random.Next() & random.Next() & random.Next();
    for (uint32_t s = 0; s < words.size() / g.n; ++s) {
      if ((keep >> s & 1) != 0) {
        const auto row = std::span(words).subspan(size_t{s} * g.n, g.n);
        content.rows.emplace_back(group * kRowGroupStripes + s,
                                  std::vector<RowWord>(row.begin(), row.end()));
      }
    }
  }
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    const auto group = static_cast<uint32_t>(AnyBelow(random, g.row_groups()));
    content.groups.emplace_back(group, AnyRowGroup(random, g, group, kDisorder[random.Below(4)]));
  }
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    LogStripeItem item;
    item.sequence = 1 + AnyMagnitude(random) / 2;
    item.place = AnyMagnitude(random);
    for (const LogStripeMember& member :
         AnyMembers(random, g, static_cast<uint32_t>(random.Below(g.stripes)))) {
      item.members.push_back({member.chunk, member.word, member.crc, random.OneIn(3)});
    }
    for (uint32_t j = 0; j < g.m; ++j) {
      item.log_crcs.push_back(Any32(random));
    }
    content.log_stripes.push_back(std::move(item));
  }
  for (uint64_t i = random.Below(most + 1); i != 0; --i) {
    const auto index = static_cast<uint32_t>(random.Below(g.k()));
    ZerosItem item;
    item.sequence = 1 + AnyMagnitude(random) / 2;
    item.place = AnyMagnitude(random);
    item.first = g.Chunk(StripeIndex(static_cast<uint32_t>(random.Below(g.stripes))), index);
    item.count = static_cast<uint32_t>(random.Between(1, g.k() - index));
    item.superseded = Any32(random) & ((uint32_t{1} << item.count) - 1);
    content.zeros.push_back(item);
  }
  return content;
}

// Rows that follow each other in a group and ascend go into one item.
inline void WriteRows(const RunContent& content, const Geometry& g, RunWriter& writer) {
  for (size_t i = 0; i < content.rows.size();) {
    const uint32_t group = content.rows[i].first / kRowGroupStripes;
    std::vector<RowWord> words(size_t{kRowGroupStripes} * g.n);
    uint64_t mask = 0;
    while (i < content.rows.size() && content.rows[i].first / kRowGroupStripes == group &&
           mask >> (content.rows[i].first % kRowGroupStripes) == 0) {
      const uint32_t at = content.rows[i].first % kRowGroupStripes;
      std::copy(content.rows[i].second.begin(), content.rows[i].second.end(),
                words.begin() + static_cast<std::ptrdiff_t>(size_t{at} * g.n));
      mask |= uint64_t{1} << at;
      ++i;
    }
    writer.Rows(group, mask, words);
  }
}

inline std::vector<std::byte> Encoded(const RunContent& content, const Geometry& g) {
  std::vector<std::byte> stream;
  RunWriter writer(g, stream);
  if (content.all_volumes) {
    writer.AllVolumes();
  }
  WriteRows(content, g, writer);
  for (const ExtentIndex extent : content.freed) {
    writer.ExtentFreed(extent);
  }
  for (const VolumeItem& item : content.volumes) {
    writer.Volume(item);
  }
  for (const ExtentItem& item : content.extents) {
    writer.Extent(item);
  }
  for (const auto& [group, words] : content.groups) {
    writer.RowGroup(group, words);
  }
  for (const LogStripeItem& item : content.log_stripes) {
    writer.LogStripe(item);
  }
  for (const ZerosItem& item : content.zeros) {
    writer.Zeros(item);
  }
  writer.End();
  return stream;
}

}  // namespace eplog::format_test
