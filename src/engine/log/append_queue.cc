#include "engine/log/append_queue.h"

#include <algorithm>

namespace eplog {

void AppendQueue::Submit(ChunkWrite& write) {
  if (core_.stop_error) {
    TakeBack(BlocksForChunk());
    write.completion.Finish(core_.loop, core_.Running(), 0);
    return;
  }
  write.states = core_.devices().number();
  chunks_[core_.geometry.SsdOf(write.chunk).value].push_back(&write);
  ++queued_chunks_;
  core_.append.NotifyAll();
}

void AppendQueue::Submit(RecordWrite& record, bool urgent) {
  if (core_.stop_error) {
    TakeBack(urgent ? 0 : record.promised);
    record.completion.Finish(core_.loop, core_.Running(), 0);
    return;
  }
  record.submitted_states = core_.devices().number();
  record.max_bytes = record.row ? MaxRecordBytes(*record.row) : 0;
  if (record.row && record.own_version) {
    // The entry's number sets their versions: at a distance of 0, one byte each.
    record.max_bytes += record.row->changes.size();
  }
  for (const VolumeRecord& volume : record.volumes) {
    record.max_bytes += MaxRecordBytes(volume);
  }
  record.max_bytes += record.trim ? MaxRecordBytes(*record.trim) : 0;
  (urgent ? urgent_ : records_).push_back(&record);
  core_.append.NotifyAll();
}

uint32_t AppendQueue::Width() const {
  uint32_t width = 0;
  for (const auto& queue : chunks_) {
    width += queue.empty() ? 0 : 1;
  }
  return width;
}

bool AppendQueue::WideEnough(size_t in_flight) const {
  const uint32_t n = core_.geometry.n;
  const std::array<uint32_t, kMaxInFlight> least = {1, (n + 1) / 2, n * 3 / 4, n - 1};
  return !records_.empty() || Width() >= std::max(1U, least[in_flight]);
}

void AppendQueue::DropOutdated() {
  std::erase_if(urgent_, [this](RecordWrite* record) {
    const bool outdated = record->states && *record->states != core_.devices().number();
    if (outdated) {
      record->completion.Finish(core_.loop,
                                Fail(ErrorCode::kBusy, "the devices have changed meanwhile"), 0);
    }
    return outdated;
  });
}

const RecordWrite* AppendQueue::NextRecord(bool urgent) const {
  const auto& queue = urgent ? urgent_ : records_;
  return queue.empty() ? nullptr : queue.front();
}

RecordWrite& AppendQueue::TakeRecord(bool urgent) {
  auto& queue = urgent ? urgent_ : records_;
  RecordWrite& record = *queue.front();
  queue.pop_front();
  promised_blocks_ -= urgent ? 0 : 1;
  WithoutLost(record);
  return record;
}

size_t AppendQueue::TakeStripe(std::span<ChunkWrite*, kMaxSsds> members) {
  size_t count = 0;
  for (auto& queue : chunks_) {
    if (queue.empty()) {
      continue;
    }
    ChunkWrite* write = queue.front();
    queue.pop_front();
    --queued_chunks_;
    // The log stripe takes less than its members were promised.
    promised_blocks_ -= BlocksForChunk();
    WithoutLost(*write);
    members[count++] = write;
  }
  return count;
}

void AppendQueue::WithoutLost(ChunkWrite& write) const {
  if (!core_.devices().IsCurrent(core_.geometry.SsdOf(write.chunk), write.states)) {
    write.word = SlotWord::Absent();
  }
}

void AppendQueue::WithoutLost(RecordWrite& record) const {
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

void AppendQueue::FailAll() {
  const Status status = core_.Running();
  for (auto& queue : chunks_) {
    for (ChunkWrite* write : queue) {
      promised_blocks_ -= BlocksForChunk();
      write->completion.Finish(core_.loop, status, 0);
    }
    queue.clear();
  }
  queued_chunks_ = 0;
  for (RecordWrite* record : records_) {
    promised_blocks_ -= record->promised;
    record->completion.Finish(core_.loop, status, 0);
  }
  records_.clear();
  for (RecordWrite* record : urgent_) {
    record->completion.Finish(core_.loop, status, 0);
  }
  urgent_.clear();
}

}  // namespace eplog
