#include "trace/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "text/palette.h"
#include "text/svg.h"

namespace eplog {
namespace {

constexpr double kWidth = 1000;
constexpr double kHeight = 720;
constexpr const char* kReadColour = PaletteColour(0);
constexpr const char* kWriteColour = PaletteColour(1);
constexpr char kInk[] = "#333333";
constexpr char kPale[] = "#e4e4e4";

// 4096 -> "4K"
std::string ShortBytes(double bytes) {
  constexpr std::string_view kUnits = "BKMGTPE";
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", bytes) : fmt::format("{:.3g}{}", bytes, kUnits[unit]);
}

std::string ShortCount(double count) {
  constexpr std::string_view kUnits = " kMGT";
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}{}", count, kUnits[unit]);
}

// One, two or five times a power of ten, so that about four of them make `whole`.
double TickStep(double whole, double base) {
  const double wanted = std::max(whole, 1e-9) / 4;
  const double power = std::pow(base, std::floor(std::log(wanted) / std::log(base)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= wanted) {
      return factor * power;
    }
  }
  return base * power;
}

// How text stands at its place.
constexpr char kFromHere[] = "start";
constexpr char kAround[] = "middle";
constexpr char kUpToHere[] = "end";

std::string Lettering(const char* anchor, int size = 12, const char* weight = "normal") {
  return fmt::format("font-size=\"{}\" font-weight=\"{}\" text-anchor=\"{}\" fill=\"{}\"", size,
                     weight, anchor, kInk);
}

std::string Fill(const char* colour) {
  return fmt::format("fill=\"{}\"", colour);
}

// A drawing area with its place on the sheet; x and y run from 0 to 1, y upwards.
class Panel {
 public:
  Panel(Svg& svg, double left, double top, const char* title) : svg_(svg), left_(left), top_(top) {
    svg_.Text(left_, top_ - 12, title, Lettering(kFromHere, 14, "bold"));
    svg_.Rect(left_, top_, kW, kH, fmt::format("fill=\"#fff\" stroke=\"{}\"", kPale));
  }
  [[nodiscard]] double X(double x) const { return left_ + x * kW; }
  [[nodiscard]] double Y(double y) const { return top_ + (1 - y) * kH; }
  void TickX(double x, const std::string& label) {
    svg_.Text(X(x), top_ + kH + 15, label, Lettering(kAround));
    svg_.Line(X(x), top_ + kH, X(x), top_ + kH + 4, {kInk});
  }
  void TickY(double y, const std::string& label) {
    svg_.Text(left_ - 6, Y(y) + 4, label, Lettering(kUpToHere));
    if (y > 0 && y < 1) {
      svg_.Line(left_, Y(y), left_ + kW, Y(y), {kPale});
    }
  }
  void NameX(const char* name) { svg_.Text(X(0.5), top_ + kH + 32, name, Lettering(kAround)); }
  void Bar(double x, double width, double height, const char* colour) {
    svg_.Rect(X(x), Y(height), width * kW, height * kH, Fill(colour));
  }
  // From this height downwards.
  void Cell(double x, double y, double width, double height, double depth) {
    svg_.Rect(X(x), Y(y), width * kW, height * kH,
              fmt::format("fill=\"{}\" fill-opacity=\"{:.2f}\"", kWriteColour, depth));
  }
  void Curve(const SvgPath& path) {
    svg_.Path(path, fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"", kInk));
  }
  // Across, with what it means above it or, where that has no room, below.
  void Level(double y, const std::string& meaning) {
    svg_.Line(X(0), Y(y), X(1), Y(y), {kWriteColour, 1, "stroke-dasharray=\"4 4\""});
    svg_.Text(X(0.02), Y(y) + (y > 0.9 ? 16 : -6), meaning, Lettering(kFromHere));
  }
  void Legend(double x, const char* colour, const std::string& text) {
    svg_.Rect(X(x), top_ - 22, 10, 10, Fill(colour));
    svg_.Text(X(x) + 15, top_ - 12, text, Lettering(kFromHere));
  }

 private:
  static constexpr double kW = 390;
  static constexpr double kH = 230;

  Svg& svg_;
  double left_;
  double top_;
};

void PercentTicks(Panel& panel) {
  for (int percent = 0; percent <= 100; percent += 25) {
    panel.TickY(percent / 100.0, fmt::format("{}%", percent));
  }
}

// Requests by powers of two, reads and writes side by side.
void DrawSizes(const TraceSummary& summary, Svg& svg) {
  Panel panel(svg, 70, 90, "Sizes of requests");
  constexpr std::array<TraceOp, 2> kOps = {TraceOp::kRead, TraceOp::kWrite};
  std::array<std::array<double, 64>, 2> shares{};
  size_t low = 63;
  size_t high = 0;
  for (size_t i = 0; i < kOps.size(); ++i) {
    const OpSummary& op = summary.ops[static_cast<size_t>(kOps[i])];
    for (const auto& [bytes, count] : op.sizes) {
      const auto bucket = static_cast<size_t>(std::bit_width(std::max<uint64_t>(bytes, 1) - 1));
      shares[i][bucket] += static_cast<double>(count) / static_cast<double>(op.requests);
      low = std::min(low, bucket);
      high = std::max(high, bucket);
    }
  }
  PercentTicks(panel);
  panel.NameX("bytes, at most");
  if (low <= high) {
    const double width = 1.0 / static_cast<double>(high - low + 1);
    for (size_t bucket = low; bucket <= high; ++bucket) {
      const double x = static_cast<double>(bucket - low) * width;
      panel.Bar(x + width * 0.1, width * 0.38, shares[0][bucket], kReadColour);
      panel.Bar(x + width * 0.52, width * 0.38, shares[1][bucket], kWriteColour);
      if (high - low < 12 || (bucket - low) % 2 == 0) {
        panel.TickX(x + width / 2, ShortBytes(std::ldexp(1.0, static_cast<int>(bucket))));
      }
    }
  }
  for (size_t i = 0; i < kOps.size(); ++i) {
    const OpSummary& op = summary.ops[static_cast<size_t>(kOps[i])];
    panel.Legend(
        0.44 + 0.28 * static_cast<double>(i), i == 0 ? kReadColour : kWriteColour,
        fmt::format("{} {}s", ShortCount(static_cast<double>(op.requests)), TraceOpName(kOps[i])));
  }
}

void TicksOfRequests(Panel& panel, double requests) {
  const double step = TickStep(requests, 10);
  for (int tick = 0; tick * step <= requests * 1.0001; ++tick) {
    const double at = tick * step;
    panel.TickX(at / std::max(requests, 1.0), ShortCount(at));
  }
  panel.NameX("requests");
}

void DrawFootprint(const TraceSummary& summary, Svg& svg) {
  Panel panel(svg, 560, 90, "Footprint: what was touched so far");
  const auto requests = static_cast<double>(summary.requests);
  const double most = static_cast<double>(summary.footprint_chunks * summary.chunk_bytes);
  const double step = std::exp2(std::ceil(std::log2(std::max(most / 5, 1.0))));
  const double top = std::max(std::ceil(most * 1.02 / step), 1.0) * step;
  for (int tick = 0; tick * step <= top * 1.0001; ++tick) {
    const double at = tick * step;
    panel.TickY(at / top, ShortBytes(at));
  }
  TicksOfRequests(panel, requests);
  SvgPath line;
  for (const Series::Point& point : summary.footprint_over_requests) {
    line.To(panel.X(static_cast<double>(point.at) / std::max(requests, 1.0)),
            panel.Y(static_cast<double>(point.value * summary.chunk_bytes) / top));
  }
  panel.Curve(line);
}

// The share of touches whose chunk was touched at most so many different chunks ago.
void DrawReuse(const TraceSummary& summary, Svg& svg) {
  Panel panel(svg, 70, 430,
              summary.reuse.exact ? "Reuse: what a buffer would meet"
                                  : "Reuse: what a buffer would meet (sampled)");
  PercentTicks(panel);
  panel.NameX("bytes of different chunks since the last touch, less than");
  size_t buckets = 4;
  for (size_t i = 0; i < ReuseDistances::kBuckets; ++i) {
    buckets = summary.reuse.repeated[i] > 0 ? std::max(buckets, i + 1) : buckets;
  }
  SvgPath line;
  double sum = 0;
  for (size_t i = 0; i < buckets; ++i) {
    sum += summary.reuse.repeated[i];
    const double x = static_cast<double>(i) / static_cast<double>(buckets - 1);
    line.To(panel.X(x), panel.Y(sum));
    if (i % std::max<size_t>(buckets / 7, 1) == 0) {
      panel.TickX(
          x, ShortBytes(std::ldexp(static_cast<double>(summary.chunk_bytes), static_cast<int>(i))));
    }
  }
  panel.Curve(line);
  panel.Level(1 - summary.reuse.first,
              fmt::format("touched before: {:.1f}%", (1 - summary.reuse.first) * 100));
}

void DrawHeat(const TraceSummary& summary, Svg& svg) {
  Panel panel(svg, 560, 430, "Where writes go: darker is more");
  const HeatMap& heat = summary.heat;
  const auto requests = static_cast<double>(summary.requests);
  size_t rows = 1;
  uint64_t most = 1;
  for (size_t column = 0; column < HeatMap::kColumns; ++column) {
    for (size_t row = 0; row < HeatMap::kRows; ++row) {
      rows = heat.At(column, row) != 0 ? std::max(rows, row + 1) : rows;
      most = std::max(most, heat.At(column, row));
    }
  }
  const double width = static_cast<double>(heat.column_requests()) / std::max(requests, 1.0);
  const double height = 1.0 / static_cast<double>(rows);
  for (size_t column = 0; column < HeatMap::kColumns; ++column) {
    for (size_t row = 0; row < rows; ++row) {
      const uint64_t count = heat.At(column, row);
      const double x = static_cast<double>(column) * width;
      if (count == 0 || x >= 1) {
        continue;
      }
      // By the logarithm: a few places take most writes.
      const double depth = 0.12 + 0.88 * std::log(1.0 + static_cast<double>(count)) /
                                      std::log(1.0 + static_cast<double>(most));
      panel.Cell(x, static_cast<double>(row + 1) * height, std::min(width, 1 - x), height, depth);
    }
  }
  const double span = static_cast<double>(rows * heat.row_bytes());
  const double step = std::exp2(std::ceil(std::log2(span / 5)));
  for (int tick = 0; tick * step <= span * 1.0001; ++tick) {
    const double at = tick * step;
    panel.TickY(at / span, ShortBytes(at));
  }
  TicksOfRequests(panel, requests);
}

}  // namespace

std::string TracePicture(const TraceSummary& summary, const std::string& title) {
  Svg svg(kWidth, kHeight, "sans-serif", "#fafafa");
  svg.Text(70, 40, title, Lettering(kFromHere, 18, "bold"));
  DrawSizes(summary, svg);
  DrawFootprint(summary, svg);
  DrawReuse(summary, svg);
  DrawHeat(summary, svg);
  return std::move(svg).Finish();
}

}  // namespace eplog
