// What a trace is like: counted in one pass. Memory follows the trace's footprint (16 bytes for 64
// neighbouring chunks, 32 where chunks lie alone), not its length.
//
// Everything counted in chunks rounds requests out to whole chunks, as a RAID does. A chunk write
// is an update if the chunk was written before in the trace. A request is random if it begins where
// none of the last kStreams requests of its kind and volume ended.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "trace/chunk_set.h"
#include "trace/request.h"
#include "trace/reuse.h"
#include "trace/series.h"

namespace eplog {

// k data and m parity chunks a stripe; a volume's stripes begin at its byte 0.
struct StripeLayout {
  uint32_t data_chunks = 6;
  uint32_t parity_chunks = 2;
};
// "6+2". kInvalidArgument.
Result<StripeLayout> ParseStripeLayout(const std::string& text);

struct StatOptions {
  uint64_t chunk_bytes = 4096;  // a power of two, 512 ... 1 MiB
  std::vector<StripeLayout> layouts = {{6, 2}, {4, 1}, {6, 1}, {4, 2}};
};

inline constexpr std::array<uint64_t, 2> kStatWindows = {1000, 10000};  // write requests

// Different stripes touched by the write requests of a window.
struct WindowStripes {
  uint64_t window = 0;    // write requests
  uint64_t complete = 0;  // whole windows
  uint64_t min = 0;       // of the whole ones
  uint64_t max = 0;
  uint64_t sum = 0;      // of the whole ones
  uint64_t partial = 0;  // stripes of the part of a window at the end
  [[nodiscard]] double mean() const {
    return complete == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(complete);
  }
};

struct LayoutSummary {
  StripeLayout layout;
  // Stripes touched, summed over the write requests each by itself.
  uint64_t stripe_touches = 0;
  // What RAID in place writes to its SSDs: the chunks of each request and the parity of each stripe
  // it touches.
  uint64_t md_ssd_bytes = 0;
  std::array<WindowStripes, kStatWindows.size()> windows;
};

struct OpSummary {
  uint64_t requests = 0;
  uint64_t bytes = 0;
  uint64_t fua = 0;
  uint64_t random = 0;
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  std::map<uint64_t, uint64_t> sizes;  // bytes -> requests; see kMaxSizes
  uint64_t footprint_chunks = 0;       // reads and writes: different chunks
  [[nodiscard]] double mean_bytes() const {
    return requests == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(requests);
  }
  // The size that `share` of the requests do not exceed.
  [[nodiscard]] uint64_t Quantile(double share) const;
};

struct TraceSummary {
  uint64_t requests = 0;
  std::array<OpSummary, kTraceOps> ops;
  uint64_t duration_us = 0;
  uint64_t volumes = 0;  // that have requests
  uint64_t chunk_bytes = 0;
  uint64_t footprint_chunks = 0;  // read or written
  uint64_t chunk_writes = 0;
  uint64_t chunk_updates = 0;
  uint64_t begin_bytes = 0;  // lowest offset and highest end of reads and writes, over all volumes
  uint64_t end_bytes = 0;
  std::vector<LayoutSummary> layouts;
  ReuseDistances::Summary reuse;  // of reads and writes, in chunks
  // For pictures, against the number of requests.
  std::vector<Series::Point> footprint_over_requests;
  HeatMap heat;
};

class TraceStatistics {
 public:
  static constexpr size_t kStreams = 32;
  // Sizes beyond so many different ones count as the next power of two.
  static constexpr size_t kMaxSizes = 16384;

  explicit TraceStatistics(const StatOptions& options);
  void Add(const TraceRequest& request);
  [[nodiscard]] TraceSummary Summarise() const;

 private:
  // One for every different k of the layouts.
  struct Stripes {
    uint32_t data_chunks = 0;
    uint64_t touches = 0;
    std::array<ChunkSet, kStatWindows.size()> sets;
    std::array<WindowStripes, kStatWindows.size()> windows;
  };
  struct Ends {
    std::array<uint64_t, kStreams> ends{};  // volume and end; never 0
    size_t next = 0;
  };

  void CountSize(OpSummary& op, uint64_t bytes);
  void CountChunks(const TraceRequest& request);
  void CountStripes(uint64_t volume_bits, uint64_t first_chunk, uint64_t last_chunk);
  bool IsRandom(const TraceRequest& request);

  StatOptions options_;
  TraceSummary summary_;
  ChunkSet touched_;
  ChunkSet read_;
  ChunkSet written_;
  ChunkSet volumes_;
  std::vector<Stripes> stripes_;
  std::array<Ends, 2> ends_;
  ReuseDistances reuse_;
  Series footprint_;
};

}  // namespace eplog
