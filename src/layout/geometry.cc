#include "layout/geometry.h"

#include <algorithm>
#include <bit>
#include <string>

namespace eplog {
namespace {

constexpr uint64_t kMaxRingBytes = uint64_t{64} << 20;  // of those chosen here
constexpr uint64_t kMaxAreaBlocks = uint64_t{1} << 40;
constexpr uint64_t kMaxAreaOffset = uint64_t{1} << 56;
constexpr uint32_t kMaxSlots = UINT32_MAX - 2;  // two words of SlotWord are no slots

constexpr uint64_t kMaxCommitBytes = uint64_t{32} << 20;  // in memory for one batch
constexpr uint64_t kMaxCommitWidth = 64;

uint64_t MinLogBlocks(uint32_t chunk_bytes) {
  // Room for several of the largest lone entries besides what is closed to them (section 5).
  return std::max<uint64_t>(kMinLogBlocks, 16 * (1 + uint64_t{chunk_bytes} / kBlockBytes));
}

// What somebody has is rounded down and what he needs is rounded up, so that the two never read the
// same.
std::string HasKib(uint64_t bytes) {
  return std::to_string(bytes / 1024) + "K";
}
std::string NeedsKib(uint64_t bytes) {
  return std::to_string(DivideUp(bytes, 1024)) + "K";
}

uint32_t ChooseExtentStripes(uint32_t stripes) {
  // About a thousand extents or more in an array, none above 1024 stripes.
  return std::clamp<uint32_t>(std::bit_floor(std::max<uint32_t>(stripes / 1024, 1)), 1, 1024);
}
// No more than this while ChooseExtentStripes may still enlarge them.
constexpr uint32_t kMostSmallExtents = 2048;

// By the slots and not by the size of the SSD: the plan is searched by slots, and a larger SSD must
// never give fewer.
uint64_t ChooseRingBlocks(const GeometryRequest& request, uint32_t slots) {
  if (request.ring_bytes != 0) {
    return request.ring_bytes / kBlockBytes;
  }
  const uint64_t bytes = uint64_t{slots} * request.chunk_bytes / 64;
  return std::clamp<uint64_t>(bytes, kMinRingBlocks * kBlockBytes, kMaxRingBytes) / kBlockBytes;
}

// The layout of an SSD for a given number of slots; the caller checks that it fits. Nothing in it
// but the slots depends on the size of the SSD, no area and no number of stripes shrinks when
// `slots` grows, and so every slot more needs a larger SSD: the searches below rest on that.
Geometry LayOut(const GeometryRequest& request, uint32_t slots) {
  Geometry g;
  g.n = request.n;
  g.m = request.m;
  g.chunk_bytes = request.chunk_bytes;
  g.slots = slots;
  const uint64_t percent = DivideUp(uint64_t{slots} * request.reserve_percent, 100);
  const auto reserve = static_cast<uint32_t>(std::max<uint64_t>(percent, kMinReserveSlots));
  g.stripes = slots > reserve ? slots - reserve : 0;
  g.extent_stripes =
      request.extent_stripes != 0 ? request.extent_stripes : ChooseExtentStripes(g.stripes);
  g.stripes = g.stripes / g.extent_stripes * g.extent_stripes;
  g.log_offset_bytes = kSuperblockAreaBytes;
  g.log_blocks = request.log_bytes > kSuperblockAreaBytes
                     ? (request.log_bytes - kSuperblockAreaBytes) / kBlockBytes
                     : 0;
  g.metadata_offset_bytes = kSuperblockAreaBytes;
  g.metadata_blocks = g.MetadataBlocks(g.PlannedVolumes());
  g.ring_offset_bytes = g.metadata_offset_bytes + g.metadata_blocks * kBlockBytes;
  g.ring_blocks = ChooseRingBlocks(request, slots);
  g.slots_offset_bytes =
      RoundUp(g.ring_offset_bytes + g.ring_blocks * kBlockBytes, kSlotsAlignment);
  return g;
}

Status CheckRequest(const GeometryRequest& r) {
  if (r.m < 1 || r.m > kMaxParity) {
    return Fail(ErrorCode::kInvalidArgument, "parity must be 1 to " + std::to_string(kMaxParity));
  }
  if (r.n < r.m + 1 || r.n < 2 || r.n > kMaxSsds) {
    return Fail(ErrorCode::kInvalidArgument, "with parity " + std::to_string(r.m) +
                                                 " an array needs " + std::to_string(r.m + 1) +
                                                 " to " + std::to_string(kMaxSsds) + " SSDs, not " +
                                                 std::to_string(r.n));
  }
  if (!std::has_single_bit(r.chunk_bytes) || r.chunk_bytes < kMinChunkBytes ||
      r.chunk_bytes > kMaxChunkBytes) {
    return Fail(ErrorCode::kInvalidArgument, "chunk must be a power of two from 4K to 1M");
  }
  if (r.reserve_percent < 1 || r.reserve_percent > 50) {
    return Fail(ErrorCode::kInvalidArgument, "reserve must be 1% to 50%");
  }
  if (r.ring_bytes != 0 && r.ring_bytes < kMinRingBlocks * kBlockBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "the journal ring needs at least " + NeedsKib(kMinRingBlocks * kBlockBytes));
  }
  if (r.ring_bytes > kMaxAreaBlocks * kBlockBytes || r.log_bytes > kMaxAreaBlocks * kBlockBytes) {
    return Fail(ErrorCode::kInvalidArgument, "the journal ring and a log device may have at most " +
                                                 HasKib(kMaxAreaBlocks * kBlockBytes));
  }
  if (r.log_bytes < MinLogBytes(r.chunk_bytes)) {
    return Fail(ErrorCode::kInvalidArgument, "a log device of " + HasKib(r.log_bytes) +
                                                 " is too small; it needs at least " +
                                                 NeedsKib(MinLogBytes(r.chunk_bytes)));
  }
  return OkStatus();
}

bool Fits(const GeometryRequest& request, uint64_t slots) {
  return LayOut(request, static_cast<uint32_t>(slots)).ssd_bytes() <= request.ssd_bytes;
}

}  // namespace

uint64_t MinLogBytes(uint32_t chunk_bytes) {
  return kSuperblockAreaBytes + MinLogBlocks(chunk_bytes) * kBlockBytes;
}

uint32_t Geometry::commit_width() const {
  const uint64_t fit = kMaxCommitBytes / (uint64_t{n} * chunk_bytes);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(std::min<uint64_t>(reserve_slots() / 2, fit), 1, kMaxCommitWidth));
}

uint32_t Geometry::LeastVolumes() const {
  return std::clamp<uint32_t>(extents(), 16, 1024);
}

uint32_t Geometry::PlannedVolumes() const {
  return std::max(LeastVolumes(), std::min(stripes / 64, kMaxVolumes));
}

// The area says how many it was laid out for.
uint32_t Geometry::max_volumes() const {
  uint32_t low = LeastVolumes();
  uint32_t high = PlannedVolumes();
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (MetadataBlocks(middle) <= metadata_blocks) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Two full checkpoints, and half of one for incremental ones in between.
uint64_t Geometry::MetadataBlocks(uint32_t volumes) const {
  const uint64_t full = CheckpointBlocks(volumes);
  return 2 * full + full / 2;
}

uint64_t Geometry::max_checkpoint_blocks() const {
  return CheckpointBlocks(max_volumes());
}

uint64_t Geometry::CheckpointBlocks(uint32_t volumes) const {
  // Rows: slot word and CRC uncoded, and a few bytes of framing for each SSD of each group.
  const uint64_t rows = uint64_t{row_groups()} * (kRowGroupStripes * n * 8 + n * 4 + 16);
  // Live log stripes: bounded by the log, and by the pending chunks, of which each holds at least
  // one. Their members: each has a slot of its own, or is `absent`, and no more than m SSDs have
  // absent words.
  const uint64_t log_stripes = std::min(log_blocks / chunk_blocks(), data_chunks());
  const uint64_t members = std::min(log_stripes * n, uint64_t{slots} * n + log_stripes * m);
  const uint64_t logs = members * 16 + log_stripes * 40;
  // As if an extent were small wherever it might be: a bound that never falls when the array grows.
  const uint64_t most_extents = std::max(extents(), std::min(stripes, kMostSmallExtents));
  const uint64_t named = uint64_t{volumes} * 256 + most_extents * 16;
  const uint64_t payload = rows + logs + named + kBlockBytes;
  // Each block carries at least 3,968 bytes of payload; one block for the root, one of rounding.
  return DivideUp(payload, 3968) + 2;
}

Status Geometry::Validate() const {
  const bool sane =
      m >= 1 && m <= kMaxParity && n > m && n <= kMaxSsds && std::has_single_bit(chunk_bytes) &&
      chunk_bytes >= kMinChunkBytes && chunk_bytes <= kMaxChunkBytes && extent_stripes > 0 &&
      stripes > 0 && stripes % extent_stripes == 0 &&
      slots >= uint64_t{stripes} + kMinReserveSlots && slots <= kMaxSlots &&
      log_blocks >= MinLogBlocks(chunk_bytes) && ring_blocks >= kMinRingBlocks &&
      metadata_offset_bytes >= kSuperblockAreaBytes && log_offset_bytes >= kSuperblockAreaBytes;
  if (!sane || metadata_blocks > kMaxAreaBlocks || ring_blocks > kMaxAreaBlocks ||
      log_blocks > kMaxAreaBlocks || slots_offset_bytes > kMaxAreaOffset ||
      metadata_offset_bytes > kMaxAreaOffset || ring_offset_bytes > kMaxAreaOffset ||
      log_offset_bytes > kMaxAreaOffset) {
    return Fail(ErrorCode::kCorrupt, "the superblock describes an impossible geometry");
  }
  const bool ordered = slots_offset_bytes % kSlotsAlignment == 0 &&
                       metadata_blocks >= 2 * max_checkpoint_blocks() &&
                       ring_offset_bytes >= metadata_offset_bytes + metadata_blocks * kBlockBytes &&
                       slots_offset_bytes >= ring_offset_bytes + ring_blocks * kBlockBytes;
  if (!ordered ||
      (metadata_offset_bytes | ring_offset_bytes | slots_offset_bytes | log_offset_bytes) %
              kBlockBytes !=
          0) {
    return Fail(ErrorCode::kCorrupt, "the superblock describes areas that overlap");
  }
  return OkStatus();
}

Result<Geometry> PlanGeometry(const GeometryRequest& request) {
  EPLOG_TRY(CheckRequest(request));
  // The largest number of slots that fits.
  uint64_t low = 0;
  uint64_t high = std::min<uint64_t>(request.ssd_bytes / request.chunk_bytes, kMaxSlots);
  while (low < high) {
    const uint64_t middle = (low + high + 1) / 2;
    if (Fits(request, middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  Geometry g = LayOut(request, static_cast<uint32_t>(low));
  if (low == 0 || g.stripes == 0) {
    const auto least = SsdBytesForStripes(request, std::max(request.extent_stripes, 1U));
    return Fail(ErrorCode::kInvalidArgument,
                "an SSD of " + HasKib(request.ssd_bytes) + " is too small" +
                    (least.ok() ? "; it needs at least " + NeedsKib(*least) : ""));
  }
  EPLOG_TRY(g.Validate());
  return g;
}

Result<uint64_t> SsdBytesForStripes(const GeometryRequest& request, uint32_t stripes) {
  stripes = std::max(stripes, 1U);  // an array has some
  EPLOG_TRY(CheckRequest(request));
  uint64_t low = 0;
  uint64_t high = kMaxSlots;
  const auto enough = [&](uint64_t slots) {
    return LayOut(request, static_cast<uint32_t>(slots)).stripes >= stripes;
  };
  if (!enough(high)) {
    return Fail(ErrorCode::kInvalidArgument, "too many stripes for one array");
  }
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (enough(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return LayOut(request, static_cast<uint32_t>(low)).ssd_bytes();
}

}  // namespace eplog
