// The mount point as a path: finding it, clearing what a dead process left there, taking a mount
// away. Blocking calls; see each for where it may be called.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "eplog/result.h"
#include "host/mount_lines.h"

namespace eplog {

// Absolute, without symbolic links; also where a dead mount covers it.
[[nodiscard]] Result<std::string> ResolveMountpoint(const std::string& path);

// Make sure that a mount can be put there: a directory, no live mount of ours on it (kBusy). A dead
// one, whose process is gone, is taken away.
[[nodiscard]] Status PrepareMountpoint(const std::string& path);

// The number of the file system of ours that was mounted last on exactly this path; 0: there is
// none.
[[nodiscard]] dev_t MountedDevice(const std::string& path);

// What is reached by the path of this mount instead of it, in words: something was mounted over it,
// or over a directory above. Empty: the mount itself. Asks nobody who serves a file system.
[[nodiscard]] std::string CoveredBy(const MountLine& mount);

enum class TakeAway : uint8_t {
  kIfUnused,  // like umount(8), with fusermount3 if we are not root; waits for the server
  kAtOnce,    // processes that have files open keep them; does not wait for the server
};
// Take the mount of this file system out of the tree: that on `directory`, or where it was moved
// to. Of nothing but this file system. Nothing to be done where it is not mounted. kBusy: it is in
// use, or covered. An error too where the mount table cannot be read: it may be mounted. Never on
// the thread that serves it.
[[nodiscard]] Status TakeMountAway(dev_t device, const std::string& directory, TakeAway how);

// Have the kernel write back what it holds dirty for this mount. False: it was not reached, since it
// is covered, or nobody can tell where it is. Never on the thread that serves it.
[[nodiscard]] bool SyncMount(dev_t device, const std::string& directory);

// End the connection of this file system of ours, whose process does not serve it any more:
// everybody who waits for it gets an error. The mount stays, and is dead. Asks nobody and waits for
// nobody. False: it could not be done, without root where the kernel shows no connections
// (/sys/fs/fuse/connections).
bool CutConnection(dev_t device);

// What no later mount with this number shares with it. nullopt: it is gone, or the kernel does not
// show its connections here.
[[nodiscard]] std::optional<ino_t> ConnectionOf(dev_t device);

}  // namespace eplog
