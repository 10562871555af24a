// What a CRC cannot tell: whether an entry of the log, or a whole state, can be. An entry whose CRC
// is right may still have been made by a mistake, or by somebody. State::Apply takes for granted
// what is checked here, and stops the program where it is not so; recovery refuses instead.
//
// The decoders have checked everything that the geometry alone shows (format/entry.h). Nothing is
// refused here that an array at work could have written.
#pragma once

#include "eplog/result.h"
#include "format/entry.h"
#include "metadata/state.h"

namespace eplog {

// Whether `entry` can follow on `state`. kCorrupt, with a line that names the entry.
[[nodiscard]] Status CheckEntry(const State& state, const EntryHeader& entry);

// Whether an array can go on from `state`: after a checkpoint that ends at `checkpoint_place` and
// the entries up to `place`, where the log goes on. That no slot is referenced twice is not looked
// at here, but where the slots are taken (SlotSpace::TryMarkUsed).
[[nodiscard]] Status CheckState(const State& state, uint64_t checkpoint_place, uint64_t place);

}  // namespace eplog
