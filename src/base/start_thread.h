// Threads beside the one that owns an array. They take no signals: those are for whoever waits for
// them, and one that ends the process must not find a thread that has it unblocked.
#pragma once

#include <functional>
#include <thread>

#include "eplog/result.h"

namespace eplog {

// Not joinable where no thread can be had (a limit of processes or of memory is reached): `work` is
// not run then, and nothing is thrown.
[[nodiscard]] std::thread TryStartThread(std::function<void()> work);

// Says that: kUnsupported.
[[nodiscard]] tl::unexpected<Error> FailNoThread();

}  // namespace eplog
