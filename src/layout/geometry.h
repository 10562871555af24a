// Geometry: where everything lies on an array's devices. Pure arithmetic; fixed at creation, kept
// in every superblock (docs/format.md).
//
//   SSD:         [superblocks, 64 KiB][metadata area][journal ring][pad to 1 MiB][slots ...]
//   log device:  [superblocks, 64 KiB][log ring]
//
// A data stripe has k data chunks (index 0 ... k-1) and m parity chunks (index k ... n-1), one on
// each SSD. Rotation (left-asymmetric, as in figure 1 of the EPLOG supplement): stripe 0 has its
// parity on the last m SSDs, each further stripe one SSD earlier, round the end; its data chunks
// take the other SSDs in ascending order. Which slot of an SSD a chunk has is in the row.
#pragma once

#include <cstdint>
#include <string>

#include "base/types.h"
#include "eplog/result.h"

namespace eplog {

inline constexpr uint64_t kSuperblockAreaBytes = uint64_t{64} << 10;
inline constexpr uint64_t kSuperblockCopyBytes = kBlockBytes;
// Copy A at 0, copy B in the second half of the area, so that one bad spot does not take both.
inline constexpr uint64_t kSuperblockCopyOffset[2] = {0, kSuperblockAreaBytes / 2};
inline constexpr uint64_t kSlotsAlignment = uint64_t{1} << 20;

inline constexpr uint32_t kMinReserveSlots = 16;
inline constexpr uint64_t kMinRingBlocks = 16;
inline constexpr uint64_t kMinLogBlocks = 64;
inline constexpr uint32_t kMaxVolumes = 65'536;
inline constexpr uint32_t kRowGroupStripes = 64;  // unit in which rows are checkpointed

struct Geometry {
  uint32_t n = 0;  // SSDs
  uint32_t m = 0;  // parity chunks a stripe = log devices
  uint32_t chunk_bytes = 0;
  uint32_t stripes = 0;  // multiple of extent_stripes
  uint32_t slots = 0;    // on each SSD; slots - stripes is the reserve
  uint32_t extent_stripes = 0;
  uint64_t metadata_offset_bytes = 0;
  uint64_t metadata_blocks = 0;
  uint64_t ring_offset_bytes = 0;
  uint64_t ring_blocks = 0;
  uint64_t slots_offset_bytes = 0;
  uint64_t log_offset_bytes = 0;
  uint64_t log_blocks = 0;

  bool operator==(const Geometry&) const = default;

  [[nodiscard]] uint32_t k() const { return n - m; }
  [[nodiscard]] uint32_t devices() const { return n + m; }
  [[nodiscard]] uint32_t chunk_blocks() const { return chunk_bytes / kBlockBytes; }
  [[nodiscard]] uint32_t extents() const { return stripes / extent_stripes; }
  [[nodiscard]] uint32_t reserve_slots() const { return slots - stripes; }
  [[nodiscard]] uint64_t stripe_data_bytes() const { return uint64_t{k()} * chunk_bytes; }
  [[nodiscard]] uint64_t extent_data_bytes() const { return extent_stripes * stripe_data_bytes(); }
  [[nodiscard]] uint64_t capacity_bytes() const { return stripes * stripe_data_bytes(); }
  [[nodiscard]] uint64_t data_chunks() const { return uint64_t{stripes} * k(); }
  [[nodiscard]] uint32_t row_groups() const {
    return static_cast<uint32_t>(DivideUp(stripes, kRowGroupStripes));
  }
  // Stripes in commit at once; as many slots on each SSD are closed to foreground writes (section
  // 5).
  [[nodiscard]] uint32_t commit_width() const;
  // What the metadata area has room for: those being deleted count, too. A volume for each 64
  // stripes, kMaxVolumes at most; arrays that were laid out when there were fewer keep their limit.
  [[nodiscard]] uint32_t max_volumes() const;
  // Upper bound of one full checkpoint, in blocks, whatever the array holds.
  [[nodiscard]] uint64_t max_checkpoint_blocks() const;
  // Smallest sizes of the devices that this geometry needs.
  [[nodiscard]] uint64_t ssd_bytes() const {
    return slots_offset_bytes + uint64_t{slots} * chunk_bytes;
  }
  [[nodiscard]] uint64_t log_bytes() const { return log_offset_bytes + log_blocks * kBlockBytes; }

  // ---- chunks and places
  [[nodiscard]] ChunkIndex Chunk(StripeIndex stripe, uint32_t index) const {
    return ChunkIndex(uint64_t{stripe.value} * k() + index);
  }
  [[nodiscard]] StripeIndex StripeOf(ChunkIndex chunk) const {
    return StripeIndex(static_cast<uint32_t>(chunk.value / k()));
  }
  [[nodiscard]] uint32_t IndexInStripe(ChunkIndex chunk) const {
    return static_cast<uint32_t>(chunk.value % k());
  }
  // The SSD of position `index` (0 ... n-1) of a stripe.
  [[nodiscard]] DeviceIndex SsdOf(StripeIndex stripe, uint32_t index) const {
    return SsdAt(FirstParitySsd(stripe), index);
  }
  // The same for who asks for many positions of one stripe: `p` is its FirstParitySsd.
  [[nodiscard]] DeviceIndex SsdAt(uint32_t p, uint32_t index) const {
    uint32_t at = 0;
    if (index >= k()) {
      at = p + (index - k());
      at = at < n ? at : at - n;
    } else if (p + m > n) {
      at = index + (p + m - n);  // the parity wraps: data lies between its two ends
    } else {
      at = index < p ? index : index + m;
    }
    return DeviceIndex(static_cast<uint8_t>(at));
  }
  [[nodiscard]] DeviceIndex SsdOf(ChunkIndex chunk) const {
    return SsdOf(StripeOf(chunk), IndexInStripe(chunk));
  }
  // The inverse: which position of the stripe lies on this SSD.
  [[nodiscard]] uint32_t IndexOn(StripeIndex stripe, DeviceIndex ssd) const {
    return IndexAt(FirstParitySsd(stripe), ssd);
  }
  [[nodiscard]] uint32_t IndexAt(uint32_t p, DeviceIndex ssd) const {
    const uint32_t behind = ssd.value >= p ? ssd.value - p : ssd.value + n - p;
    if (behind < m) {
      return k() + behind;
    }
    if (p + m > n) {
      return ssd.value - (p + m - n);
    }
    return ssd.value < p ? ssd.value : ssd.value - m;
  }
  [[nodiscard]] uint64_t SlotOffset(SlotIndex slot) const {
    return slots_offset_bytes + uint64_t{slot.value} * chunk_bytes;
  }
  // Places in the log and block numbers in a ring count up for ever; these give where they lie.
  [[nodiscard]] uint64_t LogOffset(uint64_t place) const {
    return log_offset_bytes + place % log_blocks * kBlockBytes;
  }
  [[nodiscard]] uint64_t RingOffset(uint64_t block) const {
    return ring_offset_bytes + block % ring_blocks * kBlockBytes;
  }
  [[nodiscard]] uint64_t MetadataOffset(uint64_t block) const {
    return metadata_offset_bytes + block * kBlockBytes;
  }
  [[nodiscard]] bool IsLog(DeviceIndex device) const { return device.value >= n; }
  // ssd0 ..., log0 ...: what people call it.
  [[nodiscard]] std::string DeviceName(DeviceIndex device) const {
    return IsLog(device) ? "log" + std::to_string(device.value - n)
                         : "ssd" + std::to_string(device.value);
  }
  [[nodiscard]] DeviceIndex LogDevice(uint32_t j) const {
    return DeviceIndex(static_cast<uint8_t>(n + j));
  }

  // The SSD of parity chunk 0; parity chunk j is j SSDs further, round the end.
  [[nodiscard]] uint32_t FirstParitySsd(StripeIndex stripe) const {
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n is 2 at least
    const uint32_t turn = stripe.value % n;
    return k() >= turn ? k() - turn : k() + n - turn;
  }

  // The metadata area for so many volumes, and what one full checkpoint takes of it.
  [[nodiscard]] uint64_t MetadataBlocks(uint32_t volumes) const;
  [[nodiscard]] uint64_t CheckpointBlocks(uint32_t volumes) const;
  // The most volumes that an array of so many stripes is laid out for, and the fewest that any can
  // hold.
  [[nodiscard]] uint32_t PlannedVolumes() const;
  [[nodiscard]] uint32_t LeastVolumes() const;

  // Sanity of a geometry read from a disk: every rule that PlanGeometry keeps. kCorrupt if broken.
  [[nodiscard]] Status Validate() const;
};

struct GeometryRequest {
  uint32_t n = 0;
  uint32_t m = 0;
  uint32_t chunk_bytes = 0;
  uint32_t reserve_percent = 10;
  uint64_t ssd_bytes = 0;       // of the smallest SSD
  uint64_t log_bytes = 0;       // of the smallest log device
  uint64_t ring_bytes = 0;      // 0 = chosen
  uint32_t extent_stripes = 0;  // 0 = chosen
};

// Lay out an array, or say in one line what does not fit and what would. As many slots as fit, so
// as many stripes; a larger SSD never gives fewer.
Result<Geometry> PlanGeometry(const GeometryRequest& request);

// The smallest SSD that gives at least `stripes` stripes (and at least one) under the other fields
// of `request`: PlanGeometry with that ssd_bytes has them, with a byte less it has fewer.
Result<uint64_t> SsdBytesForStripes(const GeometryRequest& request, uint32_t stripes);

// The smallest log device that `request` may have.
uint64_t MinLogBytes(uint32_t chunk_bytes);

}  // namespace eplog
