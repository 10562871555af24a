// One owner a file (I10): flock on the descriptor that carries the I/O, and who else has it. Reads
// /proc to name the holder; knows nothing of devices.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "eplog/result.h"

namespace eplog {

// How long a new owner waits for the requests that a dead one left in the kernel, and for those who
// only look.
inline constexpr uint64_t kDeadOwnerWaitMs = 10000;

struct LockHolder {
  pid_t pid = 0;
  std::string command;
  bool shared = false;  // with others, who only look
};

// The living process that holds a flock on this file, if one can be seen. A zombie and a process
// that is being killed count as dead: what they still hold goes with their last request.
[[nodiscard]] std::optional<LockHolder> FindLockHolder(const struct stat& file);

// Takes the lock of `fd`, shared or exclusive. kBusy at once if a living process holds it for
// itself, and after `wait_ms` if none can be seen, or it is held by those only who look, which
// mostly takes a moment. Blocks meanwhile.
[[nodiscard]] Status LockFile(int fd, const std::string& path, bool shared,
                              uint64_t wait_ms = kDeadOwnerWaitMs);

// That nobody else has the block device for himself, as those do who write to it. The lock alone
// does not tell: it is one of a node, and several may lead to one device. A file system or a device
// built on it may have it. kBusy after `wait_ms`: others who look here have it for a moment, too.
// A shared lock on `fd` is given up while it waits, for who may need it to write, and taken again.
[[nodiscard]] Status CheckNotWritten(int fd, const std::string& path,
                                     uint64_t wait_ms = kDeadOwnerWaitMs);

// Gives the lock up and closes. A close alone leaves it held for as long as anything else has what
// `fd` opened: a child between fork and exec, or a request that is answered and that the kernel
// has not put away yet. The next opener would take that for an owner.
void UnlockAndClose(int fd);

// "PATH is in use by process 123 (eplog)".
[[nodiscard]] std::string DescribeHolder(const std::string& path, const LockHolder& holder);

// Why a block device that refused O_EXCL is in use: a holder, a mount, a device built on it. Empty
// if nothing can be seen, as for requests of a dead process. `passing`: whoever has it only looks,
// and will be gone, mostly.
[[nodiscard]] std::string WhyBlockDeviceBusy(const std::string& path, const struct stat& file,
                                             bool& passing);

}  // namespace eplog
