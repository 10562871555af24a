// Fuzz targets of the trace room: what people bring along. See targets.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/targets.h"

namespace eplog::fuzz {

// A trace of any format; a first control byte chooses format and strictness.
Outcome RunTrace(std::span<const std::byte> in);
std::vector<std::byte> SeedTrace(uint64_t seed);

// A column text: its layout in the first line, then the text.
Outcome RunColumns(std::span<const std::byte> in);
std::vector<std::byte> SeedColumns(uint64_t seed);

// A packed trace: gzip, xz, zstd.
Outcome RunPackedTrace(std::span<const std::byte> in);
std::vector<std::byte> SeedPackedTrace(uint64_t seed);

// A profile, and the first requests that come out of it.
Outcome RunProfile(std::span<const std::byte> in);
std::vector<std::byte> SeedProfile(uint64_t seed);

}  // namespace eplog::fuzz
