#include "sim/timeline.h"

#include <algorithm>

namespace eplog::sim {

uint64_t Timeline::Take(uint64_t now_ns, uint64_t ready_ns, uint64_t length_ns) {
  const auto past = std::find_if(busy_.begin(), busy_.end(),
                                 [&](const Busy& busy) { return busy.end_ns > now_ns; });
  busy_.erase(busy_.begin(), past);
  if (length_ns == 0) {
    return ready_ns;
  }
  uint64_t begin = ready_ns;
  auto next = busy_.begin();
  while (next != busy_.end() && next->begin_ns < begin + length_ns) {
    begin = std::max(begin, next->end_ns);
    ++next;
  }
  const uint64_t end = begin + length_ns;
  const bool joins_next = next != busy_.end() && next->begin_ns == end;
  const bool joins_previous = next != busy_.begin() && (next - 1)->end_ns == begin;
  if (joins_previous && joins_next) {
    (next - 1)->end_ns = next->end_ns;
    busy_.erase(next);
  } else if (joins_previous) {
    (next - 1)->end_ns = end;
  } else if (joins_next) {
    next->begin_ns = begin;
  } else {
    busy_.insert(next, Busy{begin, end});
  }
  return end;
}

uint64_t DieClock::WorkBegin(uint64_t ready_ns) const {
  return std::max({ready_ns, reads_end_ns_, work_end_ns_});
}

uint64_t DieClock::Work(uint64_t ready_ns, uint64_t length_ns) {
  work_end_ns_ = WorkBegin(ready_ns) + length_ns;
  return work_end_ns_;
}

uint64_t DieClock::Read(uint64_t ready_ns, uint64_t length_ns, uint64_t step_ns, bool reads_first) {
  uint64_t begin = std::max(ready_ns, reads_end_ns_);
  if (work_end_ns_ > begin) {
    // Operations end a whole number of steps before the end of the queue.
    begin = reads_first && step_ns != 0 ? begin + (work_end_ns_ - begin) % step_ns : work_end_ns_;
    work_end_ns_ += length_ns;
  }
  reads_end_ns_ = begin + length_ns;
  return reads_end_ns_;
}

}  // namespace eplog::sim
