// What a simulated drive is made of. Whole numbers throughout: times in nanoseconds, rates in bytes
// a second, so that a run never depends on how a machine rounds. sim/drive.h reads them from TOML.
#pragma once

#include <cstdint>

namespace eplog::sim {

// Which block is collected next.
enum class Collection : uint8_t {
  kGreedy,       // the one with the fewest valid pages
  kCostBenefit,  // the one with the largest age (1 - u) / 2u, u the valid share, age the time since
                 // a page of it was last invalidated: Kawaguchi, Nishioka and Motoda, "A Flash-
                 // Memory Based File System", USENIX 1995
};

// Between host and drive. A request takes the link for `request_ns` and for its bytes, and its
// answer comes a latency later, which takes nothing: 1 / (request_ns + bytes / rate) is the most
// requests a second.
struct LinkParameters {
  uint64_t read_bytes_per_s = 0;
  uint64_t write_bytes_per_s = 0;
  bool full_duplex = false;  // reads and writes have the link each for themselves
  uint32_t queue_depth = 1;  // more requests wait, first come, first served
  uint64_t request_ns = 0;
  uint64_t read_latency_ns = 0;
  uint64_t write_latency_ns = 0;
};

struct FlashParameters {
  uint32_t channels = 1;
  uint32_t ways = 1;           // dies on a channel
  uint32_t page_bytes = 4096;  // what is mapped
  uint32_t read_pages = 1;     // pages that one read of the flash gets, in read_ns
  uint32_t program_pages = 1;  // pages that one program writes, in program_ns: a unit
  uint32_t pages_per_block = 256;
  uint64_t read_ns = 0;
  uint64_t program_ns = 0;
  uint64_t erase_ns = 0;
  uint64_t channel_bytes_per_s = 0;
  uint32_t overprovisioning_ppm = 0;  // flash beyond the user's, in millionths of the user's
  uint32_t free_blocks = 2;           // a die with fewer is collected; on top of the above
  Collection collection = Collection::kGreedy;
  bool reads_first = true;  // a read waits for the operation under way, not for those behind it
};

struct SsdParameters {
  LinkParameters link;
  FlashParameters flash;
  uint64_t buffer_bytes = 0;
  bool capacitor = false;  // what is in the buffer survives a power cut: a flush has nothing to do
};

// Seek times are a curve over the distance as a share x of all tracks, a + b sqrt(x) + c x, with
// seek_track_ns near 0, seek_average_ns as the mean over two random places, seek_full_ns at 1.
struct HddParameters {
  LinkParameters link;
  uint64_t revolution_ns = 0;
  uint64_t seek_track_ns = 0;
  uint64_t seek_average_ns = 0;
  uint64_t seek_full_ns = 0;
  uint64_t write_settle_ns = 0;    // a seek before writing takes so much longer
  uint64_t track_switch_ns = 0;    // from the end of a track to the beginning of the next
  uint64_t outer_bytes_per_s = 0;  // sustained, switches of tracks included
  uint64_t inner_bytes_per_s = 0;
  uint32_t zones = 1;
  uint64_t cache_bytes = 0;  // for writes
  bool write_back = true;    // writes are answered when they are in the cache
  uint64_t read_ahead_bytes = 0;
};

// Nanoseconds for so many bytes, rounded up. At most 2^34 bytes.
constexpr uint64_t TransferNs(uint64_t bytes, uint64_t bytes_per_s) {
  return (bytes * 1'000'000'000 + bytes_per_s - 1) / bytes_per_s;
}

}  // namespace eplog::sim
