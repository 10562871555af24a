#include "format/entry.h"

#include <functional>

#include "tests/format/bytes_test_util.h"
#include "tests/format/content.h"

namespace eplog::format_test {
namespace {

Geometry Small() {
  return MakeGeometry(3, 1);
}

LogStripeRecord Lone(const Geometry& g, uint64_t chunk, uint32_t slot) {
  LogStripeRecord record;
  record.members.push_back({ChunkIndex(chunk), SlotWord::At(SlotIndex(slot)), 0x11223344});
  record.log_crcs.resize(g.m, 0x55667788);
  return record;
}

EntryHeader Plain(const Geometry& g) {
  EntryHeader header;
  header.epoch = {5, 55};
  header.sequence = 100;
  header.mark = 90;
  header.place = 1000;
  header.log_stripes.push_back(Lone(g, 7, 3));
  header.length_blocks = 1 + g.chunk_blocks();
  RowRecord row;
  row.stripe = StripeIndex(9);
  row.changes = {{0, SlotWord::At(SlotIndex(4)), 1, 98}, {2, SlotWord::Absent(), 2, 0}};
  header.rows.push_back(row);
  header.volumes = {VolumeCreated{VolumeId(1), 4096, "a"}, ExtentsFreed{ExtentIndex(1), 2}};
  return header;
}

Result<EntryHeader> Decoded(std::span<const std::byte> bytes, const Geometry& g) {
  return DecodeEntryHeader(bytes, kArray, g);
}

class EntryHeaderOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Geometries, EntryHeaderOf, ::testing::Range(0, 4));

TEST_P(EntryHeaderOf, RandomContentComesBackWithinTheBounds) {
  const Geometry g = GeometryNumber(static_cast<uint64_t>(GetParam()));
  Random random(21);
  for (int i = 0; i < 3000; ++i) {
    const EntryHeader header = AnyEntry(random, g);
    size_t bound = kEntryFixedBytes;
    for (const auto& record : header.volumes) {
      bound += MaxRecordBytes(record);
    }
    for (const auto& record : header.trims) {
      bound += MaxRecordBytes(record);
    }
    for (const auto& record : header.rows) {
      ASSERT_LE(MaxRecordBytes(record), MaxRowRecordBytes(record.changes.size()));
      bound += MaxRecordBytes(record);
    }
    for (const auto& record : header.log_stripes) {
      bound += MaxLogStripeRecordBytes(record.members.size(), g.m);
    }
    std::vector<std::byte> block(kBlockBytes, std::byte{0xEE});
    const size_t used = EncodeEntryHeader(header, kArray, block);
    ASSERT_LE(used, bound);
    size_t decoded_used = 0;
    const auto back = DecodeEntryHeader(block, kArray, g, &decoded_used);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, header);
    ASSERT_EQ(decoded_used, used);
    ASSERT_EQ(block[used], std::byte{0xEE}) << "written beyond the used bytes";
    // Exactly the used bytes are enough, one less is not.
    ASSERT_TRUE(Decoded(std::span(block).first(used), g).ok());
    ASSERT_FALSE(Decoded(std::span(block).first(used - 1), g).ok());
  }
}

TEST(EntryHeader, EveryCorruptionIsRefused) {
  const Geometry g = Small();
  ExpectEveryCorruptionRefused(Encoded(Plain(g)), [&](auto bytes) { return Decoded(bytes, g); });
}

TEST(EntryHeader, EveryTruncationIsRefused) {
  const Geometry g = Small();
  const auto whole = Encoded(Plain(g));
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(Decoded(std::span(whole).first(size), g).ok());
    // And when it claims to be whole: the records break off.
    auto cut = whole;
    cut.resize(std::max<size_t>(size, 72));
    FixEntry(cut);
    ASSERT_FALSE(Decoded(cut, g).ok()) << size;
  }
}

TEST(EntryHeader, OthersAreNotOurs) {
  const Geometry g = Small();
  const auto bytes = Encoded(Plain(g));
  EXPECT_TRUE(FailsWith(DecodeEntryHeader(bytes, TestUuid(0xA1), g), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(Decoded(std::vector<std::byte>(4096), g), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(Decoded({}, g), ErrorCode::kNotFound));
}

TEST(EntryHeader, ALoneUpdateTakesAtMost96Bytes) {
  // 6+2 SSDs of 1 TB: the chunk number takes 5 bytes, the slot word 4.
  const Geometry g = MakeGeometry(8, 2, 4096, uint64_t{1} << 40, uint64_t{1} << 36);
  EntryHeader header;
  header.epoch = {1000, 1};
  header.sequence = uint64_t{1} << 48;
  header.mark = header.sequence - 1;
  header.place = uint64_t{1} << 50;
  header.log_stripes.push_back(Lone(g, g.data_chunks() - 1, g.slots - 1));
  header.length_blocks = 2;
  EXPECT_EQ(Encoded(header).size(), 95U);
  EXPECT_TRUE(Decoded(Encoded(header), g).ok());
}

TEST(EntryHeader, BoundsHoldAtTheLargestValues) {
  LogStripeRecord logs;
  for (uint64_t i = 0; i < kMaxSsds; ++i) {
    logs.members.push_back(
        {ChunkIndex((uint64_t{1} << 37) - 1 - i), SlotWord::FromRaw(UINT32_MAX), 1});
  }
  logs.log_crcs.resize(kMaxParity);
  RowRecord row;
  row.stripe = StripeIndex(UINT32_MAX);
  for (uint8_t i = 0; i < kMaxSsds; ++i) {
    row.changes.push_back({i, SlotWord::FromRaw(UINT32_MAX), 1, 1});
  }
  EntryHeader header;
  header.sequence = uint64_t{1} << 49;
  const size_t empty = Encoded(header).size();
  EXPECT_EQ(empty, 72U);
  header.log_stripes = {logs};
  EXPECT_EQ(Encoded(header).size() - empty, MaxLogStripeRecordBytes(kMaxSsds, kMaxParity));
  header.log_stripes.clear();
  header.rows = {row};
  EXPECT_EQ(Encoded(header).size() - empty, MaxRowRecordBytes(kMaxSsds));
  EXPECT_EQ(MaxRecordBytes(row), MaxRowRecordBytes(kMaxSsds));
  header.rows.clear();
  const VolumeRecord largest[] = {
      VolumeCreated{VolumeId(UINT32_MAX), UINT64_MAX, std::string(200, 'v')},
      VolumeResized{VolumeId(UINT32_MAX), UINT64_MAX},
      VolumeRenamed{VolumeId(UINT32_MAX), std::string(200, 'v')},
      VolumeDeleted{VolumeId(UINT32_MAX)},
      ExtentAssigned{VolumeId(UINT32_MAX), UINT32_MAX, ExtentIndex(UINT32_MAX)},
      ExtentsFreed{ExtentIndex(UINT32_MAX), UINT32_MAX}};
  for (const VolumeRecord& record : largest) {
    header.volumes = {record};
    EXPECT_EQ(Encoded(header).size() - empty, MaxRecordBytes(record)) << record.index();
  }
  // The first entry of an epoch has the largest fixed part; any one record fits beside it.
  header.volumes.clear();
  header.first_of_epoch = true;
  EXPECT_EQ(Encoded(header).size(), kEntryFixedBytes);
  EXPECT_LE(kEntryFixedBytes + MaxRowRecordBytes(kMaxSsds), kMaxEntryHeaderBytes);
}

TEST(EntryHeader, VersionsOfDataSurviveAndParityHasNone) {
  const Geometry g = Small();
  EntryHeader header = Plain(g);
  // Its own sequence (full stripe), an old one, none (a word put back).
  for (const uint64_t version : {uint64_t{100}, uint64_t{1}, uint64_t{0}}) {
    header.rows[0].changes[0].version = version;
    const auto back = Decoded(Encoded(header), g);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->rows[0].changes[0].version, version);
  }
  header.rows[0].changes[1].version = 99;  // parity
  EXPECT_TRUE(FailsWith(Decoded(Encoded(header), g), ErrorCode::kCorrupt));
}

struct Wrong {
  const char* what;
  std::function<void(EntryHeader&, const Geometry&)> change;
};

// Content that a good CRC does not make good.
const Wrong wrongs[] = {
    {"mark not before the sequence", [](auto& h, auto&) { h.mark = h.sequence; }},
    {"sequence 0", [](auto& h, auto&) { h.rows.clear(), h.sequence = 0, h.mark = 0; }},
    {"follows itself",
     [](auto& h, auto&) {
       h.first_of_epoch = true;
       h.follows_epoch.number = h.epoch.number;
     }},
    {"follows a later sequence",
     [](auto& h, auto&) {
       h.first_of_epoch = true;
       h.follows_sequence = h.sequence;
     }},
    {"too long", [](auto& h, auto&) { ++h.length_blocks; }},
    {"too short", [](auto& h, auto&) { h.length_blocks = 1; }},
    {"chunk out of range",
     [](auto& h, auto& g) { h.log_stripes[0].members[0].chunk = ChunkIndex(g.data_chunks()); }},
    {"slot out of range",
     [](auto& h, auto& g) { h.log_stripes[0].members[0].word = SlotWord::At(SlotIndex(g.slots)); }},
    {"member that is zero",
     [](auto& h, auto&) { h.log_stripes[0].members[0].word = SlotWord::Zero(); }},
    {"log stripe without members", [](auto& h, auto&) { h.log_stripes[0].members.clear(); }},
    {"two members on one SSD",
     [](auto& h, auto&) {
       auto& members = h.log_stripes[0].members;
       members.push_back(members[0]);
       members[1].chunk = ChunkIndex(7 + 3 * 2);  // three stripes on, of two data chunks each
     }},
    {"too many log CRCs", [](auto& h, auto&) { h.log_stripes[0].log_crcs.push_back(1); }},
    {"one chunk in two log stripes",
     [](auto& h, auto& g) {
       h.log_stripes.push_back(h.log_stripes[0]);
       h.length_blocks += g.chunk_blocks();
     }},
    {"one chunk in a log stripe and a row",
     [](auto& h, auto&) { h.log_stripes[0].members[0].chunk = ChunkIndex(18); }},  // of stripe 9
    {"two rows of one stripe",
     [](auto& h, auto&) {
       h.rows.push_back(h.rows[0]);
       h.rows[0].changes.pop_back();
       h.rows[1].changes.erase(h.rows[1].changes.begin());
     }},
    {"stripe out of range", [](auto& h, auto& g) { h.rows[0].stripe = StripeIndex(g.stripes); }},
    {"row without changes", [](auto& h, auto&) { h.rows[0].changes.clear(); }},
    {"row index out of range", [](auto& h, auto&) { h.rows[0].changes[1].index = 3; }},
    {"row indexes that descend",
     [](auto& h, auto&) { std::swap(h.rows[0].changes[0], h.rows[0].changes[1]); }},
    {"row index twice", [](auto& h, auto&) { h.rows[0].changes[1] = h.rows[0].changes[0]; }},
    {"row slot out of range",
     [](auto& h, auto& g) { h.rows[0].changes[0].word = SlotWord::At(SlotIndex(g.slots)); }},
    {"volume 0", [](auto& h, auto&) { h.volumes = {VolumeDeleted{VolumeId(0)}}; }},
    {"volume without a name",
     [](auto& h, auto&) {
       h.volumes = {VolumeCreated{VolumeId(1), 1, ""}};
     }},
    {"name too long",
     [](auto& h, auto&) {
       h.volumes = {VolumeRenamed{VolumeId(1), std::string(201, 'v')}};
     }},
    {"size beyond 63 bits",
     [](auto& h, auto&) {
       h.volumes = {VolumeResized{VolumeId(1), uint64_t{1} << 63}};
     }},
    {"extent out of range",
     [](auto& h, auto& g) {
       h.volumes = {ExtentAssigned{VolumeId(1), 0, ExtentIndex(g.extents())}};
     }},
    {"no extents freed",
     [](auto& h, auto&) {
       h.volumes = {ExtentsFreed{ExtentIndex(0), 0}};
     }},
    {"extents freed beyond the end",
     [](auto& h, auto& g) {
       h.volumes = {ExtentsFreed{ExtentIndex(1), g.extents()}};
     }},
};

TEST(EntryHeader, ImpossibleContentBehindAGoodCrcIsRefused) {
  const Geometry g = Small();
  ASSERT_TRUE(Decoded(Encoded(Plain(g)), g).ok());
  for (const Wrong& wrong : wrongs) {
    EntryHeader header = Plain(g);
    wrong.change(header, g);
    EXPECT_TRUE(FailsWith(Decoded(Encoded(header), g), ErrorCode::kCorrupt)) << wrong.what;
  }
}

TEST(EntryHeader, LongerThanTheLogIsRefused) {
  const Geometry g = MakeGeometry(3, 1, 4096, uint64_t{64} << 20, MinLogBytes(4096));
  EntryHeader header;
  header.sequence = 1;
  for (uint32_t i = 0; i < g.log_blocks - 1; ++i) {
    header.log_stripes.push_back(Lone(g, i, i));
  }
  header.length_blocks = static_cast<uint32_t>(g.log_blocks);
  EXPECT_TRUE(Decoded(Encoded(header), g).ok());
  header.log_stripes.push_back(Lone(g, g.log_blocks, 1));
  ++header.length_blocks;
  EXPECT_TRUE(FailsWith(Decoded(Encoded(header), g), ErrorCode::kCorrupt));
}

// An entry without records, and then these bytes.
std::vector<std::byte> WithRecords(std::initializer_list<unsigned> records) {
  EntryHeader header;
  header.sequence = 100;
  auto bytes = Encoded(header);
  for (const unsigned byte : records) {
    bytes.push_back(static_cast<std::byte>(byte));
  }
  FixEntry(bytes);
  return bytes;
}

TEST(EntryHeader, TrimsOutOfRangeOrOfTheSameChunkAsAnotherRecordAreRefused) {
  const Geometry g = Small();
  const auto accepts = [&](std::vector<TrimRecord> trims, std::vector<RowRecord> rows = {}) {
    EntryHeader header;
    header.sequence = 100;
    header.trims = std::move(trims);
    header.rows = std::move(rows);
    const auto decoded = Decoded(Encoded(header), g);
    return decoded.ok() && *decoded == header;
  };
  const uint32_t k = g.k();
  const StripeIndex last(g.stripes - 1);
  EXPECT_TRUE(accepts({StripesTrimmed{StripeIndex(0), g.stripes}}));
  EXPECT_FALSE(accepts({StripesTrimmed{last, 2}}));
  EXPECT_FALSE(accepts({StripesTrimmed{last, 0}}));
  EXPECT_FALSE(accepts({StripesTrimmed{StripeIndex(g.stripes), 1}}));
  EXPECT_TRUE(accepts({ChunksTrimmed{g.Chunk(last, 0), k}}));
  EXPECT_FALSE(accepts({ChunksTrimmed{g.Chunk(last, 0), 0}}));
  EXPECT_FALSE(accepts({ChunksTrimmed{g.Chunk(StripeIndex(0), 1), k}})) << "beyond its stripe";
  EXPECT_FALSE(accepts({ChunksTrimmed{ChunkIndex(g.data_chunks()), 1}}));
  // Twice the same.
  EXPECT_TRUE(accepts({StripesTrimmed{StripeIndex(1), 2}, StripesTrimmed{StripeIndex(3), 1}}));
  EXPECT_FALSE(accepts({StripesTrimmed{StripeIndex(1), 2}, StripesTrimmed{StripeIndex(2), 1}}));
  EXPECT_TRUE(
      accepts({StripesTrimmed{StripeIndex(1), 2}, ChunksTrimmed{g.Chunk(StripeIndex(3), 0), 1}}));
  EXPECT_FALSE(accepts(
      {StripesTrimmed{StripeIndex(1), 2}, ChunksTrimmed{g.Chunk(StripeIndex(2), k - 1), 1}}));
  const RowRecord row = {StripeIndex(2),
                         {{static_cast<uint8_t>(g.n - 1), SlotWord::Absent(), 1, 0}}};
  EXPECT_TRUE(accepts({StripesTrimmed{StripeIndex(0), 2}}, {row}));
  EXPECT_FALSE(accepts({StripesTrimmed{StripeIndex(0), 3}}, {row}));
}

TEST(EntryHeader, UnknownRecordsAndFlagsAreUnsupported) {
  const Geometry g = Small();
  for (const unsigned type : {0U, 3U, 12U, 13U, 255U}) {
    const auto refused = Decoded(WithRecords({type, 1, 1}), g);
    EXPECT_TRUE(FailsWith(refused, ErrorCode::kUnsupported)) << type;
  }
  auto bytes = WithRecords({});
  bytes[10] = std::byte{2};
  FixEntry(bytes);
  EXPECT_TRUE(FailsWith(Decoded(bytes, g), ErrorCode::kUnsupported));
}

TEST(EntryHeader, BytesThatNoEncoderWritesAreRefused) {
  const Geometry g = Small();
  // A data word with a version: good, then 0 given as a distance, then a zero word with a CRC.
  EXPECT_TRUE(Decoded(WithRecords({2, 9, 1, 0x80, 2, 1, 2, 3, 4, 99}), g).ok());
  EXPECT_TRUE(
      FailsWith(Decoded(WithRecords({2, 9, 1, 0x80, 2, 1, 2, 3, 4, 100}), g), ErrorCode::kCorrupt));
  EXPECT_TRUE(
      FailsWith(Decoded(WithRecords({2, 9, 1, 0x80, 0, 1, 2, 3, 4, 99}), g), ErrorCode::kCorrupt));
  // A varint of eleven bytes.
  EXPECT_TRUE(FailsWith(
      Decoded(WithRecords({9, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0}), g),
      ErrorCode::kCorrupt));
  // Used bytes below the fixed part, or beyond what fits a ring block.
  for (const unsigned used : {0U, 71U, 4033U, 65535U}) {
    std::vector<std::byte> bytes(65536);
    const auto entry = WithRecords({});
    std::copy(entry.begin(), entry.end(), bytes.begin());
    StoreLe(bytes.data() + 8, static_cast<uint16_t>(used));
    FixCrc(std::span(bytes).first(std::max(used, 8U)), kCrcAt);
    EXPECT_TRUE(FailsWith(Decoded(bytes, g), ErrorCode::kCorrupt)) << used;
  }
}

TEST(EntryHeaderDeathTest, AHeaderThatDoesNotFitStopsTheProgram) {
  EntryHeader header;
  header.sequence = 1;
  for (int i = 0; i < 20; ++i) {
    header.volumes.emplace_back(VolumeCreated{VolumeId(1), 1, std::string(200, 'v')});
  }
  EXPECT_DEATH(Encoded(header), "fit its header");
}

// ---- journal ring blocks

TEST(RingBlock, RandomContentComesBack) {
  Random random(31);
  for (int i = 0; i < 2000; ++i) {
    const Geometry g = GeometryNumber(random.Next() | 1);
    std::vector<EntryHeader> headers;
    const auto block = AnyRingBlock(random, g, &headers);
    const auto back = DecodeRingBlock(block, kArray, g, DeviceIndex(1));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(back->headers, headers);
    ASSERT_EQ(back->number, LoadLe<uint64_t>(block.data() + 32));
  }
}

TEST(RingBlock, HoldsTheLargestHeaderAndNoMore) {
  const Geometry g = Small();
  EntryHeader header;
  header.sequence = 1;
  std::vector<std::byte> largest;
  // Fill up with records of 13 + name bytes.
  for (size_t room = kMaxEntryHeaderBytes - 72; room != 0;) {
    const size_t take = room > 230 ? 110 : std::min<size_t>(room, 200);
    if (take < room && room - take < 8) {
      break;
    }
    header.volumes.emplace_back(
        VolumeRenamed{VolumeId(1), std::string(take > 131 ? take - 4 : take - 3, 'v')});
    room -= take;
  }
  largest = Encoded(header);
  ASSERT_EQ(largest.size(), kMaxEntryHeaderBytes);
  std::vector<std::byte> block(kBlockBytes, std::byte{0xEE});
  RingBlockBuilder builder(block);
  EXPECT_TRUE(builder.empty());
  ASSERT_TRUE(builder.Add(largest, 1));
  EntryHeader next;
  next.sequence = 2;
  EXPECT_FALSE(builder.Add(Encoded(next), 2));
  builder.Finish(kArray, DeviceIndex(0), 77);
  const auto back = DecodeRingBlock(block, kArray, g, DeviceIndex(0));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->headers.size(), 1U);
  EXPECT_EQ(back->headers[0], header);
  EXPECT_EQ(back->number, 77U);
}

class RingBlockOfTwo : public ::testing::Test {
 protected:
  void SetUp() override {
    RingBlockBuilder builder(block_);
    for (const uint64_t sequence : {uint64_t{5}, uint64_t{6}}) {
      EntryHeader header;
      header.sequence = sequence;
      ASSERT_TRUE(builder.Add(Encoded(header), sequence));
    }
    builder.Finish(kArray, DeviceIndex(2), 9);
  }
  Result<RingBlock> Decode() const { return DecodeRingBlock(block_, kArray, g_, DeviceIndex(2)); }
  Result<RingBlock> DecodeFixed() {
    FixCrc(std::span(block_).subspan(64, 72), kCrcAt);
    FixCrc(std::span(block_).subspan(136, 72), kCrcAt);
    FixCrc(block_, kCrcAt);
    return Decode();
  }

  const Geometry g_ = Small();
  std::vector<std::byte> block_ = std::vector<std::byte>(kBlockBytes, std::byte{0xEE});
};

TEST_F(RingBlockOfTwo, EveryCorruptionIsRefused) {
  ExpectEveryCorruptionRefused(
      block_, [&](auto bytes) { return DecodeRingBlock(bytes, kArray, g_, DeviceIndex(2)); });
}

TEST_F(RingBlockOfTwo, MisdirectedOrForeignBlocksAreRefused) {
  EXPECT_TRUE(FailsWith(DecodeRingBlock(block_, kArray, g_, DeviceIndex(1)), ErrorCode::kCorrupt));
  EXPECT_TRUE(
      FailsWith(DecodeRingBlock(block_, TestUuid(1), g_, DeviceIndex(2)), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(DecodeRingBlock(std::span(block_).first(4095), kArray, g_, DeviceIndex(2)),
                        ErrorCode::kNotFound));
}

TEST_F(RingBlockOfTwo, ImpossibleHeadsAreRefused) {
  struct Poke {
    size_t at;
    uint16_t value;
  };
  const auto good = block_;
  // Count, payload bytes, first and last sequence, the entries' sequences.
  for (const Poke poke : {Poke{30, 0},
                          {30, 1},
                          {30, 3},
                          {30, 65535},
                          {28, 72},
                          {28, 143},
                          {28, 145},
                          {28, 4033},
                          {40, 4},
                          {48, 7},
                          {64 + 48, 6},
                          {136 + 48, 5}}) {
    block_ = good;
    StoreLe(block_.data() + poke.at, poke.value);
    EXPECT_TRUE(FailsWith(DecodeFixed(), ErrorCode::kCorrupt)) << poke.at << ' ' << poke.value;
  }
  block_ = good;
  EXPECT_TRUE(DecodeFixed().ok());
  // A whole block with a damaged or unknown entry in it.
  block_[64] = std::byte{0};
  EXPECT_TRUE(FailsWith(DecodeFixed(), ErrorCode::kCorrupt));
  block_ = good;
  block_[64 + 10] = std::byte{4};
  EXPECT_TRUE(FailsWith(DecodeFixed(), ErrorCode::kUnsupported));
}

}  // namespace
}  // namespace eplog::format_test
