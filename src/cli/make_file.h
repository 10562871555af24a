// A file that is to become a device of an array, with a progress bar.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace eplog::cli {

// Written out and durable. `verb` is for the progress bar.
Status MakeMemberFile(std::string_view verb, const std::filesystem::path& path, uint64_t bytes);

}  // namespace eplog::cli
