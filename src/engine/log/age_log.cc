#include "engine/log/age_log.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace eplog {

void AgeLog::Open(uint64_t sequence, uint64_t now_us) {
  samples_.push_back({sequence, now_us});
}

void AgeLog::Note(uint64_t sequence, uint64_t now_us, uint64_t oldest_needed) {
  samples_.push_back({sequence, now_us});
  while (samples_.size() > 1 && samples_[1].sequence <= oldest_needed) {
    samples_.pop_front();
  }
  if (samples_.size() > kMaxSamples) {
    // Something is needed for very long: half of them tell as much.
    for (size_t i = 1; i < samples_.size(); ++i) {
      samples_.erase(samples_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

uint64_t AgeLog::AppendedUs(uint64_t sequence) const {
  EPLOG_CHECK(!samples_.empty(), "the age of an entry before the log was opened");
  const auto later = std::upper_bound(
      samples_.begin(), samples_.end(), sequence,
      [](uint64_t wanted, const Sample& sample) { return wanted < sample.sequence; });
  return (later == samples_.begin() ? later : std::prev(later))->us;
}

uint64_t AgeLog::SequenceAt(uint64_t us) const {
  const auto later =
      std::upper_bound(samples_.begin(), samples_.end(), us,
                       [](uint64_t at, const Sample& sample) { return at < sample.us; });
  return later == samples_.begin() ? 0 : std::prev(later)->sequence;
}

}  // namespace eplog
