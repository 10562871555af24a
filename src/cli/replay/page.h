// One self-contained HTML page about a replay: figures and pictures, to be shown to a colleague.
// No script, nothing fetched.
#pragma once

#include <string>

#include "replay/result.h"
#include "replay/settings.h"

namespace eplog::cli {

[[nodiscard]] std::string ReplayPage(const ReplayResult& result, const ReplaySettings& settings);

}  // namespace eplog::cli
