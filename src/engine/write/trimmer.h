// Trimmer: makes ranges read as zeros and gives their slots back (section 8). Whole stripes become
// all `zero` at once. Whole chunks become pending zeros: parity still covers what they were, so
// their old slots stay until a commit. Parts of chunks are written with zeros. What reads as zeros
// already is left alone.
#pragma once

#include <cstdint>

#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/write/write_buffer.h"
#include "engine/write/writer.h"

namespace eplog {

class Trimmer {
 public:
  Trimmer(Core& core, Appender& appender, Admission& admission, Writer& writer, WriteBuffer& buffer,
          BufferedChunks& buffered)
      : core_(core),
        appender_(appender),
        admission_(admission),
        writer_(writer),
        buffer_(buffer),
        buffered_(buffered) {}

  // Bytes [from, to) of the data of an extent. On an error some of them may be trimmed.
  Task<Status> TrimInExtent(ExtentIndex extent, uint64_t from_bytes, uint64_t to_bytes);
  // Until what lies in buffers of the extent is in the log.
  Task<Status> Settle(ExtentIndex extent);

 private:
  Task<Status> TrimInStripe(StripeIndex stripe, uint64_t from_bytes, uint64_t to_bytes);
  Task<Status> TrimStripes(StripeIndex first, uint32_t count);
  Task<Status> TrimChunks(StripeIndex stripe, uint32_t first, uint32_t last);
  Task<Status> ZeroInChunk(ChunkIndex chunk, uint64_t from_bytes, uint64_t to_bytes);
  Task<Status> Append(RecordWrite& record, BufferedChunks::Leaving& leaving);
  [[nodiscard]] bool IsZero(ChunkIndex chunk) const {
    return core_.state->Latest(chunk).word.is_zero() && !writer_.chunks.IsLocked(chunk.value) &&
           buffered_.Latest(chunk) == nullptr;
  }

  Core& core_;
  Appender& appender_;
  Admission& admission_;
  Writer& writer_;
  WriteBuffer& buffer_;
  BufferedChunks& buffered_;
};

}  // namespace eplog
