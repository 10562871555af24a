// A trace at a glance: one SVG drawing with the sizes of requests, how the footprint grows, how
// much a buffer of a given size would absorb, and where writes go over time.
#pragma once

#include <string>

#include "trace/statistics.h"

namespace eplog {

[[nodiscard]] std::string TracePicture(const TraceSummary& summary, const std::string& title);

}  // namespace eplog
