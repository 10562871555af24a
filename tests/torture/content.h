// What the torture writes: bytes that are a function of (write, place in the volume), so that found
// content tells which writes it came from. Each 512 B sector begins with a tag that names its
// write.
//
// Random bytes are not what the world writes. Three writes in eight carry checksums of their own:
// each block that they cover whole ends in the CRC32C of the rest, as blocks of databases and file
// systems do, and so has the same CRC32C whatever it holds. One in eight writes the same bytes
// everywhere, and one in sixteen zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace eplog::torture {

// Fill `into`, which lies at `offset_bytes` of its volume, with the bytes of write `write_id`; 0
// writes zeros. `own_crcs`: as above, otherwise none carries a checksum.
void FillPattern(uint64_t write_id, uint64_t offset_bytes, bool own_crcs,
                 std::span<std::byte> into);

// For people: the writes that the sectors of `content` name, in order, such as "w12 x5, zero x3".
std::string Describe(std::span<const std::byte> content);

}  // namespace eplog::torture
