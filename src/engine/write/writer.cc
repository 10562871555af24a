#include "engine/write/writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/task_group.h"

namespace eplog {
namespace {

bool Aligned(const std::byte* data) {
  return reinterpret_cast<uintptr_t>(data) % kBlockBytes == 0;
}

}  // namespace

Task<Status> Writer::WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                                   std::span<const std::byte> from) {
  if (IsWhole(stripe, offset_bytes, from.size())) {
    return WriteStripe(stripe, from);
  }
  return ByChunk(stripe, offset_bytes, from,
                 [this](ChunkIndex chunk, uint64_t in_chunk, std::span<const std::byte> part) {
                   return WriteChunk(chunk, in_chunk, part);
                 });
}

bool Writer::IsWhole(StripeIndex stripe, uint64_t offset_bytes, uint64_t length_bytes) const {
  const bool whole = offset_bytes == 0 && length_bytes == core_.geometry.stripe_data_bytes();
  const bool fresh = core_.state->RowIsZero(stripe) && !core_.state->HasPending(stripe);
  return whole && (fresh || !core_.options.log_whole_stripes);
}

Admission::Need Writer::NeedOfChunk(ChunkIndex chunk) const {
  return {.ssds = uint64_t{1} << core_.geometry.SsdOf(chunk).value,
          .owing = core_.state->WouldOwe(core_.geometry.StripeOf(chunk)),
          .blocks = appender_.BlocksForChunk()};
}

Admission::Need Writer::NeedOfStripe(StripeIndex stripe) const {
  return {.ssds = (uint64_t{1} << core_.geometry.n) - 1,
          .owing = 0,
          .blocks = 1,
          .frees = core_.state->HasPending(stripe)};
}

Task<Status> Writer::WriteChunk(ChunkIndex chunk, uint64_t offset_bytes,
                                std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, NeedOfChunk(chunk)));
  Task<KeyedLocks::Guard> locking = chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  if (std::byte* buffered = buffered_.AbsorbingData(chunk)) {
    // It came to lie in a buffer while this waited.
    std::memcpy(buffered + offset_bytes, from.data(), from.size());
    co_return core_.Running();
  }
  Buffer copy;
  std::span<const std::byte> data = from;
  if (from.size() != g.chunk_bytes || !Aligned(from.data())) {
    copy = core_.pool.Get(g.chunk_bytes);
    if (from.size() != g.chunk_bytes) {
      EPLOG_CO_AWAIT(reader_.ReadLatest(chunk, copy.span()));
    }
    std::memcpy(copy.data() + offset_bytes, from.data(), from.size());
    data = copy.span();
  }
  Task<Status> write = WriteAdmitted(chunk, grant, data);
  co_return co_await write;
}

Task<Status> Writer::WriteAdmitted(ChunkIndex chunk, Grant& grant,
                                   std::span<const std::byte> data) {
  core_.state->pending.PrefetchBucket(chunk);
  ChunkWrite write;
  write.chunk = chunk;
  write.word = grant.TakeSlot(core_.geometry.SsdOf(chunk));
  write.data = data.data();
  write.crc = core_.checksum(data);
  grant.TakeLog();
  core_.state->pending.PrefetchMember(chunk);
  appender_.Submit(write);
  co_await write.completion;
  co_return write.completion.status();
}

RowRecord Writer::MakeRow(StripeIndex stripe, Grant& grant,
                          std::span<const std::byte* const> content,
                          std::vector<SlotWrite>& writes) {
  const Geometry& g = core_.geometry;
  RowRecord row;
  row.stripe = stripe;
  for (uint32_t i = 0; i < g.n; ++i) {
    RowChange change;
    change.index = static_cast<uint8_t>(i);
    change.word = grant.TakeSlot(g.SsdOf(stripe, i));
    change.crc = core_.checksum({content[i], g.chunk_bytes});
    row.changes.push_back(change);
    if (change.word.has_slot()) {
      writes.push_back({g.SsdOf(stripe, i), change.word.slot(), content[i], i >= g.k()});
    }
  }
  return row;
}

Task<Writer::StripeLocks> Writer::LockStripe(StripeIndex stripe) {
  StripeLocks locks;
  Task<KeyedLocks::Guard> row = rows.Lock(stripe.value);
  locks.row = co_await row;
  for (uint32_t i = 0; i < core_.geometry.k(); ++i) {
    Task<KeyedLocks::Guard> next = chunks.Lock(core_.geometry.Chunk(stripe, i).value);
    locks.chunks[i] = co_await next;
  }
  co_return std::move(locks);
}

Task<Status> Writer::WriteStripe(StripeIndex stripe, std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, NeedOfStripe(stripe)));
  Task<StripeLocks> locking = LockStripe(stripe);
  const StripeLocks locks = co_await locking;
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  Buffer copy;
  if (!Aligned(from.data())) {
    copy = core_.pool.Get(from.size());
    std::memcpy(copy.data(), from.data(), from.size());
    from = copy.span();
  }
  std::array<const std::byte*, kMaxSsds> content{};
  for (uint32_t i = 0; i < g.k(); ++i) {
    content[i] = from.data() + size_t{i} * g.chunk_bytes;
  }
  BufferedChunks::Leaving leaving(buffered_);
  buffered_.Supersede(g.Chunk(stripe, 0), g.k(), leaving);
  Task<Status> write = WriteRow(stripe, grant, std::span(content).first(g.k()));
  status = co_await write;
  if (status.ok()) {
    leaving.Overwritten();
  }
  co_return status;
}

Task<Status> Writer::WriteRow(StripeIndex stripe, Grant& grant,
                              std::span<const std::byte* const> data) {
  const Geometry& g = core_.geometry;
  std::array<const std::byte*, kMaxSsds> content{};
  std::copy(data.begin(), data.end(), content.begin());
  Buffer parity = core_.pool.Get(size_t{g.m} * g.chunk_bytes);
  std::array<std::byte*, kMaxParity> parity_chunks{};
  for (uint32_t j = 0; j < g.m; ++j) {
    parity_chunks[j] = parity.data() + size_t{j} * g.chunk_bytes;
    content[g.k() + j] = parity_chunks[j];
  }
  core_.code.Encode(std::span(content).first(g.k()), std::span(parity_chunks).first(g.m),
                    g.chunk_bytes);
  RecordWrite record;
  record.own_version = true;
  record.row = MakeRow(stripe, grant, content, record.writes);
  grant.TakeLog();
  appender_.Submit(record, false);
  co_await record.completion;
  const Status status = record.completion.status();
  if (status.ok()) {
    ++core_.traffic.full_stripe_writes;
  }
  co_return status;
}

}  // namespace eplog
