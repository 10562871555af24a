// What is text.
#pragma once

#include <string_view>

namespace eplog {

// Well-formed UTF-8: no byte out of place, no longer form than needed, no surrogates, nothing
// beyond U+10FFFF.
[[nodiscard]] bool IsUtf8(std::string_view text);

}  // namespace eplog
