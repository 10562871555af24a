// One request of a trace: the form into which every format is read and from which every format is
// written. What replay consumes.
#pragma once

#include <cstdint>

namespace eplog {

enum class TraceOp : uint8_t { kRead, kWrite, kFlush, kTrim };
inline constexpr int kTraceOps = 4;

[[nodiscard]] const char* TraceOpName(TraceOp op);  // "read", ...

struct TraceRequest {
  uint64_t time_us = 0;  // since the first request of the trace; never less than its predecessor's
  uint64_t offset_bytes = 0;  // within the volume; 0 for a flush
  uint64_t length_bytes = 0;  // at least 1, but 0 for a flush
  uint32_t volume = 0;        // an index of TraceSource::volumes()
  TraceOp op = TraceOp::kRead;
  bool fua = false;  // a write that is durable when it is acknowledged

  bool operator==(const TraceRequest&) const = default;
  [[nodiscard]] uint64_t end_bytes() const { return offset_bytes + length_bytes; }
};

// What formats count in that count in sectors.
inline constexpr uint64_t kSectorBytesOfTraces = 512;

// No sane request reaches beyond 1 EiB, or reads or writes more than 1 GiB at once (a trim may).
inline constexpr uint64_t kMaxTraceOffsetBytes = uint64_t{1} << 60;
inline constexpr uint64_t kMaxTraceRequestBytes = uint64_t{1} << 30;
inline constexpr uint32_t kMaxTraceVolumes = 4096;
// 570 years, also as nanoseconds in 64 bits: what clocks of any kind stay below.
inline constexpr uint64_t kMaxTraceTimeUs = uint64_t{1} << 54;

}  // namespace eplog
