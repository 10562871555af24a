#include "space/slot_space.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace eplog {

SlotSpace::SlotSpace(const Geometry& geometry) : geometry_(geometry), ssds_(geometry.n) {
  for (Ssd& ssd : ssds_) {
    ssd.used.assign(DivideUp(geometry.slots, 64), 0);
    if (geometry.slots % 64 != 0) {
      ssd.used.back() = ~uint64_t{0} << (geometry.slots % 64);  // beyond the end: never free
    }
    ssd.free = geometry.slots;
  }
}

void SlotSpace::MarkUsed(DeviceIndex ssd, SlotIndex slot) {
  EPLOG_CHECK(!IsUsed(ssd, slot), "I1: a slot is referenced twice");
  ssds_[ssd.value].used[slot.value / 64] |= uint64_t{1} << (slot.value % 64);
  --ssds_[ssd.value].free;
}

SlotIndex SlotSpace::Claim(DeviceIndex ssd) {
  Ssd& space = ssds_[ssd.value];
  EPLOG_CHECK(space.free != 0, "a claim without a free slot");
  if (lowest_first_) {
    space.cursor = 0;
    space.wrapped = true;
  }
  size_t word = space.cursor / 64;
  uint64_t candidates = ~space.used[word] & (~uint64_t{0} << (space.cursor % 64));
  while (candidates == 0) {
    if (++word == space.used.size()) {
      word = 0;
      space.wrapped = true;
    }
    candidates = ~space.used[word];
  }
  const SlotIndex slot(
      static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(candidates))));
  MarkUsed(ssd, slot);
  space.cursor = slot.value + 1 == geometry_.slots ? 0 : slot.value + 1;
  space.wrapped |= space.cursor == 0;
  reuses_ += space.wrapped ? 1 : 0;
  return slot;
}

void SlotSpace::Release(DeviceIndex ssd, SlotIndex slot) {
  if (!pins_.empty()) {
    const auto pinned = pins_.find(Key(ssd, slot));
    if (pinned != pins_.end()) {
      pinned->second.release = true;
      return;
    }
  }
  Ssd& space = ssds_[ssd.value];
  EPLOG_CHECK(IsUsed(ssd, slot), "I1: a free slot is freed");
  space.used[slot.value / 64] &= ~(uint64_t{1} << (slot.value % 64));
  ++space.free;
}

bool SlotSpace::Covered(uint64_t mark) {
  bool any = false;
  while (!waiting_.empty() && waiting_.front().sequence <= mark) {
    const Waiting item = waiting_.front();
    waiting_.pop_front();
    --ssds_[item.ssd.value].waiting;
    Release(item.ssd, item.slot);
    any = true;
  }
  return any;
}

void SlotSpace::KeepAfterAll(DeviceIndex ssd, SlotIndex slot) {
  const auto pinned = pins_.find(Key(ssd, slot));
  EPLOG_CHECK(pinned != pins_.end(), "I1: an installed version is not pinned");
  if (pinned->second.release) {
    pinned->second.release = false;
    return;
  }
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& item) {
    return item.ssd == ssd && item.slot == slot;
  });
  EPLOG_CHECK(found != waiting_.end(), "I1: an installed version has no slot");
  waiting_.erase(found);
  --ssds_[ssd.value].waiting;
}

void SlotSpace::Unpin(DeviceIndex ssd, SlotIndex slot) {
  const auto found = pins_.find(Key(ssd, slot));
  EPLOG_CHECK(found != pins_.end(), "an unpin without a pin");
  if (--found->second.count == 0) {
    const bool release = found->second.release;
    pins_.erase(found);
    if (release) {
      Release(ssd, slot);
    }
  }
}

uint32_t SlotSpace::free_min() const {
  uint32_t least = UINT32_MAX;
  for (const Ssd& ssd : ssds_) {
    least = std::min(least, ssd.free);
  }
  return least;
}

uint32_t SlotSpace::waiting_max() const {
  uint32_t most = 0;
  for (const Ssd& ssd : ssds_) {
    most = std::max(most, ssd.waiting);
  }
  return most;
}

size_t SlotSpace::memory_bytes() const {
  return ssds_.size() * ssds_[0].used.size() * sizeof(uint64_t) + waiting_.size() * sizeof(Waiting);
}

}  // namespace eplog
