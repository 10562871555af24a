#include "format/superblock.h"

#include <functional>

#include "tests/format/bytes_test_util.h"
#include "tests/format/content.h"

namespace eplog::format_test {
namespace {

std::vector<std::byte> Encoded(const Superblock& sb) {
  std::vector<std::byte> bytes(kSuperblockCopyBytes);
  EncodeSuperblock(sb, bytes);
  return bytes;
}

Superblock Plain() {
  Random random(1);
  Superblock sb = AnySuperblock(random);
  sb.geometry = MakeGeometry(3, 1);
  sb.index = DeviceIndex(2);
  sb.members.resize(4);
  sb.checkpoint = {7, 8, 0, 1, 9, 0b111};
  return sb;
}

TEST(Superblock, RandomContentComesBack) {
  Random random(11);
  for (int i = 0; i < 2000; ++i) {
    const Superblock sb = AnySuperblock(random);
    const auto back = DecodeSuperblock(Encoded(sb));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, sb);
  }
}

TEST(Superblock, SparesComeBack) {
  Random random(13);
  for (int i = 0; i < 500; ++i) {
    const Superblock member = AnySuperblock(random);
    EXPECT_FALSE(member.is_spare());
    Superblock spare = SpareSuperblock(member, TestUuid(9));
    spare.generation = AnyMagnitude(random);
    const auto back = DecodeSuperblock(Encoded(spare));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, spare);
    EXPECT_TRUE(back->is_spare());
    EXPECT_EQ(back->DeviceName(), "spare");
    EXPECT_EQ(back->array_uuid, member.array_uuid);
    EXPECT_EQ(back->geometry, member.geometry);
    EXPECT_EQ(back->device_uuid, TestUuid(9));
  }
}

TEST(Superblock, SparesThatTellOfMembersAreRefused) {
  const Superblock spare = SpareSuperblock(Plain(), TestUuid(9));
  // Member count, checkpoint generation (its SSDs with it), epoch, base and epoch.
  for (const std::vector<size_t>& pokes :
       std::vector<std::vector<size_t>>{{272}, {168, 192, 200}, {136}, {136, 152}}) {
    auto bytes = Encoded(spare);
    for (const size_t at : pokes) {
      bytes[at] = std::byte{1};
    }
    FixCrc(bytes, kSuperblockCrcAt);
    EXPECT_TRUE(FailsWith(DecodeSuperblock(bytes), ErrorCode::kCorrupt)) << pokes.front();
  }
}

// A program that knows no spares: it asks for one member for each device, and an index among them.
TEST(Superblock, SparesBreakARuleThatMembersAlwaysHad) {
  const Superblock spare = SpareSuperblock(Plain(), TestUuid(9));
  const auto bytes = Encoded(spare);
  EXPECT_NE(static_cast<uint32_t>(bytes[272]), spare.geometry.devices());
  EXPECT_GE(static_cast<uint32_t>(bytes[48]), kMaxDevices);
}

TEST(Superblock, EncodingIsAFunctionOfContent) {
  Random random(12);
  const Superblock sb = AnySuperblock(random);
  std::vector<std::byte> dirty(kSuperblockCopyBytes, std::byte{0xEE});
  EncodeSuperblock(sb, dirty);
  EXPECT_EQ(dirty, Encoded(sb));
}

TEST(Superblock, EveryCorruptionIsRefused) {
  ExpectEveryCorruptionRefused(
      Encoded(Plain()), [](std::span<const std::byte> bytes) { return DecodeSuperblock(bytes); });
}

TEST(Superblock, TornWritesAreRefused) {
  Superblock sb = Plain();
  const auto old_copy = Encoded(sb);
  sb.generation += 2;
  sb.epoch.number += 1;
  sb.members[3].joined += 1;
  const auto new_copy = Encoded(sb);
  // Some sectors new, some old. Only sectors 0, 1 differ: both, or the write did not happen.
  for (unsigned mask = 0; mask < 256; ++mask) {
    auto torn = old_copy;
    for (size_t sector = 0; sector < 8; ++sector) {
      if ((mask >> sector & 1) != 0) {
        std::copy_n(new_copy.begin() + static_cast<std::ptrdiff_t>(sector * 512), 512,
                    torn.begin() + static_cast<std::ptrdiff_t>(sector * 512));
      }
    }
    const bool whole = (mask & 3) == 0 || (mask & 3) == 3;
    ASSERT_EQ(DecodeSuperblock(torn).ok(), whole) << mask;
  }
}

TEST(Superblock, TooFewBytesOrOthersAreNotOurs) {
  const auto bytes = Encoded(Plain());
  EXPECT_TRUE(FailsWith(DecodeSuperblock(std::span(bytes).first(4095)), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(DecodeSuperblock({}), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(DecodeSuperblock(std::vector<std::byte>(4096)), ErrorCode::kNotFound));
}

TEST(Superblock, NewerFormatIsRefusedByName) {
  Superblock sb = Plain();
  sb.version = kFormatVersion + 1;
  auto bytes = Encoded(sb);
  const auto refused = DecodeSuperblock(bytes);
  ASSERT_TRUE(FailsWith(refused, ErrorCode::kUnsupported));
  EXPECT_EQ(refused.error().message,
            "written by a newer version of eplog (format 3, this one knows 2)");
  // Whatever that format does with the bytes of our CRC.
  bytes[kSuperblockCrcAt] ^= std::byte{1};
  EXPECT_TRUE(FailsWith(DecodeSuperblock(bytes), ErrorCode::kUnsupported));
  sb.version = 0;
  EXPECT_TRUE(FailsWith(DecodeSuperblock(Encoded(sb)), ErrorCode::kCorrupt));
}

// Or one bad bit would make an array look like one of the future.
TEST(Superblock, DamagedVersionIsDamage) {
  const auto good = Encoded(Plain());
  for (size_t bit = 0; bit < 32; ++bit) {
    auto bytes = good;
    bytes[kSuperblockVersionAt + bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_TRUE(FailsWith(DecodeSuperblock(bytes), ErrorCode::kCorrupt)) << bit;
  }
}

struct Wrong {
  const char* what;
  std::function<void(Superblock&)> change;
};

TEST(Superblock, ImpossibleContentBehindAGoodCrcIsRefused) {
  const Wrong wrongs[] = {
      {"chunk of no power of two", [](Superblock& s) { s.geometry.chunk_bytes = 5000; }},
      {"no stripes", [](Superblock& s) { s.geometry.stripes = 0; }},
      {"fewer slots than stripes", [](Superblock& s) { s.geometry.slots = s.geometry.stripes; }},
      {"stripes at the limit of 32 bits",
       [](Superblock& s) {
         s.geometry.stripes = UINT32_MAX / s.geometry.extent_stripes * s.geometry.extent_stripes;
       }},
      {"slots without words", [](Superblock& s) { s.geometry.slots = UINT32_MAX; }},
      {"no extents", [](Superblock& s) { s.geometry.extent_stripes = 0; }},
      {"areas that overlap", [](Superblock& s) { s.geometry.slots_offset_bytes = 65536; }},
      {"a log beyond all bounds", [](Superblock& s) { s.geometry.log_blocks = UINT64_MAX; }},
      {"a metadata area too small", [](Superblock& s) { s.geometry.metadata_blocks = 1; }},
      {"unaligned area", [](Superblock& s) { s.geometry.log_offset_bytes += 512; }},
      {"index of no member", [](Superblock& s) { s.index = DeviceIndex(4); }},
      {"journal mode 0", [](Superblock& s) { s.journal_mode = 0; }},
      {"journal mode 3", [](Superblock& s) { s.journal_mode = 3; }},
      {"base after the epoch", [](Superblock& s) { s.base.number = s.epoch.number + 1; }},
      {"checkpoint on SSD 3 of 0 ... 2", [](Superblock& s) { s.checkpoint.ssd_mask = 0b1001; }},
      {"checkpoint nowhere", [](Superblock& s) { s.checkpoint.ssd_mask = 0; }},
      {"checkpoint without blocks", [](Superblock& s) { s.checkpoint.root_blocks = 0; }},
      {"checkpoint outside",
       [](Superblock& s) { s.checkpoint.root_block = s.geometry.metadata_blocks; }},
      {"checkpoint at the end of numbers",
       [](Superblock& s) { s.checkpoint.root_block = UINT64_MAX; }},
      {"member state 0", [](Superblock& s) { s.members[1].state = MemberState{0}; }},
      {"member state 6", [](Superblock& s) { s.members[3].state = MemberState{6}; }},
  };
  for (const Wrong& wrong : wrongs) {
    Superblock sb = Plain();
    wrong.change(sb);
    EXPECT_TRUE(FailsWith(DecodeSuperblock(Encoded(sb)), ErrorCode::kCorrupt)) << wrong.what;
  }
}

TEST(Superblock, ImpossibleBytesBehindAGoodCrcAreRefused) {
  struct Poke {
    size_t at;
    uint8_t value;
  };
  // n, m, member count, no end of the name, something after its end.
  for (const Poke poke :
       {Poke{50, 2}, {50, 33}, {51, 0}, {51, 3}, {51, 5}, {272, 3}, {272, 36}, {271, 'x'}}) {
    auto bytes = Encoded(Plain());
    bytes[poke.at] = std::byte{poke.value};
    FixCrc(bytes, kSuperblockCrcAt);
    EXPECT_TRUE(FailsWith(DecodeSuperblock(bytes), ErrorCode::kCorrupt)) << poke.at;
  }
}

TEST(Superblock, ReservedBytesAreNotLookedAt) {
  const Superblock sb = Plain();
  for (const size_t at :
       {size_t{68}, size_t{274}, size_t{279}, size_t{511}, size_t{512 + 25}, size_t{4095}}) {
    auto bytes = Encoded(sb);
    bytes[at] = std::byte{1};
    FixCrc(bytes, kSuperblockCrcAt);
    const auto back = DecodeSuperblock(bytes);
    ASSERT_TRUE(back.ok()) << at;
    EXPECT_EQ(*back, sb);
  }
}

TEST(Superblock, LongestNameAndMostMembersFit) {
  Superblock sb = Plain();
  sb.geometry = MakeGeometry(kMaxSsds, kMaxParity);
  sb.members.resize(kMaxDevices);
  sb.name.assign(63, 'n');
  const auto back = DecodeSuperblock(Encoded(sb));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, sb);
}

}  // namespace
}  // namespace eplog::format_test
