// Servers of simulated time: when may something begin that needs a link, a channel or a die? Times
// are nanoseconds on the virtual clock. Each call passes `now`, which never goes back.
#pragma once

#include <cstdint>
#include <vector>

namespace eplog::sim {

// Serves one at a time and knows what it has promised: somebody who is ready early fits into a gap
// in front of what was promised for later.
class Timeline {
 public:
  // The first `length_ns` from `ready_ns` on that nobody has; it is taken. Returns its end.
  uint64_t Take(uint64_t now_ns, uint64_t ready_ns, uint64_t length_ns);

 private:
  struct Busy {
    uint64_t begin_ns;
    uint64_t end_ns;
  };
  std::vector<Busy> busy_;  // in order, with gaps between them
};

// A die. Programs and erases queue; a read goes in front of those that have not begun, if
// `reads_first`. Their promised ends are not taken back, but the die has so much less time for what
// comes afterwards.
class DieClock {
 public:
  // Reads for `length_ns` from `ready_ns` on; `step_ns` is what one operation of the queue takes.
  uint64_t Read(uint64_t ready_ns, uint64_t length_ns, uint64_t step_ns, bool reads_first);
  // Queues work. Returns its end.
  uint64_t Work(uint64_t ready_ns, uint64_t length_ns);
  // When work that is queued now could begin.
  [[nodiscard]] uint64_t WorkBegin(uint64_t ready_ns) const;

 private:
  uint64_t reads_end_ns_ = 0;
  uint64_t work_end_ns_ = 0;
};

}  // namespace eplog::sim
