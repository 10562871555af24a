#include "base/crc32c.h"

#include <isa-l.h>

namespace eplog {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  // ISA-L takes a mutable pointer and an int length, and neither writes nor inverts.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~seed);
}

}  // namespace eplog
