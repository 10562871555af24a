// A volume that takes the name of another: what the name means is the old content or the new one,
// whatever is lost in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kSize = uint64_t{1} << 20;

// The new content lies in buffers, and nobody has flushed it. The old one goes with the rename.
TEST(RenameOver, TheNewContentIsDurableBeforeTheOldOneGoes) {
  for (const bool hides : {true, false}) {
    SCOPED_TRACE(hides ? "the old volume is hidden" : "the old volume is deleted");
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.buffers = {.device_chunks = 64, .stripes = 64};
    TestArray test(shape);
    Random random(9);
    const VolumeId old = test.CreateVolume("f", kSize);
    ASSERT_TRUE(test.Write(old, 0, RandomBytes(random, kSize)).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
    const VolumeId fresh = test.CreateVolume("tmp", kSize);
    const std::vector<std::byte> content = RandomBytes(random, 10 * 4096);
    for (uint64_t i = 0; i < 10; ++i) {
      const auto chunk = std::span(content).subspan(i * 4096, 4096);
      ASSERT_TRUE(test.Write(fresh, i * 5 * 4096, chunk).ok());
    }
    if (hides) {
      const auto hidden = RunTask(test.loop, test.array->RenameVolumeOver(fresh, "f"));
      ASSERT_TRUE(hidden.ok());
      EXPECT_EQ(*hidden, old);
    } else {
      ASSERT_TRUE(RunTask(test.loop, test.array->RenameVolume(fresh, "f", true)).ok());
    }
    test.Kill();
    test.Open();
    const auto found = test.array->FindVolume("f");
    ASSERT_TRUE(found);
    for (uint64_t i = 0; i < 10; ++i) {
      const std::vector<std::byte> read = test.Read(found->id, i * 5 * 4096, 4096);
      EXPECT_TRUE(std::equal(read.begin(), read.end(),
                             content.begin() + static_cast<std::ptrdiff_t>(i * 4096)))
          << "chunk " << i;
    }
  }
}

}  // namespace
}  // namespace eplog
