// Fuzz targets: one for every decoder of the on-disk format, and for what reads traces. Each takes
// any bytes at all, decodes them, and stops the program if the decoder accepted what it must not,
// or if what it accepted does not come back from its encoder.
//
// Bytes are tried as they are and with their CRCs put right, so that the parsers behind the CRCs
// are reached. Targets that need a geometry, or have a choice of what to mend, take it from a first
// control byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace eplog::fuzz {

enum class Outcome : uint8_t { kAccepted, kNotFound, kCorrupt, kUnsupported };
inline constexpr int kOutcomes = 4;

struct Target {
  const char* name;
  const char* corpus;  // its folder
  // What became of the mended bytes.
  Outcome (*run)(std::span<const std::byte> bytes);
  // A valid input, another for every seed.
  std::vector<std::byte> (*make_seed)(uint64_t seed);
};

// All but the canary, a target that stops the program at an input that mutations of valid entries
// must find: proof that failures would be found and reported.
std::span<const Target> Targets();
const Target* FindTarget(const std::string& name);

}  // namespace eplog::fuzz
