// Writer: the write path (section 8). A request is cut at stripes; a whole stripe is written with
// its parity, every other chunk becomes a member of a log stripe. Nothing old is read, except that
// a part of a chunk reads its own chunk.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/core/core.h"
#include "engine/core/keyed_locks.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/read/chunk_reader.h"
#include "engine/write/buffered_chunks.h"
#include "runtime/task_group.h"

namespace eplog {

class Writer {
 public:
  Writer(Core& core, Appender& appender, Admission& admission, ChunkReader& reader,
         BufferedChunks& buffered)
      : rows(core.loop),
        chunks(core.loop),
        core_(core),
        appender_(appender),
        admission_(admission),
        reader_(reader),
        buffered_(buffered) {}

  // Bytes [offset, offset + from.size()) of the data of `stripe`, straight to the log. What lies in
  // buffers of whole stripes is overwritten with them.
  Task<Status> WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                             std::span<const std::byte> from);

  // A row changes only under its lock: full stripes, commits, freeing of extents.
  KeyedLocks rows;
  // One writer a chunk, until its entry is applied.
  KeyedLocks chunks;

  // Cuts a part of a stripe at its chunks, once for all who write: `write(chunk, offset in it,
  // bytes)` makes the task of each. Of one chunk that is the task itself.
  template <typename Write>
  Task<Status> ByChunk(StripeIndex stripe, uint64_t offset_bytes, std::span<const std::byte> from,
                       Write write) {
    const Geometry& g = core_.geometry;
    const uint64_t first = offset_bytes / g.chunk_bytes;
    if ((offset_bytes + from.size() - 1) / g.chunk_bytes == first) {
      return write(g.Chunk(stripe, static_cast<uint32_t>(first)),
                   offset_bytes - first * g.chunk_bytes, from);
    }
    return Several(stripe, offset_bytes, from, std::move(write));
  }

  // ---- pieces of it, for what comes out of buffers
  // May this range of a stripe be written with its parity at once?
  [[nodiscard]] bool IsWhole(StripeIndex stripe, uint64_t offset_bytes,
                             uint64_t length_bytes) const;
  // A chunk, or a part of it, straight to the log.
  Task<Status> WriteChunk(ChunkIndex chunk, uint64_t offset_bytes, std::span<const std::byte> from);
  // A whole chunk whose lock the caller holds. Takes its slot and its promise from `grant`.
  Task<Status> WriteAdmitted(ChunkIndex chunk, Grant& grant, std::span<const std::byte> data);
  struct StripeLocks {
    KeyedLocks::Guard row;
    std::array<KeyedLocks::Guard, kMaxSsds> chunks;
  };
  Task<StripeLocks> LockStripe(StripeIndex stripe);
  // A whole stripe, its k chunks given one by one, under its locks.
  Task<Status> WriteRow(StripeIndex stripe, Grant& grant, std::span<const std::byte* const> data);
  [[nodiscard]] Admission::Need NeedOfChunk(ChunkIndex chunk) const;
  [[nodiscard]] Admission::Need NeedOfStripe(StripeIndex stripe) const;

 private:
  template <typename Write>
  Task<Status> Several(StripeIndex stripe, uint64_t offset_bytes, std::span<const std::byte> from,
                       Write write) {
    const Geometry& g = core_.geometry;
    TaskGroup group(core_.loop);
    while (!from.empty()) {
      const auto index = static_cast<uint32_t>(offset_bytes / g.chunk_bytes);
      const uint64_t in_chunk = offset_bytes % g.chunk_bytes;
      const uint64_t length = std::min<uint64_t>(g.chunk_bytes - in_chunk, from.size());
      group.Start(write(g.Chunk(stripe, index), in_chunk, from.first(length)));
      from = from.subspan(length);
      offset_bytes += length;
    }
    Task<Status> all = group.Wait();
    co_return co_await all;
  }
  Task<Status> WriteStripe(StripeIndex stripe, std::span<const std::byte> from);
  RowRecord MakeRow(StripeIndex stripe, Grant& grant, std::span<const std::byte* const> content,
                    std::vector<SlotWrite>& writes);

  Core& core_;
  Appender& appender_;
  Admission& admission_;
  ChunkReader& reader_;
  BufferedChunks& buffered_;
};

}  // namespace eplog
