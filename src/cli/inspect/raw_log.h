// The log as it lies on the disks, for `inspect`: every entry header that a device holds, and the
// chain of entries that goes on from the newest checkpoint (docs/format.md, "Joining the log").
//
// A second witness, on purpose (raw_array.h): which entry fits its predecessor, and which of several
// is taken, is what Recovery::FitsAfter and NextEntry say (engine/open/recovery_analyse.cc).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/inspect/raw_array.h"
#include "eplog/result.h"
#include "format/entry.h"

namespace eplog::cli {

struct FoundEntry {
  EntryHeader header;
  std::vector<std::string> copies;  // "log0", "ssd3 ring"
};

// By sequence, then epoch: several lives may have left an entry of one sequence.
using FoundEntries = std::map<std::pair<uint64_t, Epoch>, FoundEntry>;

// Add what the ring of this device holds: a log device's log ring, an SSD's journal ring. Headers
// that are damaged or not where they belong are left out; what is unreadable is an error.
Status ScanRing(const RawMember& member, const Superblock& identity, FoundEntries& into);

// The entries after the checkpoint, in order, each fitting its predecessor; from all members of the
// array.
struct JoinedLog {
  std::vector<FoundEntry> entries;
  uint64_t newest_mark = 0;  // of any entry of the chain
  uint64_t end_place = 0;    // where the next entry would lie
};
Result<JoinedLog> JoinLog(const RawArray& array, const CheckpointRoot& root);

}  // namespace eplog::cli
