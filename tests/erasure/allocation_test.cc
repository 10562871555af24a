// Encoding and decoding take nothing from the heap: they run under memory reclaim.
#include <gtest/gtest.h>

#include "erasure/erasure.h"
#include "tests/erasure/stripe.h"
#include "tests/support/counting_new.h"

namespace eplog {
namespace {

TEST(Allocation, NoneInEncodeUpdateAndDecode) {
  constexpr size_t kBytes = 4096;
  for (uint32_t m = 1; m <= kMaxParity; ++m) {
    const ErasureCode code(6, m);
    StripeChunks chunks(6 + m, kBytes);
    const auto data = ConstPointers(chunks.first(6));
    auto holes = data;
    holes[2] = nullptr;
    const uint64_t lost = (uint64_t{1} << m) - 1;
    const size_t before = HeapAllocations();
    code.Encode(data, chunks.from(6), kBytes);
    code.Encode(holes, chunks.from(6), kBytes);
    code.Update(3, {chunks.pointers()[0], kBytes}, chunks.from(6));
    const Status status = code.Decode(6, chunks.pointers(), ~lost, lost, kBytes);
    EXPECT_EQ(HeapAllocations(), before);
    EXPECT_TRUE(status.ok());
  }
}

}  // namespace
}  // namespace eplog
