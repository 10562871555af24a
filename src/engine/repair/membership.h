// Membership: which devices the array trusts while it runs, and every change of that (I11).
//
// During a change nothing new is described, applied, acknowledged or becomes stable until a new
// epoch with the new states is on every live device. What is in flight ends first, on the devices
// that are there: each of its chunks has redundancy enough for up to m losses. Reads go on all the
// time. A loss meanwhile makes the change begin anew; more than m stop the array.
//
// A device is lost when it fails a write or flush, or when somebody says so (Fail). A replacement
// joins: every word of the one before becomes `absent`, and it is `joining` until Rebuilder has
// brought everything onto it and TryOk finds nothing missing. A device that was away at an opening
// and is back at a later one (ArrayImpl::TakeBack) keeps its words: it is joining too, until what
// it missed is written and what it had is verified.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/superblocks.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"

namespace eplog {

class Appender;
class Checkpointer;
class Flusher;
class Keeper;

class Membership {
 public:
  struct Parts {
    Appender& appender;
    Flusher& flusher;
    Superblocks& superblocks;
    Checkpointer& checkpointer;
    Keeper& keeper;
    Admission& admission;
  };
  Membership(Core& core, const Parts& parts)
      : core_(core),
        appender_(parts.appender),
        flusher_(parts.flusher),
        superblocks_(parts.superblocks),
        checkpointer_(parts.checkpointer),
        keeper_(parts.keeper),
        admission_(parts.admission),
        changes_(core.loop),
        reasons_(core.geometry.devices()),
        joined_sequence_(core.geometry.devices(), 0),
        joined_states_(core.geometry.devices(), 0),
        full_since_(core.geometry.devices(), 0) {}

  // From now on the array goes on without a device that fails. Everything up to `sequence` was
  // there when the array opened.
  void Open(uint64_t sequence);
  // Of a read-only opening: only which devices do not hold everything yet.
  void NoteJoining();
  // Of an opening by force: a device that missed something is read where that helps. Borrowed.
  void Lend(DeviceIndex index, Device& device);
  // Until no change is under way.
  Task<void> Idle() { return changes_.Wait(); }

  // Loses the device, as if it had failed. Durable on return. kInvalidArgument if it is lost
  // already, or if that would be more than m: MayFail.
  Task<Status> Fail(DeviceIndex device, std::string reason);
  [[nodiscard]] Status MayFail(DeviceIndex device) const;

  // It does not bear the superblock of a device in use: kExists. Reads only.
  Task<Status> CheckNotInUse(Device& device) const;
  // `replacement` in the place of a lost device: wiped, joined and written down on return, `ok`
  // after rebuilding. Borrowed. kInvalidArgument if the device is not lost or the replacement too
  // small; kExists: CheckNotInUse; kDeviceFailed if it fails meanwhile.
  Task<Status> Replace(DeviceIndex device, Device& replacement);
  // As far as can be told without touching the replacement.
  [[nodiscard]] Status MayReplace(DeviceIndex device, const std::string& replacement,
                                  const DeviceIdentity& identity, uint64_t replacement_bytes) const;

  // Everything up to this sequence must be committed before a joining device is ok.
  [[nodiscard]] uint64_t CommitUpto() const;
  // A full checkpoint counts that needs nothing from before the device joined, and covers `upto`.
  [[nodiscard]] bool FullCounts(DeviceIndex device, uint64_t upto) const;
  // What these returning SSDs (a mask) hold has been looked at, and mended where it was wrong.
  void Verified(uint64_t ssds);
  // Nothing is missing on a joining device any more, as things stand.
  [[nodiscard]] bool NothingMissing(DeviceIndex device) const;
  // Makes a joining device `ok` if nothing is missing on it any more and FullCounts; false if not.
  Task<bool> TryOk(DeviceIndex device, uint64_t upto);

  // Zeros, flushed, on a device that is not part of the array.
  Task<Status> WipeArea(Device& device, uint64_t offset_bytes, uint64_t length_bytes);

  // Why a device was lost in this life; empty if it was not.
  [[nodiscard]] const std::string& Reason(DeviceIndex device) const {
    return reasons_[device.value];
  }

 private:
  struct Join {
    DeviceIndex index;
    Device* device;
    Uuid uuid;
    uint64_t older_epoch;  // the newest that it may hold entries of, as a member that it was before
  };
  // Also when the loop is aborted and this frame goes.
  class TakingIn {
   public:
    TakingIn(std::vector<const Device*>& all, const Device& device) : all_(all), device_(&device) {
      all_.push_back(device_);
    }
    TakingIn(const TakingIn&) = delete;
    TakingIn& operator=(const TakingIn&) = delete;
    ~TakingIn() { std::erase(all_, device_); }

   private:
    std::vector<const Device*>& all_;
    const Device* device_;
  };
  [[nodiscard]] uint64_t NextEpoch() const;
  Task<Result<uint64_t>> LookAt(Device& device) const;
  [[nodiscard]] bool IsInUse(const Superblock& copy) const;
  void Lost(DeviceIndex device, const Error& why);
  void Begin();
  Task<void> Change();
  Task<Status> FillRings();
  Task<Status> WriteDown();
  Task<Status> Wipe(Device& device, DeviceIndex index);
  void TakeIn(const Join& join);
  [[nodiscard]] MemberState StateOf(DeviceIndex device) const;
  void StopForTooMany();

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Superblocks& superblocks_;
  Checkpointer& checkpointer_;
  Keeper& keeper_;
  Admission& admission_;
  WaitGroup changes_;
  std::vector<std::string> reasons_;
  std::optional<Join> join_;                   // to be taken in by the change under way
  std::vector<const Device*> being_taken_in_;  // wiped, each for a place: for no other one
  uint64_t older_epoch_ = 0;  // the newest that is on any device that joined, from before
  std::vector<uint64_t> joined_sequence_;  // of joining devices: what came before is not on them
  std::vector<uint64_t> joined_states_;
  std::vector<uint64_t> full_since_;  // epoch of which a full checkpoint makes a joining device ok
  uint64_t failed_ = 0;       // mask: lost in this life; they do not return by themselves (I7)
  bool rings_filled_ = true;  // by the change of states that is under way
};

}  // namespace eplog
