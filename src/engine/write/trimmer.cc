#include "engine/write/trimmer.h"

#include <algorithm>
#include <vector>

namespace eplog {
namespace {

constexpr uint32_t kStripesAtOnce = 64;  // whose rows and chunks one record locks

}  // namespace

Task<Status> Trimmer::TrimInExtent(ExtentIndex extent, uint64_t from_bytes, uint64_t to_bytes) {
  const Geometry& g = core_.geometry;
  const uint64_t stripe_bytes = g.stripe_data_bytes();
  const uint32_t base = extent.value * g.extent_stripes;
  while (from_bytes < to_bytes) {
    const auto first = static_cast<uint32_t>(from_bytes / stripe_bytes);
    const uint64_t in_stripe = from_bytes % stripe_bytes;
    const uint64_t whole = (to_bytes - from_bytes) / stripe_bytes;
    if (in_stripe == 0 && whole != 0) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(whole, kStripesAtOnce));
      EPLOG_CO_AWAIT(TrimStripes(StripeIndex(base + first), count));
      from_bytes += count * stripe_bytes;
      continue;
    }
    const uint64_t length = std::min(stripe_bytes - in_stripe, to_bytes - from_bytes);
    EPLOG_CO_AWAIT(TrimInStripe(StripeIndex(base + first), in_stripe, in_stripe + length));
    from_bytes += length;
  }
  co_return OkStatus();
}

Task<Status> Trimmer::Settle(ExtentIndex extent) {
  Task<Status> drain = buffer_.Drain([this, extent](ChunkIndex chunk) {
    const Geometry& g = core_.geometry;
    return g.StripeOf(chunk).value / g.extent_stripes == extent.value;
  });
  co_return co_await drain;
}

Task<Status> Trimmer::TrimInStripe(StripeIndex stripe, uint64_t from_bytes, uint64_t to_bytes) {
  const Geometry& g = core_.geometry;
  const auto chunk_of = [&](uint64_t bytes) {
    return static_cast<uint32_t>(bytes / g.chunk_bytes);
  };
  uint32_t first = chunk_of(from_bytes);
  const uint32_t last = chunk_of(to_bytes);  // the first that is not wholly inside
  const uint64_t head = from_bytes % g.chunk_bytes;
  const uint64_t tail = to_bytes % g.chunk_bytes;
  if (head != 0) {
    const uint64_t end = first == last ? tail : g.chunk_bytes;
    EPLOG_CO_AWAIT(ZeroInChunk(g.Chunk(stripe, first), head, end));
    if (first == last) {
      co_return OkStatus();
    }
    ++first;
  }
  if (first < last) {
    // What is asked for at once fits an empty log, beside what commits of it will take.
    const auto most = static_cast<uint32_t>(
        std::clamp<uint64_t>(g.log_blocks / 4 / appender_.BlocksForChunk(), 1, kMaxSsds));
    for (; first < last; first = std::min(last, first + most)) {
      EPLOG_CO_AWAIT(TrimChunks(stripe, first, std::min(last, first + most)));
    }
  }
  if (tail != 0) {
    EPLOG_CO_AWAIT(ZeroInChunk(g.Chunk(stripe, last), 0, tail));
  }
  co_return OkStatus();
}

Task<Status> Trimmer::ZeroInChunk(ChunkIndex chunk, uint64_t from_bytes, uint64_t to_bytes) {
  if (IsZero(chunk)) {
    co_return OkStatus();
  }
  const Geometry& g = core_.geometry;
  const Buffer zeros = core_.pool.GetZeroed(g.chunk_bytes);
  const uint64_t offset = uint64_t{g.IndexInStripe(chunk)} * g.chunk_bytes + from_bytes;
  Task<Status> write =
      buffer_.WriteInStripe(g.StripeOf(chunk), offset, zeros.span().first(to_bytes - from_bytes));
  co_return co_await write;
}

Task<Status> Trimmer::Append(RecordWrite& record, BufferedChunks::Leaving& leaving) {
  appender_.Submit(record, false);
  co_await record.completion;
  Status status = record.completion.status();
  if (status.ok()) {
    leaving.Overwritten();
  }
  co_return status;
}

Task<Status> Trimmer::TrimStripes(StripeIndex first, uint32_t count) {
  const Geometry& g = core_.geometry;
  bool frees = false;
  for (uint32_t s = first.value; s < first.value + count; ++s) {
    frees = frees || core_.state->HasPending(StripeIndex(s));
  }
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, {.blocks = 1, .frees = frees}));
  std::vector<KeyedLocks::Guard> locks;
  for (uint32_t s = first.value; s < first.value + count; ++s) {
    Task<KeyedLocks::Guard> locking = writer_.rows.Lock(s);
    locks.push_back(co_await locking);
  }
  const uint64_t chunks = g.Chunk(first, 0).value;
  for (uint64_t chunk = chunks; chunk < chunks + uint64_t{count} * g.k(); ++chunk) {
    Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk);
    locks.push_back(co_await locking);
  }
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  BufferedChunks::Leaving leaving(buffered_);
  buffered_.Supersede(ChunkIndex(chunks), uint64_t{count} * g.k(), leaving);
  const auto untouched = [&](uint32_t s) {
    return !core_.state->HasPending(StripeIndex(s)) && core_.state->RowIsZero(StripeIndex(s));
  };
  uint32_t begin = first.value;
  uint32_t end = first.value + count;
  while (begin < end && untouched(begin)) {
    ++begin;
  }
  while (begin < end && untouched(end - 1)) {
    --end;
  }
  if (begin == end) {
    leaving.Overwritten();
    co_return OkStatus();
  }
  RecordWrite record;
  record.trim = StripesTrimmed{StripeIndex(begin), end - begin};
  grant.TakeLog();
  Task<Status> append = Append(record, leaving);
  co_return co_await append;
}

// Chunks [first, last) of a stripe, not all of it.
Task<Status> Trimmer::TrimChunks(StripeIndex stripe, uint32_t first, uint32_t last) {
  const Geometry& g = core_.geometry;
  while (first < last && IsZero(g.Chunk(stripe, first))) {
    ++first;
  }
  while (first < last && IsZero(g.Chunk(stripe, last - 1))) {
    --last;
  }
  if (first == last) {
    co_return OkStatus();
  }
  const uint64_t blocks = (last - first) * appender_.BlocksForChunk();
  Grant grant(admission_);
  EPLOG_CO_AWAIT(
      admission_.Admit(grant, {.owing = core_.state->WouldOwe(stripe), .blocks = blocks}));
  std::vector<KeyedLocks::Guard> locks;
  for (uint32_t i = first; i < last; ++i) {
    Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(g.Chunk(stripe, i).value);
    locks.push_back(co_await locking);
  }
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  BufferedChunks::Leaving leaving(buffered_);
  buffered_.Supersede(g.Chunk(stripe, first), last - first, leaving);
  RecordWrite record;
  record.trim = ChunksTrimmed{g.Chunk(stripe, first), last - first};
  record.promised = blocks;
  grant.TakeLog();
  Task<Status> append = Append(record, leaving);
  co_return co_await append;
}

}  // namespace eplog
