// Appender: group commit of the log (section 6). What is ready joins the next entry; up to four
// entries are in flight; they complete, are applied and acknowledged in order. Data and entry are
// written in parallel (I4).
//
// Chunk writes wait in one queue an SSD. A log stripe takes one from the head of every queue that
// is not empty, so it is as wide as the load allows (the elastic part). While entries are in flight
// a narrow stripe waits for company; nothing waits on a timer, since the completion of an entry
// looks again.
//
// Log room is promised at admission, before any lock is taken, so an append never waits for space
// that only a holder of its locks could free. Row installs of commits and marks are urgent: they go
// first and may use the part of the log that is closed to the foreground; who submits them has seen
// that there is UrgentRoom.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "engine/core/core.h"
#include "format/entry.h"

namespace eplog {

// Awaited once by the coroutine that submitted a piece.
class Completion {
 public:
  [[nodiscard]] bool await_ready() const noexcept { return done_; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiter_ = handle; }
  void await_resume() const noexcept {}

  void Finish(EventLoop& loop, Status status, uint64_t sequence) {
    done_ = true;
    status_ = std::move(status);
    sequence_ = sequence;
    if (waiter_) {
      loop.Post(waiter_);
    }
  }
  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] uint64_t sequence() const { return sequence_; }

 private:
  std::coroutine_handle<> waiter_;
  bool done_ = false;
  Status status_;
  uint64_t sequence_ = 0;
};

// A new version of one data chunk, to become a member of a log stripe. Lives in the writer's frame;
// `data` is chunk_bytes, aligned for the devices, unchanged until completion.
struct ChunkWrite {
  ChunkIndex chunk;
  SlotWord word;  // claimed slot, or `absent`
  uint32_t crc = 0;
  const std::byte* data = nullptr;
  uint64_t states = 0;  // set by Submit
  Completion completion;
};

struct SlotWrite {
  DeviceIndex ssd;
  SlotIndex slot;
  const std::byte* data = nullptr;  // chunk_bytes
  bool parity = false;
};

// Records with the chunks that they bring along. With neither it only carries the mark.
struct RecordWrite {
  std::optional<RowRecord> row;
  bool own_version = false;  // full stripe: the row's data words are of the entry itself
  std::vector<VolumeRecord> volumes;
  std::optional<TrimRecord> trim;
  std::vector<SlotWrite> writes;
  // Taken under these device states (DeviceStates::number): under others it is not described, but ends with
  // kBusy.
  std::optional<uint64_t> states;
  uint64_t promised = 1;  // log blocks; what exceeds the entry's is held until it is applied
  Completion completion;
  size_t max_bytes = 0;           // set by Submit
  uint64_t submitted_states = 0;  // the same
};

class Flusher;

class Appender {
 public:
  static constexpr size_t kMaxInFlight = 4;
  // Log blocks that even urgent entries leave free: the first entry of the next epoch, and one
  // more.
  static constexpr uint64_t kLogReserveForRecovery = 2;
  static constexpr uint64_t kMaxUnstableBytes = uint64_t{64} << 20;

  explicit Appender(Core& core);
  ~Appender();

  struct Position {
    Epoch epoch;
    uint64_t sequence = 0;
    uint64_t place = 0;  // of the next entry
  };
  // The log goes on after `position`; `checkpoint_place` is where the newest checkpoint's state
  // ends.
  void Open(const Epoch& epoch, const Position& position, uint64_t checkpoint_place,
            Flusher& flusher);

  // ---- log room for the foreground
  [[nodiscard]] uint64_t BlocksForChunk() const { return 1 + core_.geometry.chunk_blocks(); }
  // `frees`: for what lets go of pending chunks.
  [[nodiscard]] bool CanPromise(uint64_t blocks, bool frees) const;
  void Promise(uint64_t blocks) { promised_blocks_ += blocks; }
  void TakeBack(uint64_t blocks) { promised_blocks_ -= blocks; }
  // Log blocks closed to the foreground while what is pending now is, and `promised` blocks become
  // pending too.
  [[nodiscard]] uint64_t ClosedBlocks(uint64_t promised, bool frees = false) const;
  // Blocks that urgent entries can still have.
  [[nodiscard]] uint64_t UrgentRoom() const;

  // ---- pieces; the caller awaits `piece.completion`. One promise a piece is consumed:
  // BlocksForChunk() for a chunk, `promised` for a record that is not urgent.
  void Submit(ChunkWrite& write);
  void Submit(RecordWrite& record, bool urgent);

  // An entry with no record, to carry the mark.
  Task<Status> AppendMark();

  // A task of the loop, until End.
  Task<void> Run();
  Task<void> End();

  // ---- a change of device states (Membership)
  // Until what is in flight has ended on all devices that are left.
  Task<void> InFlightWritten();
  // The next entry is the first of a new epoch.
  void BeginEpoch(const Epoch& epoch);
  // Nothing new is made until Unpause; returns when nothing is in flight.
  Task<void> Pause();
  void Unpause() {
    paused_ = false;
    core_.append.NotifyAll();
  }
  // The change is over: what was in flight is applied and acknowledged.
  void Resume() { CompleteInOrder(); }

  [[nodiscard]] const Position& applied() const { return applied_; }
  [[nodiscard]] bool idle() const { return in_flight_.empty() && !HasWork(); }

  [[nodiscard]] uint64_t log_tail() const;  // oldest place still needed
  [[nodiscard]] uint64_t log_used() const { return next_.place - log_tail(); }
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
  [[nodiscard]] uint64_t newest_mark() const { return newest_mark_; }
  [[nodiscard]] uint64_t newest_sequence() const { return next_.sequence; }
  // Of the next entry.
  [[nodiscard]] uint64_t next_place() const { return next_.place; }
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
  [[nodiscard]] uint64_t SequenceAt(uint64_t us) const;

  void FailAll();  // the array has stopped: everything queued ends with an error

 private:
  struct Entry;

  void UnpinLog(uint64_t place);
  [[nodiscard]] bool HasWork() const {
    return !urgent_.empty() || !records_.empty() || queued_chunks_ != 0;
  }
  bool CanAppend();
  void DropOutdated();
  void WithoutLost(ChunkWrite& write) const;
  void WithoutLost(RecordWrite& record) const;
  [[nodiscard]] bool RoomInLog(uint64_t blocks, uint64_t reserve) const;
  [[nodiscard]] uint32_t Width() const;
  [[nodiscard]] bool WideEnough() const;
  std::unique_ptr<Entry> NewEntry();
  void TakeRecords(Entry& entry, std::deque<RecordWrite*>& queue, bool urgent);
  void TakeLogStripes(Entry& entry);
  void TakeLogStripe(Entry& entry);
  void Number(Entry& entry);
  void Encode(Entry& entry);
  Task<void> Write(Entry& entry);
  void StartSlotWrites(Entry& entry, class TaskGroup& group);
  Task<Status> WriteSlots(Entry& entry, size_t first, size_t last);
  Task<Status> WriteLogCopy(DeviceIndex log, uint64_t place, std::vector<iovec> parts);
  void CompleteInOrder();
  void Finish(Entry& entry);
  void Count(const Entry& entry);
  void NoteWrites(const Entry& entry);
  void CheckInvariants(const EntryHeader& header) const;

  Core& core_;
  Flusher* flusher_ = nullptr;
  Event applied_changed_;
  Epoch epoch_;
  bool first_of_epoch_ = false;
  bool paused_ = false;
  Position next_;     // of the next entry to be made
  Position applied_;  // after the newest applied entry
  uint64_t checkpoint_place_ = 0;
  uint64_t promised_blocks_ = 0;
  uint64_t newest_mark_ = 0;
  bool blocked_ = false;
  bool ending_ = false;
  bool running_ = false;

  std::vector<std::deque<ChunkWrite*>> chunks_;  // by SSD
  size_t queued_chunks_ = 0;
  std::deque<RecordWrite*> records_;
  std::deque<RecordWrite*> urgent_;
  std::deque<std::unique_ptr<Entry>> in_flight_;
  std::vector<std::unique_ptr<Entry>> spare_;
  std::vector<uint64_t> log_pins_;
  std::vector<uint64_t> last_write_;
  mutable std::deque<std::pair<uint64_t, uint64_t>> ages_;  // sequence, time
  SlotChanges slot_changes_;
};

}  // namespace eplog
