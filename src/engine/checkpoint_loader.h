// Reads a checkpoint: the root that a superblock points to and the runs that it names, each page
// from whichever SSD has it whole.
#pragma once

#include "engine/core.h"
#include "format/checkpoint.h"

namespace eplog {

// Into `state`, which is fresh. kCorrupt if no copy loads.
Task<Result<CheckpointRoot>> LoadCheckpoint(Core& core, const CheckpointPointer& pointer,
                                            State& state);

}  // namespace eplog
