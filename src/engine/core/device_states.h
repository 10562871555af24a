// DeviceStates: which devices hold all that they should, which are on their way there, and by how
// many changes that came about. Plain facts: what a change takes, and in what order, is
// Membership's (I11), which alone makes any.
//
// A device is lost (no member of the array any more), joining (live, but not everything is on it
// yet) or ok. Masks have a bit for each device, SSDs first, as MemberSet has them.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"
#include "device/members.h"
#include "layout/geometry.h"

namespace eplog {

// Which states those are: counted up by every change, no mask.
using StatesNumber = uint64_t;

class DeviceStates {
 public:
  // Both outlive it.
  DeviceStates(const MemberSet& members, const Geometry& geometry)
      : members_(members), geometry_(geometry) {}
  DeviceStates(const DeviceStates&) = delete;
  DeviceStates& operator=(const DeviceStates&) = delete;

  // ---- for readers
  // A change is under way: until Core::Settled nothing new is described, applied, acknowledged or
  // becomes stable.
  [[nodiscard]] bool changing() const { return changing_; }
  // The number of the states as they are now: every change counts it up, and what was chosen under
  // another is not described any more.
  [[nodiscard]] StatesNumber number() const { return number_; }
  // A slot of this SSD, or a place of this log device, that was chosen under the states of that
  // number is still what was chosen: the device has been there all the time.
  [[nodiscard]] bool IsCurrent(DeviceIndex device, StatesNumber chosen_under) const {
    return members_.live(device) && changed_at_[device.value] <= chosen_under;
  }

  [[nodiscard]] uint64_t joining() const { return joining_; }
  [[nodiscard]] bool IsJoining(DeviceIndex device) const { return (joining_ & Bit(device)) != 0; }
  // Of the joining ones, SSDs that were away and of which what they hold is looked at.
  [[nodiscard]] uint64_t unverified() const { return unverified_; }
  [[nodiscard]] bool IsUnverified(DeviceIndex device) const {
    return (unverified_ & Bit(device)) != 0;
  }
  // They have everything, while that is written down: not joining any more and not ok yet.
  [[nodiscard]] uint64_t becoming_ok() const { return becoming_ok_; }
  // Read where that helps, though they missed something (opened by force).
  [[nodiscard]] uint64_t lent() const { return lent_; }
  // What lies before that place in the log was written while this log device was not there, as far
  // as is known.
  [[nodiscard]] uint64_t has_log_from(DeviceIndex log) const { return has_log_from_[log.value]; }

  [[nodiscard]] uint64_t log_mask() const;  // live log devices
  // Counts of devices.
  [[nodiscard]] uint32_t live_ssds() const;
  [[nodiscard]] uint32_t lost() const;  // those that are lent too
  [[nodiscard]] uint32_t lost_logs() const;
  // Devices that do not hold all that they should: lost or joining.
  [[nodiscard]] uint32_t not_ok() const;
  // Log devices that are not ok: those becoming it too.
  [[nodiscard]] uint32_t logs_not_ok() const;

  // ---- for Membership: what has happened. MemberSet knows of it before.
  // At the opening: it was joining when the array was last open, `returning` if it had been away.
  void FoundJoining(DeviceIndex device, bool returning, uint64_t next_log_place);
  // The three that make new states.
  void Lost(DeviceIndex device);
  void Joined(DeviceIndex device, uint64_t next_log_place);  // in the place of one that was lost
  void BecomesOk(DeviceIndex device);                        // until EndChange
  // What these SSDs (a mask) hold has been looked at.
  void Verified(uint64_t ssds) { unverified_ &= ~ssds; }
  void Lent(DeviceIndex device) { lent_ |= Bit(device); }
  void BeginChange() { changing_ = true; }
  // The states as they are now are written down.
  void EndChange();
  // They never are: the array has stopped, and who was becoming ok does not any more.
  void BreakOffChange();

 private:
  static uint64_t Bit(DeviceIndex device) { return uint64_t{1} << device.value; }

  const MemberSet& members_;
  const Geometry& geometry_;
  bool changing_ = false;
  uint64_t number_ = 0;
  // By device: the number of the states in which it was lost or joined.
  std::array<uint64_t, kMaxDevices> changed_at_{};
  uint64_t joining_ = 0;
  uint64_t unverified_ = 0;
  uint64_t becoming_ok_ = 0;
  uint64_t lent_ = 0;
  std::array<uint64_t, kMaxDevices> has_log_from_{};
};

}  // namespace eplog
