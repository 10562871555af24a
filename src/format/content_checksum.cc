#include "format/content_checksum.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/xxh3.h"

namespace eplog {

ContentChecksum::ContentChecksum(uint32_t format_version, const Uuid& array_uuid)
    : crc32c_(format_version < 2),
      seed_(LoadLe<uint64_t>(reinterpret_cast<const std::byte*>(array_uuid.data()))) {}

uint32_t ContentChecksum::operator()(std::span<const std::byte> content) const {
  return crc32c_ ? Crc32c(content) : static_cast<uint32_t>(Xxh3(content, seed_));
}

}  // namespace eplog
