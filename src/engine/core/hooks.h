// What tests may see and break, of an array that they open with OpenHooked.
//
// `before_io` sees every request to a member just before it is submitted, so that a simulation can
// count and strike by kind. A Canary is one broken rule, to prove that the torture would notice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/types.h"
#include "device/io_kind.h"
#include "eplog/array.h"

namespace eplog {

enum class Canary : uint8_t {
  kNone,
  kSlotReuse,           // a slot is reused before an entry with a covering mark is stable (I1)
  kFlushOwnSsd,         // a flush waits only for the range's own SSDs (I4)
  kRingUnflushed,       // an earlier ring block is left unflushed (I4)
  kNoEpochJoin,         // entries are joined by sequence without the epoch (I8)
  kTailCopies,          // recovery does not write the cut and the kept tail to every copy (I8)
  kSuperblockLate,      // the superblock epoch is written after recovery's first write (I11)
  kRowNoVersions,       // "row installed" supersedes whatever is pending (I5)
  kTornStripeKept,      // recovery keeps a full stripe without verifying its chunks (I8)
  kParityInPlace,       // commit overwrites the old parity (I5)
  kLogFreedEarly,       // log is freed before the checkpoint counts (I9)
  kCheckpointUnstable,  // a checkpoint counts while it holds unstable state (I9)
  kFlushDropped,        // a device flush is not sent
  kTrimFreesAtOnce,     // a trimmed chunk's slot is freed before a commit (I3)
  kCheckpointWithoutPendings,  // an incremental checkpoint leaves out what is pending (I2)
  kRunsOutOfOrder,             // the runs of a checkpoint are loaded newest first (I9)
  kBufferHitLost,              // a write goes into a buffered chunk that is on its way (P1)
  kCommitWithoutReserve,       // nothing is kept free for parity commit (section 5)
  kEarlyDeathUnstable,  // a log stripe's space is free before what superseded it is stable (I6)
  kReplacedWordsKept,   // words of the SSD before a replacement are taken for its own (I11)
  kJoinedOkEarly,       // a replacement is `ok` before its full checkpoint counts
  kRebuildForgetsLog,   // rebuilding leaves out what live log stripes need
  kJoinedForgotten,     // entries older than a replacement are believed about it (I11)
  kStaleTrusted,        // a member that missed something is taken for good (P6)
  kAbsentIsZero,        // an absent chunk is read as zeros
  kFlushRetried,        // a flush that failed is tried again, and believed (I7)
  kTieRefused,          // two epochs of one number are refused, though one of them is right (I11)
  kHealInPlace,         // what was wrong is written anew where it lies (I5)
  kVersionByPlace,      // a commit takes a version for the one before if both are `absent` (I5)
  kContentByCrc,        // contents are told apart by CRC32C, as in format 1 (I8)
  kRenameUnflushed,     // what takes another volume's name is not made durable before (I8)
  kTailCut,             // recovery cuts the log where a record is not whole (I8)
  kDropUntold,          // and says nothing of what it drops (P7)
  kOlderRefused,        // where older copies leave no valid epoch, nothing opens (I11)
  kLogsGivenUp,         // mode `log` opens without its logs, unasked (P2)
  kUnwholeCounts,       // a device that is not rebuilt yet counts as there when others are missing
  kStopWrittenDown,     // more than m are lost while it runs, and an epoch says so (P7)
  kReturnUnopened,      // a device is taken back while the epoch that calls it away has not opened
};
inline constexpr int kCanaries = 38;

struct EngineHooks {
  Canary canary = Canary::kNone;
  std::function<void(DeviceIndex device, IoKind kind)> before_io;

  // Choices that are free, made so that rare orders come often.
  bool lowest_slot_first = false;        // a freed slot is taken again as soon as it may be
  uint32_t headers_a_ring_block = 0;     // 0 = as many as fit
  bool rings_in_order = false;           // one SSD's is filled before the next one's
  uint32_t checkpoint_step_bytes = 0;    // others may run after so much of a checkpoint; 0 = rarely
  bool incremental_checkpoints = false;  // wherever one fits, however long
  bool reserved_names = false;           // volumes may get them, as from earlier versions
  bool moves_on = false;                 // in the log, also what could be committed where it is

  // Coverage, counted by the engine.
  uint64_t log_wraps = 0;
  uint64_t ring_wraps = 0;
  uint64_t slot_reuses = 0;       // a slot was allocated that an earlier life or version had used
  uint64_t recovery_repairs = 0;  // chunks, headers and log chunks put back
  uint64_t recovery_cut_entries = 0;  // entries found after the cut and dropped
  uint64_t recovery_dropped = 0;      // entries of which something was not whole
  uint64_t recovery_salvaged = 0;     // chunks of these that were, and were written again
  uint64_t recovery_checkpoints = 0;  // a checkpoint of the cut took the place of the first entry
  uint64_t decoded_chunks = 0;        // reads answered from redundancy
  uint64_t flushes_without_ring_room = 0;
  uint64_t flushes_beside_full_rings = 0;  // of these, for who needs none
  uint64_t full_checkpoints_written = 0;
  uint64_t incremental_checkpoints_written = 0;
  uint64_t metadata_full = 0;  // an incremental checkpoint would have left no room for a full one
  uint64_t delta_commits = 0;  // stripes committed from their old parity
  uint64_t buffer_hits = 0;
  uint64_t partial_drains = 0;    // a flush drained some chunks and left others in their buffers
  uint64_t buffered_stripes = 0;  // whole stripes out of buffers
  uint64_t early_deaths = 0;      // of log stripes
  uint64_t relogged_chunks = 0;   // of stripes that cannot be committed
  uint64_t rebuilt_chunks = 0;    // row words that were absent
  uint64_t devices_joined = 0;    // and are ok
  uint64_t space_waits = 0;       // writes that waited for slots or log room
};

// Array::Open for tests. `hooks` outlives the array.
Task<Result<std::unique_ptr<Array>>> OpenHooked(EventLoop& loop, std::vector<Device*> devices,
                                                OpenOptions options, EngineHooks* hooks);

}  // namespace eplog
