#include "metadata/pending_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

std::vector<LogStripeMember> Zeros(uint64_t first, uint64_t count) {
  std::vector<LogStripeMember> members;
  for (uint64_t i = 0; i < count; ++i) {
    members.push_back({ChunkIndex(first + i), SlotWord::Zero(), 0});
  }
  return members;
}

// What recovery may bring back is charged until it cannot: else more may be pending after a crash
// than the metadata area is made for.
TEST(PendingTable, ZerosAreChargedUntilWhatSupersedesThemIsStable) {
  const Geometry g = test::SmallGeometry();
  PendingTable table(g);
  table.Add(1, 0, Zeros(0, 3), {});
  table.Add(2, 1, Zeros(3, 2), {});
  const auto died = [](const LogStripeMember&) {};
  ASSERT_TRUE(table.Supersede(ChunkIndex(0), UINT64_MAX, 3, false, died));
  ASSERT_TRUE(table.Supersede(ChunkIndex(1), UINT64_MAX, 3, false, died));
  EXPECT_EQ(table.zeros(), 5U);  // as long as one of a record is pending
  ASSERT_TRUE(table.Supersede(ChunkIndex(2), UINT64_MAX, 4, false, died));
  EXPECT_EQ(table.zeros(), 2U);
  EXPECT_EQ(table.charged_zeros(), 5U);
  table.Stable(3);
  EXPECT_EQ(table.charged_zeros(), 5U);
  table.Stable(4);
  EXPECT_EQ(table.charged_zeros(), 2U);
  EXPECT_EQ(table.zeros(), 2U);
}

}  // namespace
}  // namespace eplog
