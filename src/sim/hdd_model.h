// HddModel: a hard disk as a calculation, in the manner of sim/ssd_model.h.
//
// One head does one thing after the other: seek, wait for the sector, transfer. After a read it
// goes on reading into the cache, up to `read_ahead_bytes` beyond what was asked for, so that
// reading on costs neither seek nor rotation. With write-back, writes are answered when they are in
// the cache, and the head writes them while nobody reads: always the next one in the direction of
// rising addresses, then from the beginning again. Reads go first until the cache is half full or a
// flush waits; from then on one of each in turn. Reads that wait are served in the order of coming.
#pragma once

#include <cstdint>
#include <map>

#include "sim/dirty_extents.h"
#include "sim/disk_geometry.h"
#include "sim/parameters.h"
#include "sim/timeline.h"

namespace eplog::sim {

struct HddCounters {
  uint64_t reads = 0;  // requests
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t cached_reads = 0;  // answered without moving the head
  uint64_t seeks = 0;
  uint64_t drains = 0;  // pieces written from the cache
  uint64_t drained_bytes = 0;
  uint64_t seek_ns = 0;
  uint64_t rotation_ns = 0;  // waited for
  uint64_t transfer_ns = 0;  // on the disk, reading ahead left out
};

class HddModel {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  HddModel(const HddParameters& parameters, uint64_t size_bytes);

  // Each returns when it is answered. `now_ns` never goes back.
  uint64_t Read(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  // Requires HasRoom.
  uint64_t Write(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);

  // Room in the cache. At most `write_limit_bytes` are asked for at once.
  bool HasRoom(uint64_t now_ns, uint64_t length_bytes);
  [[nodiscard]] uint64_t write_limit_bytes() const;

  struct Flush {
    uint64_t sequence = 0;
    uint64_t earliest_ns = 0;
  };
  Flush BeginFlush(uint64_t now_ns);
  bool HasEnded(uint64_t now_ns, const Flush& flush);
  // As SsdModel::NextEventNs.
  [[nodiscard]] uint64_t NextEventNs() const;

  [[nodiscard]] const HddCounters& counters() const { return counters_; }
  void ResetCounters() { counters_ = HddCounters(); }
  [[nodiscard]] const DiskGeometry& geometry() const { return geometry_; }
  [[nodiscard]] const HddParameters& parameters() const { return parameters_; }
  [[nodiscard]] uint64_t cached_bytes() const {
    return arriving_bytes_ + dirty_.bytes() + DrainingBytes();
  }

 private:
  // The head reads on from `at_bytes`, where it was or will be at `at_ns`.
  struct Ahead {
    bool on = false;
    uint64_t first_bytes = 0;  // what is in the cache begins here
    uint64_t at_bytes = 0;
    uint64_t at_ns = 0;
    uint64_t limit_bytes = 0;  // where it stops
  };

  void AdvanceTo(uint64_t now_ns);
  [[nodiscard]] uint64_t NextDrainNs() const;
  void Arrive();
  void Drain(uint64_t begin_ns);
  uint64_t Access(uint64_t begin_ns, uint64_t offset_bytes, uint64_t length_bytes, bool write);
  [[nodiscard]] bool IsInWriteCache(uint64_t begin, uint64_t end) const;
  [[nodiscard]] bool IsAhead(uint64_t begin, uint64_t end) const;
  uint64_t ReadAhead(uint64_t now_ns, uint64_t end_bytes);
  uint64_t ReadDisk(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  [[nodiscard]] uint64_t LimitAfter(uint64_t end_bytes) const;
  [[nodiscard]] bool IsWriteTurn() const;
  [[nodiscard]] uint64_t DrainingBytes() const { return draining_.end - draining_.begin; }

  HddParameters parameters_;
  uint64_t size_bytes_;
  DiskGeometry geometry_;
  uint64_t clock_ns_ = 0;                                   // how far the background is
  std::multimap<uint64_t, DirtyExtents::Extent> arriving_;  // over the link, by the time of its end
  uint64_t arriving_bytes_ = 0;
  DirtyExtents dirty_;
  DirtyExtents::Extent draining_;  // empty: none
  uint64_t drained_ns_ = 0;        // when that is on the disk
  Timeline link_;
  uint64_t head_track_ = 0;
  uint64_t head_bytes_ = 0;  // where the last drain ended
  uint64_t head_free_ns_ = 0;
  bool drained_last_ = false;
  Ahead ahead_;
  uint64_t last_sequence_ = 0;
  uint64_t flushed_sequence_ = 0;  // flushes wait up to here
  HddCounters counters_;
};

}  // namespace eplog::sim
