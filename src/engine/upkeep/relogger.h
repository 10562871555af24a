// Relogger: takes what is pending of stripes that cannot be committed out of the log's way (section
// 8). More of such a stripe is lost than its parity replaces, and its pending chunks can still be
// read: they are written again, as what they are, at the head of the log, so that the log stripes
// that they came from die and the log goes on behind them.
//
// It moves at most half as much as the log has gained since, so that a log full of such stripes is
// no reason to go round for ever: then those who wait are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/read/chunk_reader.h"
#include "engine/write/buffered_chunks.h"
#include "engine/write/writer.h"

namespace eplog {

class Relogger {
 public:
  Relogger(Core& core, Appender& appender, Admission& admission, ChunkReader& reader,
           Writer& writer, BufferedChunks& buffered)
      : core_(core),
        appender_(appender),
        admission_(admission),
        reader_(reader),
        writer_(writer),
        buffered_(buffered) {}

  // Of these stripes, what lies in the older half of the log, the oldest first. Waits for no room:
  // what finds none stays where it is. A good part, not all at once: others wait for the caller. No
  // more is begun once `stop` is set.
  Task<void> MoveOn(std::vector<StripeIndex> stripes, const bool& stop);

 private:
  struct Moved {
    uint64_t place = 0;
    StripeIndex stripe;
    ChunkIndex chunk;
  };
  [[nodiscard]] std::vector<Moved> ChunksInTheWay(std::vector<StripeIndex> stripes) const;
  [[nodiscard]] uint64_t PlaceOf(ChunkIndex chunk) const;
  [[nodiscard]] bool IsInTheWay(ChunkIndex chunk) const;
  Task<Status> Move(Moved moved);

  Core& core_;
  Appender& appender_;
  Admission& admission_;
  ChunkReader& reader_;
  Writer& writer_;
  BufferedChunks& buffered_;
  uint64_t credit_ = 0;  // blocks of log
  uint64_t tail_ = 0;    // of the log, when it was last counted
  bool has_begun_ = false;
};

}  // namespace eplog
