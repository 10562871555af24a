// Assembly: from a heap of devices to an array (I11): who is who, which epoch counts, which devices
// may be trusted. Reads superblocks, writes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/superblock_copies.h"
#include "engine/core/hooks.h"
#include "eplog/device.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "format/superblock.h"

namespace eplog {

struct Assembly {
  Superblock winner;  // epoch, base and members that count, with the newest checkpoint pointer
  std::vector<Device*> devices;        // by index; null where missing or stale
  std::vector<bool> stale;             // present, but not to be trusted
  std::vector<std::string> why_stale;  // then: "PATH: why"
  // Stale, and the member itself, not one that it replaced; with its newest superblock's
  // generation.
  struct Away {
    Device* device = nullptr;
    uint64_t generation = 0;
    bool damaged = false;  // the other copy of its superblock
  };
  std::vector<Away> away;
  uint64_t failed = 0;  // mask: failed a request of this opening, and are to stay out (I7)
  bool settled = true;  // every trusted device bears the winner's epoch
  std::string beyond;   // why it may only be opened by force; else empty
  // That trusted superblocks name, newest first. The newest counts; a crash may leave two.
  std::vector<CheckpointPointer> checkpoints;
  // Only with force: what else may be tried, best first, and why that shows something older.
  std::vector<Assembly> fallbacks;
  std::string why_older;
  std::vector<uint64_t> generations;  // of each trusted member's newest superblock
  uint64_t damaged = 0;               // mask: trusted members of which the other copy is damaged
  std::vector<Epoch> epochs;          // of every superblock, and what these call opened
  uint64_t highest_epoch = 0;         // that any device bears which the winner knows
  std::string miscounted;             // one of these that bears a number none is counted up to
};

// Refuses by name: a device that is no member (any more), of another array, doubled, truncated, of
// a newer format; more than m devices missing or stale. With `force` the last is told in `beyond`
// instead, and what is to be tried where that cannot be opened either is in `fallbacks`.
Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary, bool force = false);

// ---- its steps, also for those who explain instead of opening

struct FoundMember {
  Device* device = nullptr;
  Superblock superblock;
  bool doubtful = false;  // a copy of its superblock is damaged, which may have been the newest
  size_t at = 0;          // among the devices that were given
  std::string why_stale;  // set by Judge: why the array goes on without it; else empty
};

// Are two devices the same member, or one a copy of the other? None may be chosen for the owner.
bool AreTwins(const FoundMember& a, const FoundMember& b);
// Which epoch counts, and who belongs to it. Of devices of one array, without twins. Who cannot be
// judged is taken out of `found` and counts as missing.
Result<Assembly> Judge(std::vector<FoundMember>& found, Canary canary);
// kTooManyFailures if more than m are missing or stale, naming them.
Status CheckEnough(const Assembly& assembly);
// The same in words, with what would help; empty if there are enough.
std::string WhyNotEnough(const Assembly& assembly, const std::vector<FoundMember>& found,
                         Canary canary);
// Why they are not enough though no more than m are missing: together with those that are not
// rebuilt yet they are more. What these lack is on the missing ones, which would be left behind for
// good; and what was flushed last may be there alone. Empty where none is missing, since going on
// rebuilds those that are there, and takes back those that were away.
std::string WhyNotWhole(const Assembly& assembly);
// Journal mode `log`: what was flushed last may be on the log devices and on no ring.
bool MayBeOnLogsAlone(const Assembly& assembly);
// It may, and of the log devices that flushes relied on none is there: what would be given up by
// going on. Empty if nothing is, or if all of them are in `given_up` (bit j: log device j).
std::string WhyLogsAreNeeded(const Assembly& assembly, uint64_t given_up);
// Why a device cannot hold what its superblock says; empty if it can.
std::string WhyTruncated(const FoundMember& item);

}  // namespace eplog
