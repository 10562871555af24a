// Replay: a trace against policies, each on devices of its own, with the same settings. The engine
// is the real one; nothing here models it.
//
// Each policy has its own virtual clock: the same settings and trace give the same numbers, bit for
// bit. What is written is checked when it is read, and all of it once more at the end: a wrong byte
// fails the run (kCorrupt).
//
// Requests that overlap one that came before and is still in flight, one of both a write, wait for
// it, as file systems and databases do: what is then on the volume is known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "eplog/array.h"
#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "replay/result.h"
#include "replay/settings.h"

namespace eplog {

// What it is at, and how far: {"eplog", 1000, 50000}; total 0 where that is not known.
using ReplayProgress = std::function<void(const std::string& what, uint64_t done, uint64_t total)>;

// kInvalidArgument: settings that make no sense, each with its mend; kNotFound, kIo and kCorrupt of
// the trace; kNoSpace where the devices are too small.
Result<ReplayResult> Replay(const ReplaySettings& settings, std::span<const Policy> policies,
                            const ReplayProgress& progress);

// How an array is to be opened for a replay with these settings.
[[nodiscard]] OpenOptions OptionsFor(const ReplaySettings& settings, bool paper);

// On a new volume of an open array (settings.devices is kArray), which is deleted afterwards. What
// the array is made of is taken from itself and written into `settings`.
Result<ReplayResult> ReplayOn(EventLoop& loop, Array& array, ReplaySettings& settings,
                              const ReplayProgress& progress);

}  // namespace eplog
