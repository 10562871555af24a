// Snapshot: the state of one instant as the stream of a checkpoint's run (format/checkpoint.h),
// written piece by piece while the state goes on changing.
//
// Nothing is copied when it is made. It walks the tables from end to end; what is about to change
// and has not been written yet is written first, out of its turn, into a buffer of its own. So a
// piece costs the time of its bytes, and a change at most that of one row group.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "format/checkpoint.h"
#include "metadata/state.h"

namespace eplog {

class Snapshot {
 public:
  // Of the state now, whose changes so far it takes over: the next incremental one begins here. At
  // most one at a time. `sequence` is the newest entry that was applied. `without_pendings`: a
  // canary of the tests.
  Snapshot(State& state, bool full, uint64_t sequence, bool without_pendings = false);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Appends the next bytes of the stream, `least` or a little more, fewer only at its end. False if
  // there are no more.
  bool Next(std::vector<std::byte>& out, size_t least);

  // No stream of a snapshot made now would be longer.
  static uint64_t MaxBytes(const State& state, bool full);

  // ---- called by the state before it changes
  void BeforeRow(StripeIndex stripe);
  void BeforeChunk(ChunkIndex chunk);  // its pending version is being superseded
  void BeforeExtent(ExtentIndex extent);
  void BeforeReclaim();  // dead log stripes go

 private:
  enum class Part : uint8_t { kVolumes, kExtents, kRows, kPendings, kEnd, kDone };

  [[nodiscard]] uint32_t NextExtentGroup(uint32_t from) const;
  [[nodiscard]] uint32_t NextRowGroup(uint32_t from) const;
  void PutVolumes();
  void PutExtentGroup(uint32_t group, std::vector<std::byte>& out) const;
  void PutRowGroup(uint32_t group, std::vector<std::byte>& out) const;
  void PutLogStripe(LogStripeId id, std::vector<std::byte>& out) const;
  void Step(std::vector<std::byte>& out);
  void StepPendings(std::vector<std::byte>& out);

  State& state_;
  const bool full_;
  const uint64_t sequence_;
  const bool without_pendings_;
  Changes changes_;
  Part part_ = Part::kVolumes;
  uint32_t extent_group_ = 0;  // the next to be written
  uint32_t row_group_ = 0;
  LogStripeId log_stripe_ = kNone;
  uint64_t walked_sequence_ = 0;  // the walk over log stripes has passed those with lower ones,
  std::unordered_set<LogStripeId> walked_;  // and of this one these
  std::vector<std::byte> early_;            // written out of turn, not handed out yet
  std::unordered_set<uint32_t> early_extents_;
  std::unordered_set<uint32_t> early_rows_;
  std::unordered_set<LogStripeId> early_stripes_;
};

}  // namespace eplog
