// Recovery (I8): from the newest checkpoint and the log to the state that every flush promised,
// first in RAM (Analyse), then on disk (Repair, which may crash anywhere and be repeated).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/buffer.h"
#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblocks.h"
#include "engine/core/core.h"
#include "engine/log/appender.h"
#include "engine/open/assembly.h"
#include "engine/read/chunk_reader.h"
#include "rings/log_ring.h"

namespace eplog {

class Recovery {
 public:
  Recovery(Core& core, const Assembly& assembly)
      : core_(core),
        assembly_(assembly),
        reader_(core, nullptr),
        log_(core.loop, core.members, core.geometry, core.identity.array_uuid, core.pool),
        newest_epoch_(assembly.highest_epoch) {}

  // Loads, joins, verifies and cuts: afterwards core.state is the state at `cut`, and core.space
  // and core.rings know what is taken. Writes nothing.
  Task<Status> Analyse();

  // Refuses, before anything is written, what could not be read any more if it were.
  [[nodiscard]] Status MayGoOn() const;

  // Makes it so on disk under a new epoch, up to where the array may open. `superblocks` and
  // `checkpointer` are those of the new life.
  Task<Status> Repair(Superblocks& superblocks, Checkpointer& checkpointer);

  // For a read-only opening: what Repair would write to slots and log is seen by reads from now on.
  void MendInRam();

  // Where the log goes on, after Analyse: the cut; after Repair: behind the new epoch's first
  // entry.
  [[nodiscard]] const Appender::Position& position() const { return position_; }
  [[nodiscard]] const Epoch& epoch() const { return epoch_; }
  [[nodiscard]] uint64_t checkpoint_sequence() const { return checkpoint_.sequence; }
  [[nodiscard]] uint64_t checkpoint_place() const { return checkpoint_.place; }
  [[nodiscard]] uint64_t entries_replayed() const { return chain_.size(); }

  // A chunk of a record that was dropped, itself whole: it is to be written again, as any write is,
  // once the array is open.
  struct Salvaged {
    ChunkIndex chunk;
    Buffer content;
  };
  [[nodiscard]] std::vector<Salvaged> TakeSalvaged();
  // Tells what was written and could not be kept, if anything.
  void TellDropped(uint64_t salvaged) const;

 private:
  struct RingCopies {
    EntryHeader header;
    uint32_t copies = 0;
  };
  struct FoundBlock {
    DeviceIndex ssd;
    uint64_t number;
    std::vector<std::pair<uint64_t, Epoch>> headers;  // newer than the checkpoint
  };
  struct Mend {  // bytes to put back
    DeviceIndex device;
    enum class Kind : uint8_t { kSlot, kLogHeader, kLogChunk } kind;
    uint64_t at = 0;  // byte offset, or place in the log
    Buffer bytes;
  };

  Task<Status> AnalyseAll();
  void NoteJoined();
  void ForgetReplaced();
  Task<Status> ReadRings();
  Task<Status> ReadRing(DeviceIndex ssd);
  Task<std::vector<bool>> ReadBlocks(DeviceIndex device, uint64_t offset_bytes,
                                     std::span<std::byte> into);
  void NoteRingBlock(DeviceIndex ssd, const RingBlock& block);
  Task<Status> Join();
  Task<Result<std::optional<EntryHeader>>> NextEntry(const Appender::Position& at);
  bool FitsAfter(const EntryHeader& header, const Appender::Position& at) const;
  Status CheckEnd();

  // recovery_judge.cc: what of the entries beyond the mark is kept
  Task<Status> Replay();
  void Keep(size_t index, const EntryHeader& entry);
  Task<Result<State::Dropped>> Judge(const EntryHeader& entry);
  [[nodiscard]] Status MayDrop(const EntryHeader& entry, uint32_t missing) const;
  [[nodiscard]] uint32_t Missing(const EntryHeader& entry, const LogStripeRecord& record) const;
  [[nodiscard]] uint32_t Missing(const EntryHeader& entry, const RowRecord& record) const;
  Task<bool> LogStripeIsWhole(const EntryHeader& entry, size_t number);
  Task<bool> RowIsWhole(const EntryHeader& entry, const RowRecord& record);
  void NoteWrong(const LogStripeView& view, uint64_t bad);
  void NoteWrong(StripeIndex stripe, std::span<const RowWord> words, uint64_t bad);
  void NoteWrong(DeviceIndex ssd, SlotWord word);
  void Salvage(ChunkIndex chunk, Buffer content);
  void ForgetOlder(const EntryHeader& entry, const State::Dropped& dropped);
  void ForgetStripes(StripeIndex first, uint64_t count);
  void NoteDropped(const EntryHeader& entry, const State::Dropped& dropped);
  void NoteCut(const EntryHeader& entry);

  Task<Status> NoteHeaderCopies(const EntryHeader& entry);
  // Of log device j, unless it was written before the device became one of the array's.
  Task<std::optional<EntryHeader>> HeaderAt(uint32_t j, uint64_t place);
  [[nodiscard]] uint32_t CopiesOnRings(const EntryHeader& entry) const;
  [[nodiscard]] bool RingsLackCopies() const;
  [[nodiscard]] std::set<Epoch> KnownEpochs() const;
  Task<void> LookBeyond();
  Status CheckDamage();
  Status TakeSpace();
  Status Bear(Status damage);

  Task<Status> WriteMends();
  [[nodiscard]] bool RoomForFirstEntry() const;
  Task<Status> WriteFirstEntry();
  Task<Status> CheckpointTheCut(Superblocks& superblocks, Checkpointer& checkpointer);
  Task<Status> WriteRings(uint64_t upto);
  Buffer EncodeBlock(const EntryHeader& header, size_t& used_bytes);

  Core& core_;
  const Assembly& assembly_;
  ChunkReader reader_;
  LogReader log_;
  uint64_t newest_epoch_;

  CheckpointRoot root_;
  Appender::Position checkpoint_;
  std::map<uint64_t, std::vector<RingCopies>> ring_headers_;
  std::vector<FoundBlock> ring_blocks_;
  uint64_t newest_ring_mark_ = 0;
  // Masks of log devices that were there already when the place that was last looked at was written.
  uint64_t unread_logs_ = 0;
  uint64_t read_logs_ = 0;     // the same of those that could be read there
  uint64_t unread_rings_ = 0;  // mask of SSDs: a part of the ring could not be read
  std::vector<EntryHeader> chain_;
  Appender::Position joined_;        // the end of the chain
  std::vector<EntryHeader> beyond_;  // headers on log devices behind that
  uint64_t mark_ = 0;                // the newest that was found anywhere
  Appender::Position position_;
  Epoch epoch_;
  std::vector<Mend> mends_;
  std::vector<EntryHeader> without_ring_;  // kept tail that lacks copies on the rings

  // Of the tail: how much of it is kept so far, with what is to be mended for that.
  struct Kept {
    size_t entries = 0;
    size_t mends = 0;
    size_t without_ring = 0;
  };
  Kept kept_;
  bool dropped_before_kept_ = false;  // records in the log that must not be applied: checkpoint it
  // Stripes of which a row record was dropped: those that build upon it mean nothing.
  std::unordered_set<uint32_t> stuck_;
  std::map<uint64_t, Buffer> salvaged_;   // by chunk; at most kMostSalvagedBytes
  std::map<uint64_t, uint64_t> dropped_;  // by entry: chunks of writes
};

}  // namespace eplog
