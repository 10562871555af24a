#include "engine/relogger.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace eplog {

Task<void> Relogger::MoveOn(std::vector<StripeIndex> stripes) {
  const Geometry& g = core_.geometry;
  const uint64_t most = g.log_blocks / 4;
  const uint64_t tail = appender_.log_tail();
  credit_ = std::exchange(has_begun_, true) ? std::min(most, credit_ + (tail - tail_) / 2) : most;
  tail_ = tail;
  std::vector<std::pair<StripeIndex, ChunkIndex>> chunks;
  std::sort(stripes.begin(), stripes.end());  // one seed, one order
  for (const StripeIndex stripe : stripes) {
    for (uint32_t i = 0; i < g.k(); ++i) {
      if (const ChunkIndex chunk = g.Chunk(stripe, i); IsInTheWay(chunk)) {
        chunks.emplace_back(stripe, chunk);
      }
    }
  }
  for (const auto& [stripe, chunk] : chunks) {
    if (credit_ < appender_.BlocksForChunk() || core_.stop_error) {
      break;
    }
    Task<void> moving = Move(stripe, chunk);
    co_await moving;
  }
}

bool Relogger::IsInTheWay(ChunkIndex chunk) const {
  const auto pending = core_.state->pending.Find(chunk);
  return pending && core_.state->pending.PlaceOf(pending->log_stripe) <
                        appender_.log_tail() + appender_.log_used() / 2;
}

// As a write of what it holds. The row's lock keeps its extent from being freed meanwhile.
Task<void> Relogger::Move(StripeIndex stripe, ChunkIndex chunk) {
  Grant grant(admission_);
  if (!admission_.TryAdmitFreeing(grant, writer_.NeedOfChunk(chunk))) {
    co_return;
  }
  Task<KeyedLocks::Guard> row_locking = writer_.rows.Lock(stripe.value);
  const KeyedLocks::Guard row_lock = co_await row_locking;
  Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  if (!IsInTheWay(chunk) || buffered_.Latest(chunk) != nullptr) {
    co_return;  // a newer version has come, or is about to
  }
  const Buffer content = core_.pool.Get(core_.geometry.chunk_bytes);
  Task<Status> reading = reader_.ReadLatest(chunk, content.span());
  const Status read = co_await reading;
  if (!read.ok()) {
    co_return;  // lost itself: it stays
  }
  ++core_.hooks.relogged_chunks;
  credit_ -= std::min(credit_, appender_.BlocksForChunk());
  Task<Status> writing = writer_.WriteAdmitted(chunk, grant, content.span());
  static_cast<void>(co_await writing);  // a failed append has stopped the array
}

}  // namespace eplog
