#include "engine/write/write_buffer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "runtime/task_group.h"

namespace eplog {

void WriteBuffer::Open() {
  SetSizes(core_.options.buffers);
  aging_.Add();
  core_.loop.Spawn(Age());
}

// Those on their way beside those that wait: what four entries of full width hold.
uint64_t WriteBuffer::MostChunks() const {
  const Geometry& g = core_.geometry;
  return uint64_t{g.n} * sizes_.device_chunks + uint64_t{g.k()} * sizes_.stripes +
         Appender::kMaxInFlight * uint64_t{g.n};
}

Status WriteBuffer::Check(const Core& core, const BufferSizes& sizes) {
  const Geometry& g = core.geometry;
  if (sizes.device_chunks > g.slots || sizes.stripes > g.stripes) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffers of " + std::to_string(sizes.device_chunks) + " chunks an SSD and " +
                    std::to_string(sizes.stripes) + " stripes are larger than the array: it has " +
                    std::to_string(g.slots) + " slots an SSD and " + std::to_string(g.stripes) +
                    " stripes");
  }
  const uint64_t chunks = uint64_t{g.n} * sizes.device_chunks + uint64_t{g.k()} * sizes.stripes;
  const uint64_t bytes = chunks * g.chunk_bytes;
  const uint64_t most = core.options.max_buffer_bytes;
  if (most != 0 && bytes > most) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffers of " + std::to_string(sizes.device_chunks) + " chunks an SSD and " +
                    std::to_string(sizes.stripes) + " stripes would hold up to " +
                    std::to_string(DivideUp(bytes, 1 << 20)) +
                    " MiB in memory, of which they may take " + std::to_string(most >> 20) +
                    " MiB");
  }
  return OkStatus();
}

void WriteBuffer::SetSizes(const BufferSizes& sizes) {
  sizes_ = sizes;
  while (chunks_.FreshStripes().size() > sizes_.stripes) {
    DrainOldestStripe();
  }
  const auto too_full = [this] {
    for (uint8_t ssd = 0; ssd < core_.geometry.n; ++ssd) {
      const size_t size = chunks_.Queue(DeviceIndex(ssd)).size();
      if (size != 0 && size >= sizes_.device_chunks) {
        return true;
      }
    }
    return false;
  };
  while (too_full()) {
    DrainHeads();
  }
}

Task<void> WriteBuffer::Close() {
  closing_ = true;
  core_.buffers_changed.NotifyAll();
  ended_.NotifyAll();
  Task<void> wait = aging_.Wait();
  co_await wait;
  Task<Status> drain = Drain([](ChunkIndex) { return true; });
  const Status status = co_await drain;
  static_cast<void>(status);  // the array has stopped
}

Task<Status> WriteBuffer::WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                                        std::span<const std::byte> from) {
  if (!active() || writer_.IsWhole(stripe, offset_bytes, from.size())) {
    return writer_.WriteInStripe(stripe, offset_bytes, from);
  }
  return writer_.ByChunk(
      stripe, offset_bytes, from,
      [this](ChunkIndex chunk, uint64_t in_chunk, std::span<const std::byte> part) {
        return WriteChunk(chunk, in_chunk, part);
      });
}

Task<Status> WriteBuffer::WriteChunk(ChunkIndex chunk, uint64_t offset_bytes,
                                     std::span<const std::byte> from) {
  while (const BufferedPtr found = chunks_.Absorbing(chunk)) {
    if (found->ready) {
      std::memcpy(found->data.data() + offset_bytes, from.data(), from.size());
      ++core_.traffic.buffer_hits;
      co_return core_.Running();
    }
    co_await core_.buffers_changed.Wait();
    Status running = core_.Running();
    EPLOG_CO_TRY(running);
  }
  if (core_.canary(Canary::kBufferHitLost) && chunks_.Latest(chunk) != nullptr) {
    std::memcpy(const_cast<std::byte*>(chunks_.Latest(chunk)) + offset_bytes, from.data(),
                from.size());
    co_return OkStatus();
  }
  const StripeIndex stripe = core_.geometry.StripeOf(chunk);
  const bool fresh =
      sizes_.stripes != 0 && !core_.state->HasPending(stripe) && core_.state->RowIsZero(stripe);
  if (!fresh && sizes_.device_chunks == 0) {
    Task<Status> direct = writer_.WriteChunk(chunk, offset_bytes, from);
    co_return co_await direct;
  }
  const BufferedPtr buffered = chunks_.Prepare(chunk);
  buffered->fresh = fresh;
  Task<Status> preparing = Prepare(buffered, offset_bytes, from);
  Status status = co_await preparing;
  if (!status.ok()) {
    chunks_.GiveUp(buffered);
  }
  co_return status;
}

// Space first, then the lock. What is not overwritten is read, if it does not lie here.
Task<Status> WriteBuffer::Prepare(const BufferedPtr& chunk, uint64_t offset_bytes,
                                  std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  Status status;
  while (chunks_.held() >= MostChunks()) {
    status = core_.Running();  // before it waits: where nothing is drained any more nobody wakes it
    EPLOG_CO_TRY(status);
    co_await core_.buffers_changed.Wait();
  }
  chunks_.TakeRam(*chunk);
  chunk->grant = std::make_unique<Grant>(admission_);
  // Until it is drained the stripe may lose what is pending now, and what that owes with it.
  Admission::Need need = writer_.NeedOfChunk(chunk->chunk);
  need.owing = core_.state->MayOwe(g.StripeOf(chunk->chunk));
  EPLOG_CO_AWAIT(admission_.Admit(*chunk->grant, need));
  KeyedLocks::Guard lock;
  if (from.size() != g.chunk_bytes) {
    Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk->chunk.value);
    lock = co_await locking;
    EPLOG_CO_AWAIT(reader_.ReadLatest(chunk->chunk, chunk->data.span()));
  }
  std::memcpy(chunk->data.data() + offset_bytes, from.data(), from.size());
  status = core_.Running();
  EPLOG_CO_TRY(status);
  chunks_.Ready(chunk);
  DrainWhatIsFull(*chunk);
  co_return OkStatus();
}

void WriteBuffer::DrainWhatIsFull(const BufferedChunk& newest) {
  const Geometry& g = core_.geometry;
  const StripeIndex stripe = g.StripeOf(newest.chunk);
  if (chunks_.CountReady(stripe) == g.k() && writer_.IsWhole(stripe, 0, g.stripe_data_bytes())) {
    core_.loop.Start(DrainStripe(stripe));
  } else if (newest.fresh) {
    while (chunks_.FreshStripes().size() > sizes_.stripes) {
      DrainOldestStripe();
    }
  } else if (chunks_.Queue(g.SsdOf(newest.chunk)).size() >= sizes_.device_chunks) {
    DrainHeads();
  }
}

void WriteBuffer::DrainHeads() {
  for (uint8_t ssd = 0; ssd < core_.geometry.n; ++ssd) {
    const auto& queue = chunks_.Queue(DeviceIndex(ssd));
    if (!queue.empty()) {
      StartDrain(queue.begin()->second);
    }
  }
}

void WriteBuffer::DrainOldestStripe() {
  const StripeIndex stripe = chunks_.FreshStripes().begin()->second;
  for (const BufferedPtr& chunk : chunks_.ReadyOf(stripe)) {
    if (chunk->fresh) {
      StartDrain(chunk);
    }
  }
}

// By value: what refers to it may be a place in a queue, which it leaves here.
void WriteBuffer::StartDrain(BufferedPtr chunk) {
  if (!chunk->draining) {
    chunks_.Dequeue(*chunk);
    core_.loop.Start(DrainChunk(std::move(chunk)));
  }
}

// It absorbs until its lock is free and it is submitted.
Task<void> WriteBuffer::DrainChunk(BufferedPtr chunk) {
  Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk->chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  if (core_.stop_error || !chunks_.Leave(chunk)) {
    co_return;  // something that overwrites it has taken it, or nothing can be written any more
  }
  Task<Status> write = writer_.WriteAdmitted(chunk->chunk, *chunk->grant, chunk->data.span());
  const Status status = co_await write;
  if (status.ok()) {
    chunks_.Done(*chunk);
  }
}

// All of a stripe lies here. Where there is no room for its parity at once, or some of it has gone
// meanwhile, its chunks are drained one by one.
Task<void> WriteBuffer::DrainStripe(StripeIndex stripe) {
  const Geometry& g = core_.geometry;
  std::vector<BufferedPtr> chunks = chunks_.ReadyOf(stripe);
  for (const BufferedPtr& chunk : chunks) {
    chunks_.Dequeue(*chunk);
  }
  Grant grant(admission_);
  const bool admitted = writer_.IsWhole(stripe, 0, g.stripe_data_bytes()) &&
                        admission_.TryAdmit(grant, writer_.NeedOfStripe(stripe));
  if (admitted) {
    Task<Writer::StripeLocks> locking = writer_.LockStripe(stripe);
    const Writer::StripeLocks locks = co_await locking;
    const bool whole = std::all_of(chunks.begin(), chunks.end(), [&](const BufferedPtr& chunk) {
      return chunks_.Absorbing(chunk->chunk) == chunk;
    });
    if (whole && !core_.stop_error) {
      std::array<const std::byte*, kMaxSsds> content{};
      for (uint32_t i = 0; i < g.k(); ++i) {
        const bool left = chunks_.Leave(chunks[i]);
        EPLOG_CHECK(left, "it was absorbing");
        content[i] = chunks[i]->data.data();
      }
      Task<Status> write = writer_.WriteRow(stripe, grant, std::span(content).first(g.k()));
      const Status status = co_await write;
      core_.hooks.buffered_stripes += status.ok() ? 1 : 0;
      for (size_t i = 0; status.ok() && i < chunks.size(); ++i) {
        chunks_.Done(*chunks[i]);
      }
      co_return;
    }
  }
  for (const BufferedPtr& chunk : chunks) {
    core_.loop.Start(DrainChunk(chunk));
  }
}

Task<Status> WriteBuffer::Drain(std::function<bool(ChunkIndex)> wanted) {
  if (chunks_.empty()) {
    co_return OkStatus();
  }
  const uint64_t waiting = chunks_.size();
  const std::vector<BufferedPtr> chunks = chunks_.Select(wanted);
  for (const BufferedPtr& chunk : chunks) {
    StartDrain(chunk);
  }
  core_.hooks.partial_drains += !chunks.empty() && waiting > chunks.size() ? 1 : 0;
  for (const BufferedPtr& chunk : chunks) {
    while (!chunk->done) {
      Status running = core_.Running();
      EPLOG_CO_TRY(running);
      co_await core_.buffers_changed.Wait();
    }
  }
  co_return OkStatus();
}

void WriteBuffer::DrainSoon() {
  if (!chunks_.empty()) {
    for (const BufferedPtr& chunk : chunks_.Select([](ChunkIndex) { return true; })) {
      StartDrain(chunk);
    }
  }
}

std::optional<uint64_t> WriteBuffer::OldestUs() const {
  std::optional<uint64_t> oldest;
  const auto consider = [&](uint64_t us) { oldest = std::min(oldest.value_or(us), us); };
  for (uint8_t ssd = 0; ssd < core_.geometry.n; ++ssd) {
    const auto& queue = chunks_.Queue(DeviceIndex(ssd));
    if (!queue.empty()) {
      consider(queue.begin()->second->since_us);
    }
  }
  for (const auto& [order, stripe] : chunks_.FreshStripes()) {
    for (const BufferedPtr& chunk : chunks_.ReadyOf(stripe)) {
      if (chunk->fresh && !chunk->draining) {  // else somebody is about to submit it
        consider(chunk->since_us);
      }
    }
  }
  return oldest;
}

Task<void> WriteBuffer::Age() {
  while (!closing_ && !core_.stop_error) {
    const auto oldest = OldestUs();
    if (!oldest) {
      co_await core_.buffers_changed.Wait();
      continue;
    }
    const uint64_t due = *oldest + kMaxAgeUs;
    if (core_.loop.NowUs() < due) {
      co_await ended_.WaitUntil(due);  // what comes meanwhile is younger
      continue;
    }
    const uint64_t old = core_.loop.NowUs() - kMaxAgeUs;
    for (const BufferedPtr& chunk : chunks_.Select([](ChunkIndex) { return true; })) {
      if (chunk->since_us <= old) {
        StartDrain(chunk);
      }
    }
  }
  aging_.Done();
}

}  // namespace eplog
