// Entries of the log that are wrong and whose CRC is right: made by a mistake, or by somebody. What
// an array wrote before it was killed is changed in its meaning and encoded again; the next opening
// refuses it in words, or goes on as if it had been written so. It never stops the program.
#include <cstdlib>
#include <functional>

#include "format/content_checksum.h"
#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kVolumeBytes = 1 << 20;

ArrayShape Small() {
  ArrayShape shape;
  shape.n = 5;
  shape.m = 2;
  shape.ssd_bytes = uint64_t{4} << 20;
  shape.log_bytes = uint64_t{2} << 20;
  return shape;
}

// A killed array, with entries of every kind that no checkpoint covers.
class Killed {
 public:
  explicit Killed(uint64_t seed) : test_(Small()), random_(seed) {
    const VolumeId gone = test_.CreateVolume("gone", kVolumeBytes);
    const VolumeId a = test_.CreateVolume("a", kVolumeBytes);
    for (int i = 0; i < 60; ++i) {
      Act(i % 7 == 6 ? gone : a);
    }
    EXPECT_TRUE(RunTask(test_.loop, test_.array->RenameVolume(a, "b", false)).ok());
    EXPECT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(gone)).ok());
    const VolumeId last = test_.CreateVolume("a", kVolumeBytes);
    for (int i = 0; i < 20; ++i) {
      Act(random_.OneIn(3) ? last : a);
    }
    EXPECT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
    test_.Kill();
    ReadLog();
  }

  [[nodiscard]] const std::vector<EntryHeader>& entries() const { return entries_; }
  [[nodiscard]] const Geometry& geometry() const { return identity_.geometry; }
  // What stands in the log in its place, on every log device.
  void Replace(const EntryHeader& old, const EntryHeader& entry) {
    std::vector<std::byte> block(kBlockBytes);
    EncodeEntryHeader(entry, identity_.array_uuid, block);
    for (uint32_t j = 0; j < geometry().m; ++j) {
      const auto bytes = test_.memory(geometry().n + j).bytes();
      std::copy(block.begin(), block.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(geometry().LogOffset(old.place)));
    }
  }
  TestArray& array() { return test_; }

 private:
  void Act(VolumeId volume) {
    const uint64_t chunk = random_.Below(kVolumeBytes / 4096);
    const uint64_t length = random_.Between(1, std::min<uint64_t>(8, kVolumeBytes / 4096 - chunk));
    const auto bytes = RandomBytes(random_, length * 4096);
    EXPECT_TRUE(random_.OneIn(5)
                    ? RunTask(test_.loop, test_.array->Trim(volume, chunk * 4096, length * 4096,
                                                            TrimMode::kPunch))
                          .ok()
                    : test_.Write(volume, chunk * 4096, bytes).ok());
    if (random_.OneIn(20)) {
      EXPECT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
    }
  }
  void ReadLog() {
    const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    identity_ = *superblock;
    const auto log = test_.memory(geometry().n).bytes();
    for (uint64_t place = 0; place < geometry().log_blocks; ++place) {
      const auto entry = DecodeEntryHeader(log.subspan(geometry().LogOffset(place), kBlockBytes),
                                           identity_.array_uuid, geometry());
      if (entry.ok() && entry->place == place) {
        entries_.push_back(*entry);
      }
    }
  }

  TestArray test_;
  Random random_;
  Superblock identity_;
  std::vector<EntryHeader> entries_;
};

// Changes what entries mean.
class Mutator {
 public:
  Mutator(const Killed& killed, uint64_t seed)
      : g_(killed.geometry()), entries_(killed.entries()), random_(seed) {}

  EntryHeader Change(EntryHeader entry) {
    static constexpr std::array kWays = {&Mutator::Slots,   &Mutator::Chunks,  &Mutator::Volumes,
                                         &Mutator::Volumes, &Mutator::Extents, &Mutator::Extents,
                                         &Mutator::Numbers, &Mutator::Trims,   &Mutator::Rows,
                                         &Mutator::Borrow,  &Mutator::Drop,    &Mutator::Swap};
    for (uint64_t times = random_.Between(1, 3); times != 0; --times) {
      (this->*kWays[random_.Below(kWays.size())])(entry);
    }
    for (RowRecord& record : entry.rows) {
      for (RowChange& change : record.changes) {  // there is no way to write others
        change.version = std::min(change.version, entry.sequence);
      }
    }
    entry.length_blocks = static_cast<uint32_t>(1 + entry.log_stripes.size() * g_.chunk_blocks());
    return entry;
  }

 private:
  template <typename T>
  T* Any(std::vector<T>& items) {
    return items.empty() ? nullptr : &items[random_.Below(items.size())];
  }
  const EntryHeader& Other() { return entries_[random_.Below(entries_.size())]; }
  SlotWord AnyWord() {
    const uint64_t kind = random_.Below(8);
    return kind == 0   ? SlotWord::Zero()
           : kind == 1 ? SlotWord::Absent()
                       : SlotWord::At(SlotIndex(static_cast<uint32_t>(
                             random_.Below(kind < 6 ? g_.slots / 4 : g_.slots))));
  }
  VolumeId AnyId() { return VolumeId(static_cast<uint32_t>(random_.Between(1, 5))); }
  ExtentIndex AnyExtent() {
    return ExtentIndex(
        static_cast<uint32_t>(random_.Below(random_.OneIn(2) ? g_.extents() : g_.extents() / 4)));
  }

  void Slots(EntryHeader& entry) {
    if (LogStripeRecord* record = Any(entry.log_stripes)) {
      Any(record->members)->word = AnyWord();
    }
    if (RowRecord* record = Any(entry.rows)) {
      RowChange* change = Any(record->changes);
      change->word = AnyWord();
      change->crc = change->word.is_zero() ? 0 : change->crc;
    }
  }
  void Chunks(EntryHeader& entry) {
    if (LogStripeRecord* record = Any(entry.log_stripes)) {
      Any(record->members)->chunk = ChunkIndex(random_.Below(g_.data_chunks()));
    }
  }
  void Rows(EntryHeader& entry) {
    if (RowRecord* record = Any(entry.rows)) {
      if (random_.OneIn(2)) {
        record->stripe = StripeIndex(static_cast<uint32_t>(random_.Below(g_.stripes)));
      }
      RowChange* change = Any(record->changes);
      if (change->index < g_.k()) {
        change->version = random_.Below(entry.sequence + 1);
      }
    }
  }
  void Volumes(EntryHeader& entry) {
    static const std::vector<std::string> kNames = {"a", "b", "gone", "new", "/1", "/2", "."};
    const std::string& name = kNames[random_.Below(kNames.size())];
    const std::vector<VolumeRecord> all = {VolumeCreated{AnyId(), kVolumeBytes, name},
                                           VolumeResized{AnyId(), random_.Next() >> 1},
                                           VolumeRenamed{AnyId(), name}, VolumeDeleted{AnyId()}};
    entry.volumes.insert(entry.volumes.begin() +
                             static_cast<std::ptrdiff_t>(random_.Below(entry.volumes.size() + 1)),
                         all[random_.Below(all.size())]);
  }
  void Extents(EntryHeader& entry) {
    const ExtentIndex extent = AnyExtent();
    if (random_.OneIn(2)) {
      entry.volumes.emplace_back(
          ExtentAssigned{AnyId(), static_cast<uint32_t>(random_.Below(20)), extent});
    } else {
      entry.volumes.emplace_back(ExtentsFreed{
          extent, static_cast<uint32_t>(random_.Between(1, g_.extents() - extent.value))});
    }
  }
  void Numbers(EntryHeader& entry) {
    const std::array<uint64_t, 4> values = {0, entry.sequence - 1, uint64_t{1} << 61, UINT64_MAX};
    const uint64_t value = values[random_.Below(values.size())];
    switch (random_.Below(5)) {
      case 0:
        entry.mark = std::min(value, entry.sequence - 1);
        break;
      case 1:
        entry.epoch.number = value;
        break;
      case 2:
        entry.first_of_epoch = !entry.first_of_epoch && entry.epoch.number > 1;
        entry.follows_epoch = {entry.epoch.number - 1, 1};
        entry.follows_sequence = entry.sequence - 1;
        break;
      case 3:
        entry.place = value;
        break;
      default:
        entry.epoch.random = value;
    }
  }
  void Trims(EntryHeader& entry) {
    if (random_.OneIn(2)) {
      const StripeIndex first(static_cast<uint32_t>(random_.Below(g_.stripes)));
      entry.trims.emplace_back(StripesTrimmed{
          first, static_cast<uint32_t>(random_.Between(1, g_.stripes - first.value))});
    } else {
      entry.trims.emplace_back(ChunksTrimmed{ChunkIndex(random_.Below(g_.data_chunks())), 1});
    }
  }
  // What another entry says, again.
  void Borrow(EntryHeader& entry) {
    const EntryHeader& other = Other();
    entry.volumes.insert(entry.volumes.end(), other.volumes.begin(), other.volumes.end());
    entry.trims.insert(entry.trims.end(), other.trims.begin(), other.trims.end());
    if (entry.rows.empty() && entry.log_stripes.empty()) {
      entry.rows = other.rows;
      entry.log_stripes = other.log_stripes;
    }
  }
  void Drop(EntryHeader& entry) { random_.OneIn(2) ? entry.volumes.clear() : entry.rows.clear(); }
  void Swap(EntryHeader& entry) {
    const EntryHeader& other = Other();
    entry.volumes = other.volumes;
    entry.rows = other.rows;
    entry.trims = other.trims;
    entry.log_stripes = other.log_stripes;
  }

  const Geometry& g_;
  const std::vector<EntryHeader>& entries_;
  Random random_;
};

// As somebody would who does not know: everything may fail, in words.
void Use(TestArray& test) {
  for (const VolumeInfo& volume : test.array->Volumes()) {
    Buffer bytes = test.pool.GetZeroed(kVolumeBytes / 4);
    static_cast<void>(RunTask(test.loop, test.array->Read(volume.id, 0, bytes.span())));
    static_cast<void>(test.Write(volume.id, 4096, bytes.span()));
  }
  static_cast<void>(RunTask(test.loop, test.array->FlushAll()));
  static_cast<void>(RunTask(test.loop, test.array->Commit({})));
  static_cast<void>(RunTask(test.loop, test.array->Checkpoint(CheckpointKind::kFull)));
  static_cast<void>(RunTask(test.loop, test.array->Check({})));
  static_cast<void>(test.Close());
}

// What is left can be read, and what may be older than what was written is named.
void ReadByForce(TestArray& test) {
  OpenOptions options;
  options.read_only = true;
  options.force = true;
  auto array = RunTask(test.loop, Array::Open(test.loop, test.Devices(), options));
  ASSERT_TRUE(array.ok()) << array.error().ToString();
  const auto report = RunTask(test.loop, (*array)->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_NE(report->log_damage, "");
  EXPECT_FALSE((*array)->GetStatus().stopped_because.empty());
  for (const VolumeInfo& volume : (*array)->Volumes()) {
    Buffer bytes = test.pool.GetZeroed(kVolumeBytes);
    static_cast<void>(RunTask(test.loop, (*array)->Read(volume.id, 0, bytes.span())));
  }
  static_cast<void>(RunTask(test.loop, (*array)->Check({})));
  EXPECT_TRUE(RunTask(test.loop, (*array)->Close()).ok());
}

TEST(CraftedEntries, AreRefusedInWordsOrTakenAsTheyAre) {
  const char* const asked = std::getenv("CRAFTED_SEEDS");  // more than `make test` has time for
  const uint64_t seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 400;
  const char* const first = std::getenv("CRAFTED_FIRST");
  uint64_t refused = 0;
  uint64_t opened = 0;
  const uint64_t from = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    if (asked != nullptr) {
      std::printf("CRAFTED_SEEDS=1 CRAFTED_FIRST=%lu\n", seed);
      std::fflush(stdout);
    }
    Killed killed(seed / 8);
    ASSERT_GT(killed.entries().size(), 20U);
    Mutator mutator(killed, seed);
    const EntryHeader& old = killed.entries()[seed * 7919 % killed.entries().size()];
    killed.Replace(old, mutator.Change(old));
    TestArray& test = killed.array();
    std::vector<std::vector<std::byte>> before;
    for (uint32_t i = 0; i < 7; ++i) {
      before.emplace_back(test.memory(i).bytes().begin(), test.memory(i).bytes().end());
    }
    auto array = test.TryOpen();
    if (array.ok()) {
      ++opened;
      test.array = std::move(*array);
      Use(test);
      continue;
    }
    ++refused;
    EXPECT_FALSE(array.error().message.empty());
    ReadByForce(test);
    EXPECT_EQ(array.error().message.find('\n'), std::string::npos) << array.error().message;
    for (uint32_t i = 0; i < 7; ++i) {
      const auto now = test.memory(i).bytes();
      EXPECT_TRUE(std::equal(now.begin(), now.end(), before[i].begin()))
          << "device " << i << " was changed: " << array.error().message;
    }
  }
  if (asked == nullptr) {
    EXPECT_GT(refused, seeds / 5);
    EXPECT_GT(opened, seeds / 20);
  }
}

// Each chunk of the row is what its checksum says, and the code is wrong: what would be decoded
// from it is refused, and a scrub finds and mends it.
TEST(CraftedParity, ThatDoesNotMatchTheDataIsFoundAndMended) {
  TestArray test(Small());
  const VolumeId volume = test.CreateVolume("v", kVolumeBytes);
  Random random(5);
  const auto content = RandomBytes(random, 3 * 4096);
  ASSERT_TRUE(test.Write(volume, 0, content).ok());
  test.Kill();
  const Superblock identity = *DecodeSuperblock(test.memory(0).bytes().first(kSuperblockCopyBytes));
  const Geometry& g = identity.geometry;
  uint32_t crafted = 0;
  DeviceIndex parity_ssd;
  for (uint64_t place = 0; place < g.log_blocks; ++place) {
    const auto at = g.LogOffset(place);
    auto entry = DecodeEntryHeader(test.memory(g.n).bytes().subspan(at, kBlockBytes),
                                   identity.array_uuid, g);
    if (!entry.ok() || entry->place != place || entry->rows.empty()) {
      continue;
    }
    for (RowChange& change : entry->rows.front().changes) {
      if (change.index == g.k()) {
        parity_ssd = g.SsdOf(entry->rows.front().stripe, change.index);
        const auto chunk = test.memory(parity_ssd.value)
                               .bytes()
                               .subspan(g.SlotOffset(change.word.slot()), g.chunk_bytes);
        const auto other = RandomBytes(random, g.chunk_bytes);
        std::copy(other.begin(), other.end(), chunk.begin());
        change.crc = ContentChecksum(identity.version, identity.array_uuid)(chunk);
        ++crafted;
      }
    }
    std::vector<std::byte> block(kBlockBytes);
    EncodeEntryHeader(*entry, identity.array_uuid, block);
    for (uint32_t j = 0; j < g.m; ++j) {
      std::copy(block.begin(), block.end(), test.memory(g.n + j).bytes().subspan(at).begin());
    }
  }
  ASSERT_EQ(crafted, 1U);
  test.Open();
  const auto scrub = [&](bool heal) {
    auto report = RunTask(test.loop, test.array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok());
    return *report;
  };
  const auto counted = [&] {
    uint64_t sum = 0;
    for (const auto& device : test.array->GetStatus().devices) {
      sum += device.corrupt_chunks;
    }
    return sum;
  };
  EXPECT_EQ(counted(), 0U) << "an opening blames nobody";
  const CheckReport found = scrub(false);
  ASSERT_EQ(found.problems_found, 1U);
  EXPECT_EQ(test.array->GetStatus().devices[parity_ssd.value].corrupt_chunks, 1U);
  EXPECT_EQ(found.findings.front().device, g.DeviceName(parity_ssd));
  EXPECT_NE(found.findings.front().what.find("does not match the data"), std::string::npos)
      << found.findings.front().Text();
  EXPECT_EQ(scrub(true).findings.front().outcome, Finding::Outcome::kHealed);
  EXPECT_EQ(test.array->GetStatus().devices[parity_ssd.value].corrupt_chunks, 3U)
      << "it was read by both and once more to be healed";
  EXPECT_EQ(scrub(false).problems_found, 0U);
  EXPECT_EQ(counted(), 3U);
  // And it is of use now.
  for (uint32_t i = 0, lost = 0; i < g.n && lost < g.m; ++i) {
    if (i != parity_ssd.value) {
      ASSERT_TRUE(RunTask(test.loop, test.array->FailDevice(i, "by hand")).ok());
      ++lost;
    }
  }
  EXPECT_EQ(test.Read(volume, 0, content.size()) == content, true);
}

}  // namespace
}  // namespace eplog
