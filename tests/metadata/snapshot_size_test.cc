// How long the stream of a checkpoint is: what has not changed, or is not there, costs nothing; it
// comes in pieces; and it is never longer than the room that is kept for it.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "metadata/snapshot.h"
#include "metadata/state_loader.h"
#include "tests/metadata/small_geometry.h"

namespace eplog {
namespace {

using Bytes = std::vector<std::byte>;

Geometry Of(uint32_t n, uint32_t m, uint32_t stripes) {
  Geometry g = test::SmallGeometry();
  g.n = n;
  g.m = m;
  g.stripes = stripes;
  g.slots = 2 * stripes;
  g.log_blocks = uint64_t{1} << 20;
  return g;
}

class Sizes {
 public:
  explicit Sizes(const Geometry& geometry) : g(geometry), state(g) {}

  Bytes Run(bool full, bool without_pendings = false) {
    const uint64_t most = Snapshot::MaxBytes(state, full);
    Bytes stream;
    Snapshot snapshot(state, full, sequence, without_pendings);
    while (snapshot.Next(stream, 1 << 20)) {
    }
    if (!full) {
      EXPECT_LE(stream.size(), most);
    }
    return stream;
  }
  EntryHeader Next() {
    EntryHeader entry;
    entry.epoch.number = 1;
    entry.sequence = ++sequence;
    entry.place = sequence * 8;
    return entry;
  }
  void Do(const EntryHeader& entry) {
    SlotChanges changes;
    state.Apply(entry, changes);
  }
  // In slots and with checksums of which nothing can be saved.
  void WriteRow(uint32_t stripe) {
    EntryHeader entry = Next();
    RowRecord row;
    row.stripe = StripeIndex(stripe);
    for (uint32_t i = 0; i < g.n; ++i) {
      const uint32_t slot = (stripe % 2 == 0 ? g.slots - 1 : 0) ^ stripe;
      row.changes.push_back(
          {static_cast<uint8_t>(i), SlotWord::At(SlotIndex(slot)),
           0xF0000001U + static_cast<uint32_t>(entry.sequence % 1'000'000) * 7919 + i,
           i < g.k() ? entry.sequence : 0});
    }
    entry.rows.push_back(std::move(row));
    Do(entry);
  }
  // A log stripe of one chunk.
  void Log(uint64_t chunk) {
    EntryHeader entry = Next();
    entry.log_stripes.push_back(
        {{{ChunkIndex(chunk), SlotWord::At(SlotIndex(g.slots - 1 - static_cast<uint32_t>(chunk))),
           0xFFFFFFFF}},
         std::vector<uint32_t>(g.m, 0xFFFFFFFF)});
    Do(entry);
  }
  void CreateVolumes(uint32_t count) {
    EntryHeader entry = Next();
    for (uint32_t id = 1; id <= count; ++id) {
      std::string name = std::to_string(id);
      name.resize(kMaxVolumeNameBytes, 'n');
      entry.volumes.emplace_back(VolumeCreated{VolumeId(id), kMaxVolumeBytes, std::move(name)});
    }
    Do(entry);
  }

  const Geometry g;
  State state;
  uint64_t sequence = uint64_t{1} << 62;
};

TEST(SnapshotSize, OfNothingIsNextToNothingHoweverLargeTheArray) {
  const size_t small = Sizes(Of(4, 1, 64)).Run(true).size();
  EXPECT_LE(small, 16U);
  EXPECT_EQ(Sizes(Of(4, 1, 64'000)).Run(true).size(), small);
  EXPECT_EQ(Sizes(Of(8, 2, 64'000)).Run(true).size(), small);
}

TEST(SnapshotSize, OfChangesIsThatOfWhatHasChanged) {
  Sizes test(Of(4, 1, 1024));
  test.CreateVolumes(5);
  EntryHeader extents = test.Next();
  for (uint32_t e = 0; e < test.g.extents(); ++e) {
    extents.volumes.emplace_back(ExtentAssigned{VolumeId(1), e, ExtentIndex(e)});
  }
  test.Do(extents);
  for (uint32_t s = 0; s < 300; ++s) {
    test.WriteRow(s);
  }
  const size_t full = test.Run(true).size();
  EXPECT_GT(full, 300 * test.g.n * 4U);
  const size_t nothing = test.Run(false).size();
  EXPECT_LE(nothing, 16U);
  EXPECT_EQ(test.Run(true).size(), full) << "all of it, changed or not";
  EXPECT_EQ(test.Run(false).size(), nothing);
  // One of each.
  test.WriteRow(7);
  const size_t row = test.Run(false).size();
  EXPECT_GT(row, nothing);
  EXPECT_LE(row, nothing + 9 * test.g.n + 19);
  EntryHeader resize = test.Next();
  resize.volumes.emplace_back(VolumeResized{VolumeId(3), 1});
  test.Do(resize);
  const size_t volumes = test.Run(false).size();
  EXPECT_GT(volumes, nothing + 5 * kMaxVolumeNameBytes) << "all volumes, if any has changed";
  EXPECT_LE(volumes, nothing + 5 * 256);
  EntryHeader freed = test.Next();
  freed.volumes.emplace_back(ExtentsFreed{ExtentIndex(200), 1});
  test.Do(freed);
  EXPECT_LE(test.Run(false).size(), nothing + 16) << "of an extent without content its owner";
  EXPECT_EQ(test.Run(false).size(), nothing);
}

// What is pending is part of each, but for who leaves it out on purpose.
TEST(SnapshotSize, OfWhatIsPendingIsPartOfEach) {
  Sizes test(Of(4, 1, 64));
  static_cast<void>(test.Run(true));
  const size_t nothing = test.Run(false).size();
  test.Log(0);
  test.Log(4);
  const size_t with = test.Run(false).size();
  EXPECT_GE(with, nothing + 2 * 8);
  EXPECT_EQ(test.Run(false).size(), with);
  EXPECT_EQ(test.Run(false, true).size(), nothing);
}

TEST(SnapshotSize, PiecesAreAsLongAsIsAskedForOrALittleLonger) {
  Sizes test(Of(4, 1, 6400));
  for (uint32_t s = 0; s < test.g.stripes; s += 3) {
    test.WriteRow(s);
  }
  const Bytes whole = test.Run(true);
  const size_t group = whole.size() / (test.g.stripes / kRowGroupStripes);
  for (const size_t least : {size_t{1}, group / 2, 3 * group}) {
    Bytes stream;
    Snapshot snapshot(test.state, true, test.sequence);
    for (bool more = true; more;) {
      const size_t before = stream.size();
      more = snapshot.Next(stream, least);
      const size_t piece = stream.size() - before;
      EXPECT_TRUE(piece >= least || !more) << piece;
      EXPECT_LE(piece, least + 2 * group);
    }
    EXPECT_EQ(stream == whole, true);
    EXPECT_FALSE(snapshot.Next(stream, least));
    EXPECT_EQ(stream.size(), whole.size()) << "there is no more";
  }
}

// Whatever it is made of.
TEST(SnapshotSize, ChangesFitTheRoomThatIsKeptForThem) {
  for (const auto& [n, m] : {std::pair(2U, 1U), std::pair(4U, 1U), std::pair(10U, 3U)}) {
    for (const uint32_t rows : {1U, 2U, 31U, 32U, 33U, 34U, 64U}) {
      SCOPED_TRACE(std::to_string(n) + " " + std::to_string(rows));
      Sizes test(Of(n, m, 1280));
      for (uint32_t group = 0; group < test.g.stripes / kRowGroupStripes; ++group) {
        for (uint32_t row = 0; row < rows; ++row) {
          test.WriteRow(group * kRowGroupStripes + (row * 37) % kRowGroupStripes);
        }
      }
      EXPECT_GT(test.Run(false).size(), 20 * rows * n * 4U);
    }
    Sizes test(Of(n, m, 1280));
    test.CreateVolumes(8);
    test.Run(false);
    EntryHeader extents = test.Next();
    for (uint32_t e = 0; e < test.g.extents(); ++e) {
      extents.volumes.emplace_back(ExtentAssigned{VolumeId(1),
                                                  std::numeric_limits<uint32_t>::max() - 600 + e,
                                                  ExtentIndex(test.g.extents() - 1 - e)});
    }
    test.Do(extents);
    test.Run(false);
    for (uint64_t chunk = 0; chunk < 300; chunk += 1) {
      test.Log(chunk);
    }
    test.Run(false);
  }
}

// An array that is as full as one can be, of volumes, rows and pending chunks.
TEST(SnapshotSize, AFullArrayFitsTheMetadataArea) {
  Geometry g = Of(4, 1, 640);
  g.log_blocks = 512;
  g.metadata_blocks = 4096;
  Sizes test(g);
  test.CreateVolumes(g.max_volumes());
  EntryHeader extents = test.Next();
  for (uint32_t e = 0; e < g.extents(); ++e) {
    extents.volumes.emplace_back(ExtentAssigned{VolumeId(1), e, ExtentIndex(e)});
  }
  test.Do(extents);
  for (uint32_t s = 0; s < g.stripes; ++s) {
    test.WriteRow(s);
  }
  for (uint64_t chunk = 0; chunk < 256; ++chunk) {
    test.Log(chunk);
  }
  const uint64_t most = Snapshot::MaxBytes(test.state, true);
  EXPECT_LE(test.Run(true).size(), most);
  EXPECT_LE(most, g.max_checkpoint_blocks() * kBlockBytes);
}

}  // namespace
}  // namespace eplog
