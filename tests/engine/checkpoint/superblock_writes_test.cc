// What lies where a superblock was torn until its successor is whole, what is left undone when those
// that were away get none, and what writing superblocks costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class SuperblockWrites : public CheckpointTest {
 protected:
  Status Write() { return parts_.Run(superblocks_.Write()); }
  std::span<std::byte> Copy(DeviceIndex device, size_t copy) {
    return parts_.memory(device).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
  }
  // Lack of space is no loss: the device stays.
  void FailWrites(DeviceIndex device, uint64_t nth) {
    parts_.faulty(device).Add(
        {.kinds = MaskOf(RequestKind::kWrite), .nth = nth, .code = ErrorCode::kNoSpace});
  }
};

// I8: no sector of the torn one is left that a successor, torn as well, could make it whole with.
// And it is still told that there was a superblock.
TEST_F(SuperblockWrites, OfATornCopyNothingIsLeftBeforeItsSuccessorIsWritten) {
  constexpr size_t kKept = 12;  // magic and version
  const DeviceIndex device(2);
  const auto copy = Copy(device, 1);
  const std::vector<std::byte> before(copy.begin(), copy.end());
  superblocks_.Return(device, 2, true);
  FailWrites(device, 2);
  ASSERT_FALSE(Write().ok());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kKept, copy.begin()));
  const std::byte filler = copy[kKept];
  EXPECT_NE(filler, std::byte{0}) << "zeros are what a superblock is full of";
  EXPECT_TRUE(std::all_of(copy.begin() + kKept, copy.end(),
                          [filler](std::byte byte) { return byte == filler; }));
  const auto found = DecodeSuperblock(copy);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kCorrupt) << "not as if there had been none";
  EXPECT_TRUE(CopiesOn(device)[0].ok()) << "the other copy stays";
}

// I11: while they bear an older epoch no other device may bear the one that calls them live.
TEST_F(SuperblockWrites, WhereThoseThatWereAwayGetNoneNobodyDoes) {
  const DeviceIndex back(3);
  superblocks_.Return(back, 9, false);
  FailWrites(back, 1);
  const Status full = Write();
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(superblocks_.returning(), EngineParts::MaskOf(back)) << "they come first next time too";
  for (uint8_t i = 0; i < g().devices(); ++i) {
    EXPECT_EQ(NewestOn(DeviceIndex(i)).generation, 2U) << int{i};
  }
}

TEST_F(SuperblockWrites, AreCountedWhereTheyWereWritten) {
  parts_.Lose(DeviceIndex(1));
  FailWrites(DeviceIndex(2), 1);
  const Traffic before = parts_.core.traffic;
  EXPECT_FALSE(Write().ok());
  EXPECT_EQ(parts_.core.traffic.ssd_metadata_bytes - before.ssd_metadata_bytes,
            (g().n - 2) * kSuperblockCopyBytes);
  EXPECT_EQ(parts_.core.traffic.log_header_bytes - before.log_header_bytes,
            g().m * kSuperblockCopyBytes);
}

// Version 4, variant 1, as other programs want it; all else is random.
TEST(RandomUuids, AreOfVersionFourAndRandomWhereTheyMayBe) {
  Random random(3);
  Uuid any{};
  Uuid all;
  all.fill(std::byte{0xFF});
  std::set<Uuid> seen;
  for (int i = 0; i < 200; ++i) {
    const Uuid uuid = RandomUuid(random);
    EXPECT_TRUE(seen.insert(uuid).second);
    for (size_t at = 0; at < uuid.size(); ++at) {
      any[at] |= uuid[at];
      all[at] &= uuid[at];
    }
  }
  for (size_t at = 0; at < any.size(); ++at) {
    const std::byte always = at == 6 ? std::byte{0x40} : at == 8 ? std::byte{0x80} : std::byte{0};
    const std::byte never = at == 6 ? std::byte{0xB0} : at == 8 ? std::byte{0x40} : std::byte{0};
    EXPECT_EQ(all[at], always) << at;
    EXPECT_EQ(any[at], ~never) << at;
  }
}

}  // namespace
}  // namespace eplog
