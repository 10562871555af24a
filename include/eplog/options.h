// What a person chooses when creating and opening an array.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "eplog/events.h"

namespace eplog {

// Where a flush waits for the journal (docs/design.md, promises). Kept in the superblock.
enum class JournalMode : uint8_t {
  kFull = 1,  // journal copies on the log devices and an SSD ring before a flush is acknowledged
  kLog = 2,   // on the log devices only; rings follow within seconds. Weaker in one named case.
};

struct CreateOptions {
  std::string name;               // of the array; at most kMaxArrayNameBytes
  uint32_t parity = 2;            // m: parity chunks a stripe = log devices; 1 ... 4, and m < n
  uint32_t chunk_bytes = 4096;    // power of two, 4 KiB ... 1 MiB
  uint32_t reserve_percent = 10;  // of each SSD's slots, for versions not yet freed; 1 ... 50
  JournalMode journal = JournalMode::kFull;
  bool force = false;    // overwrite members of another array
  bool discard = false;  // tell devices beforehand that nothing they hold is needed (TRIM)
  // Sizes of the fixed areas; 0 = derived from the device sizes. Smaller than the minimum is
  // refused.
  uint64_t ring_bytes = 0;      // journal ring on each SSD
  uint32_t extent_stripes = 0;  // stripes a volume extent
  uint64_t entropy = 0;         // seeds the UUIDs; pass real randomness outside tests
  // On the devices (docs/format.md, section 11). 1 is what older programs know; it cannot tell all
  // contents apart that carry a CRC32C of their own.
  uint32_t format = 2;
};

inline constexpr uint32_t kMaxBufferChunks = 1U << 20;  // and stripes: what anybody may ask for

// RAM in which writes are acknowledged before they are in the log. Flushes see to what lies there.
struct BufferSizes {
  uint32_t device_chunks = 0;  // updates, for each SSD; 0 = none
  uint32_t stripes = 0;        // stripes that were never written before; 0 = none
  [[nodiscard]] bool any() const { return device_chunks != 0 || stripes != 0; }
};

// When parity is committed besides when log or slots run short. All may be on at once; 0 = not for
// this reason.
struct CommitTriggers {
  uint64_t every_writes = 0;  // what is pending, each time after so many write requests
  uint64_t idle_us = 0;       // what is pending, after so long without a request
  uint64_t age_us = 0;        // what has been pending for so long
  bool on_close = false;
};

// When a checkpoint is written besides when log or rings run short.
struct CheckpointTriggers {
  uint64_t log_bytes = uint64_t{1}
                       << 30;          // appended since the last one: bounds what recovery reads
  uint64_t interval_us = 300'000'000;  // since the last one, if anything was appended
};

// How rebuilding shares the devices with requests.
struct RebuildPace {
  bool yields = true;             // small batches, with rests, while there are requests
  uint64_t bytes_per_second = 0;  // at most, of what is written to the new devices; 0 = no limit
};

// How far a scrub has come, for the next one to go on there if it does not end.
struct ScrubMark {
  bool heal = false;
  uint64_t next_stripe = 0;
  uint64_t problems_found = 0;  // before it, and in log stripes that are healed
  uint64_t healed = 0;
  uint64_t lost = 0;
  bool operator==(const ScrubMark&) const = default;
};

// Where the mark is kept; both may be empty. Called now and then while scrubbing, and with nothing
// when a scrub has ended.
struct ScrubMarkKeeper {
  std::function<std::optional<ScrubMark>()> load;
  std::function<void(const std::optional<ScrubMark>&)> save;
};

struct OpenOptions {
  CommitTriggers commit;
  CheckpointTriggers checkpoint;
  BufferSizes buffers;
  uint64_t max_buffer_bytes = 0;  // what all of them may hold, now and later; 0 = no limit
  bool read_only = false;         // recover in RAM, write nothing
  // Read-only only: open also with more than m devices missing. What cannot be decoded fails its
  // reads; Array::FindLost lists it. Devices that missed something help where they can: what is
  // read from them is checked as everything is.
  bool force = false;
  // Journal mode `log`: bit j says that log device j may be given up. What was flushed last may be
  // on the log devices alone: where none of those that flushes relied on is there, or can be read
  // where the log goes on, an opening is refused (kTooManyFailures) unless each is given up.
  uint64_t without_logs = 0;
  bool auto_commit =
      true;  // parity commit when log or slots run short (off only for exact measurements)
  // Whole stripes go to the log, too, where something lies already, as the EPLOG paper has it: for
  // comparing. It costs a parity commit later where parity could be written at once.
  bool log_whole_stripes = false;
  bool discard = true;  // tell SSDs that take it (TRIM) of slots that have been free for a while
  uint64_t engine_flush_us = 5'000'000;  // nothing stays unstable for longer (I4)
  // A device with so many failed reads, or wrong chunks, is failed as a whole if no other is
  // missing and fewer than `parity` others have been wrong; while a scrub heals, at its end.
  // 0 = never.
  uint32_t max_read_errors = 32;
  uint32_t max_corrupt_chunks = 1024;
  // A device that was not there at an opening, while others went on, is verified and gets what it
  // missed. Not one that failed, or was taken out, while the array ran.
  bool take_back = true;
  ScrubMarkKeeper scrub_mark;
  EventSink on_event;
  uint64_t entropy = 0;  // seeds the random part of epochs; pass real randomness outside tests
};

}  // namespace eplog
