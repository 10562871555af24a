// Reads a checkpoint: the root that a superblock points to and the runs that it names, each page
// from whichever SSD has it whole.
#pragma once

#include "engine/core/core.h"
#include "format/checkpoint.h"

namespace eplog {

// The root that `pointer` names. kCorrupt if no copy loads.
Task<Result<CheckpointRoot>> LoadRoot(Core& core, CheckpointPointer pointer);
// Its runs into `state`, which is fresh. kCorrupt as above.
Task<Status> LoadRuns(Core& core, const CheckpointRoot& root, State& state);

}  // namespace eplog
