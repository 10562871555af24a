#include "text/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "text/palette.h"
#include "text/svg.h"
#include "text/words.h"

namespace eplog {
namespace {

constexpr double kPanelWidth = 620;  // of several side by side
constexpr double kLonePanelWidth = 860;
constexpr double kPlotHeight = 400;
constexpr double kLeft = 84;         // tick labels and the axis label
constexpr double kTop = 96;          // titles
constexpr double kTopUntitled = 70;  // where panels have none
constexpr double kBottom = 64;
constexpr double kNoteHeight = 19;
constexpr double kLetter = 6.9;  // mean width at the size of the labels
constexpr double kLabelHeight = 15;
constexpr const char* kFont = "DejaVu Sans, Helvetica, Arial, sans-serif";

bool Drawable(const ChartPanel& panel, const ChartPoint& p) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!panel.x.log || p.x > 0) &&
         (!panel.y.log || p.y > 0);
}

const char* ColourOf(const ChartSeries& series) {
  return PaletteColour(series.colour);
}

// One direction of a panel: from values to places.
class Scale {
 public:
  Scale(bool log, double from, double to) : log_(log), from_(from), to_(to) {}

  void Include(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  // Lets go of the edges a little; on a y axis the lines then touch no frame.
  void Finish(double margin) {
    if (low_ > high_) {
      low_ = high_ = 1;
    }
    if (low_ == high_) {
      const double room = low_ == 0 ? 1 : std::abs(low_) / 2;
      low_ -= room;
      high_ += room;
    }
    if (log_) {
      const double room = std::pow(high_ / low_, margin);
      low_ /= room;
      high_ *= room;
    } else {
      const double room = (high_ - low_) * margin;
      low_ -= low_ >= 0 && low_ < room ? low_ : room;
      high_ += room;
    }
  }
  [[nodiscard]] double Place(double value) const {
    const double part =
        log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + part * (to_ - from_);
  }
  [[nodiscard]] double low() const { return low_; }
  [[nodiscard]] double high() const { return high_; }

 private:
  bool log_;
  double from_;
  double to_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

double LabelRoom(const ChartPanel& panel) {
  size_t longest = 0;
  for (const ChartSeries& series : panel.series) {
    longest = std::max(longest, series.label.size());
  }
  return 18 + kLetter * static_cast<double>(longest);
}

class PanelDrawing {
 public:
  PanelDrawing(const ChartPanel& panel, double left, double width, double top, Svg& svg)
      : panel_(panel),
        svg_(svg),
        left_(left + kLeft),
        right_(left + width - LabelRoom(panel)),
        top_(top),
        bottom_(top + kPlotHeight),
        x_(panel.x.log, left_, right_),
        y_(panel.y.log, bottom_, top_) {
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& p : series.points) {
        if (Drawable(panel, p)) {
          x_.Include(p.x);
          y_.Include(p.y);
        }
      }
    }
    if (panel.y.from_zero) {
      y_.Include(0);
    }
    x_.Finish(0);
    y_.Finish(0.05);
  }

  void Draw() {
    Text((left_ + right_) / 2, top_ - 14, panel_.title, {15, "middle", "#111111", "bold"});
    Grid();
    for (const ChartSeries& series : panel_.series) {
      Line(series);
    }
    for (const ChartMark& mark : panel_.marks) {
      Mark(mark);
    }
    EndLabels();
  }

 private:
  struct TextStyle {
    int size = 13;
    const char* anchor = "middle";
    const char* colour = "#333333";
    const char* weight = "normal";
  };
  void Text(double x, double y, std::string_view text, const TextStyle& style) {
    svg_.Text(x, y, text,
              fmt::format("font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\" font-weight=\"{}\"",
                          style.size, style.anchor, style.colour, style.weight));
  }
  void Stroke(double x1, double y1, double x2, double y2, const char* colour, double width) {
    svg_.Line(x1, y1, x2, y2, {colour, width});
  }

  // Fainter lines between the labelled ones of a log axis.
  template <typename Draw>
  static void EachMinor(const Scale& scale, const Draw& draw) {
    const double decades = std::log10(scale.high() / scale.low());
    if (decades > 12) {
      return;
    }
    const auto first = static_cast<int>(std::floor(std::log10(scale.low())));
    const auto last = static_cast<int>(std::floor(std::log10(scale.high())));
    for (int decade = first; decade <= last; ++decade) {
      for (int digit = 2; digit < 10; ++digit) {
        const double value = digit * std::pow(10.0, decade);
        if (value > scale.low() && value < scale.high()) {
          draw(value);
        }
      }
    }
  }

  void Grid() {
    svg_.Rect(left_, top_, right_ - left_, bottom_ - top_, "fill=\"#fcfcfc\"");
    if (panel_.y.log) {
      EachMinor(y_,
                [&](double v) { Stroke(left_, y_.Place(v), right_, y_.Place(v), "#efefef", 1); });
    }
    if (panel_.x.log) {
      EachMinor(x_,
                [&](double v) { Stroke(x_.Place(v), top_, x_.Place(v), bottom_, "#efefef", 1); });
    }
    for (const double v : ChartTicks(y_.low(), y_.high(), panel_.y.log)) {
      Stroke(left_, y_.Place(v), right_, y_.Place(v), "#d9d9d9", 1);
      Text(left_ - 8, y_.Place(v) + 4.5, ChartNumber(v), {.anchor = "end"});
    }
    for (const double v : ChartTicks(x_.low(), x_.high(), panel_.x.log)) {
      Stroke(x_.Place(v), top_, x_.Place(v), bottom_, "#e6e6e6", 1);
      Stroke(x_.Place(v), bottom_, x_.Place(v), bottom_ + 5, "#888888", 1);
      Text(x_.Place(v), bottom_ + 20, ChartNumber(v), {});
    }
    Stroke(left_, bottom_, right_, bottom_, "#888888", 1.2);
    Stroke(left_, top_, left_, bottom_, "#888888", 1.2);
    Text((left_ + right_) / 2, bottom_ + 44, panel_.x.label, {});
    const double x = left_ - kLeft + 18;
    const double y = (top_ + bottom_) / 2;
    svg_.Text(x, y, panel_.y.label,
              fmt::format("font-size=\"13\" text-anchor=\"middle\" fill=\"#333333\" "
                          "transform=\"rotate(-90 {:.1f} {:.1f})\"",
                          x, y));
  }

  void Line(const ChartSeries& series) {
    SvgPath path;
    for (const ChartPoint& p : series.points) {
      if (Drawable(panel_, p)) {
        path.To(x_.Place(p.x), y_.Place(p.y));
      } else {
        path.Lift();
      }
    }
    svg_.Path(path,
              fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" "
                          "stroke-linejoin=\"round\"{}",
                          ColourOf(series), series.reference ? " stroke-dasharray=\"7 5\"" : ""),
              series.label);
    if (series.points.size() > 25 || series.reference) {
      return;
    }
    for (const ChartPoint& p : series.points) {
      if (Drawable(panel_, p)) {
        svg_.Circle(x_.Place(p.x), y_.Place(p.y), 3.2,
                    fmt::format("fill=\"{}\"", ColourOf(series)));
      }
    }
  }

  void Mark(const ChartMark& mark) {
    if (!Drawable(panel_, mark.at) || mark.at.x < x_.low() || mark.at.x > x_.high()) {
      return;
    }
    const double x = x_.Place(mark.at.x);
    const double y = y_.Place(mark.at.y);
    svg_.Circle(x, y, 6, "fill=\"none\" stroke=\"#111111\" stroke-width=\"1.5\"");
    // Above its point where there is room to the right, else to the left of it; below if another
    // one is in the way.
    const double width = kLetter * static_cast<double>(mark.label.size());
    const bool left = x + width > right_;
    const double from = left ? x - 8 - width : x + 8;
    double baseline = y - 9;
    for (const auto& [other_from, other_to, other_baseline] : mark_labels_) {
      if (from < other_to && from + width > other_from &&
          std::abs(baseline - other_baseline) < kLabelHeight) {
        baseline = y + 20;
      }
    }
    mark_labels_.push_back({from, from + width, baseline});
    // A white edge keeps it readable on lines.
    svg_.Text(left ? x - 8 : x + 8, baseline, mark.label,
              fmt::format("font-size=\"12.5\" text-anchor=\"{}\" fill=\"#111111\" "
                          "stroke=\"#fcfcfc\" stroke-width=\"4\" paint-order=\"stroke\" "
                          "stroke-linejoin=\"round\"",
                          left ? "end" : "start"));
  }

  // At the end of each line, pushed apart where lines end close to each other.
  void EndLabels() {
    struct Label {
      const ChartSeries* series;
      double line_y;
      double y;
    };
    std::vector<Label> labels;
    for (const ChartSeries& series : panel_.series) {
      for (auto p = series.points.rbegin(); p != series.points.rend(); ++p) {
        if (Drawable(panel_, *p)) {
          labels.push_back({&series, y_.Place(p->y), y_.Place(p->y)});
          break;
        }
      }
    }
    std::sort(labels.begin(), labels.end(),
              [](const Label& a, const Label& b) { return a.line_y < b.line_y; });
    for (int round = 0; round < 200; ++round) {
      for (size_t i = 1; i < labels.size(); ++i) {
        const double overlap = labels[i - 1].y + kLabelHeight - labels[i].y;
        if (overlap > 0.01) {
          labels[i - 1].y -= overlap / 2;
          labels[i].y += overlap / 2;
        }
      }
    }
    for (const Label& label : labels) {
      if (std::abs(label.y - label.line_y) > 2) {
        Stroke(right_ + 1, label.line_y, right_ + 9, label.y, ColourOf(*label.series), 0.8);
      }
      Text(right_ + 11, label.y + 4.5, label.series->label,
           {.anchor = "start", .colour = ColourOf(*label.series)});
    }
  }

  const ChartPanel& panel_;
  Svg& svg_;
  double left_;
  double right_;
  double top_;
  double bottom_;
  Scale x_;
  Scale y_;
  std::vector<std::array<double, 3>> mark_labels_;  // from, to, baseline
};

std::string Superscript(int number) {
  constexpr std::array<const char*, 10> kDigits = {"⁰", "¹", "²", "³", "⁴",
                                                   "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (const char c : std::to_string(number)) {
    out += c == '-' ? "⁻" : kDigits[static_cast<size_t>(c - '0')];
  }
  return out;
}

}  // namespace

std::vector<double> ChartTicks(double low, double high, bool log) {
  std::vector<double> ticks;
  if (log) {
    const double decades = std::log10(high / low);
    const int stride = std::max(1, static_cast<int>(std::ceil(decades / 10)));
    const auto first = static_cast<int>(std::floor(std::log10(low)));
    const auto last = static_cast<int>(std::ceil(std::log10(high)));
    for (int decade = first; decade <= last; ++decade) {
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10.0, decade);
        const bool wanted = digit == 1 ? decade % stride == 0 : decades < 2.5;
        if (wanted && value >= low * (1 - 1e-12) && value <= high * (1 + 1e-12)) {
          ticks.push_back(value);
        }
      }
    }
    if (ticks.size() > 1) {
      return ticks;
    }
    ticks.clear();  // less than an octave: as if linear
  }
  const double rough = (high - low) / 10;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power <= 1   ? 1
                               : rough / power <= 2 ? 2
                               : rough / power <= 5 ? 5
                                                    : 10);
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; (first + i) * step <= high + step * 1e-9; ++i) {
    ticks.push_back((first + i) * step);
  }
  return ticks;
}

std::string ChartNumber(double value) {
  if (value == 0) {
    return "0";
  }
  const double size = std::abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-12));
    const double head = value / std::pow(10.0, exponent);
    const std::string power = "10" + Superscript(exponent);
    return std::abs(head - 1) < 1e-9 ? power : fmt::format("{:.4g}·{}", head, power);
  }
  return WithCommas(fmt::format("{:.6g}", value));
}

std::string RenderSvg(const Chart& chart) {
  const double panel_width = chart.panels.size() == 1 ? kLonePanelWidth : kPanelWidth;
  const double width = panel_width * static_cast<double>(chart.panels.size());
  const bool titled = std::any_of(chart.panels.begin(), chart.panels.end(),
                                  [](const ChartPanel& panel) { return !panel.title.empty(); });
  const double top = titled ? kTop : kTopUntitled;
  const double notes = top + kPlotHeight + kBottom;
  const double height = notes + kNoteHeight * static_cast<double>(chart.notes.size()) + 10;
  Svg svg(width, height, kFont, "white");
  const auto line = [&](double y, int size, const char* weight, const std::string& text) {
    svg.Text(20, y, text,
             fmt::format("font-size=\"{}\" font-weight=\"{}\" fill=\"#222222\"", size, weight));
  };
  line(28, 19, "bold", chart.title);
  line(50, 13, "normal", chart.subtitle);
  double left = 0;
  for (const ChartPanel& panel : chart.panels) {
    PanelDrawing(panel, left, panel_width, top, svg).Draw();
    left += panel_width;
  }
  for (size_t i = 0; i < chart.notes.size(); ++i) {
    line(notes + kNoteHeight * static_cast<double>(i) + 4, 13, "normal", chart.notes[i]);
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + std::move(svg).Finish();
}

}  // namespace eplog
