// Flusher: makes prefixes of the log stable (I4) and lets go of what waited for that (I1).
//
// One flush is at work at a time; everybody who waits meanwhile shares the next one, so that many
// fsyncs cost one ring block and one round of device flushes.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "engine/core/core.h"

namespace eplog {

class Appender;

class Flusher {
 public:
  Flusher(Core& core, Appender& appender) : core_(core), appender_(appender), changed_(core.loop) {}

  // Everything up to `position` is stable, and a mark that covers it is.
  void Open(uint64_t stable, uint64_t stable_place);

  struct UnstableEntry {
    uint64_t sequence = 0;
    uint64_t mark = 0;
    uint64_t end_place = 0;
    uint64_t ssd_mask = 0;
    uint64_t applied_us = 0;  // set by Applied
  };
  void Applied(UnstableEntry entry);

  enum class Upto : uint8_t {
    kDevices,          // on SSDs and log devices, the rings perhaps not: not stable
    kAcknowledgeable,  // as far as a user's flush must go: the same in mode `log` while all log
                       // devices are there, else stable
    kStable,
  };
  // Until everything up to `sequence` (applied already) is durable. `own_ssds` is used by a canary
  // of the tests only.
  Task<Status> FlushTo(uint64_t sequence, Upto upto, uint64_t own_ssds = 0);
  // The same without waiting for ring room: kBusy if there is none. For those who make it.
  Task<Status> TryFlushTo(uint64_t sequence, Upto upto, uint64_t own_ssds = 0);
  // For a checkpoint of the state at `sequence`: stable, unless the rings have no room left, which
  // only this checkpoint makes. Then it makes the state stable itself, when it counts.
  Task<Status> FlushForCheckpoint(uint64_t sequence);
  void CheckpointCounts(uint64_t sequence);
  // The engine's own flush: everything that is applied, stable.
  Task<Status> FlushAll();
  Task<Status> TryFlushAll();  // kBusy: no ring room
  // The same, then a mark that covers it, stable too: slots freed by what is applied now are free
  // afterwards (I1).
  Task<Status> FlushAndMark();

  [[nodiscard]] uint64_t stable() const { return stable_; }
  [[nodiscard]] uint64_t stable_place() const { return stable_place_; }
  [[nodiscard]] uint64_t covered() const { return cover_; }
  [[nodiscard]] uint64_t mark() const { return stable_; }
  [[nodiscard]] bool has_unstable() const { return !unstable_.empty(); }
  // So much that the engine flushes by itself, long before the appender waits for that.
  [[nodiscard]] bool has_much_unstable() const;
  // Loop time at which the oldest unstable entry was applied.
  [[nodiscard]] uint64_t oldest_unstable_us() const { return unstable_.front().applied_us; }

 private:
  Task<Status> FlushOnce(uint64_t target, bool rings, uint64_t own_ssds);
  [[nodiscard]] bool WantsRings(Upto upto) const {
    return upto == Upto::kStable || (upto == Upto::kAcknowledgeable && core_.rings_before_ack());
  }
  [[nodiscard]] bool Done(uint64_t sequence, Upto upto) const {
    return sequence <= stable_ || (!WantsRings(upto) && sequence <= flushed_);
  }
  void Advance(uint64_t target);

  Core& core_;
  Appender& appender_;
  Event changed_;
  std::deque<UnstableEntry> unstable_;
  uint64_t stable_ = 0;
  uint64_t stable_place_ = 0;
  uint64_t flushed_ = 0;  // durable on SSDs and log devices, the rings perhaps not
  uint64_t cover_ = 0;
  // The next flush, as asked for so far.
  bool busy_ = false;
  uint64_t wanted_ = 0;
  bool wanted_rings_ = false;
  uint64_t wanted_own_ = 0;
};

}  // namespace eplog
