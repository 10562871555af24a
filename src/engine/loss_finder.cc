#include "engine/loss_finder.h"

#include <algorithm>
#include <bit>

#include "engine/volumes.h"

namespace eplog {

Task<LossReport> LossFinder::Find() {
  report_.log_damage = core_.log_damage;
  if (core_.devices_not_ok() <= core_.geometry.m) {
    co_return std::move(report_);
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
      const Volume* volume = core_.state->volumes.Find(id);
      if (volume != nullptr && core_.state->volumes.OwnerOf(extent).volume == id) {
        LookAt(*volume, extent);
      }
      co_await core_.loop.Yield();  // thousands of rows in each
    }
  }
  co_return std::move(report_);
}

void LossFinder::LookAt(const Volume& volume, ExtentIndex extent) {
  const Geometry& g = core_.geometry;
  const uint64_t logical = core_.state->volumes.OwnerOf(extent).logical;
  for (uint32_t s = 0; s < g.extent_stripes; ++s) {
    const uint64_t lost = LostIn(StripeIndex(extent.value * g.extent_stripes + s));
    const uint64_t offset = logical * g.extent_data_bytes() + s * g.stripe_data_bytes();
    for (uint64_t mask = lost; mask != 0; mask &= mask - 1) {
      Add(volume, offset + static_cast<uint64_t>(std::countr_zero(mask)) * g.chunk_bytes,
          g.chunk_bytes);
    }
  }
}

bool LossFinder::Readable(DeviceIndex ssd, SlotWord word) const {
  return word.is_zero() ||
         (word.has_slot() && core_.members.live(ssd) &&
          !core_.found_wrong.contains({ssd, core_.geometry.SlotOffset(word.slot())}));
}

uint64_t LossFinder::LostIn(StripeIndex stripe) const {
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
      lost = PendingIsLost(chunk, pending->log_stripe) ? lost | bit : lost & ~bit;
    }
  }
  return lost;
}

bool LossFinder::PendingIsLost(ChunkIndex chunk, LogStripeId id) const {
  const Geometry& g = core_.geometry;
  if (Readable(g.SsdOf(chunk), core_.state->Latest(chunk).word)) {
    return false;
  }
  const LogStripeView view = core_.state->pending.View(id);
  uint32_t missing = 0;
  for (uint32_t j = 0; j < g.m; ++j) {
    const DeviceIndex log = g.LogDevice(j);
    const bool there = core_.members.live(log) && !core_.found_wrong.contains({log, view.place});
    missing += there ? 0 : 1;
  }
  for (const LogStripeMember& member : view.members) {
    missing += Readable(g.SsdOf(member.chunk), member.word) ? 0 : 1;
  }
  return missing > g.m;
}

void LossFinder::Add(const Volume& volume, uint64_t offset_bytes, uint64_t length_bytes) {
  if (offset_bytes >= volume.size_bytes) {
    return;
  }
  length_bytes = std::min(length_bytes, volume.size_bytes - offset_bytes);
  const std::string label = Volumes::Label(volume);
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
