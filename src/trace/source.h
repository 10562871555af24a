// Where requests come from: a trace file of any format, or a profile's generator.
//
//   auto source = OpenTrace("fin1.trace.xz", options);
//   std::vector<TraceRequest> batch(1024);
//   for (;;) {
//     const auto count = (*source)->Read(batch);   // 0: the end
//     ...
//   }
//
// A source streams: its memory does not grow with the trace (but for the names of volumes, of which
// there are at most kMaxTraceVolumes). One thread owns it. The same file and options, or the same
// profile and seed, give the same requests, bit for bit, on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "trace/request.h"

namespace eplog {

// A record that made no sense. Numbers count from 1: lines of a text, records of a binary file.
struct BadRecord {
  uint64_t number = 0;
  std::string reason;
};

// What was read so far.
struct TraceReport {
  uint64_t records = 0;    // lines or records that should have been requests, bad ones included
  uint64_t requests = 0;   // given out
  uint64_t bad = 0;        // left out because they make no sense
  uint64_t other = 0;      // left out because they are no reads, writes, flushes or trims
  uint64_t unordered = 0;  // taken although their time lies before their predecessor's
  std::vector<BadRecord> first_bad;  // at most kMaxBadKept
};
inline constexpr size_t kMaxBadKept = 5;

class TraceSource {
 public:
  virtual ~TraceSource() = default;

  // Fills `out` from the front; returns how many, 0 only at the end. An error ends the source:
  // kCorrupt (the file is damaged, is no trace, or holds too many bad records; the message names
  // file, place and mend), kIo.
  virtual Result<size_t> Read(std::span<TraceRequest> out) = 0;

  // Disks of the trace in order of their first appearance; grows while reading.
  [[nodiscard]] virtual const std::vector<std::string>& volumes() const = 0;
  [[nodiscard]] virtual const TraceReport& report() const = 0;
  // "msr", "profile", ...
  [[nodiscard]] virtual std::string format() const = 0;
  // False where the format has no times: all are 0.
  [[nodiscard]] virtual bool has_times() const = 0;
  // Bytes from 0 that the requests stay in, where that is known before reading: of profiles.
  [[nodiscard]] virtual std::optional<uint64_t> working_set_bytes() const { return std::nullopt; }
  // Requests to come in all, or bytes of the file, for a progress bar: {done, total}; total 0 where
  // it is unknown.
  struct Progress {
    uint64_t done = 0;
    uint64_t total = 0;
  };
  [[nodiscard]] virtual Progress progress() const { return {}; }
};

}  // namespace eplog
