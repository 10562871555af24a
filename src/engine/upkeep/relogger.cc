#include "engine/upkeep/relogger.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMost = 256;  // chunks in one go
constexpr size_t kAtOnce = 16;

}  // namespace

Task<void> Relogger::MoveOn(std::vector<StripeIndex> stripes, const bool& stop) {
  const uint64_t most = core_.geometry.log_blocks / 4;
  const uint64_t tail = appender_.log_tail();
  credit_ = std::exchange(has_begun_, true) ? std::min(most, credit_ + (tail - tail_) / 2) : most;
  tail_ = tail;
  std::vector<Moved> chunks = ChunksInTheWay(std::move(stripes));
  TaskGroup group(core_.loop);
  for (size_t i = 0; i < std::min(chunks.size(), kMost); ++i) {
    if (credit_ < appender_.BlocksForChunk() || stop || core_.stop_error) {
      break;
    }
    group.Start(Move(chunks[i]));
    Task<void> below = group.WaitBelow(kAtOnce);
    co_await below;
  }
  Task<Status> all = group.Wait();
  static_cast<void>(co_await all);  // a failed append has stopped the array
}

// In the order of the log: what lies at its tail holds all the rest, and what is moved before it
// only fills the head.
std::vector<Relogger::Moved> Relogger::ChunksInTheWay(std::vector<StripeIndex> stripes) const {
  const Geometry& g = core_.geometry;
  std::sort(stripes.begin(), stripes.end());  // one seed, one order
  std::vector<Moved> chunks;
  for (const StripeIndex stripe : stripes) {
    for (uint32_t i = 0; i < g.k(); ++i) {
      const ChunkIndex chunk = g.Chunk(stripe, i);
      if (IsInTheWay(chunk)) {
        chunks.push_back({PlaceOf(chunk), stripe, chunk});
      }
    }
  }
  std::ranges::stable_sort(chunks, {}, &Moved::place);
  return chunks;
}

// Of something pending.
uint64_t Relogger::PlaceOf(ChunkIndex chunk) const {
  return core_.state->pending.PlaceOf(core_.state->pending.Find(chunk)->log_stripe);
}

bool Relogger::IsInTheWay(ChunkIndex chunk) const {
  return core_.state->pending.Find(chunk) &&
         PlaceOf(chunk) < appender_.log_tail() + appender_.log_used() / 2;
}

// As a write of what it holds. The row's lock keeps its extent from being freed meanwhile.
Task<Status> Relogger::Move(Moved moved) {
  const ChunkIndex chunk = moved.chunk;
  Grant grant(admission_);
  if (!admission_.TryAdmitFreeing(grant, writer_.NeedOfChunk(chunk))) {
    co_return OkStatus();
  }
  const uint64_t cost = std::min(credit_, appender_.BlocksForChunk());
  credit_ -= cost;
  Task<KeyedLocks::Guard> row_locking = writer_.rows.Lock(moved.stripe.value);
  const KeyedLocks::Guard row_lock = co_await row_locking;
  Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  const bool newer = !IsInTheWay(chunk) || buffered_.Latest(chunk) != nullptr;  // or about to come
  const Buffer content = core_.pool.Get(core_.geometry.chunk_bytes);
  Status read;
  if (!newer) {
    Task<Status> reading = reader_.ReadLatest(chunk, content.span());
    read = co_await reading;
  }
  if (newer || !read.ok()) {  // what is lost itself stays
    credit_ += cost;
    co_return OkStatus();
  }
  ++core_.hooks.relogged_chunks;
  Task<Status> writing = writer_.WriteAdmitted(chunk, grant, content.span());
  co_return co_await writing;
}

}  // namespace eplog
