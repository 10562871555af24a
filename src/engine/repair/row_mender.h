// RowMender: chunks of rows to new slots, described by row records that name a place and no version
// (section 8). Rebuilding and healing end here. Never in place: what is wrong stays as it is until
// its successor is described.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/read/row_batch.h"

namespace eplog {

class RowMender {
 public:
  RowMender(Core& core, Appender& appender) : core_(core), appender_(appender) {}

  // Log blocks for so many rows, of which `chunks` are mended each at most. To be admitted before
  // the locks of the rows are taken.
  [[nodiscard]] static uint64_t Blocks(uint64_t rows, uint32_t chunks);

  // Writes the positions masks[at] of row `at`, which are valid in the batch, to new slots on their
  // SSDs; the caller holds the locks of the rows. A chunk for which there is no slot that commits
  // can spare is left out, and so is one whose SSD changed since `states`. Slots that were admitted
  // into `granted` are taken instead. The chunks that were mended; an error if the array has
  // stopped, or kBusy if devices changed meanwhile.
  Task<Result<uint64_t>> Mend(RowBatch& batch, std::span<const uint64_t> masks, StatesNumber states,
                              Grant* granted = nullptr);

 private:
  Core& core_;
  Appender& appender_;
};

}  // namespace eplog
