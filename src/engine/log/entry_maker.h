// EntryMaker: makes entries of what waits in the queue: records and log stripes with their log
// parity, then the entry's number, place and mark, then its bytes. Nothing is written here, and
// whether an entry may be made now is for the caller to see (Appender::CanAppend).
//
// It is where the log goes on: each entry that is made follows the one before, whatever becomes of
// that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/append_queue.h"
#include "engine/log/log_entry.h"

namespace eplog {

class EntryMaker {
 public:
  EntryMaker(Core& core, AppendQueue& queue) : core_(core), queue_(queue) {}

  // The next entry is of this epoch and follows the one that ended at `position`.
  void Open(const Epoch& epoch, const LogPosition& position);
  // The next entry is the first of a new epoch.
  void BeginEpoch(const Epoch& epoch);

  // Urgent records if there are any; else records and log stripes, as many as fit. What is taken
  // leaves the queue. With nothing in the queue the entry only carries the mark.
  std::unique_ptr<LogEntry> Make(uint64_t mark);
  // For another to be made of: its buffers go back, its pieces are the caller's no more.
  void Recycle(std::unique_ptr<LogEntry> entry);

  // Sequence and epoch of the newest entry that was made, place of the next.
  [[nodiscard]] const LogPosition& end() const { return end_; }
  // Of the newest entry that was made.
  [[nodiscard]] uint64_t newest_mark() const { return newest_mark_; }

 private:
  std::unique_ptr<LogEntry> NewEntry();
  void TakeRecords(LogEntry& entry, bool urgent);
  void TakeLogStripes(LogEntry& entry);
  void TakeLogStripe(LogEntry& entry);
  void Number(LogEntry& entry, uint64_t mark);
  void NoteRows(LogEntry& entry);
  void Encode(LogEntry& entry);

  Core& core_;
  AppendQueue& queue_;
  Epoch epoch_;
  bool first_of_epoch_ = false;
  LogPosition end_;
  uint64_t newest_mark_ = 0;
  std::vector<std::unique_ptr<LogEntry>> spare_;
};

}  // namespace eplog
