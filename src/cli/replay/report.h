// What a replay found, as a document and as a table.
#pragma once

#include <string>
#include <vector>

#include "replay/result.h"
#include "replay/settings.h"
#include "report/json.h"

namespace eplog::cli {

Json ReplayToJson(const ReplayResult& result, const ReplaySettings& settings);
std::string ReplayTable(const ReplayResult& result, const ReplaySettings& settings);

}  // namespace eplog::cli
