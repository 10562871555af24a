// Whether another process still does anything.
#pragma once

#include <sys/types.h>

namespace eplog {

// False: it has ended, or it was killed or is at its end, which lasts for as long as the kernel
// waits for something of it, as a device that does not answer: for ever, maybe. It issues no more
// requests then, and what it has open, and locked, stays so.
[[nodiscard]] bool ProcessActs(pid_t pid);

}  // namespace eplog
