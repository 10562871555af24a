// Stacked bars as SVG, with what each colour means above them. Pure: from numbers to text.
#pragma once

#include <string>
#include <vector>

namespace eplog {

struct BarPart {
  std::string label;
  double value = 0;
  int colour = 0;  // of the palette
};

struct Bar {
  std::string name;  // to its left
  std::string sum;   // to its right
  std::vector<BarPart> parts;
};

// All bars have the same parts, and the longest the whole width.
[[nodiscard]] std::string RenderBars(const std::vector<Bar>& bars);

}  // namespace eplog
