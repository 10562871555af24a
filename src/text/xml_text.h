// Text as it may stand in XML, which SVG pictures are.
#pragma once

#include <string>
#include <string_view>

namespace eplog {

// Between tags and in quoted attributes. Control characters, which XML cannot say, become '?'.
inline std::string XmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

}  // namespace eplog
