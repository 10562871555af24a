// Golden images: bytes that an earlier build wrote. If one of these fails, the format has moved: an
// array written before would be misread. Either undo that, or raise the format version and write
// down the conversion (docs/format.md, "Upgrades"); only then write new images, those that are not
// there (an old one is kept: who wants it anew takes it away first, and says why):
//
//   EPLOG_WRITE_GOLDEN=1 format_tests --gtest_filter='Golden.*'
//
// The hex dumps in docs/format.md are compared with the same images.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/format/content.h"

namespace eplog::format_test {
namespace {

std::filesystem::path Here() {
  return std::filesystem::path(EPLOG_SOURCE_DIR) / "tests/format";
}

std::vector<std::byte> ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void ExpectGolden(const std::vector<std::byte>& bytes, const char* name) {
  const auto path = Here() / "golden" / name;
  if (std::getenv("EPLOG_WRITE_GOLDEN") != nullptr &&  // NOLINT(concurrency-mt-unsafe)
      !std::filesystem::exists(path)) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return;
  }
  const auto golden = ReadFile(path);
  ASSERT_EQ(golden.size(), bytes.size()) << name;
  for (size_t at = 0; at < bytes.size(); ++at) {
    ASSERT_EQ(golden[at], bytes[at]) << name << ", byte " << at;
  }
}

// A 2+1 array, in numbers rather than planned: what a planner chooses may change, an array that
// exists does not.
Geometry GoldenGeometry() {
  Geometry g;
  g.n = 3;
  g.m = 1;
  g.chunk_bytes = 4096;
  g.stripes = 17920;
  g.slots = 20000;
  g.extent_stripes = 16;
  g.metadata_offset_bytes = 65536;
  g.metadata_blocks = 960;
  g.ring_offset_bytes = 65536 + 960 * 4096;
  g.ring_blocks = 64;
  g.slots_offset_bytes = uint64_t{5} << 20;
  g.log_offset_bytes = 65536;
  g.log_blocks = 4080;
  return g;
}

Superblock GoldenSuperblock() {
  Superblock sb;
  sb.array_uuid = TestUuid(0xA0);
  sb.device_uuid = TestUuid(0x10);
  sb.index = DeviceIndex(1);
  sb.geometry = GoldenGeometry();
  sb.journal_mode = 1;
  sb.name = "example";
  sb.generation = 6;
  sb.epoch = {4, 0x4444444444444444};
  sb.base = {3, 0x3333333333333333};
  sb.checkpoint = {9, 0x9999999999999999, 480, 1, 0xC0FFEE00, 0b111};
  sb.members = {{TestUuid(0x00), MemberState::kOk, 1},
                {TestUuid(0x10), MemberState::kOk, 1},
                {TestUuid(0x20), MemberState::kJoining, 4},
                {TestUuid(0x30), MemberState::kLost, 1}};
  return sb;
}

// One chunk updated alone.
EntryHeader GoldenLoneEntry() {
  EntryHeader header;
  header.epoch = {4, 0x4444444444444444};
  header.sequence = 1234;
  header.mark = 1230;
  header.place = 5000;
  header.length_blocks = 2;
  header.log_stripes = {
      {{{ChunkIndex(1001), SlotWord::At(SlotIndex(77)), 0x11223344}}, {0x55667788}}};
  return header;
}

// The first of an epoch, with every type of record.
EntryHeader GoldenFullEntry() {
  EntryHeader header;
  header.epoch = {5, 0x5555555555555555};
  header.sequence = 70000;
  header.mark = 69990;
  header.place = uint64_t{1} << 33;
  header.length_blocks = 3;
  header.first_of_epoch = true;
  header.follows_epoch = {4, 0x4444444444444444};
  header.follows_sequence = 69999;
  header.volumes = {VolumeCreated{VolumeId(2), 1 << 20, "disk.img"},
                    VolumeResized{VolumeId(2), 2 << 20},
                    VolumeRenamed{VolumeId(2), "volume"},
                    VolumeDeleted{VolumeId(1)},
                    ExtentAssigned{VolumeId(2), 5, ExtentIndex(300)},
                    ExtentsFreed{ExtentIndex(128), 200}};
  header.rows = {{StripeIndex(9),
                  {{0, SlotWord::At(SlotIndex(4)), 0xA1A2A3A4, 70000},
                   {1, SlotWord::Zero(), 0, 69000},
                   {2, SlotWord::Absent(), 0xB1B2B3B4, 0}}},
                 {StripeIndex(17919), {{1, SlotWord::At(SlotIndex(19999)), 0xC1C2C3C4, 0}}}};
  header.log_stripes = {
      {{{ChunkIndex(0), SlotWord::At(SlotIndex(0)), 1},
        {ChunkIndex(1), SlotWord::Absent(), 2},
        {ChunkIndex(5), SlotWord::At(SlotIndex(130)), 3}},
       {4}},
      {{{ChunkIndex(3583), SlotWord::At(SlotIndex(1998)), 0xFFFFFFFF}}, {0xFEFEFEFE}}};
  return header;
}

// A partial trim and trimmed stripes.
EntryHeader GoldenTrimEntry() {
  EntryHeader header;
  header.epoch = {4, 0x4444444444444444};
  header.sequence = 1235;
  header.mark = 1234;
  header.place = 5002;
  header.trims = {ChunksTrimmed{ChunkIndex(1001), 1}, StripesTrimmed{StripeIndex(600), 64}};
  return header;
}

CheckpointRoot GoldenRoot() {
  CheckpointRoot root;
  root.epoch = {4, 0x4444444444444444};
  root.sequence = 1200;
  root.place = 4900;
  root.next_volume_id = 3;
  root.runs = {{false, 0b110, 482, 1, 300, 0xDDDDDDDD, 9, 0x9999999999999999},
               {true, 0b111, 0, 14, 56000, 0xEEEEEEEE, 8, 0x8888888888888888}};
  root.lifetime_counters = {1, 2, 3};
  return root;
}

RunContent GoldenRun() {
  const Geometry g = GoldenGeometry();
  RunContent run;
  run.volumes = {{VolumeId(2), 2 << 20, false, "volume"}, {VolumeId(1), 1 << 20, true, "disk.img"}};
  run.extents = {{ExtentIndex(300), VolumeId(2), 5}, {ExtentIndex(128), VolumeId(1), 0}};
  std::vector<RowWord> rows(size_t{64} * g.n);  // group 2: stripes 128 ... 191
  for (uint32_t s = 0; s < 64; ++s) {
    for (uint32_t i = 0; i < g.n; ++i) {
      RowWord& word = rows[s * g.n + i];
      switch (g.SsdOf(StripeIndex(128 + s), i).value) {
        case 0:  // consecutive slots, a gap in the middle
          word = s == 32 ? RowWord{} : RowWord{SlotWord::At(SlotIndex(500 + s)), s};
          break;
        case 1:  // in no order: raw
          word = {SlotWord::At(SlotIndex(16384 + s * 31)), 0x100 + s};
          break;
        default:  // lost
          word = {SlotWord::Absent(), 0x200 + s};
      }
    }
  }
  run.groups = {{2, rows}};
  run.log_stripes = {{1100,
                      4800,
                      {{ChunkIndex(0), SlotWord::At(SlotIndex(7)), 5, true},
                       {ChunkIndex(1), SlotWord::Absent(), 6, false}},
                      {8}}};
  return run;
}

// What changed: an incremental run.
RunContent GoldenChanges() {
  RunContent run;
  run.all_volumes = true;
  run.volumes = {{VolumeId(2), 3 << 20, false, "volume"}};
  run.freed = {ExtentIndex(128)};
  run.rows = {{130,
               {RowWord{SlotWord::At(SlotIndex(7)), 0x11223344}, RowWord{},
                RowWord{SlotWord::Absent(), 0x55667788}}},
              {131, std::vector<RowWord>(3)}};
  run.zeros = {{1235, 5002, ChunkIndex(1000), 2, 0b01}};
  return run;
}

void ExpectGoldenSuperblock(const Superblock& sb, const char* name) {
  std::vector<std::byte> bytes(kSuperblockCopyBytes);
  EncodeSuperblock(sb, bytes);
  ExpectGolden(bytes, name);
  const auto back = DecodeSuperblock(bytes);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, sb);
}

TEST(Golden, Superblock) {
  ExpectGoldenSuperblock(GoldenSuperblock(), "superblock.bin");
}

// With a byte that was reserved at first.
TEST(Golden, SuperblockOfWhatIsOnTheRings) {
  Superblock sb = GoldenSuperblock();
  sb.journal_mode = 2;
  sb.base_on_rings = true;
  ExpectGoldenSuperblock(sb, "superblock_on_rings.bin");
}

TEST(Golden, Entries) {
  const std::pair<const char*, EntryHeader> entries[] = {{"entry_lone.bin", GoldenLoneEntry()},
                                                         {"entry_full.bin", GoldenFullEntry()},
                                                         {"entry_trim.bin", GoldenTrimEntry()}};
  for (const auto& [name, header] : entries) {
    const auto bytes = Encoded(header);
    ExpectGolden(bytes, name);
    const auto back = DecodeEntryHeader(bytes, kArray, GoldenGeometry());
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, header);
  }
}

TEST(Golden, RingBlock) {
  std::vector<std::byte> block(kBlockBytes);
  RingBlockBuilder builder(block);
  ASSERT_TRUE(builder.Add(Encoded(GoldenLoneEntry()), 1234));
  ASSERT_TRUE(builder.Add(Encoded(GoldenFullEntry()), 70000));
  builder.Finish(kArray, DeviceIndex(2), 1000);
  ExpectGolden(block, "ring_block.bin");
  const auto back = DecodeRingBlock(block, kArray, GoldenGeometry(), DeviceIndex(2));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->headers, (std::vector{GoldenLoneEntry(), GoldenFullEntry()}));
}

TEST(Golden, RootPage) {
  const auto root = EncodeRoot(GoldenRoot());
  std::vector<std::byte> page(kBlockBytes);
  std::copy(root.begin(), root.end(), page.begin() + kPageHeaderBytes);
  const PageHeader header = {
      PageKind::kRoot, 9, 0x9999999999999999, 480, 0, static_cast<uint32_t>(root.size())};
  FinishPage(header, kArray, page);
  ExpectGolden(page, "root_page.bin");
  const auto back = DecodePage(page, kArray);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, header);
  const auto decoded = DecodeRoot(std::span(page).subspan(kPageHeaderBytes, back->payload_bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, GoldenRoot());
}

TEST(Golden, Run) {
  const std::pair<const char*, RunContent> runs[] = {{"run.bin", GoldenRun()},
                                                     {"run_changes.bin", GoldenChanges()}};
  for (const auto& [name, content] : runs) {
    const auto bytes = Encoded(content, GoldenGeometry());
    ExpectGolden(bytes, name);
    RunContent back;
    const Status status = DecodeRun(bytes, GoldenGeometry(), back);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(back, content);
  }
}

// In docs/format.md a line "<!-- golden: NAME -->" says that the hex dump below it shows that
// image: lines of an offset (hex), two spaces, bytes (hex).
TEST(Golden, DumpsInTheDocumentAreTrue) {
  std::ifstream document(Here().parent_path().parent_path() / "docs" / "format.md");
  ASSERT_TRUE(document.is_open());
  std::vector<std::byte> image;
  size_t lines = 0;
  for (std::string line; std::getline(document, line);) {
    constexpr std::string_view kMarker = "<!-- golden: ";
    if (line.starts_with(kMarker)) {
      const auto name = line.substr(kMarker.size(), line.find(" -->") - kMarker.size());
      image = ReadFile(Here() / "golden" / name);
      ASSERT_FALSE(image.empty()) << name;
      continue;
    }
    if (line.size() < 8 || line.find("  ") != 4 ||
        line.find_first_not_of("0123456789abcdef") != 4) {
      continue;
    }
    size_t at = std::stoul(line.substr(0, 4), nullptr, 16);
    std::istringstream bytes(line.substr(6, size_t{3} * 16));
    for (std::string byte; bytes >> byte; ++at) {
      ASSERT_LT(at, image.size()) << line;
      ASSERT_EQ(image[at], static_cast<std::byte>(std::stoul(byte, nullptr, 16))) << line;
    }
    ++lines;
  }
  EXPECT_GT(lines, 20U);
}

}  // namespace
}  // namespace eplog::format_test
