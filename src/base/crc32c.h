// CRC32C (Castagnoli), as iSCSI and ext4 use it: initial value and final inversion included, so
// that Crc32c("123456789") == 0xE3069283. Pass a previous result as `seed` to continue over further
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace eplog {

[[nodiscard]] uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

}  // namespace eplog
