#include "engine/writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

bool Aligned(const std::byte* data) {
  return reinterpret_cast<uintptr_t>(data) % kBlockBytes == 0;
}

}  // namespace

Task<Status> Writer::WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                                   std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  if (offset_bytes == 0 && from.size() == g.stripe_data_bytes()) {
    Task<Status> whole = WriteStripe(stripe, from);
    co_return co_await whole;
  }
  const uint64_t first = offset_bytes / g.chunk_bytes;
  if ((offset_bytes + from.size() - 1) / g.chunk_bytes == first) {
    Task<Status> one = WriteChunk(g.Chunk(stripe, static_cast<uint32_t>(first)),
                                  offset_bytes - first * g.chunk_bytes, from);
    co_return co_await one;
  }
  TaskGroup group(core_.loop);
  while (!from.empty()) {
    const uint64_t index = offset_bytes / g.chunk_bytes;
    const uint64_t in_chunk = offset_bytes % g.chunk_bytes;
    const uint64_t length = std::min<uint64_t>(g.chunk_bytes - in_chunk, from.size());
    group.Start(
        WriteChunk(g.Chunk(stripe, static_cast<uint32_t>(index)), in_chunk, from.first(length)));
    from = from.subspan(length);
    offset_bytes += length;
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> Writer::WriteChunk(ChunkIndex chunk, uint64_t offset_bytes,
                                std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  const DeviceIndex ssd = g.SsdOf(chunk);
  Grant grant(admission_);
  Task<Status> admit = admission_.Admit(grant, {.ssds = uint64_t{1} << ssd.value,
                                                .owing = core_.state->WouldOwe(g.StripeOf(chunk)),
                                                .blocks = appender_.BlocksForChunk()});
  Status status = co_await admit;
  EPLOG_CO_TRY(status);
  Task<KeyedLocks::Guard> locking = chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;

  Buffer copy;
  const std::byte* data = from.data();
  if (from.size() != g.chunk_bytes || !Aligned(data)) {
    copy = core_.pool.Get(g.chunk_bytes);
    if (from.size() != g.chunk_bytes) {
      Task<Status> read = reader_.ReadLatest(chunk, copy.span());
      status = co_await read;
      EPLOG_CO_TRY(status);
    }
    std::memcpy(copy.data() + offset_bytes, from.data(), from.size());
    data = copy.data();
  }
  core_.state->pending.PrefetchBucket(chunk);
  ChunkWrite write;
  write.chunk = chunk;
  write.word = grant.TakeSlot(ssd);
  write.data = data;
  write.crc = Crc32c({data, g.chunk_bytes});
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
    change.crc = Crc32c({content[i], g.chunk_bytes});
    row.changes.push_back(change);
    if (change.word.has_slot()) {
      writes.push_back({g.SsdOf(stripe, i), change.word.slot(), content[i], i >= g.k()});
    }
  }
  return row;
}

Task<Status> Writer::WriteStripe(StripeIndex stripe, std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  Grant grant(admission_);
  Task<Status> admit = admission_.Admit(grant, {.ssds = (uint64_t{1} << g.n) - 1,
                                                .owing = 0,
                                                .blocks = 1,
                                                .frees = core_.state->HasPending(stripe)});
  Status status = co_await admit;
  EPLOG_CO_TRY(status);
  Task<KeyedLocks::Guard> locking = rows.Lock(stripe.value);
  const KeyedLocks::Guard row_lock = co_await locking;
  std::array<KeyedLocks::Guard, kMaxSsds> chunk_locks;
  for (uint32_t i = 0; i < g.k(); ++i) {
    Task<KeyedLocks::Guard> next = chunks.Lock(g.Chunk(stripe, i).value);
    chunk_locks[i] = co_await next;
  }

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
  status = record.completion.status();
  if (status.ok()) {
    ++core_.traffic.full_stripe_writes;
  }
  co_return status;
}

}  // namespace eplog
