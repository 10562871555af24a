// What a checkpoint says is the state itself: its tables, looked at one by one, not another stream
// of it that might lack the same. And each thing stands in it once, however much changes while it
// is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "metadata/snapshot.h"
#include "metadata/state_loader.h"

namespace eplog {
namespace {

using Stream = std::vector<std::byte>;

// Four groups of rows and of extents, the last of them not full.
Geometry SeveralGroups() {
  Geometry g;
  g.n = 6;
  g.m = 2;
  g.chunk_bytes = 4096;
  g.stripes = 3 * kRowGroupStripes + 20;
  g.slots = 20'000;
  g.extent_stripes = 1;
  g.log_blocks = 10'000;
  g.ring_blocks = 64;
  g.metadata_blocks = 1 << 16;
  return g;
}

// A state with something of everything. Two of them that are told the same are the same.
class Source {
 public:
  Source() : state(g) {}

  Stream Run(bool full) {
    Stream stream;
    Snapshot snapshot(state, full, sequence);
    while (snapshot.Next(stream, 1)) {
    }
    return stream;
  }
  EntryHeader Next() {
    EntryHeader entry;
    entry.epoch.number = 1;
    entry.sequence = ++sequence;
    entry.place = 8 * sequence;
    return entry;
  }
  void Do(const EntryHeader& entry) {
    SlotChanges changes;
    state.Apply(entry, changes);
  }
  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return g.Chunk(StripeIndex(stripe), index);
  }
  void WriteRow(uint32_t stripe) {
    EntryHeader entry = Next();
    RowRecord row;
    row.stripe = StripeIndex(stripe);
    for (uint32_t i = 0; i < g.n; ++i) {
      row.changes.push_back(
          {static_cast<uint8_t>(i), Fresh(), Crc(), i < g.k() ? entry.sequence : 0});
    }
    entry.rows.push_back(std::move(row));
    Do(entry);
  }
  // Of chunks that lie on distinct SSDs.
  LogStripeRecord LogStripe(const std::vector<ChunkIndex>& chunks) {
    LogStripeRecord record;
    for (const ChunkIndex chunk : chunks) {
      record.members.push_back({chunk, Fresh(), Crc()});
    }
    for (uint32_t j = 0; j < g.m; ++j) {
      record.log_crcs.push_back(Crc());
    }
    return record;
  }
  void Log(const std::vector<ChunkIndex>& chunks) {
    EntryHeader entry = Next();
    entry.log_stripes.push_back(LogStripe(chunks));
    Do(entry);
  }
  void Fill() {
    EntryHeader volumes = Next();
    volumes.volumes = {VolumeCreated{VolumeId(1), 1 << 20, "a"},
                       VolumeCreated{VolumeId(2), 1 << 21, "b"},
                       VolumeCreated{VolumeId(3), 1 << 22, "c"}};
    for (uint32_t e = 0; e < g.extents(); ++e) {
      if (e % 5 != 2) {
        volumes.volumes.emplace_back(
            ExtentAssigned{VolumeId(1 + e % 3), 2 * e + 1, ExtentIndex(e)});
      }
    }
    volumes.volumes.emplace_back(VolumeDeleted{VolumeId(3)});  // it has extents still
    Do(volumes);
    for (uint32_t s = 0; s < kRowGroupStripes; ++s) {
      if (s % 3 != 1) {
        WriteRow(s);
      }
    }
    for (const uint32_t s : {70U, 127U, 192U, 193U, g.stripes - 1}) {  // few, and of one group none
      WriteRow(s);
    }
    EntryHeader absent = Next();
    absent.rows.push_back({StripeIndex(70), {{1, SlotWord::Absent(), Crc(), 0}}});
    Do(absent);
    EntryHeader logged = Next();
    logged.log_stripes.push_back(LogStripe({Chunk(5, 0), Chunk(5, 2), Chunk(5, 3)}));
    logged.log_stripes.push_back(LogStripe({Chunk(150, 3)}));
    Do(logged);
    Log({Chunk(5, 2)});
    EntryHeader trimmed = Next();
    trimmed.trims.emplace_back(ChunksTrimmed{Chunk(9, 0), 4});
    trimmed.trims.emplace_back(ChunksTrimmed{Chunk(10, 1), 2});
    Do(trimmed);
    Log({Chunk(9, 1), Chunk(9, 2)});
  }
  // Something in each group, and of each table.
  void Change() {
    for (const uint32_t s : {1U, 65U, 130U, 200U}) {
      WriteRow(s);
    }
    EntryHeader entry = Next();
    entry.volumes = {VolumeRenamed{VolumeId(1), "z"},
                     VolumeResized{VolumeId(2), 77},
                     ExtentsFreed{ExtentIndex(0), 1},
                     ExtentsFreed{ExtentIndex(71), 1},
                     ExtentAssigned{VolumeId(2), 5000, ExtentIndex(67)},
                     ExtentAssigned{VolumeId(1), 5000, ExtentIndex(137)},
                     ExtentsFreed{ExtentIndex(208), 1}};
    entry.log_stripes.push_back(LogStripe({Chunk(5, 3)}));
    Do(entry);
  }
  // Now here, now there.
  void Disturb(uint32_t step) {
    WriteRow(step * 29 % g.stripes);
    const ExtentIndex extent(step * 31 % g.extents());
    EntryHeader entry = Next();
    if (state.volumes.OwnerOf(extent).volume.value == 0) {
      entry.volumes.emplace_back(ExtentAssigned{VolumeId(1), 100'000 + step, extent});
    } else {
      entry.volumes.emplace_back(ExtentsFreed{extent, 1});
    }
    entry.log_stripes.push_back(LogStripe({Chunk(step % 2 == 0 ? 5U : 9U, step % g.k())}));
    Do(entry);
    state.Stable(sequence - 1);
  }

  const Geometry g = SeveralGroups();
  State state;
  uint64_t sequence = 0;

 private:
  SlotWord Fresh() { return SlotWord::At(SlotIndex(slot_++)); }
  uint32_t Crc() { return crc_ += 7919; }

  uint32_t slot_ = 0;
  uint32_t crc_ = 1;
};

void Load(State& state, const std::vector<Stream>& runs) {
  StateLoader loader(state);
  for (size_t i = 0; i < runs.size(); ++i) {
    loader.BeginRun(i + 1 == runs.size());
    const Status decoded = DecodeRun(runs[i], state.geometry(), loader);
    ASSERT_TRUE(decoded.ok()) << decoded.error().ToString();
  }
  const Status finished = loader.Finish();
  ASSERT_TRUE(finished.ok()) << finished.error().ToString();
}

std::vector<LogStripeView> LiveOnes(const State& state) {
  std::vector<LogStripeView> views;
  state.pending.ForEachLive([&](LogStripeId id) {
    views.push_back(state.pending.View(id));
    return true;
  });
  // The trims of one entry have no order among themselves.
  std::ranges::sort(views, {}, [](const LogStripeView& view) {
    return std::tuple(view.sequence, view.place, view.members.front().chunk.value);
  });
  return views;
}

void ExpectSamePending(const State& loaded, const State& was) {
  const std::vector<LogStripeView> got = LiveOnes(loaded);
  const std::vector<LogStripeView> wanted = LiveOnes(was);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].sequence, wanted[i].sequence) << i;
    EXPECT_EQ(got[i].place, wanted[i].place) << i;
    EXPECT_EQ(got[i].zeros, wanted[i].zeros) << i;
    EXPECT_TRUE(got[i].members == wanted[i].members) << i;
    EXPECT_EQ(got[i].superseded, wanted[i].superseded) << i;
    EXPECT_TRUE(wanted[i].zeros || got[i].log_crcs == wanted[i].log_crcs) << i;
  }
  EXPECT_EQ(loaded.pending.pending_chunks(), was.pending.pending_chunks());
  EXPECT_EQ(loaded.pending_stripes(), was.pending_stripes());
}

void ExpectSame(const State& loaded, const State& was) {
  const Geometry& g = was.geometry();
  for (uint32_t s = 0; s < g.stripes; ++s) {
    for (uint32_t i = 0; i < g.n; ++i) {
      const RowWord got = loaded.rows.Get(StripeIndex(s), i);
      EXPECT_TRUE(got == was.rows.Get(StripeIndex(s), i)) << "stripe " << s << ", " << i;
    }
  }
  for (uint32_t e = 0; e < g.extents(); ++e) {
    const VolumeTable::Owner got = loaded.volumes.OwnerOf(ExtentIndex(e));
    const VolumeTable::Owner wanted = was.volumes.OwnerOf(ExtentIndex(e));
    EXPECT_EQ(got.volume.value, wanted.volume.value) << "extent " << e;
    EXPECT_EQ(got.logical, wanted.logical) << "extent " << e;
  }
  EXPECT_EQ(loaded.volumes.free_extents(), was.volumes.free_extents());
  ASSERT_EQ(loaded.volumes.all().size(), was.volumes.all().size());
  for (const auto& [id, wanted] : was.volumes.all()) {
    const Volume* got = loaded.volumes.Find(VolumeId(id));
    ASSERT_NE(got, nullptr) << "volume " << id;
    EXPECT_EQ(got->name, wanted.name);
    EXPECT_EQ(got->size_bytes, wanted.size_bytes);
    EXPECT_EQ(got->deleting, wanted.deleting);
    EXPECT_EQ(got->extents.count(), wanted.extents.count());
  }
  ExpectSamePending(loaded, was);
  for (uint8_t ssd = 0; ssd < g.n; ++ssd) {
    EXPECT_EQ(loaded.absent(DeviceIndex(ssd)), was.absent(DeviceIndex(ssd))) << int{ssd};
    EXPECT_EQ(loaded.owed(DeviceIndex(ssd)), was.owed(DeviceIndex(ssd))) << int{ssd};
  }
  EXPECT_TRUE(loaded.CountsAreRight());
}

TEST(LoadedTables, AFullRunSaysAllThatThereIs) {
  Source source;
  source.Fill();
  ASSERT_EQ(source.g.row_groups(), 4U);
  State loaded(source.g);
  ASSERT_NO_FATAL_FAILURE(Load(loaded, {source.Run(true)}));
  ExpectSame(loaded, source.state);
}

TEST(LoadedTables, IncrementalOnesSayWhatHasChangedSince) {
  Source source;
  source.Fill();
  std::vector<Stream> runs = {source.Run(true)};
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    if (round == 0) {
      source.Change();
    } else if (round == 2) {
      source.Disturb(7);
    } else if (round == 3) {
      source.Log({source.Chunk(5, 0)});  // of what was pending nothing else is
    }
    runs.push_back(source.Run(false));
    State loaded(source.g);
    ASSERT_NO_FATAL_FAILURE(Load(loaded, runs));
    ExpectSame(loaded, source.state);
  }
}

// From whichever moment on it is disturbed: nothing is left out, and nothing said twice, so that
// the room that is kept for it is enough.
TEST(LoadedTables, EachThingStandsInARunOnceWhateverChangesMeanwhile) {
  for (const bool full : {true, false}) {
    for (uint32_t begin = 0; begin < 18; ++begin) {
      SCOPED_TRACE(::testing::Message() << (full ? "full" : "incremental") << " from " << begin);
      Source still;
      Source moving;
      std::vector<Stream> runs;
      for (Source* source : {&still, &moving}) {
        source->Fill();
        if (!full) {
          runs = {source->Run(true)};
          source->Change();
        }
      }
      const Stream undisturbed = still.Run(full);
      Stream stream;
      {
        Snapshot snapshot(moving.state, full, moving.sequence);
        uint32_t step = 0;
        while (snapshot.Next(stream, 1)) {
          if (step++ >= begin) {
            moving.Disturb(step);
          }
        }
      }
      EXPECT_EQ(stream.size(), undisturbed.size());
      runs.push_back(std::move(stream));
      State loaded(still.g);
      ASSERT_NO_FATAL_FAILURE(Load(loaded, runs));
      ExpectSame(loaded, still.state);
    }
  }
}

// Each of them lies where its entry does.
TEST(LoadedTables, TrimsOfOneEntryHaveOnePlace) {
  Source source;
  EntryHeader entry = source.Next();
  for (uint32_t s = 0; s < 3; ++s) {
    entry.trims.emplace_back(ChunksTrimmed{source.Chunk(s, 1), 2});
  }
  source.Do(entry);
  State loaded(source.g);
  ASSERT_NO_FATAL_FAILURE(Load(loaded, {source.Run(true)}));
  EXPECT_EQ(loaded.pending.zeros(), 6U);
  EXPECT_EQ(loaded.pending.OldestPlace(), entry.place);
  ExpectSame(loaded, source.state);
}

// It decides whether there is room: too little would not do, and out of all proportion there never
// would be.
TEST(LoadedTables, TheRoomThatIsKeptIsThatOfWhatIsToBeSaid) {
  Source source;
  const auto look = [&source](const char* what) {
    SCOPED_TRACE(what);
    const uint64_t most = Snapshot::MaxBytes(source.state, false);
    const size_t bytes = source.Run(false).size();
    EXPECT_LE(bytes, most);
    EXPECT_LE(most, 8 * bytes + 64);
  };
  look("nothing at all");
  source.Fill();
  const uint64_t whole = Snapshot::MaxBytes(source.state, true);
  EXPECT_LE(source.Run(true).size(), whole);
  EXPECT_LE(DivideUp(whole, kPagePayloadBytes) + 1, source.g.max_checkpoint_blocks())
      << "with the root";
  look("what is pending");
  source.WriteRow(80);
  look("a row");
  EntryHeader freed = source.Next();
  freed.volumes.emplace_back(ExtentsFreed{ExtentIndex(0), 1});
  source.Do(freed);
  look("an extent, and a row without content");
  source.Change();
  look("everything");
}

TEST(LoadedTablesDeathTest, OneSnapshotAtATime) {
  Source source;
  source.Fill();
  {
    const Snapshot first(source.state, true, source.sequence);
    EXPECT_DEATH(Snapshot(source.state, false, source.sequence), "one snapshot at a time");
  }
  State loaded(source.g);
  ASSERT_NO_FATAL_FAILURE(Load(loaded, {source.Run(true)})) << "after it there may be another";
  ExpectSame(loaded, source.state);
}

}  // namespace
}  // namespace eplog
