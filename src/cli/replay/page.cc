#include "cli/replay/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cli/replay/report.h"
#include "report/status_json.h"
#include "text/bars.h"
#include "text/chart.h"
#include "text/palette.h"
#include "text/xml_text.h"

namespace eplog::cli {
namespace {

constexpr double kMicro = 1e6;
constexpr double kMib = 1 << 20;

// Of the palette: each policy has its colour, and each kind of bytes another one. What headers are
// on log devices metadata is on SSDs.
enum BytesColour : int { kData = kPolicies, kParity, kMetadata, kLogChunks, kColours };
static_assert(kColours <= static_cast<int>(kPalette.size()), "one colour, one meaning");

constexpr char kStyle[] = R"css(
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.2em; margin: 2em 0 .4em; }
.lead { color: #555; margin-top: .2em; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; } td, th { padding: .25em .9em; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
)css";

std::string Name(const PolicyResult& result) {
  return PolicyName(result.policy);
}

int ColourOf(const PolicyResult& result) {
  return static_cast<int>(result.policy);
}

std::string TrafficBars(const ReplayResult& result) {
  std::vector<Bar> bars;
  for (const PolicyResult& p : result.policies) {
    const Traffic& t = p.traffic;
    bars.push_back({Name(p),
                    HumanBytes(p.ssd_bytes()),
                    {{"data", static_cast<double>(t.ssd_data_bytes), kData},
                     {"parity", static_cast<double>(t.ssd_parity_bytes), kParity},
                     {"metadata", static_cast<double>(t.ssd_metadata_bytes), kMetadata}}});
  }
  return RenderBars(bars);
}

std::string LogBars(const ReplayResult& result) {
  std::vector<Bar> bars;
  for (const PolicyResult& p : result.policies) {
    const Traffic& t = p.traffic;
    bars.push_back({Name(p),
                    HumanBytes(t.log_chunk_bytes + t.log_header_bytes),
                    {{"log chunks", static_cast<double>(t.log_chunk_bytes), kLogChunks},
                     {"headers", static_cast<double>(t.log_header_bytes), kMetadata}}});
  }
  return RenderBars(bars);
}

// Each SSD's share, from the least to the most written.
ChartPanel SkewPanel(const ReplayResult& result) {
  ChartPanel panel;
  panel.title = "Written to each SSD";
  panel.x.label = "SSD";
  panel.y = {.label = "MiB", .from_zero = true};
  for (const PolicyResult& p : result.policies) {
    ChartSeries series;
    series.label = Name(p);
    series.colour = ColourOf(p);
    for (size_t i = 0; i < p.ssds.size(); ++i) {
      series.points.push_back(
          {static_cast<double>(i), static_cast<double>(p.ssds[i].bytes_written) / kMib});
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

ChartPanel LatencyPanel(const ReplayResult& result, const std::string& title,
                        const Histogram PolicyResult::*latency) {
  ChartPanel panel;
  panel.title = title;
  panel.x = {.label = "microseconds", .log = true};
  panel.y.label = "share of requests that took no longer";
  for (const PolicyResult& p : result.policies) {
    const Histogram& histogram = p.*latency;
    ChartSeries series;
    series.label = Name(p);
    series.colour = ColourOf(p);
    for (const auto& [value, below] : histogram.Cumulative()) {
      series.points.push_back(
          {static_cast<double>(std::max<uint64_t>(value, 1)),
           static_cast<double>(below) / static_cast<double>(histogram.count())});
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

enum class Curve { kRequests, kPending, kWritten };

ChartPanel OverRequests(const ReplayResult& result, Curve curve, const std::string& title,
                        const std::string& unit) {
  constexpr size_t kPoints = 128;  // a curve that eyes can follow
  ChartPanel panel;
  panel.title = title;
  panel.x.label = "requests so far";
  panel.y.label = unit;
  for (const PolicyResult& p : result.policies) {
    ChartSeries series;
    series.label = Name(p);
    series.colour = ColourOf(p);
    const size_t step = std::max<size_t>(1, p.samples.size() / kPoints);
    for (size_t i = step; i < p.samples.size(); i += step) {
      const ReplaySample& now = p.samples[i];
      const ReplaySample& then = p.samples[i - step];
      const auto requests = static_cast<double>(now.requests - then.requests);
      const auto us = static_cast<double>(now.at_us - then.at_us);
      const double y = curve == Curve::kRequests  ? us == 0 ? 0 : requests * kMicro / us
                       : curve == Curve::kPending ? static_cast<double>(now.pending_bytes) / kMib
                                                  : static_cast<double>(now.ssd_bytes) / kMib;
      series.points.push_back({static_cast<double>(now.requests), y});
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

ChartPanel WearPanel(const ReplayResult& result) {
  ChartPanel panel;
  panel.title = "Erases of a block: most, and mean (dashed)";
  panel.x.label = "SSD";
  panel.y.label = "erases";
  for (const PolicyResult& p : result.policies) {
    ChartSeries most;
    most.label = Name(p);
    most.colour = ColourOf(p);
    ChartSeries mean = most;
    mean.label = "";
    mean.reference = true;
    for (size_t i = 0; i < p.wear.size(); ++i) {
      most.points.push_back({static_cast<double>(i), static_cast<double>(p.wear[i].most)});
      mean.points.push_back({static_cast<double>(i), p.wear[i].mean});
    }
    panel.series.push_back(std::move(most));
    panel.series.push_back(std::move(mean));
  }
  return panel;
}

std::string Section(const std::string& title, const std::string& about, const std::string& body) {
  return fmt::format("<h2>{}</h2>\n<p class=lead>{}</p>\n{}\n", XmlText(title), XmlText(about),
                     body);
}

std::string Draw(std::vector<ChartPanel> panels) {
  Chart chart;
  chart.panels = std::move(panels);
  return RenderSvg(chart);
}

}  // namespace

std::string ReplayPage(const ReplayResult& result, const ReplaySettings& settings) {
  const std::string name = fmt::format("{}", fmt::join(settings.traces, ", "));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Replay of {0}</title>"
      "<style>{1}</style></head><body>\n<h1>Replay of {0}</h1>\n<pre>{2}</pre>\n",
      XmlText(name), kStyle, XmlText(ReplayTable(result, settings)));
  page += Section("Written to the SSDs", "By what it was for. What is written wears the flash out.",
                  TrafficBars(result));
  page += Section("Written to the log devices", "Sequentially, so that hard disks can take it.",
                  LogBars(result));
  page += Section("Skew and growth", "An array lives as long as the SSD that is written most.",
                  Draw({SkewPanel(result),
                        OverRequests(result, Curve::kWritten, "Written to all SSDs", "MiB")}));
  if (HasTimes(settings.devices)) {
    page += Section("Latency",
                    settings.devices == DeviceKind::kSimulated
                        ? "How long requests took, on the clock of the simulated drives."
                        : "How long requests took.",
                    Draw({LatencyPanel(result, "Reads", &PolicyResult::read_latency_us),
                          LatencyPanel(result, "Writes", &PolicyResult::write_latency_us)}));
    page += Section(
        "Over time", "How fast it went, and how much data only the log devices protected.",
        Draw({OverRequests(result, Curve::kRequests, "Requests a second", "1/s"),
              OverRequests(result, Curve::kPending, "Exposure: parity not committed yet", "MiB")}));
    if (settings.devices == DeviceKind::kSimulated) {
      page += Section("Wear", "Of the simulated flash, since the replay began.",
                      Draw({WearPanel(result)}));
    }
  } else {
    page +=
        Section("Exposure", "How much data only the log devices protected.",
                Draw({OverRequests(result, Curve::kPending, "Parity not committed yet", "MiB")}));
  }
  return page + "</body></html>\n";
}

}  // namespace eplog::cli
