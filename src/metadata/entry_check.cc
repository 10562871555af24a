#include "metadata/entry_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace eplog {
namespace {

tl::unexpected<Error> Impossible(const EntryHeader& entry, const std::string& what) {
  return Fail(ErrorCode::kCorrupt, "the log is damaged: entry " + std::to_string(entry.sequence) +
                                       " cannot follow on those before it: " + what);
}

// The volume records of one entry, one after the other, over a table that stays as it is.
class VolumeCheck {
 public:
  VolumeCheck(const State& state, const EntryHeader& entry)
      : table_(state.volumes), geometry_(state.geometry()), entry_(entry) {}

  Status Run() {
    for (const VolumeRecord& record : entry_.volumes) {
      EPLOG_TRY(std::visit([this](const auto& change) { return Change(change); }, record));
    }
    return OkStatus();
  }

 private:
  struct Known {
    std::string name;
    bool deleting = false;
  };

  Status Change(const VolumeCreated& record) {
    if (Find(record.id) || !NameIsFree(record.name)) {
      return Impossible(entry_, "it creates a volume that is there already");
    }
    if (table_.all().size() + ++created_ > geometry_.max_volumes()) {
      return Impossible(entry_, "it creates more volumes than the array can hold");
    }
    changed_[record.id.value] = {record.name, false};
    names_[record.name] = true;
    return NameCanBe(record.name);
  }
  Status Change(const VolumeResized& /*record*/) { return OkStatus(); }
  Status Change(const VolumeRenamed& record) {
    const auto volume = Find(record.id);
    if (!volume || volume->deleting || !NameIsFree(record.name)) {
      return Impossible(entry_, "it renames a volume that is not there, or to a name in use");
    }
    names_[volume->name] = false;
    names_[record.name] = true;
    changed_[record.id.value] = {record.name, false};
    return NameCanBe(record.name);
  }
  Status Change(const VolumeDeleted& record) {
    const auto volume = Find(record.id);
    if (!volume || volume->deleting) {
      return Impossible(entry_, "it deletes a volume that is not there");
    }
    names_[volume->name] = false;
    changed_[record.id.value] = {volume->name, true};
    return OkStatus();
  }
  Status Change(const ExtentAssigned& record) {
    const auto volume = Find(record.id);
    if (!volume || volume->deleting) {
      return Impossible(entry_, "it assigns an extent to a volume that is not there");
    }
    const auto there = ExtentAt(record.id, record.logical);
    if (OwnerOf(record.extent).volume.value != 0 || there) {
      return Impossible(entry_,
                        "it assigns an extent that has an owner, or a second one to a place");
    }
    extents_.push_back({record.extent.value, 1, {record.id, record.logical}});
    return OkStatus();
  }
  Status Change(const ExtentsFreed& record) {
    extents_.push_back({record.first.value, record.count, {}});
    return OkStatus();
  }

  Status NameCanBe(const std::string& name) const {
    if (name.find('/') != std::string::npos) {  // of those that are being deleted
      return Impossible(entry_, "it names a volume as none can be named");
    }
    return OkStatus();
  }
  [[nodiscard]] std::optional<Known> Find(VolumeId id) const {
    if (const auto changed = changed_.find(id.value); changed != changed_.end()) {
      return changed->second;
    }
    const Volume* volume = table_.Find(id);
    return volume == nullptr ? std::nullopt : std::optional(Known{volume->name, volume->deleting});
  }
  [[nodiscard]] bool NameIsFree(const std::string& name) const {
    const auto changed = names_.find(name);
    return changed != names_.end() ? !changed->second : table_.FindByName(name) == nullptr;
  }
  [[nodiscard]] VolumeTable::Owner OwnerOf(ExtentIndex extent) const {
    const auto last =
        std::find_if(extents_.rbegin(), extents_.rend(), [extent](const ExtentChange& change) {
          return extent.value >= change.first && extent.value - change.first < change.count;
        });
    return last != extents_.rend() ? last->owner : table_.OwnerOf(extent);
  }
  // What is assigned to a place of a volume.
  [[nodiscard]] std::optional<ExtentIndex> ExtentAt(VolumeId id, uint32_t logical) const {
    const auto holds = [&](ExtentIndex extent) {
      const VolumeTable::Owner owner = OwnerOf(extent);
      return owner.volume == id && owner.logical == logical;
    };
    const auto last =
        std::find_if(extents_.rbegin(), extents_.rend(), [&](const ExtentChange& change) {
          return change.owner.volume == id && change.owner.logical == logical;
        });
    if (last != extents_.rend()) {
      return holds(ExtentIndex(last->first)) ? std::optional(ExtentIndex(last->first))
                                             : std::nullopt;
    }
    const Volume* volume = table_.Find(id);
    const auto extent = volume == nullptr ? std::nullopt : volume->extents.Get(logical);
    return extent && holds(*extent) ? extent : std::nullopt;
  }

  struct ExtentChange {
    uint32_t first = 0;
    uint32_t count = 0;
    VolumeTable::Owner owner;  // volume 0: freed
  };
  const VolumeTable& table_;
  const Geometry& geometry_;
  const EntryHeader& entry_;
  size_t created_ = 0;
  std::map<uint32_t, Known> changed_;
  std::map<std::string, bool> names_;  // whether it is in use now
  std::vector<ExtentChange> extents_;
};

// Slots that the entry names: each once, and those of log stripes in no other one.
Status CheckSlots(const State& state, const EntryHeader& entry) {
  const Geometry& g = state.geometry();
  std::vector<SsdSlot> named;
  const auto name = [&](DeviceIndex ssd, SlotWord word) {
    if (word.has_slot()) {
      named.push_back({ssd, word.slot()});
    }
    return word.has_slot();
  };
  for (const RowRecord& record : entry.rows) {
    for (const RowChange& change : record.changes) {
      name(g.SsdOf(record.stripe, change.index), change.word);
    }
  }
  for (const LogStripeRecord& record : entry.log_stripes) {
    for (const LogStripeMember& member : record.members) {
      const DeviceIndex ssd = g.SsdOf(member.chunk);
      const SlotWord word = state.WordOf(entry, ssd, member.word);
      if (name(ssd, word) && state.pending.Holds(ssd, word.slot())) {
        return Impossible(entry, g.DeviceName(ssd) + " slot " + std::to_string(word.slot().value) +
                                     " belongs to an older log stripe");
      }
    }
  }
  std::sort(named.begin(), named.end());
  const auto twice = std::adjacent_find(named.begin(), named.end());
  if (twice != named.end()) {
    return Impossible(entry, "it describes " + g.DeviceName(twice->ssd) + " slot " +
                                 std::to_string(twice->slot.value) + " twice");
  }
  return OkStatus();
}

tl::unexpected<Error> Contradiction(const std::string& what) {
  return Fail(ErrorCode::kCorrupt, "the log or the checkpoint is damaged: " + what);
}

// What belongs to no volume has no content: its slots are those of extents to come.
Status CheckOwners(const State& state) {
  const Geometry& g = state.geometry();
  for (uint32_t e = 0; e < g.extents(); ++e) {
    if (state.volumes.OwnerOf(ExtentIndex(e)).volume.value != 0) {
      continue;
    }
    const uint32_t first = e * g.extent_stripes;
    for (uint32_t s = first; s < first + g.extent_stripes; ++s) {
      const bool row =
          !state.rows.Group(s / kRowGroupStripes).empty() && !state.RowIsZero(StripeIndex(s));
      if (row || state.HasPending(StripeIndex(s))) {
        return Contradiction("stripe " + std::to_string(s) +
                             " has content and belongs to no volume");
      }
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckEntry(const State& state, const EntryHeader& entry) {
  EPLOG_TRY(VolumeCheck(state, entry).Run());
  return CheckSlots(state, entry);
}

Status CheckState(const State& state, uint64_t checkpoint_place, uint64_t place) {
  const Geometry& g = state.geometry();
  const uint64_t oldest =
      std::min(state.pending.OldestPlace().value_or(checkpoint_place), checkpoint_place);
  if (checkpoint_place > place || place - oldest > g.log_blocks) {
    return Contradiction("what is still needed of the log is longer than the log");
  }
  // Each takes a chunk of the log, or is charged as one: the metadata area is made for that many.
  if ((state.pending.live_log_stripes() + state.pending.zeros()) * g.chunk_blocks() >
      g.log_blocks) {
    return Contradiction("more is pending than the log can hold");
  }
  if (state.volumes.all().size() > g.max_volumes()) {
    return Contradiction("there are more volumes than the array can hold");
  }
  return CheckOwners(state);
}

}  // namespace eplog
