// ArrayImpl::GetStatus.

#include <algorithm>

#include "engine/array_impl.h"
#include "engine/core/traffic.h"

namespace eplog {

void ArrayImpl::NoteShown(DeviceIndex index, const Device& device) {
  shown_[index.value] = {device.name(), device.capabilities().direct, device.size_bytes()};
}

bool ArrayImpl::Holds(const Device& device) const {
  for (uint8_t i = 0; i < core_.members.size(); ++i) {
    if (core_.members.device(DeviceIndex(i)) == &device) {
      return true;
    }
  }
  return false;
}

void ArrayImpl::FillDevices(ArrayStatus& status) const {
  const Geometry& g = core_.geometry;
  for (uint8_t i = 0; i < g.devices(); ++i) {
    const DeviceIndex index(i);
    const MemberCounters& counters = core_.members.counters(index);
    DeviceStatus device;
    device.name = g.DeviceName(index);
    device.role = g.IsLog(index) ? DeviceRole::kLog : DeviceRole::kSsd;
    if (shown_[i]) {
      device.path = shown_[i]->path;
      device.direct = shown_[i]->direct;
      device.size_bytes = shown_[i]->size_bytes;
    }
    if (((core_.devices().joining() | core_.devices().becoming_ok()) >> i & 1) != 0 &&
        core_.members.live(index)) {
      device.state = DeviceState::kRebuilding;
    } else if (!core_.members.live(index) || (core_.devices().lent() >> i & 1) != 0) {
      const bool there = shown_[i].has_value() || assembly_.stale[i];
      device.state = there ? DeviceState::kFailed : DeviceState::kMissing;
    }
    device.failed_because = assembly_.stale[i] ? assembly_.why_stale[i] : membership_.Reason(index);
    device.reads = counters.reads;
    device.writes = counters.writes;
    device.flushes = counters.flushes;
    device.bytes_read = counters.bytes_read;
    device.bytes_written = counters.bytes_written;
    device.read_errors = counters.read_errors;
    device.write_errors = counters.write_errors;
    device.corrupt_chunks = counters.corrupt_chunks;
    device.latency_us_p99 = counters.latency.Quantile(0.99);
    status.devices.push_back(std::move(device));
  }
}

void ArrayImpl::FillExposure(ArrayStatus& status) const {
  const Geometry& g = core_.geometry;
  const PendingTable& pending = core_.state->pending;
  status.pending_chunks = pending.pending_chunks();
  status.pending_bytes = pending.pending_chunks() * g.chunk_bytes;
  status.live_log_stripes = pending.live_log_stripes();
  if (const auto since = appender_.OldestPendingUs()) {
    status.oldest_pending_seconds = static_cast<double>(core_.loop.NowUs() - *since) / 1e6;
  }
  status.further_ssd_losses_survived = status.further_log_losses_survived =
      FurtherLosses(core_.devices().not_ok());
  status.unstable_bytes = (appender_.applied().place - flusher_.stable_place()) * kBlockBytes +
                          buffer_.buffered_bytes();
  status.state = core_.stop_error              ? ArrayState::kFailed
                 : core_.devices().lost() != 0 ? ArrayState::kDegraded
                 : (core_.devices().joining() | core_.devices().becoming_ok()) != 0
                     ? ArrayState::kRebuilding
                 : status.pending_chunks != 0 || flusher_.has_unstable() ? ArrayState::kActive
                                                                         : ArrayState::kClean;
}

ArrayStatus ArrayImpl::GetStatus() const {
  const Geometry& g = core_.geometry;
  ArrayStatus status;
  status.uuid = UuidToString(core_.identity.array_uuid);
  status.name = core_.identity.name;
  status.level = LevelOfParity(g.m);
  status.data_chunks = g.k();
  status.parity_chunks = g.m;
  status.chunk_bytes = g.chunk_bytes;
  status.journal = static_cast<JournalMode>(core_.identity.journal_mode);
  status.read_only = core_.options.read_only;
  if (core_.stop_error) {
    status.stopped_because = core_.stop_error->ToString();
  }
  status.capacity_bytes = g.capacity_bytes();
  status.free_bytes =
      (core_.state->volumes.free_extents() + volumes_.ExtentsComingBack()) * g.extent_data_bytes();
  status.allocated_bytes = status.capacity_bytes - status.free_bytes;
  FillDevices(status);
  FillExposure(status);
  const Rebuilder::Progress rebuild = rebuilder_.GetProgress();
  status.rebuild_total_bytes = rebuild.total_bytes;
  status.rebuild_left_bytes = rebuild.left_bytes;
  status.rebuild_lost_bytes = rebuild.lost_bytes;
  status.rebuild_bytes_per_second = rebuild.bytes_per_second;
  status.rebuild_eta_seconds =
      rebuild.bytes_per_second == 0
          ? 0
          : (rebuild.left_bytes + rebuild.bytes_per_second / 2) / rebuild.bytes_per_second;
  status.slots_free_min = core_.space.free_min();
  for (uint8_t i = 0; i < g.n; ++i) {
    status.slots_used += g.slots - core_.space.free(DeviceIndex(i));
  }
  status.slots_reserved = g.reserve_slots();
  status.log_used_bytes = appender_.log_used() * kBlockBytes;
  status.log_size_bytes = g.log_blocks * kBlockBytes;
  status.traffic = core_.CurrentTraffic();
  status.lifetime = AddTraffic(core_.lifetime_before, status.traffic);
  status.metadata_bytes = core_.state->memory_bytes() + core_.space.memory_bytes();
  status.slots = uint64_t{g.slots} * g.n;
  status.pending_entries = status.pending_chunks;
  status.recovery_seconds = static_cast<double>(recovery_us_) / 1e6;
  status.recovery_entries_replayed = entries_replayed_;
  return status;
}

}  // namespace eplog
