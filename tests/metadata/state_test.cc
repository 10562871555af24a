// State::Apply, the one meaning of an entry, against the plainest model of it: all log stripes that
// ever were, and what is needed found by looking at everything.

#include "metadata/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/metadata/script.h"

namespace eplog {
namespace {

struct PlainMember {
  LogStripeMember what;
  bool superseded = false;
};
struct PlainStripe {
  uint64_t sequence = 0;
  uint64_t place = 0;
  bool zeros = false;
  std::vector<PlainMember> members;
  bool committed = false;
  std::optional<uint64_t> died_by;
  [[nodiscard]] bool live() const { return !died_by; }
};
struct PlainVolume {
  std::string name;
  uint64_t size_bytes = 0;
  bool deleting = false;
  std::map<uint32_t, uint32_t> extents;  // logical -> extent
};

class PlainState {
 public:
  explicit PlainState(const Geometry& geometry)
      : g(geometry), rows(g.stripes, std::vector<RowWord>(g.n)) {}

  void Apply(const EntryHeader& entry) {
    committed.clear();
    changed.clear();
    for (const VolumeRecord& record : entry.volumes) {
      std::visit([&](const auto& volume) { ApplyVolume(volume, entry.sequence); }, record);
    }
    for (const RowRecord& row : entry.rows) {
      ApplyRow(row, entry.sequence);
    }
    for (const TrimRecord& record : entry.trims) {
      if (const auto* whole = std::get_if<StripesTrimmed>(&record)) {
        for (uint32_t i = 0; i < whole->count; ++i) {
          Zero(whole->first.value + i, entry.sequence);
        }
        continue;
      }
      const auto& chunks = std::get<ChunksTrimmed>(record);
      std::vector<LogStripeMember> members;
      for (uint32_t i = 0; i < chunks.count; ++i) {
        members.push_back({ChunkIndex(chunks.first.value + i), SlotWord::Zero(), 0});
      }
      Add(entry.sequence, entry.place, members, true);
    }
    uint64_t place = entry.place + 1;
    for (const LogStripeRecord& record : entry.log_stripes) {
      Add(entry.sequence, place, record.members, false);
      place += g.chunk_blocks();
    }
  }
  void Stable(uint64_t sequence) {
    std::erase_if(stripes, [&](const PlainStripe& stripe) {
      return stripe.died_by && *stripe.died_by <= sequence;
    });
  }
  void Replace(DeviceIndex ssd) {
    for (uint32_t s = 0; s < g.stripes; ++s) {
      for (uint32_t i = 0; i < g.n; ++i) {
        if (g.SsdOf(StripeIndex(s), i) == ssd && rows[s][i].word.has_slot()) {
          rows[s][i].word = SlotWord::Absent();
        }
      }
    }
    for (PlainStripe& stripe : stripes) {
      for (PlainMember& member : stripe.members) {
        if (g.SsdOf(member.what.chunk) == ssd && member.what.word.has_slot()) {
          member.what.word = SlotWord::Absent();
        }
      }
    }
  }

  struct Pending {
    const PlainStripe* stripe = nullptr;
    const PlainMember* member = nullptr;
  };
  [[nodiscard]] std::map<uint64_t, Pending> AllPending() const {
    std::map<uint64_t, Pending> all;
    for (const PlainStripe& stripe : stripes) {
      for (const PlainMember& member : stripe.members) {
        if (!member.superseded) {
          all[member.what.chunk.value] = {&stripe, &member};
        }
      }
    }
    return all;
  }
  // Of rows, and of live log stripes (I3).
  [[nodiscard]] std::set<SsdSlot> Needed() const {
    std::set<SsdSlot> needed = Held();
    for (uint32_t s = 0; s < g.stripes; ++s) {
      for (uint32_t i = 0; i < g.n; ++i) {
        if (rows[s][i].word.has_slot()) {
          needed.insert({g.SsdOf(StripeIndex(s), i), rows[s][i].word.slot()});
        }
      }
    }
    return needed;
  }
  [[nodiscard]] std::set<SsdSlot> Held() const {
    std::set<SsdSlot> held;
    for (const PlainStripe& stripe : stripes) {
      for (const PlainMember& member : stripe.members) {
        if (stripe.live() && member.what.word.has_slot()) {
          held.insert({g.SsdOf(member.what.chunk), member.what.word.slot()});
        }
      }
    }
    return held;
  }

  const Geometry& g;
  std::vector<std::vector<RowWord>> rows;
  std::vector<PlainStripe> stripes;  // but for those that are dead and stable; in order
  std::map<uint32_t, PlainVolume> volumes;
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> owners;  // extent -> volume, logical
  std::vector<SsdSlot> committed;                            // places of data, by the last entry
  std::set<uint32_t> changed;                                // rows, by the last entry
  uint64_t early_deaths = 0;

 private:
  void Set(uint32_t stripe, uint32_t index, RowWord word) {
    if (rows[stripe][index] != word) {
      changed.insert(stripe);
    }
    rows[stripe][index] = word;
  }
  void Supersede(ChunkIndex chunk, uint64_t upto, uint64_t by, bool commit) {
    for (PlainStripe& stripe : stripes) {
      for (PlainMember& member : stripe.members) {
        if (member.what.chunk == chunk && !member.superseded && stripe.sequence <= upto) {
          member.superseded = true;
          stripe.committed |= commit;
          const bool dies = std::all_of(stripe.members.begin(), stripe.members.end(),
                                        [](const PlainMember& all) { return all.superseded; });
          if (dies) {
            stripe.died_by = by;
            early_deaths += stripe.committed || stripe.zeros ? 0 : 1;
          }
        }
      }
    }
  }
  void Add(uint64_t sequence, uint64_t place, const std::vector<LogStripeMember>& members,
           bool zeros) {
    for (const LogStripeMember& member : members) {
      Supersede(member.chunk, sequence, sequence, false);
    }
    PlainStripe stripe{sequence, place, zeros, {}, false, {}};
    for (const LogStripeMember& member : members) {
      stripe.members.push_back({member, false});
    }
    stripes.push_back(std::move(stripe));
  }
  void ApplyRow(const RowRecord& row, uint64_t sequence) {
    for (const RowChange& change : row.changes) {
      const bool commit = change.version != 0 && change.version != sequence;
      if (commit && change.word.has_slot()) {
        committed.push_back({g.SsdOf(row.stripe, change.index), change.word.slot()});
      }
      Set(row.stripe.value, change.index, {change.word, change.crc});
      if (change.index < g.k() && change.version != 0) {
        Supersede(g.Chunk(row.stripe, change.index), change.version, sequence, commit);
      }
    }
  }
  void Zero(uint32_t stripe, uint64_t sequence) {
    for (uint32_t i = 0; i < g.n; ++i) {
      Set(stripe, i, RowWord());
    }
    for (uint32_t i = 0; i < g.k(); ++i) {
      Supersede(g.Chunk(StripeIndex(stripe), i), sequence, sequence, false);
    }
  }
  void ApplyVolume(const VolumeCreated& volume, uint64_t /*sequence*/) {
    volumes[volume.id.value] = {volume.name, volume.size_bytes, false, {}};
  }
  void ApplyVolume(const VolumeResized& volume, uint64_t /*sequence*/) {
    volumes[volume.id.value].size_bytes = volume.size_bytes;
  }
  void ApplyVolume(const VolumeRenamed& volume, uint64_t /*sequence*/) {
    volumes[volume.id.value].name = volume.name;
  }
  void ApplyVolume(const VolumeDeleted& volume, uint64_t /*sequence*/) {
    volumes[volume.id.value].deleting = true;
    Forget(volume.id.value);
  }
  void ApplyVolume(const ExtentAssigned& extent, uint64_t /*sequence*/) {
    volumes[extent.id.value].extents[extent.logical] = extent.extent.value;
    owners[extent.extent.value] = {extent.id.value, extent.logical};
  }
  void ApplyVolume(const ExtentsFreed& extents, uint64_t sequence) {
    for (uint32_t e = extents.first.value; e < extents.first.value + extents.count; ++e) {
      for (uint32_t s = e * g.extent_stripes; s < (e + 1) * g.extent_stripes; ++s) {
        Zero(s, sequence);
      }
      const auto [volume, logical] = owners.at(e);
      volumes[volume].extents.erase(logical);
      owners.erase(e);
      Forget(volume);
    }
  }
  void Forget(uint32_t volume) {
    if (volumes[volume].deleting && volumes[volume].extents.empty()) {
      volumes.erase(volume);
    }
  }
};

// Whether the state says what the model does. Of the model, so that nothing that the state lacks is
// not asked for.
class Comparison {
 public:
  Comparison(const State& state, const PlainState& model)
      : state_(state), model_(model), g_(model.g), pending_(model.AllPending()) {}

  void Everything() const {
    Chunks();
    Stripes();
    LogStripes();
    Slots();
    Volumes();
    EXPECT_TRUE(state_.CountsAreRight());
  }

 private:
  void Chunks() const {
    for (uint64_t c = 0; c < g_.data_chunks(); ++c) {
      const ChunkIndex chunk(c);
      const uint32_t stripe = g_.StripeOf(chunk).value;
      const RowWord row = model_.rows[stripe][g_.IndexInStripe(chunk)];
      const auto found = state_.pending.Find(chunk);
      const auto expected = pending_.find(c);
      ASSERT_EQ(found.has_value(), expected != pending_.end()) << c;
      if (found) {
        const auto& [log_stripe, member] = expected->second;
        EXPECT_EQ(found->version, log_stripe->sequence) << c;
        EXPECT_EQ(found->word, member->what.word) << c;
        EXPECT_EQ(found->crc, member->what.crc) << c;
        EXPECT_TRUE(state_.pending.IsLive(found->log_stripe, found->version)) << c;
        EXPECT_EQ(state_.pending.PlaceOf(found->log_stripe), log_stripe->place) << c;
      }
      const RowWord latest = found ? RowWord{found->word, found->crc} : row;
      EXPECT_EQ(state_.Latest(chunk), latest) << c;
    }
  }
  void Stripes() const {
    std::array<uint32_t, kMaxSsds> owed{};
    std::array<uint32_t, kMaxSsds> absent{};
    uint64_t pending_stripes = 0;
    for (uint32_t s = 0; s < g_.stripes; ++s) {
      const StripeIndex stripe(s);
      bool row_is_zero = true;
      bool latest_is_zero = true;
      bool has_pending = false;
      uint64_t bare = 0;
      for (uint32_t i = 0; i < g_.n; ++i) {
        const RowWord word = model_.rows[s][i];
        const DeviceIndex ssd = g_.SsdOf(stripe, i);
        EXPECT_EQ(state_.rows.Get(stripe, i), word) << s << " " << i;
        row_is_zero = row_is_zero && word.word.is_zero();
        absent[ssd.value] += word.word.is_absent() ? 1 : 0;
        if (i >= g_.k()) {
          bare |= uint64_t{word.word.is_zero() ? 1U : 0U} << ssd.value;
          continue;
        }
        const auto found = pending_.find(g_.Chunk(stripe, i).value);
        has_pending = has_pending || found != pending_.end();
        latest_is_zero =
            latest_is_zero && (found == pending_.end() ? word.word.is_zero()
                                                       : found->second.member->what.word.is_zero());
      }
      EXPECT_EQ(state_.RowIsZero(stripe), row_is_zero) << s;
      EXPECT_EQ(state_.LatestIsZero(stripe), latest_is_zero) << s;
      EXPECT_EQ(state_.HasPending(stripe), has_pending) << s;
      EXPECT_EQ(state_.WouldOwe(stripe), has_pending ? 0 : bare) << s;
      EXPECT_EQ(state_.MayOwe(stripe), bare) << s;
      pending_stripes += has_pending ? 1 : 0;
      for (uint32_t ssd = 0; has_pending && ssd < g_.n; ++ssd) {
        owed[ssd] += static_cast<uint32_t>(bare >> ssd & 1);
      }
    }
    EXPECT_EQ(state_.pending_stripes(), pending_stripes);
    for (uint8_t ssd = 0; ssd < g_.n; ++ssd) {
      EXPECT_EQ(state_.owed(DeviceIndex(ssd)), owed[ssd]) << int{ssd};
      EXPECT_EQ(state_.absent(DeviceIndex(ssd)), absent[ssd]) << int{ssd};
    }
  }
  void LogStripes() const {
    const PendingTable& table = state_.pending;
    LogStripeId at = table.FirstLive();
    uint64_t live = 0;
    uint64_t records = 0;
    uint64_t members = 0;
    uint64_t zeros = 0;
    uint64_t charged = 0;
    std::optional<uint64_t> oldest;
    std::optional<uint64_t> oldest_live;
    for (const PlainStripe& stripe : model_.stripes) {
      oldest = oldest ? oldest : stripe.place;
      charged += stripe.zeros ? stripe.members.size() : 0;
      if (!stripe.live()) {
        continue;
      }
      oldest_live = oldest_live ? oldest_live : stripe.place;
      live += stripe.zeros ? 0 : 1;
      ++records;
      members += stripe.members.size();
      zeros += stripe.zeros ? stripe.members.size() : 0;
      while (at != kNone && !table.IsLive(at)) {
        at = table.Next(at);
      }
      ASSERT_NE(at, kNone);
      Member(table, at, stripe);
      at = table.Next(at);
    }
    EXPECT_EQ(table.live_log_stripes(), live);
    EXPECT_EQ(table.live_records(), records);
    EXPECT_EQ(table.live_members(), members);
    EXPECT_EQ(table.zeros(), zeros);
    EXPECT_EQ(table.charged_zeros(), charged);
    EXPECT_EQ(table.pending_chunks(), pending_.size());
    EXPECT_EQ(table.OldestPlace(), oldest);
    EXPECT_EQ(table.OldestLivePlace(), oldest_live);
    EXPECT_EQ(table.early_deaths(), model_.early_deaths);
    uint64_t visited = 0;
    table.ForEachLive([&](LogStripeId id) {
      EXPECT_TRUE(table.IsLive(id));
      return ++visited != 0;
    });
    EXPECT_EQ(visited, records);
  }
  static void Member(const PendingTable& table, LogStripeId id, const PlainStripe& stripe) {
    const LogStripeView view = table.View(id);
    EXPECT_EQ(view.sequence, stripe.sequence);
    EXPECT_EQ(table.SequenceOf(id), stripe.sequence);
    EXPECT_EQ(view.place, stripe.place);
    EXPECT_EQ(view.zeros, stripe.zeros);
    ASSERT_EQ(view.members.size(), stripe.members.size());
    std::vector<ChunkIndex> pending;
    for (size_t i = 0; i < stripe.members.size(); ++i) {
      EXPECT_EQ(view.members[i], stripe.members[i].what);
      EXPECT_EQ(view.superseded[i], stripe.members[i].superseded);
      if (!stripe.members[i].superseded) {
        pending.push_back(stripe.members[i].what.chunk);
      }
    }
    std::vector<ChunkIndex> got;
    table.PendingChunksOf(id, got);
    EXPECT_EQ(got, pending);
  }
  void Slots() const {
    std::set<SsdSlot> needed;
    state_.ForEachSlot([&](DeviceIndex ssd, SlotIndex slot) {
      EXPECT_TRUE(needed.insert({ssd, slot}).second) << int{ssd.value} << " " << slot.value;
    });
    EXPECT_EQ(needed, model_.Needed());
    const std::set<SsdSlot> held = model_.Held();
    for (uint8_t ssd = 0; ssd < g_.n; ++ssd) {
      for (uint32_t slot = 0; slot < g_.slots; ++slot) {
        const SsdSlot one{DeviceIndex(ssd), SlotIndex(slot)};
        EXPECT_EQ(state_.pending.Holds(one.ssd, one.slot), held.contains(one));
      }
    }
  }
  void Volumes() const {
    const VolumeTable& table = state_.volumes;
    ASSERT_EQ(table.all().size(), model_.volumes.size());
    for (const auto& [id, expected] : model_.volumes) {
      const Volume* volume = table.Find(VolumeId(id));
      ASSERT_NE(volume, nullptr);
      if (!expected.deleting) {
        EXPECT_EQ(volume->name, expected.name);
      }
      EXPECT_EQ(volume->size_bytes, expected.size_bytes);
      EXPECT_EQ(volume->deleting, expected.deleting);
      EXPECT_EQ(volume->extents.count(), expected.extents.size());
      EXPECT_EQ(table.FindByName(expected.name), expected.deleting ? nullptr : volume);
      std::vector<ExtentIndex> extents;
      volume->extents.ForEach(0, UINT64_MAX, [&](ExtentIndex at) { extents.push_back(at); });
      ASSERT_EQ(extents.size(), expected.extents.size());
      size_t i = 0;
      for (const auto& [logical, extent] : expected.extents) {
        EXPECT_EQ(extents[i++].value, extent);
        EXPECT_EQ(volume->extents.Get(logical), std::optional(ExtentIndex(extent)));
      }
    }
    std::optional<ExtentIndex> lowest;
    for (uint32_t e = g_.extents(); e-- != 0;) {
      const auto owner = model_.owners.find(e);
      const VolumeTable::Owner got = table.OwnerOf(ExtentIndex(e));
      EXPECT_EQ(got.volume.value, owner == model_.owners.end() ? 0 : owner->second.first);
      if (owner == model_.owners.end()) {
        lowest = ExtentIndex(e);
      } else {
        EXPECT_EQ(got.logical, owner->second.second);
      }
    }
    EXPECT_EQ(table.LowestFree(), lowest);
    EXPECT_EQ(table.free_extents(), g_.extents() - model_.owners.size());
  }

  const State& state_;
  const PlainState& model_;
  const Geometry& g_;
  const std::map<uint64_t, PlainState::Pending> pending_;
};

template <typename A, typename B>
std::set<SsdSlot> Without(const A& all, const B& others) {
  std::set<SsdSlot> left(all.begin(), all.end());
  for (const SsdSlot& other : others) {
    left.erase(other);
  }
  return left;
}

class StateOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(StateOf, AnyEntriesIsWhatTheyMean) {
  Random random(GetParam());
  const auto m = static_cast<uint32_t>(random.Between(1, 3));
  const auto n = m + static_cast<uint32_t>(random.Between(1, 4));
  const Geometry g = SmallGeometry(n, m, static_cast<uint32_t>(random.Between(2, 6)) * 4);
  Script script(g, GetParam());
  PlainState model(g);
  std::set<uint32_t> changed;
  for (int step = 0; step < 250; ++step) {
    const std::set<SsdSlot> before = model.Needed();
    const Script::Applied applied = script.Step();
    model.Apply(applied.entry);
    // A log stripe may die of the first of a row's words and free what the next one installs.
    const std::set<SsdSlot> after = model.Needed();
    EXPECT_EQ(Without(applied.changes.freed, applied.changes.kept), Without(before, after));
    EXPECT_EQ(Without(applied.changes.kept, applied.changes.freed),
              Without(model.committed, before));
    changed.insert(model.changed.begin(), model.changed.end());
    if (const auto stable = script.Stable()) {
      model.Stable(*stable);
    }
    if (random.OneIn(60)) {
      const DeviceIndex ssd(static_cast<uint8_t>(random.Below(g.n)));
      script.Replace(ssd);
      model.Replace(ssd);
    }
    if (random.OneIn(5)) {
      Comparison(script.state, model).Everything();
    }
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  std::set<uint32_t> noted;
  for (uint32_t s = 0; s < g.stripes; ++s) {
    if ((script.state.changes().rows.Group(s / 64) >> (s % 64) & 1) != 0) {
      noted.insert(s);
    }
  }
  EXPECT_EQ(noted, changed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StateOf, ::testing::Range(uint64_t{1}, uint64_t{81}));

// As recovery does it: who knows from the beginning when an SSD came reads the same out of entries
// of the time before as who was told when it happened.
TEST(State, ReplayedWithWhatIsKnownLaterIsTheSame) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Geometry g = SmallGeometry(static_cast<uint32_t>(random.Between(2, 6)), 1, 12);
    Script script(g, seed);
    std::vector<EntryHeader> entries;
    std::vector<std::pair<DeviceIndex, uint64_t>> joined;
    for (int step = 0; step < 200; ++step) {
      entries.push_back(script.Step().entry);
      if (random.OneIn(70)) {
        const DeviceIndex ssd(static_cast<uint8_t>(random.Below(g.n)));
        script.Replace(ssd);
        joined.emplace_back(ssd, script.epoch());
      }
    }
    State again(g);
    for (const auto& [ssd, epoch] : joined) {
      again.SetJoined(ssd, epoch);
    }
    for (const EntryHeader& entry : entries) {
      SlotChanges changes;
      again.Apply(entry, changes);
      // No entry of the time before brings a slot of what came later.
      for (const auto& [ssd, slot] : changes.freed) {
        const bool is_new =
            std::any_of(joined.begin(), joined.end(), [&, on = ssd](const auto& at) {
              return at.first == on && entry.epoch.number < at.second;
            });
        EXPECT_FALSE(is_new);
      }
    }
    for (uint64_t c = 0; c < g.data_chunks(); ++c) {
      EXPECT_EQ(again.Latest(ChunkIndex(c)), script.state.Latest(ChunkIndex(c))) << c;
    }
    for (uint8_t ssd = 0; ssd < g.n; ++ssd) {
      EXPECT_EQ(again.absent(DeviceIndex(ssd)), script.state.absent(DeviceIndex(ssd)));
    }
    EXPECT_TRUE(again.CountsAreRight());
  }
}

}  // namespace
}  // namespace eplog
