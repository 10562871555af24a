#include "engine/core/device_states.h"

#include <bit>

namespace eplog {
namespace {

uint32_t Count(uint64_t mask) {
  return static_cast<uint32_t>(std::popcount(mask));
}

}  // namespace

uint64_t DeviceStates::log_mask() const {
  return members_.live_mask() & ~((uint64_t{1} << geometry_.n) - 1);
}

uint32_t DeviceStates::live_ssds() const {
  return Count(members_.live_mask() & ~log_mask());
}

uint32_t DeviceStates::lost() const {
  return geometry_.devices() - Count(members_.live_mask() & ~lent_);
}

uint32_t DeviceStates::lost_logs() const {
  return geometry_.m - Count(log_mask());
}

uint32_t DeviceStates::not_ok() const {
  return lost() + Count(joining_ & members_.live_mask());
}

uint32_t DeviceStates::logs_not_ok() const {
  return geometry_.m - Count(log_mask() & ~(joining_ | becoming_ok_));
}

void DeviceStates::FoundJoining(DeviceIndex device, bool returning, uint64_t next_log_place) {
  joining_ |= Bit(device);
  unverified_ |= returning ? Bit(device) : 0;
  has_log_from_[device.value] = next_log_place;
}

void DeviceStates::Lost(DeviceIndex device) {
  joining_ &= ~Bit(device);
  unverified_ &= ~Bit(device);
  changed_at_[device.value] = ++number_;
}

void DeviceStates::Joined(DeviceIndex device, uint64_t next_log_place) {
  joining_ |= Bit(device);
  changed_at_[device.value] = ++number_;
  has_log_from_[device.value] = next_log_place;
}

// Nothing of what it holds is another's: it stays current.
void DeviceStates::BecomesOk(DeviceIndex device) {
  joining_ &= ~Bit(device);
  becoming_ok_ |= Bit(device);
  ++number_;
}

void DeviceStates::EndChange() {
  becoming_ok_ = 0;
  changing_ = false;
}

void DeviceStates::BreakOffChange() {
  changing_ = false;
}

}  // namespace eplog
