#include "trace/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "trace/text.h"

namespace eplog {
namespace {

// A volume's chunks, after those of all volumes before it: 2 ^ 60 bytes are 2 ^ 51 of the smallest
// chunks.
constexpr int kVolumeShift = 51;
static_assert(kMaxTraceVolumes <= (1U << (63 - kVolumeShift)));

size_t IndexOf(TraceOp op) {
  return static_cast<size_t>(op);
}

}  // namespace

Result<StripeLayout> ParseStripeLayout(const std::string& text) {
  const size_t plus = text.find('+');
  uint64_t data = 0;
  uint64_t parity = 0;
  if (plus == std::string::npos || !ParseNumber(std::string_view(text).substr(0, plus), data) ||
      !ParseNumber(std::string_view(text).substr(plus + 1), parity) || data < 1 || data > 1024 ||
      parity > 1024) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no layout; write data+parity chunks of a stripe, as in 6+2",
                            Shown(text)));
  }
  return StripeLayout{static_cast<uint32_t>(data), static_cast<uint32_t>(parity)};
}

uint64_t OpSummary::Quantile(double share) const {
  const auto wanted = static_cast<uint64_t>(share * static_cast<double>(requests));
  uint64_t seen = 0;
  for (const auto& [bytes_of, count] : sizes) {
    seen += count;
    if (seen >= std::max<uint64_t>(wanted, 1)) {
      return bytes_of;
    }
  }
  return max_bytes;
}

TraceStatistics::TraceStatistics(const StatOptions& options) : options_(options) {
  EPLOG_CHECK(std::has_single_bit(options.chunk_bytes) && options.chunk_bytes >= 512,
              "a chunk is a power of two");
  summary_.chunk_bytes = options.chunk_bytes;
  for (const StripeLayout& layout : options_.layouts) {
    const bool known = std::any_of(stripes_.begin(), stripes_.end(), [&](const Stripes& s) {
      return s.data_chunks == layout.data_chunks;
    });
    if (!known) {
      Stripes& stripes = stripes_.emplace_back();
      stripes.data_chunks = layout.data_chunks;
      for (size_t i = 0; i < kStatWindows.size(); ++i) {
        stripes.windows[i].window = kStatWindows[i];
      }
    }
  }
}

void TraceStatistics::CountSize(OpSummary& op, uint64_t bytes) {
  op.min_bytes = op.requests == 0 ? bytes : std::min(op.min_bytes, bytes);
  op.max_bytes = std::max(op.max_bytes, bytes);
  op.bytes += bytes;
  const auto found = op.sizes.find(bytes);
  if (found != op.sizes.end()) {
    ++found->second;
  } else {
    ++op.sizes[op.sizes.size() < kMaxSizes || bytes == 0 ? bytes : std::bit_ceil(bytes)];
  }
}

bool TraceStatistics::IsRandom(const TraceRequest& request) {
  Ends& ends = ends_[request.op == TraceOp::kWrite ? 1 : 0];
  const uint64_t spread = static_cast<uint64_t>(request.volume) * 0x9E3779B97F4A7C15ULL;
  const uint64_t begin = (request.offset_bytes + 1) ^ spread;
  const uint64_t end = (request.end_bytes() + 1) ^ spread;
  const auto found = std::find(ends.ends.begin(), ends.ends.end(), begin);
  if (found != ends.ends.end()) {
    *found = end;  // the stream goes on
    return false;
  }
  ends.ends[ends.next] = end;
  ends.next = (ends.next + 1) % kStreams;
  return true;
}

void TraceStatistics::CountStripes(uint64_t volume_bits, uint64_t first_chunk,
                                   uint64_t last_chunk) {
  for (Stripes& stripes : stripes_) {
    const uint64_t first = first_chunk / stripes.data_chunks;
    const uint64_t last = last_chunk / stripes.data_chunks;
    stripes.touches += last - first + 1;
    for (size_t i = 0; i < kStatWindows.size(); ++i) {
      ChunkSet& set = stripes.sets[i];
      for (uint64_t stripe = first; stripe <= last; ++stripe) {
        set.Insert(volume_bits | stripe);
      }
      if (summary_.ops[IndexOf(TraceOp::kWrite)].requests % kStatWindows[i] == 0) {
        WindowStripes& window = stripes.windows[i];
        window.min = window.complete == 0 ? set.size() : std::min(window.min, set.size());
        window.max = std::max(window.max, set.size());
        window.sum += set.size();
        ++window.complete;
        set.Clear();
      }
    }
  }
}

void TraceStatistics::CountChunks(const TraceRequest& request) {
  const bool write = request.op == TraceOp::kWrite;
  const uint64_t volume_bits = static_cast<uint64_t>(request.volume) << kVolumeShift;
  const uint64_t first = request.offset_bytes / options_.chunk_bytes;
  const uint64_t last = (request.end_bytes() - 1) / options_.chunk_bytes;
  for (uint64_t chunk = first; chunk <= last; ++chunk) {
    touched_.Insert(volume_bits | chunk);
    if (write) {
      summary_.chunk_updates += written_.Insert(volume_bits | chunk) ? 0 : 1;
    } else {
      read_.Insert(volume_bits | chunk);
    }
    reuse_.Touch(volume_bits | chunk);
  }
  if (write) {
    summary_.chunk_writes += last - first + 1;
    CountStripes(volume_bits, first, last);
    summary_.heat.Add(summary_.requests, request.offset_bytes);
  }
}

void TraceStatistics::Add(const TraceRequest& request) {
  ++summary_.requests;
  summary_.duration_us = request.time_us;
  volumes_.Insert(request.volume);
  OpSummary& op = summary_.ops[IndexOf(request.op)];
  CountSize(op, request.length_bytes);
  ++op.requests;
  op.fua += request.fua ? 1 : 0;
  if (request.op == TraceOp::kRead || request.op == TraceOp::kWrite) {
    op.random += IsRandom(request) ? 1 : 0;
    summary_.begin_bytes = summary_.end_bytes == 0
                               ? request.offset_bytes
                               : std::min(summary_.begin_bytes, request.offset_bytes);
    summary_.end_bytes = std::max(summary_.end_bytes, request.end_bytes());
    CountChunks(request);
  }
  footprint_.Add(summary_.requests, touched_.size());
}

TraceSummary TraceStatistics::Summarise() const {
  TraceSummary out = summary_;
  out.volumes = volumes_.size();
  out.footprint_chunks = touched_.size();
  out.ops[IndexOf(TraceOp::kRead)].footprint_chunks = read_.size();
  out.ops[IndexOf(TraceOp::kWrite)].footprint_chunks = written_.size();
  out.reuse = reuse_.Summarise();
  out.footprint_over_requests = footprint_.Points();
  for (const StripeLayout& layout : options_.layouts) {
    const auto stripes = std::find_if(stripes_.begin(), stripes_.end(), [&](const Stripes& s) {
      return s.data_chunks == layout.data_chunks;
    });
    LayoutSummary summary;
    summary.layout = layout;
    summary.stripe_touches = stripes->touches;
    summary.md_ssd_bytes =
        (out.chunk_writes + layout.parity_chunks * stripes->touches) * out.chunk_bytes;
    summary.windows = stripes->windows;
    for (size_t i = 0; i < kStatWindows.size(); ++i) {
      summary.windows[i].partial = stripes->sets[i].size();
    }
    out.layouts.push_back(summary);
  }
  return out;
}

}  // namespace eplog
