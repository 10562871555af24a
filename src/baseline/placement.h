// Placement: where the bytes of a linear volume lie on n SSDs when they lie in place, by a formula.
//
// A *line* is one page of 4 KiB at the same offset of every SSD: the smallest part of a data stripe
// that has a parity of its own, and what parity is computed over. Line l lies at l * 4 KiB of each
// SSD. Its n pages have positions: 0 ... k-1 data, k ... n-1 parity. A chunk is a run of pages of
// one SSD, so chunk_bytes / 4096 lines make a data stripe.
//
// Rotation (left-symmetric, what Linux MD creates unless told otherwise): parity 0 of stripe s lies
// on SSD n-1 - s mod n, parity j is j SSDs further, and the data begins on the SSD behind the last
// parity, always round the end. So k successive chunks and those of the next stripe go round all
// SSDs, whatever is parity.
//
// Pure arithmetic, immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"

namespace eplog {

inline constexpr uint32_t kPageBytes = kBlockBytes;

struct PlacementShape {
  uint32_t n = 0;  // SSDs
  uint32_t m = 0;  // parity chunks a stripe
  uint32_t chunk_bytes = kMinChunkBytes;
  uint64_t ssd_bytes = 0;  // of the smallest SSD
};

// A part of a request that lies within one page.
struct PagePiece {
  uint64_t line = 0;
  uint32_t position = 0;      // in the line: of a data page
  uint32_t begin_bytes = 0;   // in the page
  uint32_t length_bytes = 0;  // up to the end of the page
  uint64_t at_bytes = 0;      // in the request's memory
};

// A part of a request that lies within one chunk.
struct ChunkPiece {
  DeviceIndex ssd;
  uint64_t offset_bytes = 0;  // on the SSD
  uint64_t length_bytes = 0;
  uint64_t at_bytes = 0;  // in the request's memory
};

// kInvalidArgument unless the range is whole sectors inside a volume.
[[nodiscard]] Status CheckSectors(uint64_t offset_bytes, uint64_t length_bytes,
                                  uint64_t volume_bytes);

class Placement {
 public:
  // kInvalidArgument: at least 2 data chunks, m 1 ... kMaxParity, n at most kMaxSsds, chunks a
  // power of two of 4 KiB ... 1 MiB, an SSD at least one chunk.
  static Result<Placement> Make(const PlacementShape& shape);

  [[nodiscard]] uint32_t n() const { return shape_.n; }
  [[nodiscard]] uint32_t m() const { return shape_.m; }
  [[nodiscard]] uint32_t k() const { return shape_.n - shape_.m; }
  [[nodiscard]] uint32_t chunk_bytes() const { return shape_.chunk_bytes; }
  [[nodiscard]] uint32_t chunk_pages() const { return shape_.chunk_bytes / kPageBytes; }
  [[nodiscard]] uint64_t stripe_bytes() const { return uint64_t{k()} * shape_.chunk_bytes; }
  [[nodiscard]] uint64_t stripes() const { return shape_.ssd_bytes / shape_.chunk_bytes; }
  [[nodiscard]] uint64_t lines() const { return stripes() * chunk_pages(); }
  // Of the volume.
  [[nodiscard]] uint64_t size_bytes() const { return stripes() * stripe_bytes(); }

  // The SSD of a position (0 ... n-1) of a line.
  [[nodiscard]] DeviceIndex SsdOf(uint64_t line, uint32_t position) const {
    const uint64_t parity = shape_.n - 1 - line / chunk_pages() % shape_.n;
    const uint64_t behind = position < k() ? position + shape_.m : position - k();
    return DeviceIndex(static_cast<uint8_t>((parity + behind) % shape_.n));
  }
  [[nodiscard]] static uint64_t SsdOffset(uint64_t line) { return line * kPageBytes; }
  // Where in the volume a data page of a line is.
  [[nodiscard]] uint64_t VolumeOffset(uint64_t line, uint32_t position) const {
    const uint64_t chunk = line / chunk_pages() * k() + position;
    return chunk * chunk_bytes() + line % chunk_pages() * kPageBytes;
  }

  // A range of the volume cut into pages, those of one line next to each other, lines ascending.
  [[nodiscard]] std::vector<PagePiece> CutPages(uint64_t offset_bytes, uint64_t length_bytes) const;
  // Cut into chunks, ascending.
  [[nodiscard]] std::vector<ChunkPiece> CutChunks(uint64_t offset_bytes,
                                                  uint64_t length_bytes) const;
  // CheckSectors of this volume.
  [[nodiscard]] Status Check(uint64_t offset_bytes, uint64_t length_bytes) const {
    return CheckSectors(offset_bytes, length_bytes, size_bytes());
  }

 private:
  explicit Placement(const PlacementShape& shape) : shape_(shape) {}
  void CutStripe(uint64_t stripe, uint64_t begin, uint64_t end, uint64_t request_begin,
                 std::vector<PagePiece>& pieces) const;

  PlacementShape shape_;
};

}  // namespace eplog
