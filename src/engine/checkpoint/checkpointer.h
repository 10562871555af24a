// Checkpointer: the state to the metadata areas of m + 1 SSDs, out of place. A checkpoint counts
// once its pages are flushed there and then the pointer on all live devices; only then is log
// before it free (I9).
//
// The metadata area is a ring, alike on all SSDs. A checkpoint appends a run and a root; a full run
// makes what lies before it void. An incremental one is only written where a full one of any size
// still fits behind it, so that a full one always finds room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/checkpoint/superblocks.h"
#include "engine/core/core.h"
#include "engine/log/appender.h"
#include "eplog/array.h"
#include "format/checkpoint.h"
#include "metadata/snapshot.h"

namespace eplog {

class Flusher;

class Checkpointer {
 public:
  Checkpointer(Core& core, Appender& appender, Flusher& flusher, Superblocks& superblocks)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        superblocks_(superblocks),
        turn_(core.loop) {}

  // The root that was loaded, and the block in which it lies.
  void Adopt(const CheckpointRoot& root, uint64_t root_block);
  void Open(uint64_t covered_sequence) {
    covered_ = covered_sequence;
    written_us_ = core_.loop.NowUs();
  }

  // The state as of now. Nothing to do if no entry came since the last one, unless `kind` asks for
  // one. In the background a checkpoint takes its time, until somebody calls for one who cannot
  // wait.
  Task<Status> Checkpoint(CheckpointKind kind, bool background = false);

  // A device joined in this epoch: words in older runs may be of the one before it, so runs build
  // on a full one of this epoch or a later one.
  void WantFullSince(uint64_t epoch_number) { full_since_ = std::max(full_since_, epoch_number); }
  // Such a full checkpoint counts, of the state at `sequence` or later.
  [[nodiscard]] bool FullCounts(uint64_t epoch_number, uint64_t sequence) const {
    return full_epoch_ >= epoch_number && full_covered_ >= sequence;
  }

  // For creation and recovery, when nothing else runs: a checkpoint of `core.state`, which is that
  // at `position` and is durable. Its pages are flushed; the caller writes the superblocks, which
  // have the pointer then.
  Task<Status> WriteAlone(const Appender::Position& position);

  // Sequence of the newest checkpoint that counts.
  [[nodiscard]] uint64_t covered() const { return covered_; }
  // What the last checkpoint of this life wrote, all copies counted.
  [[nodiscard]] uint64_t written_blocks() const { return written_blocks_; }
  // Loop time at which the newest one was begun.
  [[nodiscard]] uint64_t written_us() const { return written_us_; }

 private:
  struct Written {
    bool full = false;
    CheckpointPointer pointer;
    std::vector<RunDescriptor> runs;
    StatesNumber states = 0;  // of the devices, when its SSDs were chosen
  };
  [[nodiscard]] bool TakeIncremental(CheckpointKind kind) const;
  [[nodiscard]] uint64_t ChooseSsds(uint64_t generation) const;
  [[nodiscard]] uint64_t NextBlock() const {
    return (first_block_ + used_blocks_) % core_.geometry.metadata_blocks;
  }
  [[nodiscard]] bool IsSomewhere(const Written& written) const;
  Task<Result<Written>> WritePages(const Appender::Position& position, CheckpointKind kind,
                                   bool background);
  Task<Result<Written>> WriteFlushed(const Appender::Position& position, CheckpointKind kind,
                                     bool background);
  Task<Status> WriteRun(Snapshot& snapshot, RunDescriptor& run, bool background);
  Task<Status> WriteRoot(const Appender::Position& position, Written& written);
  Task<Status> WriteCopy(DeviceIndex ssd, uint64_t block, std::span<const std::byte> pages,
                         IoKind kind);
  Task<Status> WriteBatch(uint64_t block, Buffer pages, uint64_t ssd_mask, IoKind kind);
  Task<void> Pace(uint64_t since_us);
  void Supersede(const Written& written, const Appender::Position& position);
  void Counts(const Appender::Position& position);

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Superblocks& superblocks_;
  AsyncMutex turn_;
  std::vector<RunDescriptor> runs_;  // of the newest checkpoint that counts, newest first
  uint64_t first_block_ = 0;         // where the oldest of them begins
  uint64_t used_blocks_ = 0;         // from there to behind the root
  uint64_t full_since_ = 0;          // epoch number
  uint64_t full_epoch_ = 0;          // of the newest full one that counts
  uint64_t full_covered_ = 0;        // its sequence
  // One was written that does not count (yet): what changed before it is in no run that does.
  bool changes_taken_ = false;
  uint64_t covered_ = 0;
  uint64_t written_blocks_ = 0;
  uint64_t written_us_ = 0;
  uint32_t in_haste_ = 0;  // who waits for a checkpoint and does not do so in the background
};

}  // namespace eplog
