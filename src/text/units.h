// How people type and read sizes, durations and percentages. Pure text; knows nothing of arrays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "eplog/result.h"

namespace eplog {

// "4096", "4K", "4k", "4KiB", "4 KB", "1.5G", "2T": K, M, G, T, P are powers of 1024, with or
// without "B" or "iB". A fraction must come out as whole bytes. kInvalidArgument with a line that
// shows the right form.
Result<uint64_t> ParseSize(std::string_view text);

// "500ms", "30s", "5m", "2h", "1d", "1.5h"; a bare number is seconds. In microseconds.
Result<uint64_t> ParseDuration(std::string_view text);

// "10%" or "10": whole percent.
Result<uint32_t> ParsePercent(std::string_view text);

// Whole UTF-8 characters, none of them a control character: what names may consist of.
bool IsPlainText(std::string_view text);

// As it would be typed, exact: 1073741824 -> "1G", 1536 -> "1536".
std::string TypedSize(uint64_t bytes);

// What arrays with so many parity chunks are called: "RAID-5", "RAID-6", "3 parities".
std::string LevelName(uint32_t parity);

// For people: 0.4 -> "0.4s", 75 -> "1m15s", 7300 -> "2h1m".
std::string HumanSeconds(double seconds);

}  // namespace eplog
