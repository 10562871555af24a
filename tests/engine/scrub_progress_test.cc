// Who watches a scrub or a check sees it move all the time: through the log stripes first, then
// through the rows, never back, and never beyond what there is.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kData = 3;
constexpr uint64_t kRows = 800;
constexpr uint64_t kUpdates = 2100;  // each a log stripe of its own

TEST(ScrubProgress, MovesThroughTheLogAndThroughTheRows) {
  ArrayShape shape = SmallShape(kData + 1, 1);
  shape.ssd_bytes = uint64_t{32} << 20;
  shape.log_bytes = uint64_t{32} << 20;
  shape.auto_commit = false;
  SmallArray test(shape);
  const VolumeId volume = test.CreateVolume("v", kRows * kData * kChunk);
  Random random(7);
  const std::vector<std::byte> rows = RandomBytes(random, 100 * kData * kChunk);
  for (uint64_t row = 0; row < kRows; row += 100) {
    ASSERT_TRUE(test.Write(volume, row * kData * kChunk, rows).ok());
  }
  const std::vector<std::byte> update = RandomBytes(random, kChunk);
  for (uint64_t i = 0; i < kUpdates; ++i) {
    ASSERT_TRUE(test.Write(volume, i * kChunk, update).ok());
  }
  ASSERT_TRUE(test.Flush().ok());
  for (const bool check : {false, true}) {
    SCOPED_TRACE(check);
    test.Sleep(1'000'000);  // nobody else is at work
    uint64_t last = 0;
    uint64_t in_log = 0;
    uint64_t in_rows = 0;
    const Progress progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(last, done);
      EXPECT_LE(done, total);
      last = done;
      in_log += done > 0 && done < kUpdates ? 1 : 0;
      in_rows += done > kUpdates && done < kUpdates + kRows ? 1 : 0;
    };
    const auto report = check ? RunTask(test.loop, test.array->Check(progress))
                              : RunTask(test.loop, test.array->Scrub(false, progress));
    ASSERT_TRUE(report.ok()) << report.error().ToString();
    EXPECT_EQ(report->problems_found, 0U);
    EXPECT_EQ(report->rows_checked, kRows);
    EXPECT_EQ(report->log_stripes_checked, kUpdates);
    EXPECT_GE(in_log, 1U);
    EXPECT_GE(in_rows, 2U);
    EXPECT_GE(last, kUpdates + kRows);
  }
}

}  // namespace
}  // namespace eplog
