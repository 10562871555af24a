// Recovery and `eplog inspect` read an array each by its own code, on purpose. Over arrays of any
// past, just as a crash left them, both find the same: rows, pending chunks, volumes, and where the
// log goes on. What recovery proves besides, inspect does not: where it found records behind the
// newest mark that are not whole, the stripes that these name are left out.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/inspect/raw_array.h"
#include "cli/inspect/raw_log.h"
#include "cli/inspect/raw_state.h"
#include "device/wrappers.h"
#include "engine/open/assembly.h"
#include "engine/open/recovery.h"
#include "tests/engine/array_fixture.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr size_t kMostVolumes = 4;

// What was met, over all seeds.
struct Met {
  uint64_t whole = 0;      // crashes after which all that was in the log was kept
  uint64_t not_whole = 0;  // and after which something was not
  uint64_t entries = 0;    // behind checkpoints
  uint64_t runs = 0;       // of checkpoints that are not full
  uint64_t slots = 0;      // row words
  uint64_t pending = 0;    // chunks
  uint64_t absent = 0;     // row words
  uint64_t volumes = 0;
};

ArrayShape ShapeOf(Random& random) {
  ArrayShape shape;
  shape.m = static_cast<uint32_t>(random.Between(1, 2));
  shape.n = shape.m + static_cast<uint32_t>(random.Between(2, 4));
  shape.ssd_bytes = uint64_t{4} << 20;
  shape.log_bytes = uint64_t{1} << 20;
  shape.journal = random.OneIn(2) ? JournalMode::kFull : JournalMode::kLog;
  shape.headers_a_ring_block = static_cast<uint32_t>(random.Below(4));
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  if (random.OneIn(2)) {  // a header is there before what it describes
    std::swap(shape.ssd_delays, shape.log_delays);
  }
  return shape;
}

// One array and its past.
class Past {
 public:
  explicit Past(uint64_t seed) : random_(seed), shape_(ShapeOf(random_)), test_(shape_) {
    test_.hooks().incremental_checkpoints = random_.OneIn(2);
    volumes_.push_back(test_.CreateVolume("v0", 1 << 20));
  }

  // Until the process is killed, in the middle of something.
  void Live() {
    for (uint64_t steps = random_.Between(10, 60); steps != 0; --steps) {
      Step();
    }
    for (uint64_t writes = random_.Between(0, 12); writes != 0; --writes) {
      StartWrite();
    }
    test_.Sleep(random_.Below(400));
    test_.Kill();
    data_.clear();
  }
  void OpenAgain() {
    test_.Open();
    volumes_.clear();
    for (const VolumeInfo& volume : test_.array->Volumes()) {
      volumes_.push_back(volume.id);
    }
  }
  TestArray& test() { return test_; }
  [[nodiscard]] const ArrayShape& shape() const { return shape_; }

 private:
  void Step() {
    switch (random_.Below(14)) {
      case 0:
        if (volumes_.size() < kMostVolumes) {
          volumes_.push_back(
              test_.CreateVolume("v" + std::to_string(next_name_++), random_.Below(1 << 20)));
        }
        return;
      case 1:
        return Ignore(test_.array->ResizeVolume(Any(), random_.Below(1 << 20)));
      case 2:
        return Ignore(test_.array->RenameVolume(Any(), "r" + std::to_string(next_name_++), false));
      case 3:
        if (volumes_.size() > 1 && random_.OneIn(3)) {
          Ignore(test_.array->DeleteVolume(volumes_.back()));
          volumes_.pop_back();
        }
        return;
      case 4:
        return Ignore(test_.array->Trim(Any(), random_.Below(1 << 19), random_.Below(1 << 18),
                                        random_.OneIn(2) ? TrimMode::kPunch : TrimMode::kZero));
      case 5:
        return Ignore(test_.array->Commit(Progress()));
      case 6:
        return Ignore(test_.array->Checkpoint(random_.OneIn(3) ? CheckpointKind::kFull
                                                               : CheckpointKind::kIncremental));
      case 7:
        return Ignore(test_.array->FlushAll());
      case 8:
        return ReplaceOne();
      default:
        StartWrite();
        test_.Sleep(random_.Below(300));
    }
  }
  VolumeId Any() {
    return volumes_.empty() ? VolumeId(1) : volumes_[random_.Below(volumes_.size())];
  }
  // What is refused is refused: nothing is asked here but what is found afterwards.
  void Ignore(Task<Status> task) { static_cast<void>(RunTask(test_.loop, std::move(task))); }
  // Beside all else; it may never end.
  void StartWrite() {
    const uint64_t offset = random_.Below(200) * (random_.OneIn(4) ? 1000 : kChunk);
    const uint64_t length = random_.OneIn(3)   ? random_.Between(1, 12) * kChunk
                            : random_.OneIn(2) ? kChunk
                                               : random_.Between(1, 9000);
    data_.push_back(RandomBytes(random_, length));
    test_.loop.Spawn([](Task<Status> write) -> Task<void> {
      static_cast<void>(co_await write);
    }(test_.array->Write(Any(), offset, data_.back())));
  }
  // What it held is `absent` until it is rebuilt, and that takes its time.
  void ReplaceOne() {
    if (!random_.OneIn(6)) {
      return;
    }
    test_.array->SetRebuildPace({.bytes_per_second = random_.OneIn(2) ? uint64_t{1} : 0});
    const auto device = static_cast<uint32_t>(random_.Below(shape_.n));
    if (RunTask(test_.loop, test_.array->FailDevice(device, "by hand")).ok()) {
      std::ranges::fill(test_.memory(device).bytes(), std::byte{0});
      Ignore(test_.array->ReplaceDevice(device, *test_.Devices()[device]));
    }
  }

  Random random_;
  const ArrayShape shape_;
  TestArray test_;
  std::vector<VolumeId> volumes_;
  std::deque<std::vector<std::byte>> data_;  // of writes on their way
  uint64_t next_name_ = 1;
};

// The devices as files of an array, for inspect.
void WriteImages(Past& past, const TempDir& dir) {
  std::string toml = "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"a\"\n";
  for (uint32_t i = 0; i < past.shape().n + past.shape().m; ++i) {
    const bool log = i >= past.shape().n;
    const std::string name = (log ? "log" : "ssd") + std::to_string(log ? i - past.shape().n : i);
    const auto bytes = past.test().memory(i).bytes();
    std::ofstream file(dir.WriteSparse(name, bytes.size()), std::ios::binary | std::ios::in);
    for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
      const auto block = bytes.subspan(at, kBlockBytes);
      if (std::ranges::any_of(block, [](std::byte b) { return b != std::byte{0}; })) {
        file.seekp(static_cast<std::streamoff>(at));
        file.write(reinterpret_cast<const char*>(block.data()), kBlockBytes);
      }
    }
    toml += "[[member]]\nname = \"" + name + "\"\npath = \"" + name + "\"\n";
  }
  static_cast<void>(dir.Write("array.toml", toml));
}

// Stripes that entries behind the newest mark say anything of.
std::set<uint32_t> NamedBehindTheMark(const Geometry& g, const JoinedLog& log, uint64_t mark) {
  std::set<uint32_t> named;
  const auto add = [&named](uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      named.insert(static_cast<uint32_t>(first + i));
    }
  };
  for (const FoundEntry& entry : log.entries) {
    if (entry.header.sequence <= mark) {
      continue;
    }
    for (const RowRecord& row : entry.header.rows) {
      add(row.stripe.value, 1);
    }
    for (const LogStripeRecord& record : entry.header.log_stripes) {
      for (const LogStripeMember& member : record.members) {
        add(g.StripeOf(member.chunk).value, 1);
      }
    }
  }
  return named;
}

void CompareRow(const RawRow& raw, const State& state, Met& met) {
  const Geometry& g = state.geometry();
  for (uint32_t i = 0; i < g.n; ++i) {
    const RowWord word = state.rows.Get(raw.stripe, i);
    EXPECT_EQ(raw.words[i], word) << "position " << i << ": " << WordText(raw.words[i].word)
                                  << ", and by recovery " << WordText(word.word);
    met.slots += word.word.has_slot() ? 1 : 0;
    met.absent += word.word.is_absent() ? 1 : 0;
    if (i >= g.k()) {
      continue;
    }
    const auto pending = state.pending.Find(g.Chunk(raw.stripe, i));
    const auto found = raw.pending.find(i);
    ASSERT_EQ(found != raw.pending.end(), pending.has_value()) << "data " << i;
    if (pending) {
      EXPECT_EQ(found->second.version, pending->version) << "data " << i;
      EXPECT_EQ(found->second.word, pending->word) << "data " << i;
      EXPECT_EQ(found->second.crc, pending->crc) << "data " << i;
      ++met.pending;
    }
  }
}

void CompareVolumes(const RawVolumes& raw, const State& state, Met& met) {
  ASSERT_EQ(raw.volumes.size(), state.volumes.all().size());
  uint64_t extents = 0;
  for (const auto& [id, found] : raw.volumes) {
    const Volume* volume = state.volumes.Find(id);
    ASSERT_NE(volume, nullptr) << id.value;
    if (!volume->deleting) {  // then its name is free, and may be another's
      EXPECT_EQ(found.name, volume->name);
    }
    EXPECT_EQ(found.size_bytes, volume->size_bytes) << found.name;
    EXPECT_EQ(found.deleting, volume->deleting) << found.name;
    EXPECT_EQ(found.extents, volume->extents.count()) << found.name;
    extents += found.extents;
    ++met.volumes;
  }
  EXPECT_EQ(raw.extents.size(), extents);
  for (const auto& [place, extent] : raw.extents) {
    const auto owner = state.volumes.OwnerOf(extent);
    EXPECT_EQ(std::pair(owner.volume, owner.logical), place) << "extent " << extent.value;
  }
}

// Both read what a crash left, and write nothing.
void Compare(Past& past, Met& met) {
  TestArray& test = past.test();
  const auto assembly = RunTask(test.loop, Assemble(test.Devices(), Canary::kNone));
  ASSERT_TRUE(assembly.ok()) << assembly.error().ToString();
  OpenOptions options;
  options.read_only = true;
  options.without_logs = ~uint64_t{0};
  EngineHooks hooks;
  Core core(test.loop, assembly->devices, assembly->winner, options, &hooks);
  Recovery recovery(core, *assembly);
  const Status analysed = RunTask(test.loop, recovery.Analyse());
  ASSERT_TRUE(analysed.ok()) << analysed.error().ToString();

  const TempDir dir;
  WriteImages(past, dir);
  const auto raw = RawArray::Open(dir.path().string());
  ASSERT_TRUE(raw.ok()) << raw.error().ToString();
  const auto identity = raw->Identity();
  ASSERT_TRUE(identity.ok());
  if ((*identity)->epoch != assembly->winner.epoch) {
    return;  // which epoch counts is asked of recovery alone
  }
  const auto checkpoint = LoadRawCheckpoint(*raw);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().ToString();
  const auto log = JoinLog(*raw, checkpoint->root);
  ASSERT_TRUE(log.ok()) << log.error().ToString();

  const bool whole = hooks.recovery_dropped == 0 && hooks.recovery_cut_entries == 0;
  ++(whole ? met.whole : met.not_whole);
  met.entries += log->entries.size();
  met.runs += checkpoint->root.runs.size() - 1;
  std::set<uint32_t> left_out;
  if (whole) {
    const uint64_t last =
        log->entries.empty() ? checkpoint->root.sequence : log->entries.back().header.sequence;
    EXPECT_EQ(recovery.position().sequence, last);
    EXPECT_EQ(recovery.position().place, log->end_place);
  } else {
    const uint64_t mark = std::max(checkpoint->root.sequence, log->newest_mark);
    left_out = NamedBehindTheMark(core.geometry, *log, mark);
  }
  for (uint32_t s = 0; s < core.geometry.stripes && !testing::Test::HasFailure(); ++s) {
    if (!left_out.contains(s)) {
      SCOPED_TRACE("stripe " + std::to_string(s));
      const auto row = ReplayRow(**identity, *checkpoint, *log, StripeIndex(s));
      ASSERT_TRUE(row.ok()) << row.error().ToString();
      CompareRow(*row, *core.state, met);
    }
  }
  const auto volumes = ReplayVolumes(**identity, *checkpoint, *log);
  ASSERT_TRUE(volumes.ok()) << volumes.error().ToString();
  CompareVolumes(*volumes, *core.state, met);
}

TEST(TwoWitnesses, FindTheSameOnWhatACrashLeft) {
  Met met;
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    Past past(seed);
    for (int life = 0; life < 4 && !HasFailure(); ++life) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", life " + std::to_string(life));
      past.Live();
      Compare(past, met);
      past.OpenAgain();
    }
  }
  if (!HasFailure()) {
    for (const auto& [what, count] :
         std::vector<std::pair<std::string, uint64_t>>{{"whole logs", met.whole},
                                                       {"logs that were not", met.not_whole},
                                                       {"entries", met.entries},
                                                       {"incremental runs", met.runs},
                                                       {"slots", met.slots},
                                                       {"pending chunks", met.pending},
                                                       {"absent words", met.absent},
                                                       {"volumes", met.volumes}}) {
      EXPECT_GT(count, 0U) << what << " were never met";
    }
  }
}

}  // namespace
}  // namespace eplog::cli
