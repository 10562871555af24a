#include "space/slot_space.h"

#include <algorithm>
#include <bit>
#include <utility>

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

void SlotSpace::MarkUsed(DeviceIndex ssd, SlotIndex first, uint32_t count) {
  const bool free = TryMarkUsed(ssd, first, count);
  EPLOG_CHECK(free, "I1: a slot is referenced twice");
}

bool SlotSpace::TryMarkUsed(DeviceIndex ssd, SlotIndex first, uint32_t count) {
  Ssd& space = ssds_[ssd.value];
  for (uint32_t at = first.value; at < first.value + count;) {
    const uint32_t bits = std::min(64 - at % 64, first.value + count - at);
    const uint64_t mask = (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << at % 64;
    if ((space.used[at / 64] & mask) != 0) {
      return false;
    }
    space.used[at / 64] |= mask;
    at += bits;
  }
  space.free -= count;
  for (uint32_t at = first.value; !space.freed.empty() && at < first.value + count; ++at) {
    Forget(space, SlotIndex(at));
  }
  return true;
}

void SlotSpace::NoteFreed() {
  for (Ssd& ssd : ssds_) {
    ssd.freed.assign(ssd.used.size(), 0);
    ssd.long_free.assign(ssd.used.size(), 0);
  }
}

void SlotSpace::Note(Ssd& space, SlotIndex slot) {
  if (!space.freed.empty()) {
    space.freed[slot.value / 64] |= uint64_t{1} << (slot.value % 64);
    ++noted_;
  }
}

void SlotSpace::Forget(Ssd& space, SlotIndex slot) {
  if (space.freed.empty()) {
    return;
  }
  const uint64_t bit = uint64_t{1} << (slot.value % 64);
  noted_ -= ((space.freed[slot.value / 64] | space.long_free[slot.value / 64]) & bit) != 0 ? 1 : 0;
  space.freed[slot.value / 64] &= ~bit;
  space.long_free[slot.value / 64] &= ~bit;
}

void SlotSpace::AgeFreed() {
  for (Ssd& ssd : ssds_) {
    for (size_t i = 0; i < ssd.freed.size(); ++i) {
      ssd.long_free[i] |= std::exchange(ssd.freed[i], 0);
    }
  }
}

std::optional<SlotSpace::Run> SlotSpace::Borrow(DeviceIndex ssd, SlotIndex from, uint32_t least,
                                                uint32_t most, Which which) {
  const Ssd& space = ssds_[ssd.value];
  const auto word = [&](size_t i) {
    return which == Which::kLongFree ? space.long_free[i] : ~space.used[i];
  };
  if (which == Which::kLongFree && space.long_free.empty()) {
    return std::nullopt;
  }
  Run run{from, 0, space.generation};
  for (uint32_t slot = from.value; slot < geometry_.slots && run.count < most;) {
    const uint64_t rest = word(slot / 64) >> (slot % 64);
    if (rest == 0 && run.count == 0) {
      slot = (slot / 64 + 1) * 64;
      continue;
    }
    if ((rest & 1) != 0) {
      run.first = run.count == 0 ? SlotIndex(slot) : run.first;
      ++run.count;
    } else if (run.count >= least) {
      break;
    } else {
      run.count = 0;
    }
    ++slot;
  }
  if (run.count < least) {
    return std::nullopt;
  }
  for (uint32_t i = 0; i < run.count; ++i) {
    MarkUsed(ssd, SlotIndex(run.first.value + i));
  }
  return run;
}

void SlotSpace::Return(DeviceIndex ssd, Run run) {
  Ssd& space = ssds_[ssd.value];
  if (run.generation != space.generation) {
    return;
  }
  for (uint32_t slot = run.first.value; slot < run.first.value + run.count; ++slot) {
    EPLOG_CHECK(IsUsed(ssd, SlotIndex(slot)), "a borrowed slot was given back already");
    space.used[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  }
  space.free += run.count;
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
  reuses_ += space.wrapped ? 1 : 0;
  space.wrapped |= space.cursor == 0;
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
  Note(space, slot);
}

void SlotSpace::Covered(uint64_t mark) {
  while (!waiting_.empty() && waiting_.front().sequence <= mark) {
    const Waiting item = waiting_.front();
    waiting_.pop_front();
    --ssds_[item.ssd.value].waiting;
    Release(item.ssd, item.slot);
  }
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

void SlotSpace::Reset(DeviceIndex ssd) {
  Ssd& space = ssds_[ssd.value];
  std::fill(space.used.begin(), space.used.end(), 0);
  if (geometry_.slots % 64 != 0) {
    space.used.back() = ~uint64_t{0} << (geometry_.slots % 64);
  }
  for (size_t i = 0; i < space.freed.size(); ++i) {
    noted_ -= static_cast<uint64_t>(std::popcount(space.freed[i] | space.long_free[i]));
    space.freed[i] = space.long_free[i] = 0;
  }
  std::erase_if(waiting_, [ssd](const Waiting& item) { return item.ssd == ssd; });
  space.free = geometry_.slots;
  space.waiting = 0;
  space.cursor = 0;
  space.wrapped = false;
  ++space.generation;
}

void SlotSpace::Unpin(PinKey key) {
  const auto found = pins_.find(key);
  EPLOG_CHECK(found != pins_.end(), "an unpin without a pin");
  if (--found->second.count == 0) {
    const bool release = found->second.release;
    pins_.erase(found);
    const DeviceIndex ssd(static_cast<uint8_t>(key >> 56));
    const SlotIndex slot(static_cast<uint32_t>(key));
    if (release && key == Key(ssd, slot)) {
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
