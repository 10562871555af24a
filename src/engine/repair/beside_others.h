// How much those who read everything, to rebuild or to scrub, ask of the SSDs at once.
#pragma once

#include <cstdint>

namespace eplog {

inline constexpr uint64_t kBytesAtOnce = uint64_t{1} << 20;  // of each SSD, while nobody wants it
inline constexpr uint64_t kBytesBesideOthers = uint64_t{32} << 10;
// A request so long ago counts as work of others.
inline constexpr uint64_t kRecentUs = 100'000;

}  // namespace eplog
