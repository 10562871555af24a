// The colours of every picture: those of Okabe and Ito, which colour-blind people can tell apart,
// the light ones darker, and two more.
#pragma once

#include <array>
#include <cstddef>

namespace eplog {

inline constexpr std::array<const char*, 8> kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                        "#b58900", "#56b4e9", "#7a4fbf", "#6b3e1d"};

// Wraps; -1: grey.
constexpr const char* PaletteColour(int number) {
  return number < 0 ? "#555555" : kPalette[static_cast<size_t>(number) % kPalette.size()];
}

}  // namespace eplog
