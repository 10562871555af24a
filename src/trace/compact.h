// Making a trace's address space dense: the 1 MiB extents that reads and writes touch are numbered
// in address order, and requests move with their extents. What lay before something else still
// does, and what was adjacent still is, so sequential work stays sequential. (Addresses modulo the
// size of an array would let far places collide.)
//
// Two passes: Note() every request, Seal(), then Map() them. Memory: 24 bytes for 64 neighbouring
// extents.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "eplog/result.h"
#include "trace/chunk_set.h"
#include "trace/request.h"

namespace eplog {

class Compactor {
 public:
  static constexpr uint64_t kExtentBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMaxExtents = uint64_t{1} << 26;  // 64 TiB that are touched

  // `merge`: all volumes become one, number 0, one behind the other.
  explicit Compactor(bool merge) : merge_(merge) {}

  // kNoSpace: the trace touches more than kMaxExtents.
  Status Note(const TraceRequest& request);
  void Seal();
  // A trim shrinks to what of it is touched by reads or writes; nullopt: nothing is.
  [[nodiscard]] std::optional<TraceRequest> Map(const TraceRequest& request) const;
  // After Seal(): what the requests of a volume, or of all in one, stay below.
  [[nodiscard]] uint64_t span_bytes(uint32_t volume) const;

 private:
  static constexpr int kVolumeShift = 40;  // 2 ^ 60 bytes are 2 ^ 40 extents
  struct Word {
    uint64_t first = 0;  // number of its first extent
    uint64_t bits = 0;
    uint64_t before = 0;  // touched extents before it
  };

  // Touched extents before `extent`.
  [[nodiscard]] uint64_t Rank(uint64_t extent) const;
  [[nodiscard]] uint64_t VolumeRank(uint32_t volume) const {
    return Rank(static_cast<uint64_t>(volume) << kVolumeShift);
  }

  bool merge_;
  ChunkSet touched_;
  std::vector<Word> words_;  // ascending
};

}  // namespace eplog
