// A checkpoint in the background takes its time, until somebody calls for one who cannot wait, or
// waits for what it gives back.
#include <gtest/gtest.h>

#include <vector>

#include "device/io_kind.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace eplog {
namespace {

class CheckpointPace : public CheckpointTest {
 protected:
  CheckpointPace() {
    for (uint32_t s = 0; s < 2 * kRowGroupStripes; ++s) {
      parts_.WriteStripe(StripeIndex(s));
    }
    parts_.MakeStable();
    parts_.core.members.set_before_io([this](DeviceIndex /*device*/, IoKind kind) {
      const uint64_t now = parts_.loop.NowUs();
      if (kind == IoKind::kCheckpointPage && (seen_.empty() || seen_.back().root_us != 0)) {
        seen_.push_back({now, 0});
      } else if (kind == IoKind::kCheckpointRoot && seen_.back().root_us == 0) {
        seen_.back().root_us = now;
      }
    });
  }
  // Of one checkpoint, in the loop's time. Devices take none: what lies between is what it waited.
  struct Seen {
    uint64_t pages_us = 0;
    uint64_t root_us = 0;
    [[nodiscard]] uint64_t paused_us() const { return root_us - pages_us; }
  };
  // Its only piece, and how long that was in the making.
  Seen Take(bool background) {
    seen_.clear();
    began_us_ = parts_.loop.NowUs();
    EXPECT_TRUE(parts_.Run(checkpointer_.Checkpoint(CheckpointKind::kFull, background)).ok());
    EXPECT_EQ(seen_.size(), 1U);
    took_us_ = seen_.empty() ? 0 : seen_[0].pages_us - began_us_;
    EXPECT_GT(took_us_, 0U);
    return seen_.empty() ? Seen() : seen_[0];
  }
  void Begin(bool background) {
    parts_.loop.Spawn([](Checkpointer& checkpointer, bool slowly, uint32_t& left) -> Task<void> {
      Task<Status> checkpoint = checkpointer.Checkpoint(CheckpointKind::kFull, slowly);
      EXPECT_TRUE((co_await checkpoint).ok());
      --left;
    }(checkpointer_, background, running_));
    ++running_;
  }

  std::vector<Seen> seen_;
  uint64_t began_us_ = 0;
  uint64_t took_us_ = 0;
  uint32_t running_ = 0;
};

TEST_F(CheckpointPace, PausesAsLongAsAPieceTookInTheBackgroundAlone) {
  parts_.hooks.checkpoint_step_bytes = 1024;
  EXPECT_EQ(Take(false).paused_us(), 0U);
  EXPECT_EQ(Take(true).paused_us(), took_us_) << "the one before it is over";
  EXPECT_EQ(Take(false).paused_us(), 0U);
  EXPECT_EQ(Take(true).paused_us(), took_us_);
}

TEST_F(CheckpointPace, DoesNotPauseWhileSomebodyWaitsForSpace) {
  parts_.hooks.checkpoint_step_bytes = 1024;
  bool woken = false;
  parts_.loop.Spawn([](Event& changed, bool& out) -> Task<void> {
    co_await changed.Wait();
    out = true;
  }(parts_.core.space_changed, woken));
  parts_.Settle();
  EXPECT_EQ(Take(true).paused_us(), 0U);
  EXPECT_TRUE(woken) << "it has given something back";
  EXPECT_EQ(Take(true).paused_us(), took_us_) << "nobody waits any more";
}

// Whoever came before it, and is done.
TEST_F(CheckpointPace, DoesNotPauseWhileAnotherIsCalledForThatCannotWait) {
  parts_.hooks.checkpoint_step_bytes = 1024;
  for (const bool first : {false, true}) {
    seen_.clear();
    for (const bool background : {first, true, false, true}) {
      Begin(background);
    }
    parts_.Settle();
    ASSERT_EQ(running_, 0U);
    ASSERT_EQ(seen_.size(), 4U);
    EXPECT_EQ(seen_[0].paused_us(), 0U);
    EXPECT_EQ(seen_[1].paused_us(), 0U) << "the third waits for its turn";
    EXPECT_EQ(seen_[2].paused_us(), 0U);
    EXPECT_GT(seen_[3].paused_us(), 0U) << "nobody waits behind it";
  }
}

}  // namespace
}  // namespace eplog
