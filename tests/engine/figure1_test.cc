// Figure 1 of the EPLOG supplement: four SSDs, RAID-5, one log device; with buffers of two chunks
// as in the figure, and without any, where the new chunks of a request become one log stripe
// however many stripes they come from, and the SSDs see only them.

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

// Chunk letters of the figure: column 0 = A, 1 = B, 2 = C of a data stripe.
uint64_t At(char column, uint64_t stripe) {
  return (stripe * 3 + static_cast<uint64_t>(column - 'A')) * kChunk;
}

class Figure1 : public ::testing::Test {
 protected:
  explicit Figure1(BufferSizes buffers = {})
      : test_(Shape(buffers)), volume_(test_.CreateVolume("v", 12 * kChunk)) {
    // Stripes 0, 1 and 2 exist; stripe 3 does not.
    EXPECT_TRUE(Write('A', 0, 9).ok());
    before_ = test_.array->GetStatus().traffic;
    EXPECT_EQ(before_.full_stripe_writes, 3U);
    for (uint32_t i = 0; i < 5; ++i) {
      test_.counter(i).Reset();
    }
  }
  static ArrayShape Shape(BufferSizes buffers) {
    ArrayShape shape;
    shape.buffers = buffers;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{16} << 20;
    shape.auto_commit = false;
    return shape;
  }
  Status Write(char column, uint64_t stripe, uint64_t chunks) {
    data_ = test_.pool.Get(chunks * kChunk);
    Random random(++seed_);
    for (size_t i = 0; i < data_.size(); i += 8) {
      const uint64_t word = random.Next();
      std::memcpy(data_.data() + i, &word, 8);
    }
    return test_.Write(volume_, At(column, stripe), data_.span());
  }
  std::vector<uint64_t> SsdWrites() {
    std::vector<uint64_t> chunks;
    for (uint32_t i = 0; i < 4; ++i) {
      chunks.push_back(test_.counter(i).counters().bytes_written / kChunk);
    }
    return chunks;
  }

  TestArray test_;
  VolumeId volume_;
  Traffic before_;
  Buffer data_;
  uint64_t seed_ = 0;
};

TEST_F(Figure1, UpdatesOfTwoStripesMakeOneLogStripe) {
  ASSERT_TRUE(Write('B', 0, 3).ok());  // {B0', C0', A1'}
  Traffic now = test_.array->GetStatus().traffic;
  EXPECT_EQ(now.log_stripes - before_.log_stripes, 1U);
  EXPECT_EQ(now.log_stripe_members - before_.log_stripe_members, 3U);
  EXPECT_EQ(now.log_chunk_bytes - before_.log_chunk_bytes, kChunk);
  // A1 lies on SSD 0, B0 on SSD 1, C0 on SSD 2; no parity is touched and nothing is read.
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{1, 1, 1, 0}));
  EXPECT_EQ(now.ssd_parity_bytes, before_.ssd_parity_bytes);

  ASSERT_TRUE(Write('C', 1, 2).ok());  // {C1', A2'}
  now = test_.array->GetStatus().traffic;
  EXPECT_EQ(now.log_stripes - before_.log_stripes, 2U);
  EXPECT_EQ(now.log_stripe_members - before_.log_stripe_members, 5U);
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{2, 1, 1, 1}));
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(test_.counter(i).counters().reads, 0U) << i;
  }
}

TEST_F(Figure1, NewChunksOfAPartialStripeAreLoggedAndCommittedOnce) {
  ASSERT_TRUE(Write('A', 3, 2).ok());  // {A3, B3}: stripe 3 has them on SSDs 1 and 2
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{0, 1, 1, 0}));
  ASSERT_TRUE(Write('B', 0, 3).ok());
  ASSERT_TRUE(Write('C', 1, 2).ok());
  const Traffic updated = test_.array->GetStatus().traffic;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
  const Traffic now = test_.array->GetStatus().traffic;
  // Seven pending chunks, four stripes: four parity chunks, each written once; no data chunk moves.
  EXPECT_EQ(now.committed_stripes, 4U);
  EXPECT_EQ(now.ssd_parity_bytes - updated.ssd_parity_bytes, 4 * kChunk);
  EXPECT_EQ(now.ssd_data_bytes, updated.ssd_data_bytes);
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 0U);
  const auto report = RunTask(test_.loop, test_.array->Check({}));
  EXPECT_EQ(report->problems_found, 0U);
}

// The figure itself. Requests in its order: the new {A3, B3} stay in the stripe buffer; {B0', C0',
// A1'} and {C1', A2'} go to the device buffers of SSDs 1, 2, 0 and 3, 0. With A2' the buffer of SSD
// 0 is full, and the heads of all four make one log stripe: {A1', B0', C0', C1'}. A2' stays.
class Figure1Buffered : public Figure1 {
 protected:
  Figure1Buffered() : Figure1({.device_chunks = 2, .stripes = 1}) {}
};

TEST_F(Figure1Buffered, HeadsOfAllBuffersMakeALogStripeWhenOneIsFull) {
  const auto delta = [&] {
    Traffic now = test_.array->GetStatus().traffic;
    now.log_stripes -= before_.log_stripes;
    now.log_stripe_members -= before_.log_stripe_members;
    now.log_chunk_bytes -= before_.log_chunk_bytes;
    return now;
  };
  const std::vector<uint64_t> none = {0, 0, 0, 0};
  ASSERT_TRUE(Write('A', 3, 2).ok());  // {A3, B3}
  EXPECT_EQ(SsdWrites(), none);
  ASSERT_TRUE(Write('B', 0, 3).ok());  // {B0', C0', A1'}
  EXPECT_EQ(SsdWrites(), none);
  EXPECT_EQ(delta().log_stripes, 0U);
  EXPECT_EQ(test_.counter(4).counters().bytes_written, 0U);
  ASSERT_TRUE(Write('C', 1, 2).ok());  // {C1', A2'}
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{1, 1, 1, 1}));
  EXPECT_EQ(delta().log_stripes, 1U);
  EXPECT_EQ(delta().log_stripe_members, 4U);
  EXPECT_EQ(delta().log_chunk_bytes, kChunk);
  EXPECT_EQ(delta().full_stripe_writes, 3U) << "stripes 0 to 2, from the beginning";
  // Pending are the four of the log stripe, and of these chunks: A2 and stripe 3 are not.
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 4U);
  EXPECT_EQ(test_.array->GetStatus().unstable_bytes % kChunk, 0U);
  // The third chunk of stripe 3 makes it whole: data and parity, no log stripe.
  ASSERT_TRUE(Write('C', 3, 1).ok());
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{2, 2, 2, 2}));
  EXPECT_EQ(delta().full_stripe_writes, 4U);
  EXPECT_EQ(delta().log_stripes, 1U);
  // A2' again: absorbed where it lies.
  ASSERT_TRUE(Write('A', 2, 1).ok());
  EXPECT_EQ(test_.array->GetStatus().traffic.buffer_hits, 1U);
  EXPECT_EQ(SsdWrites(), (std::vector<uint64_t>{2, 2, 2, 2}));
}

}  // namespace
}  // namespace eplog
