#include "metadata/state_loader.h"

#include <algorithm>
#include <string>
#include <utility>

namespace eplog {

StateLoader::StateLoader(State& state) : state_(state), owners_(state.geometry().extents()) {}

void StateLoader::RowGroup(uint32_t group, std::span<const RowWord> words) {
  state_.rows.SetGroup(group, words);
}

void StateLoader::Row(StripeIndex stripe, std::span<const RowWord> words) {
  for (uint32_t i = 0; i < words.size(); ++i) {
    state_.rows.Set(stripe, i, words[i]);
  }
}

void StateLoader::LogStripe(const LogStripeItem& item) {
  if (!newest_) {
    return;
  }
  Pending& pending = pendings_.emplace_back();
  pending.sequence = item.sequence;
  pending.place = item.place;
  for (const auto& member : item.members) {
    pending.members.push_back({member.chunk, member.word, member.crc});
    pending.superseded.push_back(member.superseded);
  }
  pending.log_crcs = item.log_crcs;
}

void StateLoader::Zeros(const ZerosItem& item) {
  if (!newest_) {
    return;
  }
  Pending& pending = pendings_.emplace_back();
  pending.sequence = item.sequence;
  pending.place = item.place;
  for (uint32_t i = 0; i < item.count; ++i) {
    pending.members.push_back({ChunkIndex(item.first.value + i), {}, 0});
    pending.superseded.push_back((item.superseded >> i & 1) != 0);
  }
}

void StateLoader::Volume(const VolumeItem& item) {
  consistent_ = consistent_ && volumes_.emplace(item.id.value, item).second;
}

void StateLoader::Extent(const ExtentItem& item) {
  owners_[item.extent.value] = {item.volume, item.logical};
}

void StateLoader::ExtentFreed(ExtentIndex extent) {
  owners_[extent.value] = {};
}

bool StateLoader::AddPending(const Pending& item) {
  bool live = false;
  for (size_t i = 0; i < item.members.size(); ++i) {
    const LogStripeMember& member = item.members[i];
    live |= !item.superseded[i];
    const bool twice = !item.superseded[i] && state_.pending.Find(member.chunk).has_value();
    const bool held =
        member.word.has_slot() &&
        state_.pending.Holds(state_.geometry().SsdOf(member.chunk), member.word.slot());
    if (twice || held) {
      return false;
    }
  }
  if (live) {
    state_.pending.Add(item.sequence, item.place, item.members, item.log_crcs, &item.superseded);
  }
  return live;
}

// Those that are being deleted come last: their names may be in use again, so they get ones that no
// volume can have.
bool StateLoader::AddVolumes() {
  VolumeTable& table = state_.volumes;
  for (const auto& [id, item] : volumes_) {
    const std::string name = item.deleting ? "/" + std::to_string(id) : item.name;
    const bool taken = item.deleting ? false : name.find('/') != std::string::npos;
    if (taken || table.FindByName(name) != nullptr) {
      return false;
    }
    table.Create(item.id, name, item.size_bytes);
  }
  return true;
}

bool StateLoader::AddExtents() {
  VolumeTable& table = state_.volumes;
  for (uint32_t i = 0; i < owners_.size(); ++i) {
    const VolumeTable::Owner& owner = owners_[i];
    if (owner.volume.value == 0) {
      continue;
    }
    const ::eplog::Volume* volume = table.Find(owner.volume);
    if (volume == nullptr || volume->extents.Get(owner.logical)) {
      return false;
    }
    table.Assign(owner.volume, owner.logical, ExtentIndex(i));
  }
  return true;
}

Status StateLoader::Finish(uint64_t sequence, uint64_t place) {
  // In the order of the log; what changed while the checkpoint was written stands out of it.
  std::stable_sort(pendings_.begin(), pendings_.end(), [](const Pending& a, const Pending& b) {
    return std::pair(a.sequence, a.place) < std::pair(b.sequence, b.place);
  });
  uint64_t last = 0;
  for (const Pending& item : pendings_) {
    consistent_ = consistent_ && item.sequence <= sequence && item.place < place &&
                  item.place >= last && AddPending(item);
    last = item.place;
  }
  consistent_ = consistent_ && AddVolumes() && AddExtents();
  for (const auto& [id, item] : volumes_) {
    if (consistent_ && item.deleting) {
      state_.volumes.Delete(item.id);
    }
  }
  if (!consistent_) {
    return Fail(ErrorCode::kCorrupt, "the checkpoint contradicts itself");
  }
  state_.CountAnew();
  return OkStatus();
}

}  // namespace eplog
