// A read of a range where nothing has failed: each chunk from its SSD, straight into the caller's
// memory.
#pragma once

#include <cstdint>
#include <span>

#include "baseline/placement.h"
#include "baseline/plug.h"

namespace eplog {

inline void AddChunkReads(PartGroup& group, const Placement& placement, uint64_t offset_bytes,
                          std::span<std::byte> into) {
  for (const ChunkPiece& piece : placement.CutChunks(offset_bytes, into.size())) {
    group.Add({.device = piece.ssd,
               .io_class = IoClass::kUserRead,
               .offset_bytes = piece.offset_bytes,
               .memory = into.data() + piece.at_bytes,
               .length_bytes = piece.length_bytes});
  }
}

}  // namespace eplog
