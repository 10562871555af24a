#include "sim/disk_geometry.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/types.h"

namespace eplog::sim {
namespace {

__extension__ using Wide = unsigned __int128;

// The largest root with root * root <= value.
uint64_t Root(uint64_t value) {
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 31; bit != 0; bit >>= 1) {
    const uint64_t trial = root | bit;
    root = trial * trial <= value ? trial : root;
  }
  return root;
}

}  // namespace

DiskGeometry::DiskGeometry(const HddParameters& p, uint64_t size_bytes)
    : revolution_ns_(p.revolution_ns), turn_ns_(p.revolution_ns + p.track_switch_ns) {
  EPLOG_CHECK(p.zones != 0 && p.revolution_ns != 0, "a disk turns and has zones");
  EPLOG_CHECK(p.inner_bytes_per_s != 0 && p.inner_bytes_per_s <= p.outer_bytes_per_s,
              "rates fall inwards");
  // Zones have equally many tracks: as many as hold the size at the mean rate.
  const auto rate = [&](uint64_t zone) {
    return p.outer_bytes_per_s -
           (p.outer_bytes_per_s - p.inner_bytes_per_s) * (2 * zone + 1) / (2 * uint64_t{p.zones});
  };
  uint64_t bytes_of_all = 0;  // one track of each zone
  for (uint64_t zone = 0; zone < p.zones; ++zone) {
    const uint64_t bytes = static_cast<uint64_t>(Wide{rate(zone)} * turn_ns_ / 1'000'000'000);
    zones_.push_back({0, 0, std::max<uint64_t>(RoundDown(bytes, kSectorBytes), kSectorBytes)});
    bytes_of_all += zones_.back().track_bytes;
  }
  const uint64_t tracks_of_zone = DivideUp(size_bytes, bytes_of_all);
  uint64_t begin = 0;
  for (Zone& zone : zones_) {
    zone.begin_bytes = begin;
    zone.first_track = tracks_;
    begin += tracks_of_zone * zone.track_bytes;
    tracks_ += tracks_of_zone;
  }
  // a + b sqrt(x) + c x over the distance x of two random places: sqrt(x) is 8/15 in the mean, x is
  // 1/3.
  const auto average = static_cast<int64_t>(p.seek_average_ns - p.seek_track_ns);
  const auto full = static_cast<int64_t>(p.seek_full_ns - p.seek_track_ns);
  seek_base_ns_ = static_cast<int64_t>(p.seek_track_ns);
  seek_root_ns_ = 5 * average - 5 * full / 3;
  seek_line_ns_ = full - seek_root_ns_;
}

const DiskGeometry::Zone& DiskGeometry::ZoneOf(uint64_t offset_bytes) const {
  const auto after =
      std::upper_bound(zones_.begin(), zones_.end(), offset_bytes,
                       [](uint64_t offset, const Zone& zone) { return offset < zone.begin_bytes; });
  return *(after - 1);
}

uint64_t DiskGeometry::TrackOf(uint64_t offset_bytes) const {
  const Zone& zone = ZoneOf(offset_bytes);
  return zone.first_track + (offset_bytes - zone.begin_bytes) / zone.track_bytes;
}

uint64_t DiskGeometry::StreamNs(uint64_t offset_bytes) const {
  const Zone& zone = ZoneOf(offset_bytes);
  const uint64_t in_zone = offset_bytes - zone.begin_bytes;
  return (zone.first_track + in_zone / zone.track_bytes) * turn_ns_ +
         in_zone % zone.track_bytes * revolution_ns_ / zone.track_bytes;
}

uint64_t DiskGeometry::SeekNs(uint64_t from_track, uint64_t to_track) const {
  const uint64_t distance = from_track < to_track ? to_track - from_track : from_track - to_track;
  if (distance == 0) {
    return 0;
  }
  // The share of all tracks in 32 binary places, its root in 16.
  const uint64_t share = (distance << 32) / tracks_;
  const auto root = static_cast<int64_t>(Root(share));
  const int64_t line = seek_line_ns_ * static_cast<int64_t>(share >> 12) / (int64_t{1} << 20);
  return static_cast<uint64_t>(seek_base_ns_ + seek_root_ns_ * root / (int64_t{1} << 16) + line);
}

uint64_t DiskGeometry::RotationNs(uint64_t at_ns, uint64_t offset_bytes) const {
  const uint64_t there = StreamNs(offset_bytes) % revolution_ns_;
  const uint64_t here = at_ns % revolution_ns_;
  return (there + revolution_ns_ - here) % revolution_ns_;
}

}  // namespace eplog::sim
