#include "base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace eplog {

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) -> uint32_t {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    };
    const uint32_t lead = byte(i);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xC2 && lead < 0xE0 ? 2
                          : lead >= 0xE0 && lead < 0xF0 ? 3
                          : lead >= 0xF0 && lead < 0xF5 ? 4
                                                        : 0;
    if (length == 0) {
      return false;
    }
    uint32_t code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) {
        return false;
      }
      code = code << 6 | (byte(i + k) & 0x3F);
    }
    const bool longer_than_needed =
        (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (longer_than_needed || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace eplog
