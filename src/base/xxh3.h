// XXH3 (64 bits) of the xxHash library: a hash of bytes, by no means linear, so that bytes that
// carry a checksum of their own hash like any others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace eplog {

[[nodiscard]] uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace eplog
