// Writer: the write path (section 8). A request is cut at stripes; a whole stripe is written with
// its parity, every other chunk becomes a member of a log stripe. Nothing old is read, except that
// a part of a chunk reads its own chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/admission.h"
#include "engine/appender.h"
#include "engine/chunk_reader.h"
#include "engine/core.h"
#include "engine/keyed_locks.h"

namespace eplog {

class Writer {
 public:
  Writer(Core& core, Appender& appender, Admission& admission, ChunkReader& reader)
      : rows(core.loop),
        chunks(core.loop),
        core_(core),
        appender_(appender),
        admission_(admission),
        reader_(reader) {}

  // Bytes [offset, offset + from.size()) of the data of `stripe`.
  Task<Status> WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                             std::span<const std::byte> from);

  // A row changes only under its lock: full stripes, commits, freeing of extents.
  KeyedLocks rows;
  // One writer a chunk, until its entry is applied.
  KeyedLocks chunks;

 private:
  Task<Status> WriteStripe(StripeIndex stripe, std::span<const std::byte> from);
  Task<Status> WriteChunk(ChunkIndex chunk, uint64_t offset_bytes, std::span<const std::byte> from);
  RowRecord MakeRow(StripeIndex stripe, Grant& grant, std::span<const std::byte* const> content,
                    std::vector<SlotWrite>& writes);

  Core& core_;
  Appender& appender_;
  Admission& admission_;
  ChunkReader& reader_;
};

}  // namespace eplog
