// The page cache in front of a baseline: what it keeps, when it writes, in which order.
#include "baseline/page_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/baseline/rig.h"

namespace eplog::test {
namespace {

constexpr uint64_t kPage = kPageBytes;
constexpr size_t kSector = kSectorBytes;

RigShape Cached(uint64_t bytes) {
  RigShape shape;
  shape.n = 5;
  shape.m = 1;
  shape.page_cache_bytes = bytes;
  return shape;
}

uint64_t DeviceBytesWritten(const TargetRig& rig) {
  return rig.traffic().SsdTotal().bytes_written;
}

TEST(PageCache, WritesNothingBeforeAFlush) {
  TargetRig rig(Cached(1 << 20));
  ASSERT_TRUE(rig.Write(0, kPageBytes, 1).ok());
  ASSERT_TRUE(rig.Write(0, kPageBytes, 2).ok());
  EXPECT_EQ(DeviceBytesWritten(rig), 0);
  const Buffer expected = rig.Content(kPageBytes, 2);
  EXPECT_EQ(std::memcmp(rig.Read(0, kPageBytes).data(), expected.data(), kPageBytes), 0);
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Flush()).ok());
  EXPECT_EQ(DeviceBytesWritten(rig), 2 * kPageBytes) << "data and parity, once";
  EXPECT_EQ(rig.traffic().user_writes, 2);
  EXPECT_EQ(rig.traffic().user_bytes_written, 2 * kPageBytes);
  EXPECT_EQ(std::memcmp(rig.Read(0, kPageBytes).data(), expected.data(), kPageBytes), 0);
}

// One write of the whole line, whatever the order in which its pages came.
TEST(PageCache, NeighboursLeaveTogether) {
  TargetRig rig(Cached(1 << 20));
  for (const uint64_t page : {2U, 0U, 3U, 1U}) {
    ASSERT_TRUE(rig.Write(page * kPage, kPageBytes, page).ok());
  }
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Flush()).ok());
  EXPECT_EQ(rig.traffic().lines_full, 1);
  EXPECT_EQ(rig.traffic().SsdTotal().bytes_read, 0);
  EXPECT_EQ(DeviceBytesWritten(rig), 5 * kPageBytes);
}

// Sectors of a page that were not written are those below.
TEST(PageCache, KeepsSectors) {
  TargetRig rig(Cached(1 << 20));
  ASSERT_TRUE(rig.Write(0, kPageBytes, 1).ok());
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Flush()).ok());
  ASSERT_TRUE(rig.Write(kSectorBytes, kSectorBytes, 2).ok());
  const auto expect = [&] {
    const std::vector<std::byte> page = rig.Read(0, kPageBytes);
    const Buffer old = rig.Content(kPageBytes, 1);
    const Buffer sector = rig.Content(kSectorBytes, 2);
    EXPECT_EQ(std::memcmp(page.data(), old.data(), kSectorBytes), 0);
    EXPECT_EQ(std::memcmp(page.data() + kSectorBytes, sector.data(), kSectorBytes), 0);
    EXPECT_EQ(
        std::memcmp(page.data() + 2 * kSector, old.data() + 2 * kSector, kPageBytes - 2 * kSector),
        0);
  };
  expect();
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Flush()).ok());
  expect();
}

TEST(PageCache, WritesBackWhatExceedsItsLimit) {
  TargetRig rig(Cached(4 * kPage));
  for (uint64_t page = 0; page < 4; ++page) {
    ASSERT_TRUE(rig.Write(page * 8 * kPage, kPageBytes, page).ok());
  }
  EXPECT_EQ(DeviceBytesWritten(rig), 0);
  ASSERT_TRUE(rig.Write(32 * kPage, kPageBytes, 4).ok());
  EXPECT_EQ(DeviceBytesWritten(rig), 10 * kPageBytes);
}

TEST(PageCache, ClosingWritesAll) {
  TargetRig rig(Cached(1 << 20));
  ASSERT_TRUE(rig.Write(0, kPageBytes, 1).ok());
  rig.Open(0);
  const Buffer expected = rig.Content(kPageBytes, 1);
  EXPECT_EQ(std::memcmp(rig.Read(0, kPageBytes).data(), expected.data(), kPageBytes), 0);
}

TEST(PageCache, RefusesWhatIsBeyondTheVolume) {
  TargetRig rig(Cached(1 << 20));
  EXPECT_EQ(rig.Write(rig.target->size_bytes(), kPageBytes, 1).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig.Write(100, kPageBytes, 1).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace eplog::test
