// A snapshot is the state of its instant, whatever happens to the state while it is written; and a
// chain of a full run and incremental ones loads to the same.

#include "metadata/snapshot.h"

#include <gtest/gtest.h>

#include "metadata/state_loader.h"
#include "tests/metadata/script.h"

namespace eplog {
namespace {

// All that a state says, as one text of bytes.
std::vector<std::byte> Everything(State& state, uint64_t sequence) {
  // A full run of a loaded copy changes nothing but the notes of what has changed.
  std::vector<std::byte> stream;
  Snapshot snapshot(state, true, sequence);
  while (snapshot.Next(stream, 1 << 20)) {
  }
  return stream;
}

void Step(Script& script) {
  script.Step();
  script.Stable();
}

using Runs = std::vector<std::vector<std::byte>>;

std::vector<std::byte> Loaded(const Geometry& g, const Runs& runs, uint64_t sequence) {
  State state(g);
  StateLoader loader(state);
  for (size_t i = 0; i < runs.size(); ++i) {
    loader.BeginRun(i + 1 == runs.size());
    const Status decoded = DecodeRun(runs[i], g, loader);
    EXPECT_TRUE(decoded.ok()) << decoded.error().ToString();
  }
  const Status finished = loader.Finish();
  EXPECT_TRUE(finished.ok()) << finished.error().ToString();
  EXPECT_TRUE(state.CountsAreRight());
  return Everything(state, sequence);
}

class SnapshotOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SnapshotOf, AnInstantLoadsAsItWas) {
  Random random(GetParam());
  const auto m = static_cast<uint32_t>(random.Between(1, 4));
  const auto n = m + static_cast<uint32_t>(random.Between(1, 6));
  const Geometry g = SmallGeometry(n, m, static_cast<uint32_t>(random.Between(8, 90)) * 4);
  // Two alike: one is asked for its state at the instant, the other is written while it goes on.
  Script still(g, GetParam());
  Script moving(g, GetParam());
  Runs runs;
  for (int round = 0; round < 8; ++round) {
    const uint64_t steps = random.Below(random.OneIn(3) ? 400 : 40);
    for (uint64_t i = 0; i < steps; ++i) {
      Step(still);
      Step(moving);
    }
    const bool full = round == 0 || random.OneIn(4);
    const uint64_t most = Snapshot::MaxBytes(moving.state, full);
    if (full) {
      runs.clear();
    }
    const uint64_t sequence = moving.sequence();
    runs.emplace_back();
    uint64_t more = 0;
    {
      Snapshot snapshot(moving.state, full, sequence);
      while (snapshot.Next(runs.back(), 1 + random.Below(300))) {
        for (uint64_t i = random.Below(6); i != 0; --i) {
          Step(moving);
          ++more;
        }
      }
    }
    EXPECT_LE(runs.back().size(), most);
    ASSERT_TRUE(Loaded(g, runs, sequence) == Everything(still.state, sequence))
        << "round " << round;
    while (more-- != 0) {
      Step(still);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SnapshotOf, ::testing::Range(uint64_t{1}, uint64_t{61}));

}  // namespace
}  // namespace eplog
