// What a run of seeds has met. Plain numbers, so that a child process can send them to its parent.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/core/hooks.h"

namespace eplog::torture {

// What was at work when a crash struck.
enum class Phase : uint8_t { kCommit, kCheckpoint, kRebuild, kRecovery };
inline constexpr size_t kPhases = 4;
inline constexpr size_t kFailures = 6;  // styles of Doom that are of a device

struct Coverage {
  // Crashes by the kind of the I/O that they struck: [0] while running, [1] during recovery.
  std::array<std::array<uint64_t, 2>, kIoKinds> struck{};
  uint64_t quiet_crashes = 0;  // with no I/O about

  uint64_t seeds = 0;
  uint64_t operations = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t trims = 0;
  uint64_t flushes = 0;
  uint64_t commits = 0;
  uint64_t checkpoints = 0;
  uint64_t volume_changes = 0;
  uint64_t no_space = 0;
  uint64_t crashes = 0;
  uint64_t power_cuts = 0;
  uint64_t kills = 0;
  uint64_t openings = 0;
  uint64_t degraded_openings = 0;
  uint64_t stale_returns = 0;
  uint64_t clean_restarts = 0;
  uint64_t probes = 0;          // what-if crashes, recovered in RAM
  uint64_t lossy_probes = 0;    // of them with devices lost
  uint64_t weak_probes = 0;     // of them judged by the weaker rule of journal mode log
  uint64_t unasked_probes = 0;  // of them without its logs, which were not given up
  uint64_t full_checks = 0;
  std::array<uint64_t, kFailures> doomed{};  // devices that failed while running, by Doom::Style
  // Crashes in a phase with a failure of each style since the last opening was complete.
  std::array<std::array<uint64_t, kPhases>, kFailures> pairs{};
  uint64_t corrupt_sectors = 0;
  uint64_t damaged = 0;  // what-if crashes with damage of any kind, judged by its blast radius
  uint64_t damaged_beyond = 0;   // of them, more than parity can replace
  uint64_t damaged_refused = 0;  // openings in these
  uint64_t damaged_unjudged =
      0;  // openings in these of which only that they wrote nothing is asked
  uint64_t damaged_superblocks = 0;
  uint64_t damaged_struck = 0;   // openings in these that were cut short
  uint64_t damaged_chunks = 0;   // unreadable, or old and told, in these
  uint64_t beyond = 0;           // what-if crashes with more than m devices lost
  uint64_t beyond_read = 0;      // of them, those that opened by force
  uint64_t beyond_lost = 0;      // chunks in these that were lost
  uint64_t beyond_log_lost = 0;  // of them, those that lost the end of the log
  uint64_t back = 0;
  uint64_t back_opened = 0;
  uint64_t stopped_read = 0;      // arrays that stopped, whose losses were compared
  uint64_t stopped_lost = 0;      // chunks of these
  uint64_t absences = 0;          // openings for writing while some are away that come back
  uint64_t absences_unwhole = 0;  // of them, those with more than m away or not whole
  uint64_t absences_refused = 0;
  uint64_t struck_twice = 0;  // openings after two that were struck before their epochs opened
  uint64_t struck_twice_opened = 0;
  uint64_t superblock_lies = 0;
  uint64_t stopped = 0;                  // arrays that lost more than m devices while they ran
  uint64_t logs_lost_while_running = 0;  // and a flush was answered since
  uint64_t stopped_openings = 0;         // the same while they were opened
  uint64_t no_space_below = 0;    // lives in which a device found no space for what it was given
  uint64_t no_space_stopped = 0;  // of them, those seen to have stopped
  uint64_t overwrites_when_full = 0;
  uint64_t scrubs = 0;
  uint64_t scrub_findings = 0;
  uint64_t healed = 0;      // chunks, by scrubs
  uint64_t made_whole = 0;  // devices with wrong content that a scrub put right
  uint64_t taken_back = 0;  // devices that were away
  uint64_t went_back = 0;   // older copies of devices that were put in their place
  uint64_t replaced = 0;    // devices joined
  uint64_t repaired = 0;    // and became ok
  uint64_t rebuilt_chunks = 0;

  // Counted by the engine.
  uint64_t log_wraps = 0;
  uint64_t ring_wraps = 0;
  uint64_t flushes_without_ring_room = 0;
  uint64_t flushes_beside_full_rings = 0;
  uint64_t slot_reuses = 0;
  uint64_t recovery_repairs = 0;
  uint64_t recovery_cut_entries = 0;
  uint64_t recovery_dropped = 0;
  uint64_t recovery_salvaged = 0;
  uint64_t recovery_checkpoints = 0;
  uint64_t decoded_chunks = 0;
  uint64_t full_checkpoints = 0;
  uint64_t incremental_checkpoints = 0;
  uint64_t metadata_full = 0;
  uint64_t delta_commits = 0;
  uint64_t buffer_hits = 0;
  uint64_t partial_drains = 0;
  uint64_t buffered_stripes = 0;
  uint64_t early_deaths = 0;
  uint64_t relogged_chunks = 0;
  uint64_t space_waits = 0;

  void AddEngine(const EngineHooks& hooks);
  void Add(const Coverage& other);
  [[nodiscard]] std::string ToString() const;
  // The names of what must be met at least `least` times and was not.
  [[nodiscard]] std::string Missing(uint64_t least) const;
};

const char* IoKindName(IoKind kind);

}  // namespace eplog::torture
