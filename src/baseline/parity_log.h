// ParityLog: which places of the log hold differences of which lines' parity. It knows numbers; the
// bytes are PlArray's business.
//
// Each log device is a ring of places, a page each; difference j of an update lies at the same
// place of log device j. Places count up for ever and are taken in order, so the log is written
// sequentially. A place is free again when all before it are.
//
// The index is in RAM alone, as if it were kept in a safe memory: 8 bytes a place and some 60 a
// line.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "baseline/placement.h"
#include "runtime/sync.h"

namespace eplog {

class ParityLog {
 public:
  ParityLog(EventLoop& loop, uint64_t places) : changed(loop), places_(places) {}

  // One place for who will Take it, or give the promise back. False: there is none.
  [[nodiscard]] bool TryReserve();
  void Unreserve();
  // The next place, for a promise.
  [[nodiscard]] uint64_t Take();
  // A place that was taken and not recorded.
  void Free(uint64_t place);

  // The difference at `place` is there, and belongs to this line.
  void Record(uint64_t line, uint64_t place);
  // Ascending; empty if its parity is what the SSDs say.
  [[nodiscard]] const std::vector<uint64_t>& PlacesOf(uint64_t line) const;
  [[nodiscard]] bool Holds(uint64_t line, uint64_t place) const;
  // The first `count` differences of a line are in its parity now, or all are void.
  void Forget(uint64_t line, size_t count);
  void ForgetAll(uint64_t line) { Forget(line, PlacesOf(line).size()); }

  struct Difference {
    uint64_t place = 0;
    uint64_t line = 0;
  };
  // All that is recorded, by place.
  [[nodiscard]] std::vector<Difference> All() const;
  [[nodiscard]] uint64_t offset_bytes(uint64_t place) const { return place % places_ * kPageBytes; }
  [[nodiscard]] size_t lines() const { return lines_.size(); }

  // Places or promises were given back, or a difference was recorded, which can be committed.
  Event changed;

 private:
  const uint64_t places_;
  uint64_t tail_ = 0;  // the first place that is not free
  uint64_t reserved_ = 0;
  std::deque<bool> is_free_;  // of places from tail_ to the next one to take
  std::unordered_map<uint64_t, std::vector<uint64_t>> lines_;
};

}  // namespace eplog
