// CommitCost: how much log it takes at most to commit what is pending (section 5). The foreground
// leaves that much free, so that commit, which alone makes room, can always go on to the end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "format/entry.h"
#include "layout/geometry.h"

namespace eplog {

class CommitCost {
 public:
  explicit CommitCost(const Geometry& geometry)
      : width_(geometry.commit_width()),
        stripe_bytes_(MaxRowRecordBytes(geometry.m)),
        chunk_bytes_(MaxRowRecordBytes(1) - MaxRowRecordBytes(0)),
        // An entry is closed by the first record that does not fit any more.
        entry_bytes_(kMaxEntryHeaderBytes - kEntryFixedBytes - MaxRowRecordBytes(geometry.n)),
        log_blocks_(geometry.log_blocks) {}

  // Blocks to commit `stripes` stripes that have `chunks` pending chunks, in batches of
  // commit_width: their row installs, and for each batch a mark that lets go of its old parity.
  [[nodiscard]] uint64_t Blocks(uint64_t stripes, uint64_t chunks) const {
    const uint64_t bytes = stripes * stripe_bytes_ + chunks * chunk_bytes_;
    return 2 * DivideUp(stripes, width_) + bytes / entry_bytes_;
  }
  // Log blocks that have to stay free for commit while so much is pending.
  [[nodiscard]] uint64_t NeededBlocks(uint64_t stripes, uint64_t chunks) const {
    return log_blocks_ / 32 + kSpareBlocks + Blocks(stripes, chunks);
  }
  // Those closed to the foreground: an eighth at least.
  [[nodiscard]] uint64_t ClosedBlocks(uint64_t stripes, uint64_t chunks) const {
    return std::max(log_blocks_ / 8, NeededBlocks(stripes, chunks));
  }

 private:
  static constexpr uint64_t kSpareBlocks = 4;  // what recovery keeps, and marks in between

  uint64_t width_;
  uint64_t stripe_bytes_;
  uint64_t chunk_bytes_;
  uint64_t entry_bytes_;
  uint64_t log_blocks_;
};

}  // namespace eplog
