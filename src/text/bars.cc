#include "text/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "text/palette.h"
#include "text/svg.h"

namespace eplog {
namespace {

constexpr double kWidth = 1100;
constexpr double kNamesWidth = 100;  // names
constexpr double kRight = 130;       // sums
constexpr double kLegendHeight = 34;
constexpr double kRow = 32;
constexpr double kThick = 22;
constexpr double kBarLetter = 7.2;  // mean width at the size of the labels
constexpr const char* kText = "font-size=\"14\" fill=\"#1a1a1a\"";

double Sum(const Bar& bar) {
  return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0,
                         [](double sum, const BarPart& part) { return sum + part.value; });
}

std::string Fill(const BarPart& part) {
  return fmt::format("fill=\"{}\"", PaletteColour(part.colour));
}

void Legend(const std::vector<BarPart>& parts, Svg& svg) {
  double x = kNamesWidth;
  for (const BarPart& part : parts) {
    svg.Rect(x, 6, 13, 13, Fill(part));
    svg.Text(x + 19, 17.5, part.label, kText);
    x += 44 + kBarLetter * static_cast<double>(part.label.size());
  }
}

void Draw(const Bar& bar, double top, double pixels_each, Svg& svg) {
  const double baseline = top + kThick / 2 + 5;
  svg.Text(0, baseline, bar.name, kText);
  double x = kNamesWidth;
  for (const BarPart& part : bar.parts) {
    const double width = part.value * pixels_each;
    if (width > 0) {
      svg.Rect(x, top, width, kThick, Fill(part), part.label);
      x += width;
    }
  }
  svg.Text(kWidth - kRight + 10, baseline, bar.sum, kText);
}

}  // namespace

std::string RenderBars(const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) {
    most = std::max(most, Sum(bar));
  }
  Svg svg(kWidth, kLegendHeight + kRow * static_cast<double>(bars.size()),
          "DejaVu Sans, Helvetica, Arial, sans-serif", "white");
  if (!bars.empty()) {
    Legend(bars.front().parts, svg);
  }
  const double pixels_each = most > 0 ? (kWidth - kNamesWidth - kRight) / most : 0;
  double top = kLegendHeight;
  for (const Bar& bar : bars) {
    Draw(bar, top, pixels_each, svg);
    top += kRow;
  }
  return std::move(svg).Finish();
}

}  // namespace eplog
