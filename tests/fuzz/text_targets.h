// Fuzz targets of what people and programs say to the command line and to its daemon. See
// targets.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/targets.h"

namespace eplog::fuzz {

// An array.toml.
Outcome RunArrayFile(std::span<const std::byte> in);
std::vector<std::byte> SeedArrayFile(uint64_t seed);

// What a client sends over the control socket; a first control byte says in pieces of which size.
Outcome RunControl(std::span<const std::byte> in);
std::vector<std::byte> SeedControl(uint64_t seed);

// Sizes, durations and percentages, a line each.
Outcome RunUnits(std::span<const std::byte> in);
std::vector<std::byte> SeedUnits(uint64_t seed);

}  // namespace eplog::fuzz
