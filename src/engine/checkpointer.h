// Checkpointer: the whole state to the metadata area of m + 1 SSDs, out of place; it counts once
// its pages are flushed there and then the pointer on all live devices; only then is log before it
// free (I9).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/appender.h"
#include "engine/core.h"
#include "engine/superblocks.h"
#include "format/checkpoint.h"

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

  void Open(uint64_t covered_sequence) { covered_ = covered_sequence; }

  // The state as of now. Nothing to do if no entry came since the last one (`force`: even then).
  Task<Status> Checkpoint(bool force = false);

  // Writes and flushes the pages of a checkpoint of `core.state` at `position`, in the half of the
  // metadata area that the current pointer does not use. Also used by creation and recovery.
  Task<Result<CheckpointPointer>> WritePages(const Appender::Position& position,
                                             std::vector<std::byte> stream);

  // Sequence of the newest checkpoint that counts.
  [[nodiscard]] uint64_t covered() const { return covered_; }
  // What the last checkpoint of this life wrote, all copies counted.
  [[nodiscard]] uint64_t written_blocks() const { return written_blocks_; }

 private:
  [[nodiscard]] uint64_t ChooseSsds(uint64_t generation) const;
  CheckpointRoot MakeRoot(const Appender::Position& position, const std::vector<std::byte>& stream,
                          const CheckpointPointer& pointer, uint64_t run_block) const;
  Task<Status> WriteStream(std::span<const std::byte> stream, PageHeader header, uint64_t ssd_mask,
                           IoKind kind);
  Task<Status> WriteBatch(uint64_t block, std::span<const std::byte> pages, uint64_t ssd_mask,
                          IoKind kind);
  void Counts(const Appender::Position& position);

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Superblocks& superblocks_;
  AsyncMutex turn_;
  uint64_t covered_ = 0;
  uint64_t written_blocks_ = 0;
};

// Reads root and run of the checkpoint that `pointer` names from whatever SSD has them whole, into
// `state` (fresh). kCorrupt if no copy loads.
Task<Result<CheckpointRoot>> LoadCheckpoint(Core& core, const CheckpointPointer& pointer,
                                            State& state);

std::vector<uint64_t> TrafficToCounters(const Traffic& traffic);
Traffic CountersToTraffic(const std::vector<uint64_t>& counters);
Traffic AddTraffic(const Traffic& a, const Traffic& b);

}  // namespace eplog
