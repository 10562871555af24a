#include "engine/repair/row_mender.h"

#include <bit>
#include <utility>

namespace eplog {
namespace {

struct Mending {
  StatesNumber states = 0;   // when the rows were read
  Grant* granted = nullptr;  // what slots are taken from; null: from those that are free
  std::vector<std::unique_ptr<RecordWrite>> records;
  std::vector<RowBatch::Place> places;
  uint64_t in_place = 0;  // by a canary
};

// None where the only ones left are for commits: its turn comes again.
SlotWord TakeSlot(Core& core, DeviceIndex ssd, StatesNumber states, Grant* granted) {
  if (!core.devices().IsCurrent(ssd, states)) {
    return SlotWord::Absent();
  }
  if (granted != nullptr) {
    return granted->Holds(ssd) ? granted->TakeSlot(ssd) : SlotWord::Absent();
  }
  const bool spare = core.space.free(ssd) > core.geometry.commit_width();
  return spare ? SlotWord::At(core.space.Claim(ssd)) : SlotWord::Absent();
}

void TakeSlots(Core& core, const RowBatch& batch, size_t at, uint64_t mask, Mending& mending) {
  const Geometry& g = core.geometry;
  const RowBatch::Row& row = batch.row(at);
  RowRecord record;
  record.stripe = row.stripe;
  for (; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    const DeviceIndex ssd = g.SsdOf(row.stripe, index);
    if (core.canary(Canary::kHealInPlace) && row.words[index].word.has_slot()) {
      mending.places.push_back({at, index, ssd, row.words[index].word.slot(), mending.states});
      ++mending.in_place;
      continue;
    }
    const SlotWord word = TakeSlot(core, ssd, mending.states, mending.granted);
    if (word.has_slot()) {
      record.changes.push_back({static_cast<uint8_t>(index), word, row.words[index].crc, 0});
      mending.places.push_back({at, index, ssd, word.slot(), mending.states});
    }
  }
  if (!record.changes.empty()) {
    auto write = std::make_unique<RecordWrite>();
    write->row = std::move(record);
    write->states = mending.states;
    mending.records.push_back(std::move(write));
  }
}

// Its slots are given back: nothing describes them.
void GiveUp(Core& core, const RecordWrite& record, StatesNumber states) {
  for (const RowChange& change : record.row->changes) {
    const DeviceIndex ssd = core.geometry.SsdOf(record.row->stripe, change.index);
    if (core.devices().IsCurrent(ssd, states)) {
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
                                       StatesNumber states, Grant* granted) {
  Mending mending;
  mending.states = states;
  mending.granted = granted;
  for (size_t at = 0; at < batch.size(); ++at) {
    TakeSlots(core_, batch, at, masks[at], mending);
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
  uint64_t mended = mending.in_place;
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
