#include "engine/open/loss_finder.h"

#include <algorithm>
#include <bit>

#include "engine/core/volume_names.h"
#include "engine/write/volumes.h"
#include "rings/log_ring.h"

namespace eplog {
namespace {

constexpr size_t kMostKnown = 65536;  // log stripes; what is not known any more is read again

}  // namespace

Task<Result<LossReport>> LossFinder::Find() {
  report_.log_damage = core_.log_damage;
  report_.left_behind = core_.left_behind;
  if (core_.devices().not_ok() <= core_.geometry.m) {
    co_return std::move(report_);
  }
  for (uint64_t mask = Doubtful(); mask != 0; mask &= mask - 1) {
    const DeviceIndex ssd(static_cast<uint8_t>(std::countr_zero(mask)));
    report_.unsure += (report_.unsure.empty() ? "" : ", ") + core_.geometry.DeviceName(ssd);
  }
  std::vector<const Volume*> volumes;
  for (const auto& [id, volume] : core_.state->volumes.all()) {
    if (!volume.deleting) {
      volumes.push_back(&volume);
    }
  }
  std::sort(volumes.begin(), volumes.end(), [](auto* a, auto* b) { return a->name < b->name; });
  std::vector<std::pair<VolumeId, std::vector<ExtentIndex>>> all;
  for (const Volume* volume : volumes) {
    all.emplace_back(volume->id, std::vector<ExtentIndex>());
    volume->extents.ForEach(0, UINT64_MAX,
                            [&](ExtentIndex extent) { all.back().second.push_back(extent); });
  }
  for (const auto& [id, extents] : all) {
    for (const ExtentIndex extent : extents) {
      Task<void> looking = LookAt(id, extent);
      co_await looking;
      co_await core_.loop.Yield();  // thousands of rows in each
      if (closing_) {
        co_return Fail(ErrorCode::kShutdown, "the array is closing");
      }
    }
  }
  co_return std::move(report_);
}

Task<void> LossFinder::LookAt(VolumeId id, ExtentIndex extent) {
  const Geometry& g = core_.geometry;
  for (uint32_t s = 0; s < g.extent_stripes && !closing_; ++s) {
    Task<uint64_t> looking = LostIn(StripeIndex(extent.value * g.extent_stripes + s));
    const uint64_t lost = co_await looking;
    const Volume* volume = core_.state->volumes.Find(id);
    const VolumeTable::Owner owner = core_.state->volumes.OwnerOf(extent);
    if (volume == nullptr || owner.volume != id) {
      co_return;
    }
    const uint64_t offset =
        uint64_t{owner.logical} * g.extent_data_bytes() + s * g.stripe_data_bytes();
    for (uint64_t mask = lost; mask != 0; mask &= mask - 1) {
      Add(*volume, offset + static_cast<uint64_t>(std::countr_zero(mask)) * g.chunk_bytes,
          g.chunk_bytes);
    }
  }
}

// Of what was on its way to an SSD when it was lost, the tables may name what it lacks.
uint64_t LossFinder::Doubtful() const {
  return (core_.devices().lent() | core_.devices().unverified()) & core_.members.live_mask();
}

bool LossFinder::Readable(DeviceIndex ssd, SlotWord word) const {
  return word.is_zero() ||
         (word.has_slot() && core_.members.live(ssd) &&
          !core_.found_wrong.contains({ssd, core_.geometry.SlotOffset(word.slot())}));
}

Task<uint64_t> LossFinder::LostIn(StripeIndex stripe) {
  const Geometry& g = core_.geometry;
  uint64_t lost = 0;
  for (uint32_t i = 0; i < g.n; ++i) {
    const bool there = Readable(g.SsdOf(stripe, i), core_.state->rows.Get(stripe, i).word);
    lost |= there ? 0 : uint64_t{1} << i;
  }
  if (static_cast<uint32_t>(std::popcount(lost)) <= g.m) {
    lost = 0;
  }
  lost &= (uint64_t{1} << g.k()) - 1;
  for (uint32_t i = 0; i < g.k(); ++i) {
    const ChunkIndex chunk(uint64_t{stripe.value} * g.k() + i);
    if (reader_.ReadsInstead(chunk)) {
      lost &= ~(uint64_t{1} << i);
    } else if (const auto pending = core_.state->pending.Find(chunk)) {
      const uint64_t bit = uint64_t{1} << i;
      Task<bool> looking = PendingIsLost(chunk, pending->log_stripe);
      const bool is_lost = co_await looking;
      lost = is_lost ? lost | bit : lost & ~bit;
    }
  }
  co_return lost;
}

// Its chunks lie far apart in the volumes, and each is asked for by itself: what was read for one
// is known for all.
Task<bool> LossFinder::PendingIsLost(ChunkIndex chunk, LogStripeId id) {
  const LogStripeView view = core_.state->pending.View(id);
  const auto index = static_cast<size_t>(
      std::ranges::find(view.members, chunk, &LogStripeMember::chunk) - view.members.begin());
  const auto known = known_.find(id);
  if (known != known_.end() && known->second.sequence == view.sequence &&
      known->second.states == core_.devices().number()) {
    co_return (known->second.lost >> index & 1) != 0;
  }
  Known answer{view.sequence, core_.devices().number(), 0};
  Task<uint64_t> looking = LostOf(view);
  answer.lost = co_await looking;
  if (known_.size() >= kMostKnown) {
    known_.clear();
  }
  known_[id] = answer;
  co_return (answer.lost >> index & 1) != 0;
}

Task<uint64_t> LossFinder::LostOf(const LogStripeView& view) {
  const Geometry& g = core_.geometry;
  uint64_t missing = 0;
  for (size_t i = 0; i < view.members.size(); ++i) {
    Task<bool> looking = MemberIsThere(view.members[i]);
    const bool there = co_await looking;
    missing |= there ? 0 : uint64_t{1} << i;
  }
  uint32_t logs_missing = 0;
  for (uint32_t j = 0; j < g.m && missing != 0; ++j) {
    Task<bool> looking = LogChunkIsThere(j, view);
    const bool there = co_await looking;
    logs_missing += there ? 0 : 1;
  }
  co_return static_cast<uint32_t>(std::popcount(missing)) + logs_missing > g.m ? missing : 0;
}

Task<bool> LossFinder::MemberIsThere(const LogStripeMember& member) {
  const Geometry& g = core_.geometry;
  const DeviceIndex ssd = g.SsdOf(member.chunk);
  if (!Readable(ssd, member.word)) {
    co_return false;
  }
  if (member.word.is_zero() || (Doubtful() >> ssd.value & 1) == 0) {
    co_return true;
  }
  const Buffer chunk = core_.pool.Get(g.chunk_bytes);
  Task<Status> reading =
      core_.members.ReadBytes(ssd, g.SlotOffset(member.word.slot()), chunk.span());
  const Status read = co_await reading;
  co_return read.ok() && core_.checksum(chunk.span()) == member.crc;
}

// One that joined has what was logged since, and nothing tells from when on: it is read.
Task<bool> LossFinder::LogChunkIsThere(uint32_t j, const LogStripeView& view) {
  const Geometry& g = core_.geometry;
  const DeviceIndex log = g.LogDevice(j);
  if (!core_.members.live(log) || core_.found_wrong.contains({log, view.place})) {
    co_return false;
  }
  if (!core_.devices().IsJoining(log)) {
    co_return true;
  }
  const Buffer chunk = core_.pool.Get(g.chunk_bytes);
  Task<Status> reading = ReadLog(core_.members, g, log, view.place, chunk.span());
  const Status read = co_await reading;
  co_return read.ok() && core_.checksum(chunk.span()) == view.log_crcs[j];
}

void LossFinder::Add(const Volume& volume, uint64_t offset_bytes, uint64_t length_bytes) {
  if (offset_bytes >= volume.size_bytes) {
    return;
  }
  length_bytes = std::min(length_bytes, volume.size_bytes - offset_bytes);
  const std::string label = LabelOf(volume);
  report_.lost_bytes += length_bytes;
  if (!report_.ranges.empty()) {
    LostRange& last = report_.ranges.back();
    if (last.volume == label && last.offset_bytes + last.length_bytes == offset_bytes) {
      last.length_bytes += length_bytes;
      return;
    }
  }
  report_.ranges.push_back({label, offset_bytes, length_bytes});
}

}  // namespace eplog
