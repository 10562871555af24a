// Frames of coroutines: each is as large as it was asked for and nobody else's, and one that was
// given back is the next of its size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/random.h"
#include "eplog/task.h"

namespace eplog {
namespace {

using internal::AllocateFrame;
using internal::FreeFrame;

// Around each border that there is: sizes are rounded up to 64, and above 4 KiB nothing is kept.
const std::vector<size_t> kSizes = {1,    63,   64,   65,   127,  128,  129,  1000, 3968, 3969,
                                    4031, 4032, 4033, 4095, 4096, 4097, 4159, 4160, 4161, 20000};

struct Frame {
  unsigned char* memory;
  size_t size;
  unsigned char content;
};

void Give(const Frame& frame) {
  const bool whole = std::all_of(frame.memory, frame.memory + frame.size,
                                 [&](unsigned char byte) { return byte == frame.content; });
  ASSERT_TRUE(whole) << "somebody else wrote into a frame of " << frame.size;
  FreeFrame(frame.memory, frame.size);
}

TEST(Frames, AreAsLargeAsAskedForAndNobodyElses) {
  Random random(5);
  std::vector<Frame> held;
  for (int step = 0; step < 20000 && !testing::Test::HasFatalFailure(); ++step) {
    if (held.size() < 300 && random.OneIn(2)) {
      const size_t size = kSizes[random.Below(kSizes.size())];
      const auto content = static_cast<unsigned char>(random.Next());
      held.push_back({static_cast<unsigned char*>(AllocateFrame(size)), size, content});
      std::memset(held.back().memory, content, size);
    } else if (!held.empty()) {
      std::swap(held[random.Below(held.size())], held.back());
      Give(held.back());
      held.pop_back();
    }
  }
  for (const Frame& frame : held) {
    Give(frame);
  }
}

// So that in steady state nobody asks for memory.
TEST(Frames, OneThatWasGivenBackIsTheNextOfItsSize) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "there every use of a dead frame is to be seen";
#endif
  for (const size_t size : {size_t{1}, size_t{100}, size_t{64 * 63}}) {
    void* const first = AllocateFrame(size);
    void* const second = AllocateFrame(size);
    FreeFrame(first, size);
    FreeFrame(second, size);
    void* const other = std::malloc((size + 63) / 64 * 64);  // which takes what was freed last
    EXPECT_NE(other, first);
    EXPECT_NE(other, second);
    EXPECT_EQ(AllocateFrame(size), second);
    EXPECT_EQ(AllocateFrame(size), first);
    std::free(other);
    FreeFrame(first, size);
    FreeFrame(second, size);
  }
}

}  // namespace
}  // namespace eplog
