// Array: an open EPLOG array, its volumes, and reads, writes and flushes on them.
//
// Threads: everything happens on the thread of the EventLoop given to Open; every member function
// is called there. Devices are borrowed for as long as the Array holds them. Memory given to Read
// and Write belongs to the array until the task ends and is not changed by the caller meanwhile
// (the CRC is taken once).
//
// Promises P1 ... P8 and invariants I1 ... I11: docs/design.md. Source: EPLOG, main paper and
// supplement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/change_plan.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "eplog/options.h"
#include "eplog/report.h"
#include "eplog/result.h"
#include "eplog/status.h"
#include "eplog/task.h"
#include "eplog/types.h"

namespace eplog {

struct VolumeInfo {
  VolumeId id;
  std::string name;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // extents that it owns
};

// What begins like this is nobody's to give to a volume. One that was given such a name by an
// earlier version is a volume like any other.
inline constexpr std::string_view kReservedVolumePrefix = ".eplog-deleted-";

// What becomes of a range that is trimmed; it reads as zeros either way.
enum class TrimMode : uint8_t {
  kPunch,  // extents with nothing left in them go back to the array (fallocate: punch hole)
  kZero,   // the volume keeps its extents: writing there again never meets kNoSpace
};

enum class CheckpointKind : uint8_t {
  kAuto,         // whichever is cheaper in the long run; nothing if nothing has changed
  kIncremental,  // what changed since the last one, where there is room for it
  kFull,
};

// Called now and then by long work: done and total in the unit of that work.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

class Array {
 public:
  // Write a new, empty array over `ssds` (all n of them) and `logs` (m = options.parity of them).
  // Durable on return. Every check comes before the first write; refused: wrong counts, sizes that
  // do not fit, devices that already belong to an array (unless options.force), the same device
  // twice.
  static Task<Status> Create(EventLoop& loop, std::vector<Device*> ssds, std::vector<Device*> logs,
                             CreateOptions options);

  // Assemble and recover (I8, I11). `devices` in any order, only those that are present; who is who
  // is read from the superblocks. Opens degraded with up to m devices missing or stale (with more,
  // OpenOptions::force). On an error nothing is kept open.
  static Task<Result<std::unique_ptr<Array>>> Open(EventLoop& loop, std::vector<Device*> devices,
                                                   OpenOptions options);

  virtual ~Array() = default;  // after Close, or after EventLoop::Abort (a simulated crash)

  // Flush everything, checkpoint, stop. Waits for requests in flight; new ones get kShutdown. The
  // array may only be destroyed afterwards, also when this returns an error (then a later Open
  // recovers).
  virtual Task<Status> Close() = 0;

  // ---- volumes. Each change is durable on return.
  // Names: 1 ... kMaxVolumeNameBytes bytes of UTF-8 without '/' and control characters, not "." or
  // "..", and not reserved.
  virtual Task<Result<VolumeId>> CreateVolume(std::string name, uint64_t size_bytes) = 0;
  // Growing is free (thin). What is cut off by shrinking is gone and reads zero if the volume grows
  // again.
  virtual Task<Status> ResizeVolume(VolumeId volume, uint64_t size_bytes) = 0;
  // With `replace`, a volume that has the new name is deleted in the same step.
  virtual Task<Status> RenameVolume(VolumeId volume, std::string new_name, bool replace) = 0;
  // `volume` takes the name, and a volume that had it is hidden in the same step: at any moment,
  // and over a crash, the name means one of the two. Which one was hidden; 0: nobody had the name.
  virtual Task<Result<VolumeId>> RenameVolumeOver(VolumeId volume, std::string new_name) = 0;
  // Takes its name away and leaves its content to those who use it still: it is not listed, nobody
  // finds it, and GetVolume shows it without a name. DeleteVolume ends it; if nobody calls that,
  // the next opening for writing does.
  virtual Task<Status> HideVolume(VolumeId volume) = 0;
  virtual Task<Status> DeleteVolume(VolumeId volume) = 0;
  // The same, if it still has this name when its turn has come: a change before it may have taken
  // the name away. kNotFound: it has not, and nothing is deleted.
  virtual Task<Status> DeleteVolumeNamed(VolumeId volume, std::string name) = 0;
  [[nodiscard]] virtual std::vector<VolumeInfo> Volumes() const = 0;  // by name
  [[nodiscard]] virtual std::optional<VolumeInfo> FindVolume(std::string_view name) const = 0;
  [[nodiscard]] virtual std::optional<VolumeInfo> GetVolume(VolumeId volume) const = 0;

  // ---- data. Any byte range inside the volume (else kInvalidArgument, but for Flush). Fastest when `from` /
  // `into` are 4 KiB aligned and the range is whole chunks; whole aligned stripes are written with
  // their parity. Never-written ranges read as zeros.
  virtual Task<Status> Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) = 0;
  // On success the data is visible to every read; durable after Flush (P2, P3). kNoSpace: nothing
  // of a chunk that failed was written, other chunks of the request may have been.
  virtual Task<Status> Write(VolumeId volume, uint64_t offset_bytes,
                             std::span<const std::byte> from) = 0;
  // The range reads as zeros from now on, durable after Flush as a write is; its slots are given
  // back. kNoSpace never.
  virtual Task<Status> Trim(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes,
                            TrimMode mode) = 0;
  // Everything acknowledged in the range before the call survives a crash plus the loss of any m
  // devices (P2). What lies outside the volume is no error here, and nothing.
  virtual Task<Status> Flush(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) = 0;
  virtual Task<Status> FlushAll() = 0;

  // ---- maintenance
  // Parity commit of everything that is pending when called; durable on return.
  virtual Task<Status> Commit(Progress progress) = 0;
  // Checkpoint of the state when called; counts on return (I9).
  virtual Task<Status> Checkpoint(CheckpointKind kind) = 0;
  // Tells every SSD that takes it (TRIM) of all its free slots. The bytes; 0 also where none does.
  virtual Task<Result<uint64_t>> DiscardFree(Progress progress) = 0;
  // Every reference, CRC and parity. Changes nothing. For a read-only opened or idle array.
  virtual Task<Result<CheckReport>> Check(Progress progress) = 0;
  // The same beside all other work, references excepted, resting while there are requests. With
  // `heal` what is wrong is written anew from redundancy (not if opened read-only). kBusy while
  // another runs.
  virtual Task<Result<CheckReport>> Scrub(bool heal, Progress progress) = 0;

  // What cannot be read because more than m devices are missing. Reads no chunk, so it does not
  // find rot: that is Scrub's.
  virtual Task<Result<LossReport>> FindLost() = 0;

  // Devices are named by their place in ArrayStatus::devices.
  // The device is lost from now on, as if it had failed; durable on return. kInvalidArgument if it
  // is lost already or if more than m would be.
  virtual Task<Status> FailDevice(uint32_t device, std::string reason) = 0;
  // `replacement` takes the place of a lost device: whatever it holds is overwritten. On return it
  // has joined, durably; it is `ok` when it was rebuilt, which goes on in the background and over
  // restarts. Borrowed for as long as the array holds it, if this succeeds.
  virtual Task<Status> ReplaceDevice(uint32_t device, Device& replacement) = 0;
  // What is refused there whatever device is to be replaced: one by whose superblock it is a device
  // in use, reached by another node, or a copy of one as it is now (kExists). A read; for
  // whoever is about to overwrite a device for this array.
  virtual Task<Status> CheckNotInUse(Device& device) = 0;

  // It is a member now. Of one that is none any more nothing new is asked: once what is in flight
  // on it has been answered, it may be destroyed.
  [[nodiscard]] virtual bool Holds(const Device& device) const = 0;

  // The checks of a change and what it would mean, while nothing is changed. Also of an array that
  // is opened read-only. The error is that with which the change would be refused.
  virtual Task<Result<ChangePlan>> Plan(Change change) = 0;

  // From now on; what is over smaller sizes is drained at once. kInvalidArgument if they are larger
  // than the array or OpenOptions::max_buffer_bytes: nothing is changed then.
  virtual Status SetBuffers(const BufferSizes& sizes) = 0;

  // From now on, until the array is closed.
  virtual void SetRebuildPace(const RebuildPace& pace) = 0;

  [[nodiscard]] virtual ArrayStatus GetStatus() const = 0;

 protected:
  Array() = default;
};

}  // namespace eplog
