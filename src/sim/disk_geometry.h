// DiskGeometry: where on a disk a byte is, and how long the head takes. Pure arithmetic on whole
// numbers.
//
// Tracks lie one behind the other from the outer edge to the inner; zones have equally many tracks,
// and the sustained rate falls evenly from zone to zone. Beginnings of tracks are skewed by the
// time of a track switch, so that reading on meets the next track's first byte when the head is
// there.
//
// The heart is the stream time S(b): how long a head that reads everything from byte 0 on takes to
// come to byte b. Bytes a to b take S(b) - S(a); byte b passes under the head whenever the time is
// S(b) modulo a revolution.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/parameters.h"

namespace eplog::sim {

class DiskGeometry {
 public:
  DiskGeometry(const HddParameters& parameters, uint64_t size_bytes);

  [[nodiscard]] uint64_t StreamNs(uint64_t offset_bytes) const;
  [[nodiscard]] uint64_t TrackOf(uint64_t offset_bytes) const;
  // 0 on the same track.
  [[nodiscard]] uint64_t SeekNs(uint64_t from_track, uint64_t to_track) const;
  // From `at_ns` until byte `offset_bytes` passes.
  [[nodiscard]] uint64_t RotationNs(uint64_t at_ns, uint64_t offset_bytes) const;

  [[nodiscard]] uint64_t tracks() const { return tracks_; }
  [[nodiscard]] uint64_t track_bytes(uint64_t offset_bytes) const {
    return ZoneOf(offset_bytes).track_bytes;
  }

 private:
  struct Zone {
    uint64_t begin_bytes;
    uint64_t first_track;
    uint64_t track_bytes;
  };
  [[nodiscard]] const Zone& ZoneOf(uint64_t offset_bytes) const;

  uint64_t revolution_ns_;
  uint64_t turn_ns_;  // a revolution and a switch to the next track
  std::vector<Zone> zones_;
  uint64_t tracks_ = 0;
  int64_t seek_base_ns_;
  int64_t seek_root_ns_;
  int64_t seek_line_ns_;
};

}  // namespace eplog::sim
