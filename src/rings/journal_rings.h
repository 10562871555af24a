// JournalRings: headers packed into 4 KiB blocks on the SSDs' rings (section 6), so that everything
// stable has m + 1 copies. Another SSD each block; one more copy for every log device that is lost.
//
// A header waits here from the moment its entry is applied until Pack puts it into a block. Blocks
// are never rewritten in place and are freed by the checkpoint that covers their headers (I1).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/types.h"
#include "device/members.h"
#include "format/entry.h"
#include "layout/geometry.h"
#include "runtime/sync.h"

namespace eplog {

class JournalRings {
 public:
  JournalRings(EventLoop& loop, MemberSet& members, const Geometry& geometry, const Uuid& array,
               BufferPool& pool);

  // Blocks that recovery leaves room for: the kept tail and the first entry of the next epoch.
  static constexpr uint64_t kReserveBlocks = 2;

  // At most so many headers a block (tests: rings fill and wrap sooner); 0 = as many as fit.
  void set_max_headers(uint32_t headers) { max_headers_ = headers == 0 ? UINT32_MAX : headers; }
  // For tests: the first SSD's ring is filled, then the next one's, so that what is left in the end
  // is on few of them.
  void set_in_order(bool in_order) { in_order_ = in_order; }

  // While opening: a block that lies on an SSD. `needed`: holds a header newer than the checkpoint.
  void NoteBlock(DeviceIndex ssd, uint64_t number, uint64_t last_sequence, bool needed);

  // The header of an applied entry, as encoded. Sequences ascend.
  void Enqueue(uint64_t sequence, std::span<const std::byte> encoded);
  [[nodiscard]] size_t queued() const { return queue_.size(); }
  // Enough for a whole block is waiting.
  [[nodiscard]] bool HasFullBlock() const {
    return queued_bytes_ > kMaxEntryHeaderBytes || queue_.size() >= max_headers_;
  }

  // How many more blocks can be placed, in all their copies, leaving `reserve` on every SSD.
  [[nodiscard]] uint64_t Room(uint64_t reserve) const;

  // Packs queued headers up to `upto` into blocks and starts to write them, as long as there is
  // room; with `full_only`, only whole blocks. Returns the newest sequence that is now in a block
  // (or was before).
  uint64_t Pack(uint64_t upto, bool full_only, uint64_t reserve);

  // Waits for the writes of all blocks started so far that hold headers up to `upto`. On success
  // the mask of the SSDs to flush for them.
  Task<Result<uint64_t>> Written(uint64_t upto);
  // Until no write is on its way, whatever became of them; before this object goes.
  Task<void> Drain();
  // They have been flushed: headers up to `upto` are stable.
  void Stable(uint64_t upto);
  // The SSD was replaced: its ring is empty.
  void Reset(DeviceIndex ssd) { rings_[ssd.value] = {}; }
  // Headers up to `upto` need no block any more.
  void Forget(uint64_t upto);
  // A checkpoint that covers `sequence` counts: blocks with nothing newer are free.
  void CheckpointCounts(uint64_t sequence);

  // Numbers of the blocks on an SSD that a checkpoint of `covered` needs and that hold nothing
  // newer than `upto`.
  [[nodiscard]] std::vector<uint64_t> NeededBlocks(DeviceIndex ssd, uint64_t covered,
                                                   uint64_t upto) const;

  [[nodiscard]] uint64_t bytes_written() const { return bytes_written_; }
  [[nodiscard]] uint64_t wraps() const { return wraps_; }
  // Newest sequence in a block, 0 if none in this life.
  [[nodiscard]] uint64_t packed() const { return packed_; }

 private:
  struct Queued {
    uint64_t sequence;
    std::vector<std::byte> bytes;
  };
  struct LiveBlock {
    uint64_t number;
    uint64_t last_sequence;
  };
  struct Ring {
    std::deque<LiveBlock> live;
    uint64_t next = 0;
    uint64_t newest_found = 0;
  };
  struct Writing {  // a block on its way
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;
    uint64_t ssd_mask = 0;
    uint32_t unfinished = 0;
    Status status;
    std::vector<Buffer> copies;
  };

  [[nodiscard]] uint32_t Copies() const;
  [[nodiscard]] uint64_t RoomOn(DeviceIndex ssd, uint64_t reserve) const;
  std::vector<DeviceIndex> Targets(uint64_t reserve);
  void WriteBlock(size_t headers, const std::vector<DeviceIndex>& targets);
  Task<void> WriteCopy(Writing& block, size_t copy, DeviceIndex ssd, uint64_t number);

  EventLoop& loop_;
  MemberSet& members_;
  const Geometry& geometry_;
  const Uuid array_;
  BufferPool& pool_;
  Event written_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  std::vector<Ring> rings_;
  std::list<Writing> blocks_;  // not yet stable, in order
  uint32_t turn_ = 0;
  bool in_order_ = false;
  uint32_t max_headers_ = UINT32_MAX;
  uint64_t packed_ = 0;
  uint64_t in_flight_ = 0;
  uint64_t bytes_written_ = 0;
  uint64_t wraps_ = 0;
};

}  // namespace eplog
