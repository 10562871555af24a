#include "base/crc32c.h"

#include <isa-l.h>

#include <algorithm>

#include "base/vector_unit.h"

namespace eplog {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  // ISA-L takes a mutable pointer and an int length, and neither writes nor inverts.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  size_t left = bytes.size();
  uint32_t state = ~seed;
  while (left != 0) {
    const size_t part = std::min(left, kMostAtOnce);
    state = crc32_iscsi(data, static_cast<int>(part), state);
    data += part;
    left -= part;
  }
  ReleaseVectorUnit();
  return ~state;
}

}  // namespace eplog
