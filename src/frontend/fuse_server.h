// FuseServer: the volumes of an array as regular files in the root of a mount.
//
// A thin adapter over the public Array: it knows nothing of stripes, logs or devices. libfuse's low
// level API is driven from the engine's loop: the session's descriptor is polled and read without
// blocking, each request becomes a coroutine. One buffer belongs to each request in flight, from
// before it is read until after it is answered, and to no other request meanwhile.
//
// What a file promises:
//  * read and write at any byte; a write past the end grows the volume. fsync and O_SYNC/O_DSYNC
//  are Array::Flush;
//    close does not sync.
//  * O_DIRECT opens bypass the page cache and write in parallel; other opens are cached, with
//  shared mmap. The page
//    cache is never a write-back cache: a write is acknowledged when the array has it (dirty mmap
//    pages excepted, as everywhere). A direct write is seen by later cached reads of the same file.
//  * truncate, create, unlink and rename are durable on return. fallocate extends, and
//  reserves no space; punching a hole gives space back, and zeroing a range keeps it.
//  * A volume that is unlinked while open, or replaced by a rename, keeps its content, hidden
//  (Array::HideVolume), until the
//    kernel has closed and forgotten it; left-overs of a killed process go with the next opening
//    for writing. rename is atomic: whoever opens the new name meanwhile gets the old volume or
//    the new one.
//  * New names are UTF-8 (else EILSEQ), since that is how every other front end tells them; what
//  has another name already keeps it, and can be opened, renamed and unlinked here.
//  * owner, mode and times live in RAM; a new mount starts with the mounting user, 0600 and the
//  time of mounting.
//
// Everything is called on the thread of the loop. Helper threads only wait inside umount and
// similar calls that the kernel may answer only after this process served further requests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/types.h"
#include "eplog/array.h"
#include "eplog/result.h"
#include "eplog/task.h"

namespace eplog {

class IoUringLoop;
class FuseSession;

struct FuseOptions {
  std::string mountpoint;
  std::string fsname = "eplog";  // what `df` and `mount` show as the source
  bool allow_other = false;      // let other users in (then by mode bits, checked by the kernel)
  bool read_only = false;
  uint32_t buffers = 512;  // requests that are being carried out at once; others wait in the kernel
};

class FuseServer {
 public:
  // Mount. A dead mount that a killed process of ours left there is cleared first. The mount point
  // must exist; what it holds is covered. `array` and `loop` outlive the server. Deletes hidden
  // left-overs once Serve runs.
  [[nodiscard]] static Result<std::unique_ptr<FuseServer>> Mount(IoUringLoop& loop, Array& array,
                                                                 FuseOptions options);
  // Unmounts lazily if still mounted. Only when nothing is in flight (after Drain).
  ~FuseServer();
  FuseServer(const FuseServer&) = delete;
  FuseServer& operator=(const FuseServer&) = delete;

  // Answer requests until the mount is gone, by whoever. Call once.
  Task<void> Serve();
  // Until no request is in flight; to be called when Serve has returned. Deletes what was unlinked
  // while open.
  Task<void> Drain();

  // Unmount like umount(8): kBusy, and nothing changed, while files are open or it is some
  // process's working directory. On success Serve returns soon.
  Task<Status> Unmount();
  // Write back what the kernel holds dirty, then take the mount away even from under open files:
  // they get errors from then on.
  Task<void> UnmountForced();

  // For changes that come from another front end (resize, writes): the kernel forgets cached size
  // and pages.
  Task<void> NotifyVolumeChanged(VolumeId volume);
  // Deletes what has this name, for another front end, if it has it still when the array has its
  // turn for that; nobody opens it meanwhile. kBusy: some process has it open.
  Task<Status> DeleteVolume(std::string name);
  // Some process has the volume open through this mount.
  [[nodiscard]] bool IsOpen(VolumeId volume) const;

  [[nodiscard]] const std::string& mountpoint() const;  // absolute
  // The number that the file system has, whatever it is mounted on by now.
  [[nodiscard]] dev_t device() const;

 private:
  explicit FuseServer(std::unique_ptr<FuseSession> session);
  std::unique_ptr<FuseSession> session_;
};

}  // namespace eplog
