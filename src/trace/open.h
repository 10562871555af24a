// Opening a trace or a profile by the name that a person gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "eplog/result.h"
#include "trace/format.h"
#include "trace/source.h"

namespace eplog {

struct TraceOptions {
  TraceFormat format = TraceFormat::kDetect;
  ColumnLayout columns;        // for kColumns
  char blkparse_action = 'Q';  // the action that stands for a request
  // The run stops when more than this part of all records is bad. (The first thousand count as a
  // thousand, so that one bad line at the top is not yet half of the file.)
  uint64_t max_bad_per_million = 10'000;
  // Take records whose time lies before their predecessor's, as if at the same time; else they are
  // bad.
  bool unordered = false;
  // A request that ends beyond this is bad: the size of the volume, where it is known.
  uint64_t end_bytes = kMaxTraceOffsetBytes;
  // Of profiles: instead of the profile's own.
  std::optional<uint64_t> seed;
};

// A trace file, "-" for standard input, a profile's file (*.toml), or the name of a profile that
// the program knows (fin, web, ...). Every message begins with `name`. kNotFound, kIo, kCorrupt,
// kInvalidArgument.
Result<std::unique_ptr<TraceSource>> OpenTrace(const std::string& name,
                                               const TraceOptions& options);

// The bytes of a trace, plain or packed; they must outlive the source. For tests.
Result<std::unique_ptr<TraceSource>> OpenTraceBytes(std::span<const char> bytes,
                                                    const TraceOptions& options);

}  // namespace eplog
