// What has become of each device of a world: when and how it was lost, what replaced it, what it
// holds that is wrong, and what it may be blamed for. One struct a device, so that one look tells
// all of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/types.h"
#include "tests/torture/machine.h"

namespace eplog::torture {

struct DeviceFate {
  // ---- lost. Missed an opening for writing, or one that was struck; or failed while the array ran.
  bool stale = false;
  bool missed = false;       // an opening that succeeded, since it was last part of the array
  bool doomed = false;       // failed since the last opening began
  bool failed_well = false;  // it was well when it did, and has not been replaced since
  bool seen_lost = false;    // the array has called it not ok since
  bool unplugged = false;    // one of more than m that ceased to answer in this life

  // ---- replaced
  bool blank = false;   // by one that has not joined yet
  bool joined = false;  // by one, empty or of old content, to which nothing has happened since

  // ---- wrong
  bool rotten = false;  // what it holds may be: it lied, and was not scrubbed since
  bool lying = false;   // and does still

  // ---- flushes that failed
  // In this life; when the array was told. kStill: it was not.
  std::optional<uint64_t> failed_flush_us;
  bool unheard = false;  // a kill came before anybody was told

  // Until when it was not to be trusted, since this opening began: what was met on the one before
  // it may be told after it was replaced. 0: it was all the time.
  static constexpr uint64_t kStill = UINT64_MAX;
  uint64_t accused_until_us = 0;

  // A copy of it, taken between two lives, that may be put in its place.
  std::optional<PageImage> older;
};

class DeviceFates {
 public:
  using Flag = bool DeviceFate::*;

  [[nodiscard]] DeviceFate& operator[](uint8_t device) { return fates_[device]; }
  [[nodiscard]] const DeviceFate& operator[](uint8_t device) const { return fates_[device]; }

  [[nodiscard]] DeviceSet Those(Flag flag) const {
    DeviceSet devices;
    for (uint8_t i = 0; i < kMaxDevices; ++i) {
      if (fates_[i].*flag) {
        devices.insert(i);
      }
    }
    return devices;
  }
  [[nodiscard]] bool Any(Flag flag) const {
    return std::ranges::any_of(fates_, [flag](const DeviceFate& fate) { return fate.*flag; });
  }
  // From now on of these as well; and of these only.
  void Note(Flag flag, const DeviceSet& devices) {
    for (const uint8_t device : devices) {
      fates_[device].*flag = true;
    }
  }
  void NoteOnly(Flag flag, const DeviceSet& devices) {
    Clear(flag);
    Note(flag, devices);
  }
  void Clear(Flag flag) {
    for (DeviceFate& fate : fates_) {
      fate.*flag = false;
    }
  }
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (DeviceFate& fate : fates_) {
      visit(fate);
    }
  }

 private:
  std::array<DeviceFate, kMaxDevices> fates_;
};

}  // namespace eplog::torture
