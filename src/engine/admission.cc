#include "engine/admission.h"

#include <bit>

#include "engine/keeper.h"

namespace eplog {

Grant::~Grant() {
  for (uint8_t i = 0; claimed_ != 0; ++i, claimed_ >>= 1) {
    if ((claimed_ & 1) != 0) {
      core_.space.Unclaim(DeviceIndex(i), slots_[i].slot());
      core_.space_changed.NotifyAll();
    }
  }
  if (blocks_ != 0) {
    appender_.TakeBack(blocks_);
    core_.space_changed.NotifyAll();
  }
}

SlotWord Grant::TakeSlot(DeviceIndex ssd) {
  claimed_ &= ~(uint64_t{1} << ssd.value);
  return slots_[ssd.value];
}

bool Admission::HaveSlots(uint64_t ssd_mask) const {
  for (uint8_t i = 0; ssd_mask != 0; ++i, ssd_mask >>= 1) {
    if ((ssd_mask & 1) != 0 && !core_.space.CanClaim(DeviceIndex(i), SlotUse::kForeground)) {
      return false;
    }
  }
  return true;
}

void Admission::Take(Grant& grant, uint64_t ssd_mask, uint64_t blocks) {
  grant.claimed_ = ssd_mask;
  for (uint8_t i = 0; ssd_mask != 0; ++i, ssd_mask >>= 1) {
    if ((ssd_mask & 1) != 0) {
      grant.slots_[i] = SlotWord::At(core_.space.Claim(DeviceIndex(i)));
    }
  }
  appender_.Promise(blocks);
  grant.blocks_ = blocks;
}

Task<Status> Admission::Admit(Grant& grant, uint64_t ssd_mask, uint64_t blocks) {
  ssd_mask &= core_.members.live_mask();
  Status running = core_.Running();
  EPLOG_CO_TRY(running);
  if (!turn_.locked() && HaveSlots(ssd_mask) && appender_.CanPromise(blocks)) {
    Take(grant, ssd_mask, blocks);
    keeper_->LookSoon();
    co_return OkStatus();
  }
  ++core_.hooks.space_waits;
  Task<AsyncMutex::Guard> lock = turn_.Lock();
  const AsyncMutex::Guard guard = co_await lock;
  waiting_ = true;
  ssd_mask_ = ssd_mask;
  blocks_ = blocks;
  while (!core_.stop_error && !(HaveSlots(ssd_mask) && appender_.CanPromise(blocks))) {
    core_.kick.NotifyAll();
    co_await core_.space_changed.Wait();
  }
  waiting_ = false;
  running = core_.Running();
  EPLOG_CO_TRY(running);
  Take(grant, ssd_mask, blocks);
  keeper_->LookSoon();
  co_return OkStatus();
}

}  // namespace eplog
