// How far a scrub has come, in a file beside array.toml, so that the next one goes on there if it
// was cut short. A file that cannot be read or written costs only that.
#pragma once

#include <filesystem>

#include "cli/array_file.h"
#include "eplog/options.h"

namespace eplog::cli {

std::filesystem::path ScrubMarkPath(const ArrayFile& file);
ScrubMarkKeeper KeepScrubMark(const ArrayFile& file);
// The next scrub begins at the beginning.
void ForgetScrubMark(const ArrayFile& file);

}  // namespace eplog::cli
