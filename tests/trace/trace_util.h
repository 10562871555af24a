// Reading whole traces in tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trace/open.h"
#include "trace/statistics.h"

namespace eplog::trace_test {

struct Whole {
  std::vector<TraceRequest> requests;
  std::vector<std::string> volumes;
  TraceReport report;
  std::string format;
  Status status;  // of the last read
};

inline Whole ReadAll(TraceSource& source) {
  Whole out;
  std::vector<TraceRequest> batch(7);  // odd, so that batches end anywhere
  for (;;) {
    auto count = source.Read(batch);
    if (!count.ok()) {
      out.status = Fail(count.error());
      break;
    }
    if (*count == 0) {
      break;
    }
    out.requests.insert(out.requests.end(), batch.begin(),
                        batch.begin() + static_cast<std::ptrdiff_t>(*count));
  }
  out.volumes = source.volumes();
  out.report = source.report();
  out.format = source.format();
  return out;
}

// Of bytes; a refusal to open is the status.
inline Whole ReadBytes(std::string_view bytes, const TraceOptions& options = {}) {
  auto source = OpenTraceBytes(bytes, options);
  if (!source.ok()) {
    Whole out;
    out.status = Fail(source.error());
    return out;
  }
  return ReadAll(**source);
}

inline TraceRequest Request(uint64_t time_us, TraceOp op, uint64_t offset, uint64_t length,
                            uint32_t volume = 0, bool fua = false) {
  TraceRequest request;
  request.time_us = time_us;
  request.op = op;
  request.offset_bytes = offset;
  request.length_bytes = length;
  request.volume = volume;
  request.fua = fua;
  return request;
}

// Where the public traces lie: EPLOG_TRACES, or beside the repository.
inline std::filesystem::path TraceDirectory() {
  const char* const named = std::getenv("EPLOG_TRACES");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(EPLOG_SOURCE_DIR) / "../shared/traces";
}

}  // namespace eplog::trace_test
