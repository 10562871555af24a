// PendingTable: pending chunks and the live log stripes that hold them (I2, I3, I6).
//
// Trimmed chunks are pending zeros. They stand here as a log stripe without log chunks, all of one
// trim record together: they have nothing to be decoded from and need nothing, but are committed in
// their turn and are part of every checkpoint. `zeros` counts them, since they may not pile up:
// each is charged like one chunk of log (section 5).
//
// A log stripe is live until every member is superseded; then it is *dead*: nothing is read through
// it and its slots are freed (I1), but its log space stays taken until what superseded it is
// stable. Slots of all its members, superseded ones too, are held while it is live (I3); `Holds`
// answers for one slot.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/segmented.h"
#include "base/types.h"
#include "format/entry.h"
#include "layout/geometry.h"
#include "layout/slot_word.h"

namespace eplog {

using LogStripeId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;

struct PendingChunk {
  uint64_t version = 0;  // sequence of its entry
  SlotWord word;
  uint32_t crc = 0;
  LogStripeId log_stripe = kNone;
};

struct LogStripeView {
  uint64_t sequence = 0;
  uint64_t place = 0;  // of its log chunks
  bool zeros = false;  // trimmed chunks: no log chunks, no slots
  std::vector<LogStripeMember> members;
  std::vector<bool> superseded;
  std::array<uint32_t, kMaxParity> log_crcs{};
};

class PendingTable {
 public:
  explicit PendingTable(const Geometry& geometry);

  [[nodiscard]] std::optional<PendingChunk> Find(ChunkIndex chunk) const;
  // Bring what Find and Supersede of a chunk will touch nearer: the bucket, later its first member.
  void PrefetchBucket(ChunkIndex chunk) const { __builtin_prefetch(&BucketOf(chunk)); }
  void PrefetchMember(ChunkIndex chunk) const {
    if (const uint32_t head = BucketOf(chunk); head != kNone) {
      __builtin_prefetch(&members_[head]);
    }
  }
  [[nodiscard]] LogStripeView View(LogStripeId id) const;
  [[nodiscard]] uint64_t PlaceOf(LogStripeId id) const { return stripes_[id].place; }
  [[nodiscard]] uint64_t SequenceOf(LogStripeId id) const { return stripes_[id].sequence; }
  [[nodiscard]] bool IsLive(LogStripeId id, uint64_t sequence) const {
    return id < stripes_.size() && stripes_[id].sequence == sequence && stripes_[id].live != 0;
  }

  // A new live log stripe; its members become the pending versions of their chunks. The caller has
  // superseded older versions. `superseded`, if given (loading a checkpoint), tells which members
  // already are. Without log CRCs: trimmed chunks, `place` that of their entry.
  LogStripeId Add(uint64_t sequence, uint64_t place, std::span<const LogStripeMember> members,
                  std::span<const uint32_t> log_crcs,
                  const std::vector<bool>* superseded = nullptr);

  // Supersedes the pending version of `chunk` if it is not newer than `upto`; `by` is the
  // superseding entry, `commit` says that a parity commit did it. When this kills its log stripe,
  // the members are handed to `died` (chunk, word) and no longer held; its log space stays taken
  // until Stable(by). False if there is no such pending version.
  using Died = std::function<void(const LogStripeMember&)>;
  bool Supersede(ChunkIndex chunk, uint64_t upto, uint64_t by, bool commit, const Died& died);

  // Everything up to `sequence` is stable: dead log stripes that were superseded by then give up
  // their space.
  void Stable(uint64_t sequence);

  // Place of the log chunks (or the trimming entry) of the oldest log stripe that still needs them.
  [[nodiscard]] std::optional<uint64_t> OldestPlace() const;
  // The same of the oldest that is live; newer ones may be on their way to the same end.
  [[nodiscard]] std::optional<uint64_t> OldestLivePlace() const;
  // Every member on this SSD becomes `absent`: it was replaced.
  void ForgetSsd(DeviceIndex ssd);
  // Does a live log stripe hold this slot?
  [[nodiscard]] bool Holds(DeviceIndex ssd, SlotIndex slot) const {
    return (held_[ssd.value][slot.value / 64] >> (slot.value % 64) & 1) != 0;
  }

  // Live log stripes from the oldest on; `visit` returns false to stop. Members only through View.
  void ForEachLive(const std::function<bool(LogStripeId)>& visit) const;
  // Chunks of a live log stripe that are still pending in it.
  void PendingChunksOf(LogStripeId id, std::vector<ChunkIndex>& out) const;

  [[nodiscard]] uint64_t pending_chunks() const { return pending_; }
  [[nodiscard]] uint64_t live_log_stripes() const { return live_stripes_; }
  // Chunks of trim records that are live.
  [[nodiscard]] uint64_t zeros() const { return zeros_; }
  // And of those that died by an entry that is not stable: recovery may drop it, and they are
  // pending again.
  [[nodiscard]] uint64_t charged_zeros() const { return zeros_ + dying_zeros_; }
  // Members of live log stripes, superseded or not, zeros too; and how many stripes these are.
  [[nodiscard]] uint64_t live_members() const { return live_members_; }
  [[nodiscard]] uint64_t live_records() const { return live_records_; }
  // Walking the log stripes, dead ones too, from the oldest live one on; kNone at the end. A step
  // is only taken from one that has not been reclaimed since.
  [[nodiscard]] LogStripeId FirstLive() const { return oldest_live_; }
  [[nodiscard]] LogStripeId Next(LogStripeId id) const { return stripes_[id].next; }
  [[nodiscard]] bool IsLive(LogStripeId id) const { return stripes_[id].live != 0; }
  // Log stripes that died of overwriting alone, since this table was made.
  [[nodiscard]] uint64_t early_deaths() const { return early_deaths_; }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  // Memory is what many of these cost: 28 bytes a member and 32 + 4 m a log stripe.
  struct Member {
    uint32_t stripe = 0;  // of the data stripe
    SlotWord word;
    uint32_t crc = 0;
    uint32_t hash_next = kNone;
    uint32_t next = kNone;  // in its log stripe, or in the free list
    LogStripeId log_stripe = kNone;
    uint8_t index = 0;  // in the data stripe
    bool superseded = false;
  };
  static_assert(sizeof(Member) == 28);
  struct Stripe {
    uint64_t sequence = 0;
    uint64_t place = 0;
    uint32_t first = kNone;
    uint32_t prev = kNone;   // older
    uint32_t next = kNone;   // newer, or in the free list
    uint8_t live = 0;        // members not superseded
    bool committed = false;  // a member was superseded by a commit
    bool zeros = false;
  };
  static_assert(sizeof(Stripe) == 32);
  // Neighbours share a cache line of buckets: who asks for one chunk of a stripe asks for others.
  static constexpr uint32_t kNeighbours = 8;
  struct Line {
    std::array<uint32_t, kNeighbours> heads;
    Line() { heads.fill(kNone); }
  };

  [[nodiscard]] ChunkIndex ChunkOf(const Member& member) const {
    return geometry_.Chunk(StripeIndex(member.stripe), member.index);
  }
  // Linear hashing: a line more for each eight pending chunks, split off one that is there.
  [[nodiscard]] size_t LineOf(ChunkIndex chunk) const {
    const uint64_t product = (chunk.value / kNeighbours) * 0x9E3779B97F4A7C15ULL;
    const uint64_t hash = product ^ product >> 32;
    const size_t line = hash & (2 * half_ - 1);
    return line < lines_.size() ? line : hash & (half_ - 1);
  }
  [[nodiscard]] uint32_t& BucketOf(ChunkIndex chunk) {
    return lines_[LineOf(chunk)].heads[chunk.value % kNeighbours];
  }
  [[nodiscard]] const uint32_t& BucketOf(ChunkIndex chunk) const {
    return lines_[LineOf(chunk)].heads[chunk.value % kNeighbours];
  }
  uint32_t NewMember();
  LogStripeId NewStripe();
  void Link(uint32_t member);
  void UnlinkFromHash(uint32_t member);
  void AddLine();
  void Hold(DeviceIndex ssd, SlotIndex slot, bool held);
  void Kill(LogStripeId id, uint64_t by, const Died& died);
  void Reclaim(LogStripeId id);

  const Geometry& geometry_;
  Segmented<Member> members_;
  Segmented<Stripe> stripes_;
  Segmented<uint32_t> log_crcs_;  // m for each log stripe
  Segmented<Line> lines_;
  size_t half_ = 0;  // the power of two that is half of what they are growing to
  uint32_t free_member_ = kNone;
  uint32_t free_stripe_ = kNone;
  LogStripeId oldest_ = kNone;
  LogStripeId newest_ = kNone;
  LogStripeId oldest_live_ = kNone;
  uint64_t pending_ = 0;
  uint64_t live_stripes_ = 0;  // that have log chunks
  uint64_t zeros_ = 0;
  uint64_t dying_zeros_ = 0;  // of dead_
  uint64_t live_members_ = 0;
  uint64_t live_records_ = 0;
  uint64_t early_deaths_ = 0;
  struct Dead {
    uint64_t by = 0;  // the superseding sequence (ascending)
    LogStripeId id = kNone;
    uint32_t zeros = 0;
  };
  std::deque<Dead> dead_;
  std::vector<std::vector<uint64_t>> held_;
};

}  // namespace eplog
