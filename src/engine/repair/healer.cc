#include "engine/repair/healer.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "engine/read/chunk_place.h"
#include "engine/read/row_batch.h"

namespace eplog {
namespace {

constexpr size_t kMostReported =
    65536;  // stripes in wait; more are found by the next read or scrub
constexpr uint64_t kHealAgainUs = 1'000'000;

// Each time that it was met.
uint64_t WrongOf(const MemberSet& members, DeviceIndex device) {
  const MemberCounters& counters = members.counters(device);
  return counters.read_errors + counters.corrupt_chunks;
}

}  // namespace

void Healer::Open() {
  running_.Add();
  core_.loop.Spawn(Run());
}

Task<void> Healer::Close() {
  closing_ = true;
  wake_.NotifyAll();
  Task<void> wait = running_.Wait();
  co_await wait;
}

void Healer::Report(StripeIndex stripe) {
  if (closing_ || reported_.size() >= kMostReported || known_.contains(stripe.value)) {
    return;
  }
  if (const auto beyond = beyond_.find(stripe.value); beyond != beyond_.end()) {
    if (IsStill(stripe, beyond->second)) {
      return;
    }
    beyond_.erase(beyond);
  }
  known_.insert(stripe.value);
  reported_.push_back(stripe);
  wake_.NotifyAll();
}

Task<void> Healer::Run() {
  while (!closing_ && !core_.stop_error) {
    if (reported_.empty()) {
      co_await wake_.Wait();
      continue;
    }
    const StripeIndex stripe = reported_.front();
    reported_.pop_front();
    Task<Result<Outcome>> healing = Heal(stripe);
    const Result<Outcome> outcome = co_await healing;
    if (outcome.ok()) {
      known_.erase(stripe.value);
      // What lacks a device now may be decoded when that is back.
      if (outcome->lost != 0 && core_.devices().not_ok() == 0) {
        beyond_[stripe.value] = outcome->beyond;
      }
    } else if (!closing_ && !core_.stop_error) {
      reported_.push_back(stripe);  // no room, or the devices change: again, later
      co_await wake_.WaitUntil(core_.loop.NowUs() + kHealAgainUs);
    }
    Task<void> judging = JudgeDevices();
    co_await judging;
  }
  running_.Done();
}

Healer::LostChunk Healer::InRow(StripeIndex stripe, uint32_t index) const {
  const RowWord word = core_.state->rows.Get(stripe, index);
  return {.index = index, .word = word.word, .crc = word.crc};
}

Healer::LostChunk Healer::Pending(StripeIndex stripe, uint32_t index) const {
  LostChunk chunk;
  chunk.index = index;
  if (const auto pending = core_.state->pending.Find(core_.geometry.Chunk(stripe, index))) {
    chunk.version = pending->version;
    chunk.word = pending->word;
    chunk.crc = pending->crc;
  }
  return chunk;
}

bool Healer::IsStill(StripeIndex stripe, const Lost& lost) const {
  return std::all_of(lost.begin(), lost.end(), [&](const LostChunk& chunk) {
    return chunk ==
           (chunk.version == 0 ? InRow(stripe, chunk.index) : Pending(stripe, chunk.index));
  });
}

void Healer::BeginScrub() {
  scrubbed_ = true;
  before_scrub_.states = core_.devices().number();
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    // What was logged to one that joins is not looked at: it stays as wrong as it is.
    const bool joining = core_.devices().IsJoining(DeviceIndex(i));
    before_scrub_.wrong[i] = joining ? 0 : WrongOf(core_.members, DeviceIndex(i));
  }
}

Task<void> Healer::EndScrub(bool all_right) {
  scrubbed_ = false;
  if (!all_right) {
    co_return;
  }
  mended_ = before_scrub_;
  Task<void> judging = JudgeDevices();
  co_await judging;
}

// What is found on one that joins is not held against it.
void Healer::CountWrong(DeviceIndex device) {
  WrongChunks& wrong = wrong_chunks_[device.value];
  if (core_.devices().IsJoining(device)) {
    wrong = {};
    return;
  }
  if (!core_.devices().IsCurrent(device, wrong.states)) {
    wrong = {.count = 0, .states = core_.devices().number()};
  }
  ++wrong.count;
}

uint64_t Healer::WrongChunksOf(DeviceIndex device) const {
  const WrongChunks& wrong = wrong_chunks_[device.value];
  return core_.devices().IsCurrent(device, wrong.states) ? wrong.count : 0;
}

uint32_t Healer::WrongBeside(DeviceIndex device) const {
  uint32_t count = 0;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    const DeviceIndex other(i);
    const uint64_t mended = core_.devices().IsCurrent(other, mended_.states) ? mended_.wrong[i] : 0;
    count += other != device && WrongOf(core_.members, other) > mended ? 1 : 0;
  }
  return count;
}

// A device that fails to read again and again is failed as a whole, where the others can do
// without: what else is wrong on as many as parity replaces can then not be decoded any more.
Task<void> Healer::JudgeDevices() {
  const OpenOptions& options = core_.options;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    const DeviceIndex device(i);
    if (scrubbed_ || closing_ || core_.devices().not_ok() != 0 ||
        WrongBeside(device) >= core_.geometry.m) {
      continue;
    }
    const MemberCounters& counters = core_.members.counters(device);
    const auto many = [this, device](uint64_t counted, uint64_t most) {
      return most != 0 && counted >= most && WrongChunksOf(device) >= most;
    };
    const bool unreadable = many(counters.read_errors, options.max_read_errors);
    const bool wrong = many(counters.corrupt_chunks, options.max_corrupt_chunks);
    if (unreadable || wrong) {
      Task<Status> failing = membership_.Fail(
          device, unreadable ? std::to_string(counters.read_errors) + " reads have failed"
                             : std::to_string(counters.corrupt_chunks) + " chunks were wrong");
      static_cast<void>(co_await failing);
    }
  }
}

Task<Result<Healer::Outcome>> Healer::Heal(StripeIndex stripe) {
  Outcome outcome;
  Task<Status> row = HealRow(stripe, outcome);
  Status status = co_await row;
  for (uint32_t i = 0; i < core_.geometry.k() && status.ok(); ++i) {
    const ChunkIndex chunk = core_.geometry.Chunk(stripe, i);
    Task<bool> looking = PendingIsRight(chunk);
    const bool right = co_await looking;
    if (!right) {
      Task<Status> pending = HealPending(chunk, outcome);
      status = co_await pending;
    }
  }
  EPLOG_CO_TRY(status);
  co_return outcome;
}

// Which slots it takes is only known when the row has been read; then, if there are none to spare,
// it waits for its turn to get just these, and reads again.
Task<Status> Healer::HealRow(StripeIndex stripe, Outcome& outcome) {
  uint64_t ssds = 0;
  Task<Status> first = TryHealRow(stripe, ssds, outcome);
  Status status = co_await first;
  if (ssds == 0) {
    co_return status;
  }
  Task<Status> second = TryHealRow(stripe, ssds, outcome);
  co_return co_await second;
}

Task<Status> Healer::TryHealRow(StripeIndex stripe, uint64_t& ssds, Outcome& outcome) {
  const Geometry& g = core_.geometry;
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, {.ssds = ssds, .blocks = RowMender::Blocks(1, g.n)}));
  Task<KeyedLocks::Guard> locking = writer_.rows.Lock(stripe.value);
  const KeyedLocks::Guard lock = co_await locking;
  const StatesNumber states = core_.devices().number();
  RowBatch batch(core_, reader_, 1);
  batch.Add(stripe);
  Task<void> reading = batch.ReadAll();
  co_await reading;
  if (states != core_.devices().number()) {
    // What was read may be of another device than the one that was meant.
    co_return Fail(ErrorCode::kBusy, "the devices have changed meanwhile");
  }
  uint64_t wrong = batch.row(0).bad;
  const Status decoded = batch.Decode(0, wrong);
  if (!decoded.ok()) {
    for (uint64_t mask = wrong; mask != 0; mask &= mask - 1) {
      const auto index = static_cast<uint32_t>(std::countr_zero(mask));
      ++outcome.lost;
      ++outcome.lost_in_row;
      outcome.beyond.push_back(InRow(stripe, index));
      Tell(EventKind::kCorruptionLost, stripe, index);
    }
    co_return OkStatus();
  }
  const uint64_t parity = batch.WrongParity(0);
  batch.CountWrong(0, parity);
  batch.EncodeParity(0, parity);
  wrong |= parity;
  if (wrong == 0) {
    co_return OkStatus();
  }
  Task<Result<uint64_t>> mending =
      mender_.Mend(batch, std::span(&wrong, 1), states, ssds != 0 ? &grant : nullptr);
  const Result<uint64_t> mended = co_await mending;
  EPLOG_CO_TRY(mended);
  if (*mended != static_cast<uint64_t>(std::popcount(wrong))) {
    for (uint64_t mask = wrong; mask != 0; mask &= mask - 1) {
      ssds |= uint64_t{1} << g.SsdOf(stripe, static_cast<uint32_t>(std::countr_zero(mask))).value;
    }
    co_return Fail(ErrorCode::kBusy, "no slot is free to heal a chunk at the moment");
  }
  outcome.healed += *mended;
  for (uint64_t mask = wrong; mask != 0; mask &= mask - 1) {
    Tell(EventKind::kCorruptionHealed, stripe, static_cast<uint32_t>(std::countr_zero(mask)));
  }
  co_return OkStatus();
}

Task<bool> Healer::PendingIsRight(ChunkIndex chunk) {
  const auto pending = core_.state->pending.Find(chunk);
  const DeviceIndex ssd = core_.geometry.SsdOf(chunk);
  if (!pending || !pending->word.has_slot() || !core_.members.live(ssd)) {
    co_return true;
  }
  Pins pins(core_);
  pins.Add(ssd, pending->word);
  const Buffer content = core_.pool.Get(core_.geometry.chunk_bytes);
  Task<Status> read =
      reader_.ReadSlot(ssd, pending->word, pending->crc, core_.devices().number(), content.span());
  const Status status = co_await read;
  co_return status.ok() || !core_.members.live(ssd);
}

// As a write of what it holds. The row's lock keeps its extent from being freed meanwhile.
Task<Status> Healer::HealPending(ChunkIndex chunk, Outcome& outcome) {
  const StripeIndex stripe = core_.geometry.StripeOf(chunk);
  const uint32_t index = core_.geometry.IndexInStripe(chunk);
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, writer_.NeedOfChunk(chunk)));
  Task<KeyedLocks::Guard> row_locking = writer_.rows.Lock(stripe.value);
  const KeyedLocks::Guard row_lock = co_await row_locking;
  Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  Task<bool> looking = PendingIsRight(chunk);
  const bool right = co_await looking;
  if (right || buffered_.Latest(chunk) != nullptr) {
    co_return OkStatus();  // a newer version has come, or is about to
  }
  const Buffer content = core_.pool.Get(core_.geometry.chunk_bytes);
  Task<Status> read = reader_.ReadLatest(chunk, content.span());
  Status status = co_await read;
  if (!status.ok()) {
    ++outcome.lost;
    outcome.beyond.push_back(Pending(stripe, index));
    Tell(EventKind::kCorruptionLost, stripe, index);
    co_return OkStatus();
  }
  EPLOG_CO_AWAIT(writer_.WriteAdmitted(chunk, grant, content.span()));
  ++outcome.healed;
  Tell(EventKind::kCorruptionHealed, stripe, index);
  co_return OkStatus();
}

Task<Status> Healer::Retire(LogStripeId id, uint64_t sequence) {
  EPLOG_CO_AWAIT(flusher_.FlushAll());
  if (!core_.state->pending.IsLive(id, sequence)) {
    co_return OkStatus();
  }
  std::vector<ChunkIndex> chunks;
  core_.state->pending.PendingChunksOf(id, chunks);
  std::vector<StripeIndex> stripes;
  stripes.reserve(chunks.size());
  for (const ChunkIndex chunk : chunks) {
    stripes.push_back(core_.geometry.StripeOf(chunk));
  }
  std::sort(stripes.begin(), stripes.end());
  stripes.erase(std::unique(stripes.begin(), stripes.end()), stripes.end());
  Grant grant(admission_);
  const uint64_t blocks =
      core_.commit_cost.Blocks(stripes.size(), stripes.size() * core_.geometry.k());
  EPLOG_CO_AWAIT(admission_.Admit(grant, {.blocks = blocks}));
  committer_.ForgetFailures();
  Task<Status> commit = committer_.Commit(stripes);
  co_return co_await commit;
}

void Healer::Tell(EventKind kind, StripeIndex stripe, uint32_t index) {
  CountWrong(core_.geometry.SsdOf(stripe, index));
  core_.Tell(EventOf(*core_.state, kind, stripe, index,
                     kind == EventKind::kCorruptionHealed ? "was wrong and has been written anew"
                                                          : "is wrong and cannot be decoded"));
}

}  // namespace eplog
