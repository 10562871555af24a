// AgeLog: how old entries are, about: of those that append chunks one is noted every tenth of a
// second. In memory only; every array opens with nothing older than its opening.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace eplog {

class AgeLog {
 public:
  static constexpr uint64_t kSampleUs = 100'000;
  static constexpr size_t kMaxSamples = 4096;

  // Whatever was appended up to `sequence` is as old as this, in loop time.
  void Open(uint64_t sequence, uint64_t now_us);

  // It is time to note an entry.
  [[nodiscard]] bool Due(uint64_t now_us) const {
    return samples_.empty() || now_us >= samples_.back().us + kSampleUs;
  }
  // An entry newer than all that were noted. Nobody will ask for what is older than
  // `oldest_needed` any more.
  void Note(uint64_t sequence, uint64_t now_us, uint64_t oldest_needed);

  // When the entry was appended: not later than that, and at most about kSampleUs before, unless
  // what is needed is very old. Not before Open.
  [[nodiscard]] uint64_t AppendedUs(uint64_t sequence) const;
  // An entry that was appended at that time or before, and about the newest such; 0 if none is
  // known.
  [[nodiscard]] uint64_t SequenceAt(uint64_t us) const;

  [[nodiscard]] size_t size() const { return samples_.size(); }

 private:
  struct Sample {
    uint64_t sequence;
    uint64_t us;
  };
  std::deque<Sample> samples_;  // in the order of both
};

}  // namespace eplog
