// Line charts as SVG: log or linear axes, labels at the ends of the lines, marked points. Pure:
// from numbers to text. Knows nothing of what is drawn.
#pragma once

#include <string>
#include <vector>

namespace eplog {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartSeries {
  std::string label;
  std::vector<ChartPoint> points;  // in the order of x
  int colour = 0;                  // of the palette (text/palette.h)
  bool reference = false;          // dashed, without dots: what others are compared with
};

struct ChartMark {
  ChartPoint at;
  std::string label;
};

struct ChartAxis {
  std::string label;       // with its unit
  bool log = false;        // values must be above 0
  bool from_zero = false;  // where differences would look larger than they are
};

struct ChartPanel {
  std::string title;
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks;
};

struct Chart {
  std::string title;
  std::string subtitle;
  std::vector<ChartPanel> panels;  // side by side; at least one
  std::vector<std::string> notes;  // below
};

// Values that cannot be drawn (not finite; on a log axis not above 0) are left out.
[[nodiscard]] std::string RenderSvg(const Chart& chart);

// Where ticks with labels stand between `low` and `high` (low < high; both above 0 if `log`).
[[nodiscard]] std::vector<double> ChartTicks(double low, double high, bool log);
// "0.25", "1,000", "10⁶"
[[nodiscard]] std::string ChartNumber(double value);

}  // namespace eplog
