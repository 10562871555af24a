#include "engine/upkeep/watch.h"

#include <algorithm>
#include <optional>
#include <string>

namespace eplog {
namespace {

constexpr uint64_t kLookUs = 5'000'000;
constexpr uint64_t kSilenceUs = 60'000'000;  // the same is not told more often
constexpr uint64_t kLeastRequests = 50;      // of a device between two looks, to judge it
constexpr uint64_t kSlowFactor = 8;          // times the median of its peers
constexpr uint64_t kSlowUs = 20'000;         // and at least this, on average
constexpr uint64_t kLeastWaits = 10;

}  // namespace

void Watch::Open() {
  if (core_.options.on_event) {
    running_.Add();
    core_.loop.Spawn(Run());
  }
}

Task<void> Watch::Close() {
  closing_ = true;
  wake_.NotifyAll();
  Task<void> wait = running_.Wait();
  co_await wait;
}

Task<void> Watch::Run() {
  while (!closing_ && !core_.stop_error) {
    LookAtSpace();
    LookAtDevices(0, core_.geometry.n);
    LookAtDevices(core_.geometry.n, core_.geometry.devices());
    LookAtWaits();
    co_await wake_.WaitUntil(core_.loop.NowUs() + kLookUs);
  }
  running_.Done();
}

// Below a tenth once, and again when it has been above an eighth in between.
void Watch::LookAtSpace() {
  const uint64_t free = core_.state->volumes.free_extents();
  const uint64_t all = core_.geometry.extents();
  if (free * 10 < all && !told_low_) {
    told_low_ = true;
    core_.Tell(EventKind::kSpaceLow, "",
               std::to_string(free * core_.geometry.extent_data_bytes() >> 20) +
                   " MiB are left for volumes, of " +
                   std::to_string(core_.geometry.capacity_bytes() >> 20));
  }
  told_low_ = told_low_ && free * 8 < all;
}

Watch::Seen Watch::Of(const MemberCounters& counters) {
  return {counters.reads + counters.writes, counters.busy_us};
}

void Watch::LookAtDevices(uint32_t first, uint32_t last) {
  std::vector<std::optional<uint64_t>> average(last);
  std::vector<uint64_t> sorted;
  for (uint32_t i = first; i < last; ++i) {
    const Seen now = Of(core_.members.counters(DeviceIndex(static_cast<uint8_t>(i))));
    const uint64_t requests = now.requests - std::min(now.requests, seen_[i].requests);
    const uint64_t busy_us = now.busy_us - std::min(now.busy_us, seen_[i].busy_us);
    seen_[i] = now;
    if (requests >= kLeastRequests) {
      average[i] = busy_us / requests;
      sorted.push_back(*average[i]);
    }
  }
  if (sorted.size() < 2) {
    return;
  }
  std::sort(sorted.begin(), sorted.end());
  const uint64_t median = sorted[(sorted.size() - 1) / 2];
  const uint64_t now_us = core_.loop.NowUs();
  for (uint32_t i = first; i < last; ++i) {
    const bool slow = average[i] && *average[i] >= kSlowUs && *average[i] > kSlowFactor * median;
    const bool silent = told_slow_us_[i] != 0 && now_us < told_slow_us_[i] + kSilenceUs;
    if (slow && !silent) {
      told_slow_us_[i] = now_us;
      const std::string name = core_.geometry.DeviceName(DeviceIndex(static_cast<uint8_t>(i)));
      core_.Tell(EventKind::kSlowDevice, name,
                 name + " answers in " + std::to_string(*average[i] / 1000) +
                     " ms on average, its peers in " + std::to_string(median) + " us");
    }
  }
}

void Watch::LookAtWaits() {
  const uint64_t waits = core_.hooks.space_waits - waits_;
  waits_ = core_.hooks.space_waits;
  const uint64_t now_us = core_.loop.NowUs();
  const bool silent = told_behind_us_ != 0 && now_us < told_behind_us_ + kSilenceUs;
  if (waits >= kLeastWaits && !silent) {
    told_behind_us_ = now_us;
    core_.Tell(EventKind::kCommitBehind, "",
               std::to_string(waits) + " writes waited for parity commit within " +
                   std::to_string(kLookUs / 1'000'000) + " s");
  }
}

}  // namespace eplog
