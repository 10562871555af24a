// How long something takes at best: other work on the machine only ever makes it slower.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace eplog::reliability {

// Sanitizers slow things down by an order of magnitude: bounds on time do not hold under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kTimeCounts = false;
#else
inline constexpr bool kTimeCounts = true;
#endif

template <typename Work>
double BestSeconds(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < (kTimeCounts ? 5 : 1); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

}  // namespace eplog::reliability
