// The serving process: an opened array, its mount and its control socket, until unmounted or told
// to stop; and how a process goes to the background. Knows no devices: the caller opens and later
// drops them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "eplog/array.h"
#include "eplog/result.h"
#include "frontend/fuse_server.h"

namespace eplog {

class ArrayOwner;
class IoUringLoop;
class SpareShelf;

struct ServeOptions {
  FuseOptions fuse;
  std::string socket_path;  // empty: ControlSocketPath(uuid)
  // Who opened the array; he is told of its end before `umount` is answered, so that who waited for
  // that can open the array. Null: nobody who could do anything.
  ArrayOwner* owner = nullptr;
  // Spares that step in by themselves, for as long as this serves. Null: there are none to be used.
  SpareShelf* spares = nullptr;
};

// Serve `array` at options.fuse.mountpoint and on its control socket; returns when the mount is
// gone (control verb `umount`, umount(8), fusermount3 -u, SIGTERM, SIGINT or SIGHUP) and the array
// is closed. Runs the loop itself. `ready` is called once, when both can be used. The array is
// closed in every case, also when this fails at once.
//
// A signal takes the mount away even from under open files, after writing back what the kernel
// holds dirty for them; `umount` with open files is refused. The control verbs and what they take:
// daemon_verbs.h.
[[nodiscard]] Status ServeArray(IoUringLoop& loop, Array& array, ServeOptions options,
                                const std::function<void()>& ready);

using ReadyFn = std::function<void()>;

// Run `body` in this process (`foreground`) or in a background child; returns the exit status for
// main. In the background: returns 0 once the child's body has called its ReadyFn, or the child's
// exit status if it ends before; one that has failed and does not end is left behind, with the
// status that its body returned. Until then the child has our standard error, so its one line of
// complaint is seen here; from then on its output goes to `log_path` (appended, 0600; /dev/null if
// empty or it cannot be opened), its directory is /, and nothing of the terminal is left. In the
// foreground output stays where it is.
//
// Calls PrepareServingProcess before `body`. No threads and no open io_uring before calling this.
[[nodiscard]] int RunDaemonised(bool foreground, const std::string& log_path,
                                const std::function<int(const ReadyFn& ready)>& body);

// A process that serves block devices must not wait for itself: marked as an I/O flusher (reclaim
// in it issues no I/O), memory locked as it is touched, exempt from the out-of-memory killer. Each
// as far as permitted; with less privilege they are skipped, since they only matter under memory
// pressure. Nor must it die of a pipe that nobody reads: SIGPIPE is ignored. Before any thread is
// started.
void PrepareServingProcess();

}  // namespace eplog
