#include "engine/commit/committer.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "engine/log/flusher.h"
#include "runtime/task_group.h"

namespace eplog {

struct Committer::Install {
  explicit Install(Core& core, StripeIndex s) : pins(core) { change.stripe = s; }

  ParityMaker::Change change;
  KeyedLocks::Guard lock;
  Pins pins;
  RecordWrite record;
  bool ready = false;  // the record is to be submitted
  Status status;       // why it is not
};

namespace {

bool AllZero(std::span<const RowWord> words) {
  return std::all_of(words.begin(), words.end(),
                     [](const RowWord& word) { return word.word.is_zero(); });
}

}  // namespace

std::vector<StripeIndex> Committer::OldestStripes(size_t limit, uint64_t upto) const {
  std::vector<StripeIndex> stripes;
  std::unordered_set<uint32_t> seen;
  std::vector<ChunkIndex> chunks;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    if (core_.state->pending.SequenceOf(id) > std::min(upto, flusher_.stable())) {
      return false;
    }
    chunks.clear();
    core_.state->pending.PendingChunksOf(id, chunks);
    for (const ChunkIndex chunk : chunks) {
      const StripeIndex stripe = core_.geometry.StripeOf(chunk);
      if (stripes.size() < limit && !failed_.contains(stripe.value) &&
          seen.insert(stripe.value).second) {
        stripes.push_back(stripe);
      }
    }
    return stripes.size() < limit;
  });
  return stripes;
}

std::vector<StripeIndex> Committer::TakeFailures() {
  std::vector<StripeIndex> stripes;
  for (const auto& [stripe, why] : std::exchange(failed_, {})) {
    if (core_.state->HasPending(StripeIndex(stripe))) {
      stripes.emplace_back(stripe);
    }
  }
  std::sort(stripes.begin(), stripes.end());  // one seed, one order
  return stripes;
}

Task<Status> Committer::Commit(std::span<const StripeIndex> stripes, Batch size) {
  Status first_failure;
  while (!stripes.empty()) {
    Task<AsyncMutex::Guard> locking = turn_.Lock();
    const AsyncMutex::Guard guard = co_await locking;
    Task<Result<size_t>> room = WaitForRoom(stripes, size.stripes);
    const Result<size_t> count = co_await room;
    EPLOG_CO_TRY(count);
    Task<Status> batch = CommitBatch(stripes.first(*count), size.at_once);
    Status status = co_await batch;
    Status running = core_.Running();
    EPLOG_CO_TRY(running);
    if (first_failure.ok()) {
      first_failure = std::move(status);
    }
    stripes = stripes.subspan(*count);
  }
  ++core_.traffic.commits;
  co_return first_failure;
}

// How many of the first stripes find a slot for each parity chunk.
size_t Committer::FittingSlots(std::span<const StripeIndex> stripes) const {
  const Geometry& g = core_.geometry;
  std::array<uint32_t, kMaxSsds> taken{};
  for (size_t count = 0; count < stripes.size(); ++count) {
    for (uint32_t i = g.k(); i < g.n; ++i) {
      const DeviceIndex ssd = g.SsdOf(stripes[count], i);
      if (core_.members.live(ssd) && ++taken[ssd.value] > core_.space.free(ssd)) {
        return count;
      }
    }
  }
  return stripes.size();
}

// How many of the first stripes can be committed together now. The foreground leaves commit_width
// slots on each SSD, and one for each parity chunk that gives none back. What an earlier batch took
// beyond that comes back once what it freed is covered by a stable mark, or when a read lets go of
// its pin.
Task<Result<size_t>> Committer::WaitForRoom(std::span<const StripeIndex> stripes, uint32_t width) {
  stripes = stripes.first(std::min<size_t>(stripes.size(), width));
  while (true) {
    Status status = core_.Running();
    EPLOG_CO_TRY(status);
    if (!HasLogRoom()) {
      co_return Fail(ErrorCode::kBusy, "no log room for a parity commit");
    }
    size_t count = FittingSlots(stripes);
    if (count < stripes.size() && core_.space.newest_waiting().value_or(0) > flusher_.covered()) {
      EPLOG_CO_AWAIT(flusher_.FlushAndMark());
    } else if (count == 0) {
      co_await core_.space_changed.Wait();
    } else {
      const uint64_t room = appender_.UrgentRoom();
      while (core_.commit_cost.Blocks(count, count * core_.geometry.k()) > room) {
        --count;
      }
      co_return count;
    }
  }
}

Task<Status> Committer::CommitBatch(std::span<const StripeIndex> stripes, uint32_t at_once) {
  // Rows are locked in ascending order, as by everybody who holds several: no circle of waiting.
  std::vector<StripeIndex> order(stripes.begin(), stripes.end());
  std::sort(order.begin(), order.end());
  std::vector<std::unique_ptr<Install>> installs;
  for (const StripeIndex stripe : order) {
    installs.push_back(std::make_unique<Install>(core_, stripe));
    Task<KeyedLocks::Guard> locking = writer_.rows.Lock(stripe.value);
    installs.back()->lock = co_await locking;
  }
  for (const auto& install : installs) {
    core_.state->pending.PrefetchBucket(core_.geometry.Chunk(install->change.stripe, 0));
  }
  for (const auto& install : installs) {
    for (uint32_t i = 0; i < core_.geometry.k(); ++i) {
      core_.state->pending.PrefetchMember(core_.geometry.Chunk(install->change.stripe, i));
    }
  }
  TaskGroup group(core_.loop);
  for (const auto& install : installs) {
    Task<void> below = group.WaitBelow(at_once);
    co_await below;
    group.Start(Prepare(*install));
  }
  Task<Status> all = group.Wait();
  static_cast<void>(co_await all);  // each install has its own outcome
  Status status;
  for (const auto& install : installs) {
    if (!install->status.ok()) {
      failed_.insert_or_assign(install->change.stripe.value, install->status.error());
      status = install->status;
    }
  }
  for (const auto& install : installs) {
    if (install->ready) {
      appender_.Submit(install->record, true);
    }
  }
  for (const auto& install : installs) {
    if (!install->ready) {
      continue;
    }
    Completion& completion = install->record.completion;
    co_await completion;
    const Status done = completion.status();
    if (done.ok()) {
      ++core_.traffic.committed_stripes;
    } else if (done.error().code == ErrorCode::kBusy) {
      GiveUp(*install);
      status = status.ok() ? done : status;
    } else if (status.ok()) {
      status = done;
    }
  }
  co_return status;
}

// Versions that are stable and still the latest; a newer write during the commit stays pending.
bool Committer::TakeVersions(Install& install) {
  const Geometry& g = core_.geometry;
  install.change.states = core_.devices().number();
  RowRecord row;
  row.stripe = install.change.stripe;
  for (uint32_t i = 0; i < g.n; ++i) {
    install.change.old_words.push_back(core_.state->rows.Get(install.change.stripe, i));
    install.change.words.push_back(install.change.old_words.back());
    install.pins.Add(g.SsdOf(install.change.stripe, i), install.change.old_words.back().word);
  }
  for (uint32_t i = 0; i < g.k(); ++i) {
    const auto pending = core_.state->pending.Find(g.Chunk(install.change.stripe, i));
    if (pending && pending->version <= flusher_.stable()) {
      const DeviceIndex ssd = g.SsdOf(install.change.stripe, i);
      install.change.words[i] = {pending->word, pending->crc};
      install.change.versions[i] = pending->version;
      install.pins.Add(ssd, pending->word);
      const bool gone = pending->word.has_slot() && !core_.members.live(ssd);
      row.changes.push_back({static_cast<uint8_t>(i), gone ? SlotWord::Absent() : pending->word,
                             pending->crc, pending->version});
    }
  }
  const bool any = !row.changes.empty();
  install.record.row = std::move(row);
  return any;
}

Task<Status> Committer::Prepare(Install& install) {
  const Geometry& g = core_.geometry;
  if (!TakeVersions(install)) {
    // What was moved on in the log since it failed is not stable yet; or it was written anew.
    const StripeIndex stripe = install.change.stripe;
    const auto failed = failed_.find(stripe.value);
    if (failed != failed_.end() && core_.state->HasPending(stripe)) {
      install.status = Fail(failed->second);
    }
    install.lock.Release();
    install.pins.Release();
    co_return OkStatus();
  }
  std::vector<Buffer> parity;
  Status status;
  if (!AllZero(std::span(install.change.words).first(g.k()))) {
    Task<Status> making = maker_.Make(install.change, parity);
    status = co_await making;
  }
  if (!status.ok()) {
    if (status.error().code != ErrorCode::kBusy) {  // overwritten meanwhile: its turn comes again
      install.status = Fail(status.error().code, "parity commit of stripe " +
                                                     std::to_string(install.change.stripe.value) +
                                                     ": " + status.error().message);
    }
    co_return OkStatus();
  }
  if (install.change.states != core_.devices().number()) {
    co_return OkStatus();  // the devices have changed: its turn comes again
  }
  EPLOG_CO_AWAIT(WriteParity(install, parity));
  install.record.states = install.change.states;
  install.ready = true;
  co_return OkStatus();
}

// The devices have changed since it was taken: its turn comes again.
void Committer::GiveUp(Install& install) {
  const RowRecord& row = *install.record.row;
  for (const RowChange& change : row.changes) {
    const DeviceIndex ssd = core_.geometry.SsdOf(row.stripe, change.index);
    if (change.index >= core_.geometry.k() && change.word.has_slot() &&
        core_.devices().IsCurrent(ssd, install.change.states)) {
      core_.space.Unclaim(ssd, change.word.slot());
    }
  }
  core_.space_changed.NotifyAll();
}

void Committer::AddParityWord(Install& install, uint32_t index, RowWord word) {
  install.record.row->changes.push_back({static_cast<uint8_t>(index), word.word, word.crc, 0});
}

Task<Status> Committer::WriteParityChunk(DeviceIndex ssd, SlotIndex slot,
                                         std::span<const std::byte> chunk) {
  Task<Status> write =
      core_.members.WriteBytes(ssd, core_.geometry.SlotOffset(slot), chunk, IoKind::kParity);
  Status status = co_await write;
  core_.traffic.ssd_parity_bytes += status.ok() ? chunk.size() : 0;
  co_return core_.members.Absorb(std::move(status));
}

// Without parity chunks the whole stripe is zeros.
Task<Status> Committer::WriteParity(Install& install, std::span<const Buffer> parity) {
  const Geometry& g = core_.geometry;
  if (parity.empty()) {
    for (uint32_t i = g.k(); i < g.n; ++i) {
      AddParityWord(install, i, {});
    }
    co_return OkStatus();
  }
  TaskGroup group(core_.loop);
  for (uint32_t j = 0; j < g.m; ++j) {
    const DeviceIndex ssd = g.SsdOf(install.change.stripe, g.k() + j);
    SlotWord word = SlotWord::Absent();
    if (core_.members.live(ssd)) {
      EPLOG_CHECK(core_.space.free(ssd) != 0, "section 5: no slot is left for commit");
      word = SlotWord::At(core_.space.Claim(ssd));
      const SlotWord old = install.change.old_words[g.k() + j].word;
      if (core_.canary(Canary::kParityInPlace) && old.has_slot()) {
        core_.space.Unclaim(ssd, word.slot());
        word = old;
      }
      group.Start(WriteParityChunk(ssd, word.slot(), parity[j].span()));
    }
    AddParityWord(install, g.k() + j, {word, core_.checksum(parity[j].span())});
  }
  Task<Status> all = group.Wait();
  Status status = co_await all;
  if (!status.ok()) {
    core_.Stop(status.error());
  }
  co_return status;
}

}  // namespace eplog
