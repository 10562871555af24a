// The appender's part in a change of device states, and how old entries are.

#include <algorithm>

#include "engine/log/appender.h"

namespace eplog {

Task<void> Appender::Pause() {
  paused_ = true;
  while (!in_flight_.empty() && !core_.stop_error) {
    co_await applied_changed_.Wait();
  }
}

void Appender::BeginEpoch(const Epoch& epoch) {
  epoch_ = epoch;
  first_of_epoch_ = true;
}

void Appender::DropOutdated() {
  std::erase_if(urgent_, [this](RecordWrite* record) {
    const bool outdated = record->states && *record->states != core_.devices().number();
    if (outdated) {
      record->completion.Finish(core_.loop,
                                Fail(ErrorCode::kBusy, "the devices have changed meanwhile"), 0);
    }
    return outdated;
  });
}

// A slot is named under the device states under which it is described.
void Appender::WithoutLost(ChunkWrite& write) const {
  if (!core_.devices().IsCurrent(core_.geometry.SsdOf(write.chunk), write.states)) {
    write.word = SlotWord::Absent();
  }
}

void Appender::WithoutLost(RecordWrite& record) const {
  if (record.row && record.own_version) {
    for (RowChange& change : record.row->changes) {
      const DeviceIndex ssd = core_.geometry.SsdOf(record.row->stripe, change.index);
      if (!core_.devices().IsCurrent(ssd, record.submitted_states)) {
        change.word = SlotWord::Absent();
      }
    }
    std::erase_if(record.writes, [&](const SlotWrite& write) {
      return !core_.devices().IsCurrent(write.ssd, record.submitted_states);
    });
  }
}

uint64_t Appender::SequenceAt(uint64_t us) const {
  const auto later = std::upper_bound(ages_.begin(), ages_.end(), us,
                                      [](uint64_t at, const auto& age) { return at < age.second; });
  return later == ages_.begin() ? 0 : std::prev(later)->first;
}

std::optional<uint64_t> Appender::OldestPendingUs() const {
  uint64_t oldest = 0;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    oldest = core_.state->pending.SequenceOf(id);
    return false;
  });
  if (oldest == 0) {
    return std::nullopt;
  }
  while (ages_.size() > 1 && ages_[1].first <= oldest) {
    ages_.pop_front();
  }
  return ages_.front().second;
}

}  // namespace eplog
