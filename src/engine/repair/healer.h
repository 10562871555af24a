// Healer: puts right what a read or a scrub found wrong (P5). The content is decoded and goes to a
// new place: a chunk of a row by RowMender, a pending chunk as a new version of itself, and what
// else belongs to a log stripe by committing its chunks, after which nobody needs it.
//
// Only devices that are there are healed; what is `absent` is the Rebuilder's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "engine/commit/committer.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/read/chunk_reader.h"
#include "engine/repair/membership.h"
#include "engine/repair/row_mender.h"
#include "engine/write/buffered_chunks.h"
#include "engine/write/writer.h"

namespace eplog {

class Healer {
 public:
  Healer(Core& core, Appender& appender, Flusher& flusher, Admission& admission,
         ChunkReader& reader, Writer& writer, Committer& committer, BufferedChunks& buffered,
         Membership& membership)
      : core_(core),
        flusher_(flusher),
        admission_(admission),
        reader_(reader),
        writer_(writer),
        committer_(committer),
        buffered_(buffered),
        membership_(membership),
        mender_(core, appender),
        running_(core.loop),
        wake_(core.loop) {}

  void Open();
  Task<void> Close();

  // A scrub that heals reads everything. Until its end nobody is failed for what was wrong: what it
  // has not come to yet may be decoded with that device only. `all_right`: it has read everything,
  // and nothing that was wrong when it began is left.
  void BeginScrub();
  Task<void> EndScrub(bool all_right);

  // Something in this stripe was found wrong: it is healed soon.
  void Report(StripeIndex stripe);

  // A chunk that cannot be decoded, with what tells whether it is still the one that it was.
  struct LostChunk {
    uint32_t index = 0;    // in its stripe
    uint64_t version = 0;  // of what is pending; 0: that of the row
    SlotWord word;
    uint32_t crc = 0;
    bool operator==(const LostChunk&) const = default;
  };
  using Lost = std::vector<LostChunk>;
  struct Outcome {
    uint64_t healed = 0;       // chunks
    uint64_t lost = 0;         // chunks that cannot be decoded
    uint64_t lost_in_row = 0;  // of them
    Lost beyond;               // as they were read
  };
  // Reads all of the stripe, its row and what is pending, and heals what is wrong.
  Task<Result<Outcome>> Heal(StripeIndex stripe);
  // Commits what is pending of a log stripe, so that it dies.
  Task<Status> Retire(LogStripeId id, uint64_t sequence);

 private:
  Task<void> Run();
  Task<Status> HealRow(StripeIndex stripe, Outcome& outcome);
  // With slots admitted on these SSDs; if that is none and there were none to spare, says where.
  Task<Status> TryHealRow(StripeIndex stripe, uint64_t& ssds, Outcome& outcome);
  Task<Status> HealPending(ChunkIndex chunk, Outcome& outcome);
  Task<bool> PendingIsRight(ChunkIndex chunk);
  Task<void> JudgeDevices();
  // Of others than this device something was wrong since all was right: more of theirs may be.
  void CountWrong(DeviceIndex device);
  [[nodiscard]] LostChunk InRow(StripeIndex stripe, uint32_t index) const;
  [[nodiscard]] LostChunk Pending(StripeIndex stripe, uint32_t index) const;
  // Nothing of it has been written anew.
  [[nodiscard]] bool IsStill(StripeIndex stripe, const Lost& lost) const;
  [[nodiscard]] uint64_t WrongChunksOf(DeviceIndex device) const;
  [[nodiscard]] uint32_t WrongBeside(DeviceIndex device) const;
  void Tell(EventKind kind, StripeIndex stripe, uint32_t index);

  Core& core_;
  Flusher& flusher_;
  Admission& admission_;
  ChunkReader& reader_;
  Writer& writer_;
  Committer& committer_;
  BufferedChunks& buffered_;
  Membership& membership_;
  RowMender mender_;
  WaitGroup running_;
  Event wake_;
  std::deque<StripeIndex> reported_;
  std::unordered_set<uint32_t> known_;         // reported
  std::unordered_map<uint32_t, Lost> beyond_;  // healing, as long as they are what they were
  bool closing_ = false;
  // Chunks that were wrong on a device, each counted once: what it is judged by. One bad sector
  // that is read again and again is one. Under DeviceStates::number, for its successor begins anew.
  struct WrongChunks {
    uint64_t count = 0;
    StatesNumber states = 0;
  };
  std::array<WrongChunks, kMaxDevices> wrong_chunks_{};
  // How often something of each device was wrong, whoever met it, when a scrub began; and
  // DeviceStates::number then, for its successor begins anew.
  struct Met {
    std::array<uint64_t, kMaxDevices> wrong{};
    StatesNumber states = 0;
  };
  Met before_scrub_;  // the one that is at work
  Met mended_;        // the last one that left nothing wrong
  bool scrubbed_ = false;
};

}  // namespace eplog
