// SsdModel: an SSD as a calculation. Told what is asked for at which nanosecond, it says when that
// is answered. No loop, no content: sim/sim_ssd.h has those.
//
// A request takes the link; a read then takes the die of each page, that die's channel, and the
// link again; pages in the buffer or never written need no flash. A write is answered when its
// bytes are in the buffer. The buffer drains in the background: a unit of pages as soon as one is
// there, to the next die that has at most one waiting. A unit is filled up with padding only where
// a flush waits for it. What a die has to do before it can take a unit - moving pages, erasing - is
// time of that die and of its channel.
//
// Nothing happens by itself: every call brings the inside up to `now`, event by event in order of
// time. So what is in the background costs no timers, and nothing outlives the requests.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "sim/ftl.h"
#include "sim/parameters.h"
#include "sim/timeline.h"
#include "sim/write_buffer.h"

namespace eplog::sim {

struct SsdCounters {
  uint64_t reads = 0;  // requests
  uint64_t writes = 0;
  uint64_t trims = 0;
  uint64_t flushes = 0;  // with those of ranges
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t read_pages = 0;      // that requests touched
  uint64_t flash_reads = 0;     // operations of the flash for requests
  uint64_t merged_pages = 0;    // written in part, so that the rest was read from the flash
  uint64_t absorbed_pages = 0;  // written over in the buffer before they had left it
  uint64_t programs = 0;        // units, for the host
  uint64_t gc_reads = 0;        // operations of the flash for collection
  uint64_t gc_programs = 0;
  uint64_t gc_busy_ns = 0;  // of dies
};

class SsdModel {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  SsdModel(const SsdParameters& parameters, uint64_t size_bytes);

  // Each of these returns when it is answered. `now_ns` never goes back.
  uint64_t Read(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  // Requires HasRoom.
  uint64_t Write(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  uint64_t Trim(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);

  // Room in the buffer. At most `write_limit_bytes` are asked for at once.
  bool HasRoom(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  [[nodiscard]] uint64_t write_limit_bytes() const { return write_limit_bytes_; }

  // A flush is begun, and asked for until it has ended. It covers what was in the buffer when it
  // began, in all or in a range, and pushes that out.
  struct Flush {
    uint64_t first_page = 0;
    uint64_t end_page = UINT64_MAX;
    uint64_t sequence = 0;  // 0: nothing to wait for
    uint64_t earliest_ns = 0;
  };
  Flush BeginFlush(uint64_t now_ns);
  Flush BeginFlush(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes);
  bool HasEnded(uint64_t now_ns, const Flush& flush);

  // When something inside changes next if nobody asks for anything: HasRoom and HasEnded are worth
  // asking again. kNever: nothing will.
  [[nodiscard]] uint64_t NextEventNs() const {
    return events_.empty() ? kNever : events_.top().at_ns;
  }

  // Ftl::Precondition; the device is as it was long ago. Nothing may be in the buffer.
  void Precondition(uint64_t seed, uint64_t overwrite_percent);
  void ResetCounters();

  [[nodiscard]] const SsdCounters& counters() const { return counters_; }
  [[nodiscard]] const Ftl& ftl() const { return ftl_; }
  // As they were given, but for erase_ns, which is that of the device's own blocks (ShapeFor).
  [[nodiscard]] const SsdParameters& parameters() const { return parameters_; }
  [[nodiscard]] uint64_t buffered_pages() const { return buffer_.pages(); }

 private:
  struct Unit {  // on its way into the flash
    std::vector<WriteBuffer::Entry> entries;
    uint32_t die = 0;
  };
  struct Event {
    uint64_t at_ns;
    uint64_t number;  // of those at once, the first that was made
    uint32_t unit;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.number > b.number;
    }
  };
  struct PageRange {
    uint64_t first;
    uint64_t end;
  };

  void AdvanceTo(uint64_t now_ns);
  void StartUnits(uint64_t now_ns);
  void StartUnit(uint64_t now_ns, uint32_t die);
  uint64_t Program(uint64_t now_ns, const Unit& unit, const Collected& collected);
  void CollectOn(uint64_t now_ns, uint32_t die, const Collected& collected);
  [[nodiscard]] bool IsDieReady(uint32_t die) const;
  uint32_t NextDie();
  bool UnitIsDue();
  uint64_t ReadFlash(uint64_t now_ns, uint64_t ready_ns, uint64_t page, uint64_t pages);
  uint64_t Merge(uint64_t now_ns, uint64_t ready_ns, PageRange whole, PageRange touched);
  [[nodiscard]] bool IsInFlash(uint64_t page) const;
  [[nodiscard]] PageRange Touched(uint64_t offset_bytes, uint64_t length_bytes) const;
  [[nodiscard]] PageRange Whole(uint64_t offset_bytes, uint64_t length_bytes) const;
  [[nodiscard]] bool RangeIsQueued(const Flush& flush) const;
  Timeline& write_link() { return parameters_.link.full_duplex ? second_link_ : link_; }

  SsdParameters parameters_;
  uint64_t size_bytes_;
  Ftl ftl_;
  WriteBuffer buffer_;
  uint64_t buffer_limit_pages_;
  uint64_t write_limit_bytes_;
  Timeline link_;
  Timeline second_link_;
  std::vector<Timeline> channels_;
  std::vector<DieClock> dies_;
  std::vector<uint32_t> waiting_units_;  // by die
  uint32_t last_die_;
  std::vector<Unit> units_;
  std::vector<uint32_t> free_units_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t events_made_ = 0;
  uint64_t flushed_sequence_ = 0;  // up to here, units may be padded
  SsdCounters counters_;
};

}  // namespace eplog::sim
