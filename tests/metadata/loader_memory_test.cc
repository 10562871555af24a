// A contradiction of a checkpoint is remembered: whatever good items come after it, it is refused,
// and by a refusal, not by the end of the program.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "metadata/state_loader.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

LogStripeItem Logged(uint64_t sequence, uint64_t place, uint64_t chunk, uint32_t slot,
                     bool superseded = false) {
  return {
      sequence, place, {{ChunkIndex(chunk), SlotWord::At(SlotIndex(slot)), 7, superseded}}, {9}};
}

struct Early {
  std::string what;
  std::function<void(StateLoader&)> say;
};

std::vector<Early> EarlyContradictions() {
  return {
      {"nothing wrong", [](StateLoader&) {}},
      {"a volume twice",
       [](StateLoader& to) {
         to.Volume({VolumeId(1), 1, false, "b"});
       }},
      {"a name twice",
       [](StateLoader& to) {
         to.Volume({VolumeId(2), 1, false, "a"});
       }},
      {"an extent of no volume",
       [](StateLoader& to) {
         to.Extent({ExtentIndex(0), VolumeId(8), 0});
       }},
      {"two extents in one place",
       [](StateLoader& to) {
         to.Extent({ExtentIndex(1), VolumeId(1), 5});
       }},
      {"a chunk that is pending twice", [](StateLoader& to) { to.LogStripe(Logged(4, 6, 0, 9)); }},
      {"a slot in two log stripes",
       [](StateLoader& to) {
         to.LogStripe({4,
                       6,
                       {{ChunkIndex(8), SlotWord::At(SlotIndex(9)), 7, false},
                        {ChunkIndex(0), SlotWord::At(SlotIndex(5)), 7, true}},
                       {9}});
       }},
      {"one of which nothing is pending",
       [](StateLoader& to) { to.LogStripe(Logged(4, 6, 8, 9, true)); }},
      {"one behind those that came later",
       [](StateLoader& to) { to.LogStripe(Logged(4, 30, 8, 9)); }},
  };
}

TEST(LoaderMemory, WhatIsGoodDoesNotMendWhatWasNot) {
  const Geometry g = test::SmallGeometry();
  for (const auto& [what, say] : EarlyContradictions()) {
    SCOPED_TRACE(what);
    State state(g);
    StateLoader loader(state);
    loader.BeginRun(true);
    loader.AllVolumes();
    loader.Volume({VolumeId(1), 1 << 20, false, "a"});
    loader.Extent({ExtentIndex(3), VolumeId(1), 5});
    loader.LogStripe(Logged(3, 4, 0, 5));
    say(loader);
    loader.Volume({VolumeId(3), 1 << 20, false, "c"});
    loader.Volume({VolumeId(4), 1 << 20, true, "a"});  // being deleted, with an extent
    loader.Extent({ExtentIndex(6), VolumeId(4), 0});
    loader.Extent({ExtentIndex(7), VolumeId(3), 0});
    loader.LogStripe(Logged(9, 12, 4, 6));
    loader.LogStripe(Logged(9, 13, 5, 7));
    const Status loaded = loader.Finish(20, 40);
    if (what == "nothing wrong") {
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      continue;
    }
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(loaded.error().message, "the checkpoint contradicts itself");
  }
}

}  // namespace
}  // namespace eplog
