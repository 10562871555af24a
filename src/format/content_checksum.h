// The checksum of what data, parity and log chunks hold, as rows, log stripe records and
// checkpoints keep it (P5; docs/format.md, section 1). No I/O here.
//
// Format 1 has CRC32C. That is linear: all blocks that end in a CRC32C of their own, as those of
// databases and file systems do, have one and the same, whatever they hold, and an old one that a
// power cut left in place of a new one passed for it. So format 2 has XXH3, seeded by the array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"

namespace eplog {

class ContentChecksum {
 public:
  ContentChecksum(uint32_t format_version, const Uuid& array_uuid);

  // Of one chunk.
  [[nodiscard]] uint32_t operator()(std::span<const std::byte> content) const;

 private:
  bool crc32c_;
  uint64_t seed_;
};

}  // namespace eplog
