#include "baseline/placement.h"

#include <algorithm>
#include <bit>
#include <string>

namespace eplog {

Result<Placement> Placement::Make(const PlacementShape& shape) {
  if (shape.m < 1 || shape.m > kMaxParity || shape.n > kMaxSsds || shape.n < shape.m + 2) {
    return Fail(ErrorCode::kInvalidArgument,
                "an array has 1 to " + std::to_string(kMaxParity) +
                    " parity and at least 2 data chunks a stripe, on at most " +
                    std::to_string(kMaxSsds) + " SSDs");
  }
  if (!std::has_single_bit(shape.chunk_bytes) || shape.chunk_bytes < kMinChunkBytes ||
      shape.chunk_bytes > kMaxChunkBytes) {
    return Fail(ErrorCode::kInvalidArgument, "a chunk is a power of two from 4 KiB to 1 MiB");
  }
  if (shape.ssd_bytes < shape.chunk_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "an SSD has no room for one chunk");
  }
  return Placement(shape);
}

Status CheckSectors(uint64_t offset_bytes, uint64_t length_bytes, uint64_t volume_bytes) {
  if (offset_bytes % kSectorBytes != 0 || length_bytes % kSectorBytes != 0) {
    return Fail(ErrorCode::kInvalidArgument, "a request is whole sectors of 512 bytes");
  }
  if (offset_bytes > volume_bytes || length_bytes > volume_bytes - offset_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "a request ends beyond the volume");
  }
  return OkStatus();
}

std::vector<ChunkPiece> Placement::CutChunks(uint64_t offset_bytes, uint64_t length_bytes) const {
  std::vector<ChunkPiece> pieces;
  pieces.reserve(length_bytes / chunk_bytes() + 2);
  for (uint64_t at = 0; at < length_bytes;) {
    const uint64_t chunk = (offset_bytes + at) / chunk_bytes();
    const uint64_t within = (offset_bytes + at) % chunk_bytes();
    const uint64_t length = std::min(length_bytes - at, chunk_bytes() - within);
    const uint64_t stripe = chunk / k();
    const DeviceIndex ssd = SsdOf(stripe * chunk_pages(), static_cast<uint32_t>(chunk % k()));
    pieces.push_back({ssd, stripe * chunk_bytes() + within, length, at});
    at += length;
  }
  return pieces;
}

std::vector<PagePiece> Placement::CutPages(uint64_t offset_bytes, uint64_t length_bytes) const {
  std::vector<PagePiece> pieces;
  pieces.reserve(length_bytes / kPageBytes + 2);
  const uint64_t end = offset_bytes + length_bytes;
  for (uint64_t at = offset_bytes; at < end;) {
    const uint64_t stripe = at / stripe_bytes();
    const uint64_t stripe_end = std::min(end, (stripe + 1) * stripe_bytes());
    CutStripe(stripe, at, stripe_end, offset_bytes, pieces);
    at = stripe_end;
  }
  return pieces;
}

// [begin, end) of the volume lies in one stripe. Line by line, and in each line chunk by chunk.
void Placement::CutStripe(uint64_t stripe, uint64_t begin, uint64_t end, uint64_t request_begin,
                          std::vector<PagePiece>& pieces) const {
  const uint64_t first_chunk = begin / chunk_bytes();
  const uint64_t last_chunk = (end - 1) / chunk_bytes();
  const bool one_chunk = first_chunk == last_chunk;
  const uint64_t first_page = one_chunk ? begin % chunk_bytes() / kPageBytes : 0;
  const uint64_t last_page = one_chunk ? (end - 1) % chunk_bytes() / kPageBytes : chunk_pages() - 1;
  for (uint64_t page = first_page; page <= last_page; ++page) {
    for (uint64_t chunk = first_chunk; chunk <= last_chunk; ++chunk) {
      const uint64_t page_begin = chunk * chunk_bytes() + page * kPageBytes;
      const uint64_t from = std::max(begin, page_begin);
      const uint64_t to = std::min(end, page_begin + kPageBytes);
      if (from < to) {
        pieces.push_back({stripe * chunk_pages() + page, static_cast<uint32_t>(chunk % k()),
                          static_cast<uint32_t>(from - page_begin),
                          static_cast<uint32_t>(to - from), from - request_begin});
      }
    }
  }
}

}  // namespace eplog
