#include "engine/upkeep/discarder.h"

#include <algorithm>

namespace eplog {
namespace {

constexpr uint64_t kAgeUs = 10'000'000;               // free for so long to twice as long
constexpr uint64_t kLeastBytes = uint64_t{64} << 10;  // a run worth a request in the background
constexpr uint64_t kMostBytes = uint64_t{16} << 20;

}  // namespace

bool Discarder::Takes(DeviceIndex ssd) const {
  return core_.members.live(ssd) && core_.members.device(ssd)->capabilities().discard;
}

void Discarder::Open() {
  bool any = false;
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    any = any || Takes(DeviceIndex(i));
  }
  if (any && core_.options.discard) {
    core_.space.NoteFreed();
    running_.Add();
    core_.loop.Spawn(Background());
  }
}

Task<void> Discarder::Close() {
  closing_ = true;
  ended_.NotifyAll();
  core_.kick.NotifyAll();
  Task<void> wait = running_.Wait();
  co_await wait;
}

// What others need is never borrowed, and a good part of the rest is left too.
uint32_t Discarder::MostSlots(DeviceIndex ssd) const {
  const uint32_t keep = core_.geometry.commit_width() + core_.geometry.reserve_slots() / 4 + 1;
  const uint32_t spare = core_.SlotsToSpare(ssd);
  const auto most = static_cast<uint32_t>(kMostBytes / core_.geometry.chunk_bytes);
  return spare <= keep || admission_.waiting() ? 0 : std::min(spare - keep, most);
}

Task<Status> Discarder::Send(DeviceIndex ssd, SlotSpace::Run run) {
  const uint64_t bytes = uint64_t{run.count} * core_.geometry.chunk_bytes;
  Task<Status> discard = core_.members.Discard(ssd, core_.geometry.SlotOffset(run.first), bytes);
  Status status = co_await discard;
  core_.space.Return(ssd, run);
  core_.space_changed.NotifyAll();
  co_return status;
}

Task<void> Discarder::DiscardOld(DeviceIndex ssd) {
  const auto least =
      static_cast<uint32_t>(std::max<uint64_t>(1, kLeastBytes / core_.geometry.chunk_bytes));
  SlotIndex from(0);
  while (!closing_ && !core_.stop_error) {
    const uint32_t most = MostSlots(ssd);
    if (most < least) {
      co_return;
    }
    const auto run = core_.space.Borrow(ssd, from, least, most, SlotSpace::Which::kLongFree);
    if (!run) {
      co_return;
    }
    from = SlotIndex(run->first.value + run->count);
    Task<Status> send = Send(ssd, *run);
    const Status status = co_await send;
    if (!status.ok()) {
      co_return;  // it is a hint; slots are as good without
    }
  }
}

Task<void> Discarder::Background() {
  while (!closing_ && !core_.stop_error) {
    if (!core_.space.any_freed()) {
      co_await core_.kick.Wait();
      continue;
    }
    co_await ended_.WaitUntil(core_.loop.NowUs() + kAgeUs);
    for (uint8_t i = 0; i < core_.geometry.n && !closing_; ++i) {
      if (Takes(DeviceIndex(i))) {
        Task<void> old = DiscardOld(DeviceIndex(i));
        co_await old;
      }
    }
    core_.space.AgeFreed();
  }
  running_.Done();
}

Task<Result<uint64_t>> Discarder::DiscardAll(Progress progress) {
  uint64_t bytes = 0;
  const uint64_t total = uint64_t{core_.geometry.n} * core_.geometry.slots;
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    const DeviceIndex ssd(i);
    SlotIndex from(0);
    while (Takes(ssd)) {
      Status running = core_.Running();
      EPLOG_CO_TRY(running);
      const uint32_t most = MostSlots(ssd);
      const auto run = most == 0 ? std::nullopt
                                 : core_.space.Borrow(ssd, from, 1, most, SlotSpace::Which::kFree);
      if (!run) {
        break;
      }
      from = SlotIndex(run->first.value + run->count);
      Task<Status> send = Send(ssd, *run);
      const Status status = co_await send;
      if (!status.ok()) {
        break;  // it is a hint: the others are told all the same
      }
      bytes += uint64_t{run->count} * core_.geometry.chunk_bytes;
      if (progress) {
        progress(uint64_t{i} * core_.geometry.slots + from.value, total);
      }
    }
  }
  co_return bytes;
}

}  // namespace eplog
