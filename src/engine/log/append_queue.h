// AppendQueue: the pieces that wait for an entry, and the log blocks promised to what is not there
// yet. Who waits, in which order it goes, and what goes together.
//
// Chunk writes wait in one queue an SSD. A log stripe takes one from the head of every queue that
// is not empty, so it is as wide as the load allows (the elastic part). While entries are in flight
// a narrow stripe waits for company; nothing waits on a timer, since the completion of an entry
// looks again.
//
// Records wait in two more: urgent ones (row installs of commits, and marks) go first and were
// promised nothing. Pieces are borrowed; each leaves once, taken or with its completion finished.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/pieces.h"

namespace eplog {

class AppendQueue {
 public:
  // Entries that may be in flight at once.
  static constexpr size_t kMaxInFlight = 4;

  explicit AppendQueue(Core& core) : core_(core), chunks_(core.geometry.n) {}

  // ---- promises, in log blocks: of pieces that wait, that are still to come, or of which an entry
  // holds the rest
  void Promise(uint64_t blocks) { promised_blocks_ += blocks; }
  void TakeBack(uint64_t blocks) { promised_blocks_ -= blocks; }
  [[nodiscard]] uint64_t promised_blocks() const { return promised_blocks_; }
  [[nodiscard]] uint64_t BlocksForChunk() const { return 1 + core_.geometry.chunk_blocks(); }

  // ---- they come. In an array that has stopped a piece ends at once.
  void Submit(ChunkWrite& write);
  void Submit(RecordWrite& record, bool urgent);

  // ---- who waits
  [[nodiscard]] bool empty() const {
    return urgent_.empty() && records_.empty() && queued_chunks_ == 0;
  }
  [[nodiscard]] size_t urgent() const { return urgent_.size(); }
  [[nodiscard]] bool has_chunks() const { return queued_chunks_ != 0; }
  // Members that the next log stripe would have.
  [[nodiscard]] uint32_t Width() const;
  // What is not urgent need not wait for company while `in_flight` entries, fewer than
  // kMaxInFlight, are on their way.
  [[nodiscard]] bool WideEnough(size_t in_flight) const;

  // ---- they go. What names a slot of a device that was lost or has joined since it was submitted
  // does not name it any more: it is described under the states that are.
  // Urgent records that were taken under other device states than these end with kBusy.
  void DropOutdated();
  // The record that is next, or null.
  [[nodiscard]] const RecordWrite* NextRecord(bool urgent) const;
  // Takes it. The entry holds what it was promised beyond the entry's first block.
  RecordWrite& TakeRecord(bool urgent);
  // Takes the members of a log stripe, in the order of SSDs, into the front of `members`. How many.
  size_t TakeStripe(std::span<ChunkWrite*, kMaxSsds> members);
  // The array has stopped: everything ends with its error.
  void FailAll();

 private:
  void WithoutLost(ChunkWrite& write) const;
  void WithoutLost(RecordWrite& record) const;

  Core& core_;
  uint64_t promised_blocks_ = 0;
  std::vector<std::deque<ChunkWrite*>> chunks_;  // by SSD
  size_t queued_chunks_ = 0;
  std::deque<RecordWrite*> records_;
  std::deque<RecordWrite*> urgent_;
};

}  // namespace eplog
