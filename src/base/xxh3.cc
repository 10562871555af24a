#include "base/xxh3.h"

#include <xxhash.h>

namespace eplog {

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace eplog
