// The mount point as a path: finding it, clearing what a dead process left there, taking a mount
// away. Blocking calls; see each for where it may be called.
#pragma once

#include <string>

#include "base/result.h"

namespace eplog {

// The file system type that the kernel shows for our mounts.
inline constexpr char kMountType[] = "fuse.eplog";

// Absolute, without symbolic links; also where a dead mount covers it.
[[nodiscard]] Result<std::string> ResolveMountpoint(const std::string& path);

// Make sure that a mount can be put there: a directory, no live mount of ours on it (kBusy). A dead
// one, whose process is gone, is taken away.
[[nodiscard]] Status PrepareMountpoint(const std::string& path);

// umount(8), with fusermount3 if we are not root. 0 or an errno: EBUSY if in use. Never on the
// thread that serves it.
[[nodiscard]] int UnmountPath(const std::string& path);
// Have the kernel write back what it holds dirty for this mount. Never on the thread that serves
// it.
void SyncMount(const std::string& path);
// Take the mount out of the tree at once; processes that have files open keep them. Does not wait
// for the server.
[[nodiscard]] int DetachPath(const std::string& path);
// End the connection of the mount on exactly this path, whose process does not serve it any more:
// everybody who waits for it gets an error. Asks nobody and waits for nobody. False: it could not
// be done, without root where the kernel shows no connections (/sys/fs/fuse/connections).
bool CutConnection(const std::string& path);

}  // namespace eplog
