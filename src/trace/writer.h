// From requests to bytes: every format that is read is also written.
//
// No format says everything. What cannot be said is left out and counted, never bent: a flush or
// trim where there is none, FUA, times. Where a format counts in sectors of 512 bytes, requests are
// widened to whole sectors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "trace/format.h"
#include "trace/request.h"

namespace eplog {

struct WriteReport {
  uint64_t requests = 0;  // written
  uint64_t dropped = 0;   // flushes and trims for which the format has no words
  uint64_t fua_lost = 0;  // written as ordinary writes
  uint64_t widened = 0;   // to whole sectors
};

class TraceWriter {
 public:
  virtual ~TraceWriter() = default;
  // Append the bytes of `request` to `out`. Times must not fall. `volumes` names the disks so far.
  // kInvalidArgument for a second volume where the format has no volumes.
  virtual Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
                     std::string& out) = 0;
  // What belongs at the end.
  virtual void End(std::string& /*out*/) {}
  [[nodiscard]] const WriteReport& report() const { return report_; }

 protected:
  // Widens to sectors; counts.
  TraceRequest ToSectors(TraceRequest request);
  WriteReport report_;
};

// `layout` is for kColumns; without it time_us,disk,offset,size,op. Not for kDetect.
std::unique_ptr<TraceWriter> MakeTraceWriter(TraceFormat format, const ColumnLayout& layout);

// The layout that MakeTraceWriter takes by default.
ColumnLayout DefaultColumns();

}  // namespace eplog
