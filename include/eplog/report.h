// What a check or scrub of an array found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eplog {

// One thing that is not as it should be.
struct Finding {
  enum class Outcome : uint8_t { kLeft, kHealed, kLost };
  std::string device;         // ssd3, log0: who holds what is wrong; empty if nobody does
  std::string volume;         // whose data it is, as in LostRange; empty for parity and the log
  uint64_t offset_bytes = 0;  // in the volume
  std::string what;
  Outcome outcome = Outcome::kLeft;

  // One line.
  [[nodiscard]] std::string Text() const {
    std::string text = device.empty() ? std::string() : device + ": ";
    if (!volume.empty()) {
      text += "volume '" + volume + "' offset " + std::to_string(offset_bytes) + ": ";
    }
    text += what;
    switch (outcome) {
      case Outcome::kLeft:
        break;
      case Outcome::kHealed:
        text += "; healed";
        break;
      case Outcome::kLost:
        text += "; it cannot be decoded";
        break;
    }
    return text;
  }
};

// `findings` has at most 1000; the counters count all.
struct CheckReport {
  uint64_t first_stripe = 0;  // a scrub that went on where an earlier one did not end; what was
                              // found before is in problems_found, healed and lost
  uint64_t rows_checked = 0;
  uint64_t chunks_checked = 0;
  uint64_t parity_checked = 0;
  uint64_t log_stripes_checked = 0;
  uint64_t metadata_blocks_checked = 0;  // superblocks, checkpoint, journal: all copies
  uint64_t problems_found = 0;
  uint64_t problems_found_before = 0;  // of them; these are not in `findings`
  uint64_t healed = 0;                 // chunks, and copies of metadata, written anew
  uint64_t lost = 0;  // chunks of volumes that cannot be read: redundancy cannot replace them
  std::vector<Finding> findings;
};

// Bytes of a volume that redundancy cannot bring back.
struct LostRange {
  std::string volume;  // its name; of one that is hidden, words that are nobody's name
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  bool operator==(const LostRange&) const = default;
};

// By volume name and offset, neighbours joined.
struct LossReport {
  std::vector<LostRange> ranges;
  uint64_t lost_bytes = 0;
  // Set if the end of the log is lost too: what was written last may read as its older content.
  std::string log_damage;
  // Names of SSDs that missed something and are read all the same: chunks in rows that were on
  // their way when these were lost may be missing too, and only a read tells.
  std::string unsure;
  // So many are missing that they may have gone on without those that are there: these cannot know
  // it, and then all of it is old.
  bool left_behind = false;
};

}  // namespace eplog
