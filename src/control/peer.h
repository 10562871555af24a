// Who is at the other end of a Unix socket.
#pragma once

#include <cstdint>

namespace eplog {

// The state of a process as the kernel shows it: 'T' stopped, 't' traced, 'Z' its first thread has
// ended; 0 if it cannot be told.
[[nodiscard]] char ProcessState(int pid);
// When it was started, in ticks of the kernel's clock; 0 if it cannot be told.
[[nodiscard]] uint64_t ProcessStarted(int pid);

// False only if the process is known to be gone, or killed and on its way (one in another PID
// namespace is not known).
[[nodiscard]] bool PeerIsAlive(int fd);

}  // namespace eplog
