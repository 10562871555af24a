#include "engine/row_mender.h"

#include <bit>
#include <utility>

namespace eplog {
namespace {

struct Mending {
  std::vector<std::unique_ptr<RecordWrite>> records;
  std::vector<RowBatch::Place> places;
};

void TakeSlots(Core& core, const RowBatch& batch, size_t at, uint64_t mask, uint64_t states,
               Mending& mending) {
  const Geometry& g = core.geometry;
  const RowBatch::Row& row = batch.row(at);
  RowRecord record;
  record.stripe = row.stripe;
  for (; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    const DeviceIndex ssd = g.SsdOf(row.stripe, index);
    if (!core.IsCurrent(ssd, states) || core.space.free(ssd) <= g.commit_width()) {
      continue;  // those are for commits; its turn comes again
    }
    const SlotIndex slot = core.space.Claim(ssd);
    record.changes.push_back(
        {static_cast<uint8_t>(index), SlotWord::At(slot), row.words[index].crc, 0});
    mending.places.push_back({at, index, ssd, slot});
  }
  if (!record.changes.empty()) {
    auto write = std::make_unique<RecordWrite>();
    write->row = std::move(record);
    write->states = states;
    mending.records.push_back(std::move(write));
  }
}

// Its slots are given back: nothing describes them.
void GiveUp(Core& core, const RecordWrite& record, uint64_t states) {
  for (const RowChange& change : record.row->changes) {
    const DeviceIndex ssd = core.geometry.SsdOf(record.row->stripe, change.index);
    if (core.IsCurrent(ssd, states)) {
      core.space.Unclaim(ssd, change.word.slot());
    }
  }
  core.space_changed.NotifyAll();
}

}  // namespace

uint64_t RowMender::Blocks(uint64_t rows, uint32_t chunks) {
  return 1 + DivideUp(rows * MaxRowRecordBytes(chunks), kBlockBytes / 2);
}

Task<Result<uint64_t>> RowMender::Mend(RowBatch& batch, std::span<const uint64_t> masks,
                                       uint64_t states) {
  Mending mending;
  for (size_t at = 0; at < batch.size(); ++at) {
    TakeSlots(core_, batch, at, masks[at], states, mending);
  }
  Task<Status> writing = batch.Write(std::move(mending.places));
  Status failure = co_await writing;
  if (!failure.ok()) {
    core_.Stop(failure.error());  // no room below, or the array is going down
    for (const auto& record : mending.records) {
      GiveUp(core_, *record, states);
    }
    co_return Fail(std::move(failure).error());
  }
  for (const auto& record : mending.records) {
    appender_.Submit(*record, true);
  }
  uint64_t mended = 0;
  for (const auto& record : mending.records) {
    Completion& completion = record->completion;
    co_await completion;
    Status done = completion.status();
    if (done.ok()) {
      mended += record->row->changes.size();
    } else {
      GiveUp(core_, *record, states);
      failure = failure.ok() ? std::move(done) : failure;
    }
  }
  if (!failure.ok()) {
    co_return Fail(std::move(failure).error());
  }
  co_return mended;
}

}  // namespace eplog
