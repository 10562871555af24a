// A snapshot is the state of its instant, whatever happens to the state while it is written; and a
// chain of a full run and incremental ones loads to the same.

#include "metadata/snapshot.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"
#include "metadata/state_loader.h"

namespace eplog {
namespace {

Geometry SmallGeometry(uint32_t n, uint32_t m, uint32_t stripes) {
  Geometry g;
  g.n = n;
  g.m = m;
  g.chunk_bytes = 4096;
  g.stripes = stripes;
  g.slots = 3 * stripes + 64;
  g.extent_stripes = 4;
  g.log_blocks = 100'000;
  g.ring_blocks = 64;
  return g;
}

// Makes entries that fit the state, and applies them.
class Script {
 public:
  Script(const Geometry& geometry, uint64_t seed) : g_(geometry), random_(seed), state(geometry) {
    for (uint32_t ssd = 0; ssd < g_.n; ++ssd) {
      free_.emplace_back();
      for (uint32_t slot = 0; slot < g_.slots; ++slot) {
        free_.back().push_back(slot);
      }
    }
  }

  void Step() {
    EntryHeader entry;
    entry.sequence = ++sequence_;
    entry.place = place_;
    const uint64_t draw = random_.Below(20);
    if (draw < 9) {
      LogStripe(entry);
    } else if (draw < 13) {
      WholeStripe(entry);
    } else if (draw < 15) {
      Commit(entry);
    } else if (draw < 18) {
      Trim(entry);
    } else {
      Volumes(entry);
    }
    entry.length_blocks = 1 + static_cast<uint32_t>(entry.log_stripes.size());
    place_ += entry.length_blocks;
    SlotChanges changes;
    state.Apply(entry, changes);
    for (const SsdSlot& slot : changes.freed) {
      free_[slot.ssd.value].push_back(slot.slot.value);
    }
    if (random_.OneIn(4)) {
      state.Stable(sequence_ - random_.Below(std::min<uint64_t>(sequence_, 5)));
    }
  }
  [[nodiscard]] uint64_t sequence() const { return sequence_; }

 private:
  const Geometry& g_;
  Random random_;

 public:
  State state;

 private:
  SlotWord Take(DeviceIndex ssd) {
    const uint32_t slot = free_[ssd.value].front();
    free_[ssd.value].pop_front();
    return SlotWord::At(SlotIndex(slot));
  }
  uint32_t Crc() { return static_cast<uint32_t>(random_.Next()) | 1; }

  void LogStripe(EntryHeader& entry) {
    for (uint64_t stripes = random_.Between(1, 2); stripes != 0; --stripes) {
      LogStripeRecord record;
      uint64_t ssds = 0;
      for (uint64_t i = random_.Between(1, g_.n); i != 0; --i) {
        const ChunkIndex chunk(random_.Below(g_.data_chunks()));
        const DeviceIndex ssd = g_.SsdOf(chunk);
        bool taken = (ssds >> ssd.value & 1) != 0;
        for (const auto& other : entry.log_stripes) {
          for (const auto& member : other.members) {
            taken = taken || member.chunk == chunk;
          }
        }
        if (!taken) {
          ssds |= uint64_t{1} << ssd.value;
          record.members.push_back({chunk, Take(ssd), Crc()});
        }
      }
      if (!record.members.empty()) {
        record.log_crcs.assign(g_.m, Crc());
        entry.log_stripes.push_back(std::move(record));
      }
    }
  }
  void WholeStripe(EntryHeader& entry) {
    RowRecord row;
    row.stripe = StripeIndex(static_cast<uint32_t>(random_.Below(g_.stripes)));
    for (uint32_t i = 0; i < g_.n; ++i) {
      row.changes.push_back({static_cast<uint8_t>(i), Take(g_.SsdOf(row.stripe, i)), Crc(),
                             i < g_.k() ? entry.sequence : 0});
    }
    entry.rows.push_back(std::move(row));
  }
  void Commit(EntryHeader& entry) {
    const StripeIndex stripe(static_cast<uint32_t>(random_.Below(g_.stripes)));
    RowRecord row;
    row.stripe = stripe;
    for (uint32_t i = 0; i < g_.k(); ++i) {
      if (const auto pending = state.pending.Find(g_.Chunk(stripe, i))) {
        row.changes.push_back(
            {static_cast<uint8_t>(i), pending->word, pending->crc, pending->version});
      }
    }
    if (row.changes.empty()) {
      return;
    }
    for (uint32_t i = g_.k(); i < g_.n; ++i) {
      row.changes.push_back({static_cast<uint8_t>(i), Take(g_.SsdOf(stripe, i)), Crc(), 0});
    }
    entry.rows.push_back(std::move(row));
  }
  void Trim(EntryHeader& entry) {
    const StripeIndex stripe(static_cast<uint32_t>(random_.Below(g_.stripes)));
    if (random_.OneIn(2)) {
      entry.trims.emplace_back(StripesTrimmed{
          stripe,
          static_cast<uint32_t>(random_.Between(1, std::min(4U, g_.stripes - stripe.value)))});
    } else {
      const auto index = static_cast<uint32_t>(random_.Below(g_.k()));
      entry.trims.emplace_back(ChunksTrimmed{
          g_.Chunk(stripe, index), static_cast<uint32_t>(random_.Between(1, g_.k() - index))});
    }
  }
  void Volumes(EntryHeader& entry) {
    const auto& all = state.volumes.all();
    if (all.empty() || random_.OneIn(3)) {
      const VolumeId id(state.volumes.next_id());
      entry.volumes.emplace_back(
          VolumeCreated{id, random_.Below(1 << 20), "v" + std::to_string(id.value)});
      return;
    }
    auto at = all.begin();
    std::advance(at, static_cast<long>(random_.Below(all.size())));
    const Volume& volume = at->second;
    if (volume.deleting) {
      for (uint32_t i = 0; i < g_.extents(); ++i) {
        if (state.volumes.OwnerOf(ExtentIndex(i)).volume == volume.id) {
          entry.volumes.emplace_back(ExtentsFreed{ExtentIndex(i), 1});
          return;
        }
      }
    } else if (random_.OneIn(6)) {
      entry.volumes.emplace_back(VolumeDeleted{volume.id});
    } else if (random_.OneIn(4)) {
      entry.volumes.emplace_back(VolumeResized{volume.id, random_.Below(1 << 20)});
    } else if (const auto free = state.volumes.LowestFree()) {
      uint32_t logical = 0;
      while (volume.extents.Get(logical)) {
        ++logical;
      }
      entry.volumes.emplace_back(ExtentAssigned{volume.id, logical, *free});
    }
  }

  std::vector<std::deque<uint32_t>> free_;
  uint64_t sequence_ = 0;
  uint64_t place_ = 0;
};

// All that a state says, as one text of bytes.
std::vector<std::byte> Everything(State& state, uint64_t sequence) {
  // A full run of a loaded copy changes nothing but the notes of what has changed.
  std::vector<std::byte> stream;
  Snapshot snapshot(state, true, sequence);
  while (snapshot.Next(stream, 1 << 20)) {
  }
  return stream;
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
      still.Step();
      moving.Step();
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
          moving.Step();
          ++more;
        }
      }
    }
    EXPECT_LE(runs.back().size(), most);
    ASSERT_TRUE(Loaded(g, runs, sequence) == Everything(still.state, sequence))
        << "round " << round;
    while (more-- != 0) {
      still.Step();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SnapshotOf, ::testing::Range(uint64_t{1}, uint64_t{61}));

}  // namespace
}  // namespace eplog
