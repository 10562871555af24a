#include "trace/compact.h"

#include <algorithm>
#include <bit>

namespace eplog {

Status Compactor::Note(const TraceRequest& request) {
  if (request.op != TraceOp::kRead && request.op != TraceOp::kWrite) {
    return OkStatus();
  }
  const uint64_t base = static_cast<uint64_t>(request.volume) << kVolumeShift;
  const uint64_t last = (request.end_bytes() - 1) / kExtentBytes;
  for (uint64_t extent = request.offset_bytes / kExtentBytes; extent <= last; ++extent) {
    touched_.Insert(base | extent);
  }
  if (touched_.size() > kMaxExtents) {
    return Fail(ErrorCode::kNoSpace,
                "the trace touches more than 64 TiB: take a part of it by --volume or time");
  }
  return OkStatus();
}

void Compactor::Seal() {
  touched_.ForEachWord([this](uint64_t first, uint64_t bits) {
    words_.push_back({first, bits, 0});
  });
  std::sort(words_.begin(), words_.end(),
            [](const Word& a, const Word& b) { return a.first < b.first; });
  uint64_t before = 0;
  for (Word& word : words_) {
    word.before = before;
    before += static_cast<uint64_t>(std::popcount(word.bits));
  }
}

uint64_t Compactor::Rank(uint64_t extent) const {
  const auto behind =
      std::upper_bound(words_.begin(), words_.end(), extent,
                       [](uint64_t value, const Word& word) { return value < word.first; });
  if (behind == words_.begin()) {
    return 0;
  }
  const Word& word = *std::prev(behind);
  const uint64_t at = extent - word.first;
  const uint64_t below = at >= ChunkSet::kBits ? word.bits : word.bits & ((uint64_t{1} << at) - 1);
  return word.before + static_cast<uint64_t>(std::popcount(below));
}

std::optional<TraceRequest> Compactor::Map(const TraceRequest& request) const {
  TraceRequest out = request;
  out.volume = merge_ ? 0 : request.volume;
  if (request.op == TraceOp::kFlush) {
    return out;
  }
  const uint64_t base = static_cast<uint64_t>(request.volume) << kVolumeShift;
  const uint64_t first = base | request.offset_bytes / kExtentBytes;
  const uint64_t last = base | (request.end_bytes() - 1) / kExtentBytes;
  const uint64_t begin_rank = Rank(first);
  const uint64_t end_rank = Rank(last + 1);
  if (begin_rank == end_rank) {
    return std::nullopt;
  }
  uint64_t begin = begin_rank * kExtentBytes;
  uint64_t end = end_rank * kExtentBytes;
  if (touched_.Contains(first)) {
    begin += request.offset_bytes % kExtentBytes;
  }
  if (touched_.Contains(last)) {
    end -= kExtentBytes - 1 - (request.end_bytes() - 1) % kExtentBytes;
  }
  out.offset_bytes = begin - (merge_ ? 0 : VolumeRank(request.volume) * kExtentBytes);
  out.length_bytes = end - begin;
  return out;
}

uint64_t Compactor::span_bytes(uint32_t volume) const {
  return merge_ ? touched_.size() * kExtentBytes
                : (VolumeRank(volume + 1) - VolumeRank(volume)) * kExtentBytes;
}

}  // namespace eplog
