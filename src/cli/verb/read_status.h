// The status of an array, from the process that serves it or, unmounted, from its disks.
#pragma once

#include <string_view>

#include "eplog/result.h"
#include "host/array_file.h"
#include "report/json.h"

namespace eplog::cli {

// The document of `eplog status --json`. `verb` is for warnings about missing members.
Result<Json> ReadStatus(std::string_view verb, const ArrayFile& file);

// The document of `eplog status --lost --json`.
Result<Json> ReadLost(std::string_view verb, const ArrayFile& file);

}  // namespace eplog::cli
