// Batches of rows beside each other and beside what happens to devices: the load of reading just
// enough is shared by all SSDs, who goes meanwhile has nothing wrong, and parity that is not wanted
// anew is not touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/read/chunk_reader.h"
#include "engine/read/row_batch.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

using Bytes = EngineParts::Bytes;
constexpr uint32_t kRowsOfOne = 8;

class RowBatchesBeside : public ::testing::Test {
 protected:
  static PartsShape Slow() {
    PartsShape shape;
    shape.delays.read_us = 1000;
    return shape;
  }
  // Of so many stripes, the first ones.
  void Write(uint32_t stripes) {
    for (uint32_t s = 0; s < stripes; ++s) {
      parts_.WriteStripe(StripeIndex(s));
    }
    parts_.ResetCounters();
  }
  std::unique_ptr<RowBatch> Batch(uint32_t first, uint32_t count) {
    auto batch = std::make_unique<RowBatch>(parts_.core, reader_, kRowsOfOne);
    for (uint32_t s = first; s < first + count; ++s) {
      batch->Add(StripeIndex(s));
    }
    return batch;
  }
  void Run(Task<void> task) {
    const Status status = parts_.Run([](Task<void> inner) -> Task<Status> {
      co_await inner;
      co_return OkStatus();
    }(std::move(task)));
    ASSERT_TRUE(status.ok());
  }

  EngineParts parts_{Slow()};  // 3+2
  ChunkReader reader_{parts_.core, &parts_.appender};
};

// Each batch leaves out other SSDs than the one before, so that no SSD is asked more than another.
TEST_F(RowBatchesBeside, EachSsdIsAskedByAsManyAsAnyOther) {
  const uint32_t n = parts_.g().n;
  Write(n * kRowsOfOne);
  std::vector<uint32_t> asked(n);
  for (uint32_t b = 0; b < n; ++b) {
    const auto batch = Batch(b * kRowsOfOne, kRowsOfOne);
    const std::vector<size_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
    parts_.ResetCounters();
    Run(batch->ReadEnough(all));
    for (uint8_t i = 0; i < n; ++i) {
      asked[i] += parts_.counted(DeviceIndex(i)).reads != 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(asked, std::vector<uint32_t>(n, parts_.g().k()));
}

// It was there when the read began, and could not be read; now nobody is there who should have it.
TEST_F(RowBatchesBeside, OfADeviceThatGoesWhileItIsReadNothingIsWrong) {
  Write(kRowsOfOne);
  const DeviceIndex ssd(1);
  parts_.faulty(ssd).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  const auto batch = Batch(0, kRowsOfOne);
  bool ended = false;
  parts_.loop.Spawn([](Task<void> reading, bool& out) -> Task<void> {
    co_await reading;
    out = true;
  }(batch->ReadAll(), ended));
  ASSERT_TRUE(parts_.loop.RunUntil([&] { return parts_.delayed(ssd).in_flight() != 0; }));
  parts_.Lose(ssd);
  parts_.Settle();
  ASSERT_TRUE(ended);
  const uint64_t all = (uint64_t{1} << parts_.g().n) - 1;
  for (uint32_t at = 0; at < kRowsOfOne; ++at) {
    const uint64_t gone = uint64_t{1} << parts_.g().IndexOn(StripeIndex(at), ssd);
    EXPECT_EQ(batch->row(at).bad, 0U) << at;
    EXPECT_EQ(batch->row(at).valid, all & ~gone) << at;
  }
}

// Whatever it holds: its checksum is that of the row, and it may be what others are compared with.
TEST_F(RowBatchesBeside, ParityThatIsNotWantedAnewIsLeftAsItIs) {
  Write(1);
  const StripeIndex stripe(0);
  const uint32_t kept = parts_.g().k();
  const Bytes other = parts_.NewContent();
  RowWord word = parts_.core.state->rows.Get(stripe, kept);
  std::ranges::copy(other, parts_.SlotBytes(parts_.g().SsdOf(stripe, kept), word.word).begin());
  word.crc = parts_.core.checksum(other);
  parts_.core.state->rows.Set(stripe, kept, word);
  parts_.RotRow(stripe, kept + 1);
  const auto batch = Batch(0, 1);
  Run(batch->ReadAll());
  ASSERT_EQ(batch->row(0).bad, uint64_t{1} << (kept + 1));
  batch->EncodeParity(0, uint64_t{1} << (kept + 1));
  EXPECT_TRUE(std::ranges::equal(batch->Chunk(0, kept), other));
  EXPECT_EQ(batch->row(0).words[kept].crc, word.crc);
  EXPECT_TRUE(std::ranges::equal(batch->Chunk(0, kept + 1), parts_.ParityOfLatest(stripe)[1]));
}

}  // namespace
}  // namespace eplog
