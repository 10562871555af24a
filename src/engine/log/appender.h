// Appender: group commit of the log (section 6). What is ready joins the next entry; up to four
// entries are in flight; they complete, are applied and acknowledged in order. Data and entry are
// written in parallel (I4).
//
// It says when an entry is made, and what becomes of it. What waits is AppendQueue's; EntryMaker
// makes entries of that, EntryWriter writes them, AgeLog remembers how old they are.
//
// Log room is promised at admission, before any lock is taken, so an append never waits for space
// that only a holder of its locks could free. Row installs of commits and marks are urgent: they go
// first and may use the part of the log that is closed to the foreground; who submits them has seen
// that there is UrgentRoom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/age_log.h"
#include "engine/log/append_queue.h"
#include "engine/log/entry_maker.h"
#include "engine/log/entry_writer.h"
#include "engine/log/log_entry.h"
#include "engine/log/pieces.h"

namespace eplog {

class Flusher;

class Appender {
 public:
  static constexpr size_t kMaxInFlight = AppendQueue::kMaxInFlight;
  // Log blocks that even urgent entries leave free: the first entry of the next epoch, and one
  // more.
  static constexpr uint64_t kLogReserveForRecovery = 2;
  static constexpr uint64_t kMaxUnstableBytes = uint64_t{64} << 20;

  explicit Appender(Core& core);
  ~Appender();

  using Position = LogPosition;
  // The log goes on after `position`; `checkpoint_place` is where the newest checkpoint's state
  // ends.
  void Open(const Epoch& epoch, const Position& position, uint64_t checkpoint_place,
            Flusher& flusher);

  // ---- log room for the foreground
  [[nodiscard]] uint64_t BlocksForChunk() const { return queue_.BlocksForChunk(); }
  // `frees`: for what lets go of pending chunks.
  [[nodiscard]] bool CanPromise(uint64_t blocks, bool frees) const;
  void Promise(uint64_t blocks) { queue_.Promise(blocks); }
  void TakeBack(uint64_t blocks) {
    queue_.TakeBack(blocks);
    LetOn();
  }
  // Log blocks closed to the foreground while what is pending now is, and `promised` blocks become
  // pending too.
  [[nodiscard]] uint64_t ClosedBlocks(uint64_t promised, bool frees = false) const;
  // Blocks that urgent entries can still have.
  [[nodiscard]] uint64_t UrgentRoom() const;

  // ---- pieces; the caller awaits `piece.completion`. One promise a piece is consumed:
  // BlocksForChunk() for a chunk, `promised` for a record that is not urgent.
  void Submit(ChunkWrite& write) { queue_.Submit(write); }
  void Submit(RecordWrite& record, bool urgent) { queue_.Submit(record, urgent); }

  // An entry with no record, to carry the mark.
  Task<Status> AppendMark();

  // A task of the loop, until End.
  Task<void> Run();
  Task<void> End();

  // ---- a change of device states (Membership)
  // Until what is in flight has ended on all devices that are left.
  Task<void> InFlightWritten();
  // The next entry is the first of a new epoch.
  void BeginEpoch(const Epoch& epoch) { maker_.BeginEpoch(epoch); }
  // Nothing new is made until Unpause; returns when nothing is in flight.
  Task<void> Pause();
  void Unpause() {
    paused_ = false;
    core_.append.NotifyAll();
  }
  // The change is over: what was in flight is applied and acknowledged.
  void Resume() { CompleteInOrder(); }

  [[nodiscard]] const Position& applied() const { return applied_; }
  [[nodiscard]] bool idle() const { return in_flight_.empty() && queue_.empty(); }

  [[nodiscard]] uint64_t log_tail() const;  // oldest place still needed
  [[nodiscard]] uint64_t log_used() const { return maker_.end().place - log_tail(); }
  // What counts as used: pending zeros are charged as if they had log chunks, and as long.
  [[nodiscard]] uint64_t log_charged() const {
    return log_used() + core_.state->pending.charged_zeros() * core_.geometry.chunk_blocks();
  }
  // Log blocks that recovery would read.
  [[nodiscard]] uint64_t SinceCheckpoint() const { return applied_.place - checkpoint_place_; }
  // Log blocks that a checkpoint would free, as things stand.
  [[nodiscard]] uint64_t CheckpointGain() const;
  void CheckpointCounts(uint64_t place);
  [[nodiscard]] bool blocked() const {
    return blocked_;
  }  // appends wait for log or ring room or for stability
  [[nodiscard]] bool RingShort() const;
  // Of the newest entry that was made.
  [[nodiscard]] uint64_t newest_mark() const { return maker_.newest_mark(); }
  [[nodiscard]] uint64_t newest_sequence() const { return maker_.end().sequence; }
  // Of the next entry.
  [[nodiscard]] uint64_t next_place() const { return maker_.end().place; }
  [[nodiscard]] size_t in_flight() const { return in_flight_.size(); }

  // Log chunks from this place on are being read: their space stays taken.
  class [[nodiscard]] LogPin {
   public:
    LogPin(Appender& appender, uint64_t place) : appender_(appender), place_(place) {
      appender_.log_pins_.push_back(place);
    }
    LogPin(const LogPin&) = delete;
    LogPin& operator=(const LogPin&) = delete;
    ~LogPin() { appender_.UnpinLog(place_); }

   private:
    Appender& appender_;
    uint64_t place_;
  };

  // Newest entry that wrote to an extent.
  [[nodiscard]] uint64_t LastWrite(ExtentIndex extent) const { return last_write_[extent.value]; }
  // When the oldest still pending chunk was appended, in loop time.
  [[nodiscard]] std::optional<uint64_t> OldestPendingUs() const;
  // An entry that was appended at that time or before, and about the newest such.
  [[nodiscard]] uint64_t SequenceAt(uint64_t us) const { return ages_.SequenceAt(us); }

  void FailAll();  // the array has stopped: everything queued ends with an error

 private:
  void UnpinLog(uint64_t place);
  bool CanAppend();
  [[nodiscard]] bool RoomInLog(uint64_t blocks, uint64_t reserve) const;
  [[nodiscard]] uint64_t OldestPending() const;
  // There is more room in the log: an entry may have waited for just that.
  void LetOn() {
    if (blocked_) {
      core_.append.NotifyAll();
    }
  }
  Task<void> Write(LogEntry& entry);
  void CompleteInOrder();
  void Finish(LogEntry& entry);
  void Count(const LogEntry& entry);
  void NoteWrites(const LogEntry& entry);
  void CheckInvariants(const EntryHeader& header) const;

  Core& core_;
  Flusher* flusher_ = nullptr;
  Event applied_changed_;
  AppendQueue queue_;
  EntryMaker maker_;
  EntryWriter writer_;
  AgeLog ages_;
  bool paused_ = false;
  Position applied_;  // after the newest applied entry
  uint64_t checkpoint_place_ = 0;
  bool blocked_ = false;
  bool ending_ = false;
  bool running_ = false;

  std::deque<std::unique_ptr<LogEntry>> in_flight_;
  std::vector<uint64_t> log_pins_;
  std::vector<uint64_t> last_write_;
  SlotChanges slot_changes_;
};

}  // namespace eplog
