#include "sim/hdd_model.h"

#include <algorithm>

#include "base/check.h"

namespace eplog::sim {
namespace {

// The most that is written without a look at who else wants the head.
constexpr uint64_t kDrainBytes = uint64_t{1} << 20;

}  // namespace

HddModel::HddModel(const HddParameters& parameters, uint64_t size_bytes)
    : parameters_(parameters), size_bytes_(size_bytes), geometry_(parameters, size_bytes) {
  EPLOG_CHECK(!parameters.write_back || parameters.cache_bytes >= 4 * kDrainBytes,
              "a write cache has 4 MiB at least");
}

uint64_t HddModel::write_limit_bytes() const {
  return parameters_.write_back ? parameters_.cache_bytes / 4 : UINT64_MAX;
}

// Seek, wait for the sector, transfer.
uint64_t HddModel::Access(uint64_t begin_ns, uint64_t offset_bytes, uint64_t length_bytes,
                          bool write) {
  const uint64_t track = geometry_.TrackOf(offset_bytes);
  uint64_t seek = geometry_.SeekNs(head_track_, track);
  if (seek != 0) {
    seek += write ? parameters_.write_settle_ns : 0;
    ++counters_.seeks;
  }
  const uint64_t rotation = geometry_.RotationNs(begin_ns + seek, offset_bytes);
  const uint64_t end_bytes = offset_bytes + length_bytes;
  const uint64_t transfer = geometry_.StreamNs(end_bytes) - geometry_.StreamNs(offset_bytes);
  counters_.seek_ns += seek;
  counters_.rotation_ns += rotation;
  counters_.transfer_ns += transfer;
  // On the next track, if the last byte ends one: then the switch is part of the transfer.
  head_track_ = geometry_.TrackOf(end_bytes);
  head_free_ns_ = begin_ns + seek + rotation + transfer;
  return head_free_ns_;
}

void HddModel::Drain(uint64_t begin_ns) {
  draining_ = dirty_.Take(dirty_.Next(head_bytes_)->begin, kDrainBytes);
  ahead_.on = false;
  drained_ns_ = Access(begin_ns, draining_.begin, DrainingBytes(), true);
  head_bytes_ = draining_.end;
  drained_last_ = true;
  ++counters_.drains;
  counters_.drained_bytes += DrainingBytes();
}

void HddModel::Arrive() {
  const DirtyExtents::Extent extent = arriving_.begin()->second;
  arriving_.erase(arriving_.begin());
  arriving_bytes_ -= extent.end - extent.begin;
  dirty_.Add(extent);
}

// When the next piece goes to the disk, or the last one is there.
uint64_t HddModel::NextDrainNs() const {
  if (DrainingBytes() != 0) {
    return drained_ns_;
  }
  return dirty_.empty() ? kNever : std::max(head_free_ns_, clock_ns_);
}

uint64_t HddModel::NextEventNs() const {
  return std::min(NextDrainNs(), arriving_.empty() ? kNever : arriving_.begin()->first);
}

void HddModel::AdvanceTo(uint64_t now_ns) {
  while (NextEventNs() <= now_ns) {
    const uint64_t drain_ns = NextDrainNs();
    clock_ns_ = std::max(clock_ns_, NextEventNs());
    if (drain_ns > clock_ns_) {
      Arrive();
    } else if (DrainingBytes() != 0) {
      draining_ = DirtyExtents::Extent();
    } else {
      Drain(clock_ns_);
    }
  }
  clock_ns_ = now_ns;
}

bool HddModel::IsInWriteCache(uint64_t begin, uint64_t end) const {
  return dirty_.Covers(begin, end) || (draining_.begin <= begin && end <= draining_.end);
}

uint64_t HddModel::LimitAfter(uint64_t end_bytes) const {
  return std::min(size_bytes_, end_bytes + parameters_.read_ahead_bytes);
}

bool HddModel::IsAhead(uint64_t begin, uint64_t end) const {
  return ahead_.on && begin >= ahead_.first_bytes && begin <= ahead_.limit_bytes &&
         end <= LimitAfter(ahead_.limit_bytes);
}

// Up to `end_bytes` from the cache or from the head as it reads on. If it has stopped meanwhile, it
// waits for the sector where it did.
uint64_t HddModel::ReadAhead(uint64_t now_ns, uint64_t end_bytes) {
  const auto reached_ns = [&](uint64_t bytes) {
    return ahead_.at_ns + geometry_.StreamNs(bytes) - geometry_.StreamNs(ahead_.at_bytes);
  };
  const uint64_t stopped_ns =
      ahead_.limit_bytes > ahead_.at_bytes ? reached_ns(ahead_.limit_bytes) : ahead_.at_ns;
  uint64_t ready = now_ns;
  if (end_bytes <= ahead_.limit_bytes) {
    ready = end_bytes > ahead_.at_bytes ? std::max(now_ns, reached_ns(end_bytes)) : now_ns;
  }
  if (now_ns > stopped_ns) {
    ahead_.at_bytes = std::max(ahead_.limit_bytes, ahead_.at_bytes);
    ahead_.at_ns = now_ns + geometry_.RotationNs(now_ns, ahead_.at_bytes);
  }
  if (end_bytes > ahead_.limit_bytes) {
    ready = std::max(now_ns, reached_ns(end_bytes));
  }
  if (LimitAfter(end_bytes) > ahead_.limit_bytes) {
    ahead_.limit_bytes = LimitAfter(end_bytes);
  }
  const uint64_t kept = parameters_.read_ahead_bytes;
  ahead_.first_bytes = std::max(ahead_.first_bytes, end_bytes > kept ? end_bytes - kept : 0);
  head_track_ = geometry_.TrackOf(end_bytes);
  head_free_ns_ = std::max(head_free_ns_, ready);
  return ready;
}

bool HddModel::IsWriteTurn() const {
  const bool pressing = dirty_.bytes() * 2 >= parameters_.cache_bytes ||
                        dirty_.oldest_sequence() <= flushed_sequence_;
  return !drained_last_ && DrainingBytes() == 0 && !dirty_.empty() && pressing;
}

uint64_t HddModel::ReadDisk(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  if (IsWriteTurn()) {
    Drain(std::max(now_ns, head_free_ns_));
  }
  const uint64_t end = Access(std::max(now_ns, head_free_ns_), offset_bytes, length_bytes, false);
  drained_last_ = false;
  const uint64_t end_bytes = offset_bytes + length_bytes;
  ahead_ = {true, offset_bytes, end_bytes, end, LimitAfter(end_bytes)};
  return end;
}

uint64_t HddModel::Read(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const LinkParameters& link = parameters_.link;
  ++counters_.reads;
  counters_.read_bytes += length_bytes;
  const uint64_t end_bytes = offset_bytes + length_bytes;
  uint64_t ready = now_ns;
  if (IsInWriteCache(offset_bytes, end_bytes)) {
    ++counters_.cached_reads;
  } else if (IsAhead(offset_bytes, end_bytes) && !IsWriteTurn()) {
    ready = ReadAhead(now_ns, end_bytes);
    ++counters_.cached_reads;
  } else {
    ready = ReadDisk(now_ns, offset_bytes, length_bytes);
  }
  // Bytes go to the host while others still come from the disk.
  const uint64_t sending = TransferNs(length_bytes, link.read_bytes_per_s);
  const uint64_t first = ready > now_ns + sending ? ready - sending : now_ns;
  return link_.Take(now_ns, first, link.request_ns + sending) + link.read_latency_ns;
}

bool HddModel::HasRoom(uint64_t now_ns, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  return !parameters_.write_back || cached_bytes() + length_bytes <= parameters_.cache_bytes;
}

uint64_t HddModel::Write(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const LinkParameters& link = parameters_.link;
  ++counters_.writes;
  counters_.written_bytes += length_bytes;
  const uint64_t there = link_.Take(
      now_ns, now_ns, link.request_ns + TransferNs(length_bytes, link.write_bytes_per_s));
  if (ahead_.on && offset_bytes < ahead_.limit_bytes &&
      offset_bytes + length_bytes > ahead_.first_bytes) {
    ahead_.on = false;  // what was read ahead is not what is there any more
  }
  if (parameters_.write_back) {
    if (length_bytes != 0) {
      arriving_.emplace(
          there, DirtyExtents::Extent{offset_bytes, offset_bytes + length_bytes, ++last_sequence_});
      arriving_bytes_ += length_bytes;
    }
    return there + link.write_latency_ns;
  }
  ahead_.on = false;
  return Access(std::max(there, head_free_ns_), offset_bytes, length_bytes, true) +
         link.write_latency_ns;
}

HddModel::Flush HddModel::BeginFlush(uint64_t now_ns) {
  AdvanceTo(now_ns);
  ++counters_.flushes;
  flushed_sequence_ = last_sequence_;
  return {last_sequence_, link_.Take(now_ns, now_ns, parameters_.link.request_ns) +
                              parameters_.link.write_latency_ns};
}

bool HddModel::HasEnded(uint64_t now_ns, const Flush& flush) {
  AdvanceTo(now_ns);
  const bool draining = DrainingBytes() != 0 && draining_.sequence <= flush.sequence;
  const bool arriving = std::any_of(arriving_.begin(), arriving_.end(), [&](const auto& extent) {
    return extent.second.sequence <= flush.sequence;
  });
  return !draining && !arriving && dirty_.oldest_sequence() > flush.sequence;
}

}  // namespace eplog::sim
