#include "cli/mttdl/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cli/mttdl/report.h"
#include "reliability/solver.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

using reliability::System;

constexpr size_t kMostValues = 10'000;
constexpr size_t kMostRows = 100'000;
constexpr size_t kMostLines = 14;

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

// FROM:TO:STEP with a unit at FROM that goes for all.
Status AddRange(std::string_view text, SweepAxis& axis) {
  const auto parts = Split(text, ':');
  const auto bad = [&](const char* why) {
    return Refuse(fmt::format("--sweep {}: '{}' is no range: {}; write 0.25:2.5:0.25 or 1:1000:x10",
                              axis.name, text, why));
  };
  if (parts.size() != 3) {
    return bad("it needs FROM:TO:STEP");
  }
  const bool factor = parts[2].starts_with('x') || parts[2].starts_with('*');
  const auto from = SplitQuantity(parts[0]);
  const auto to = SplitQuantity(parts[1]);
  const auto step = SplitQuantity(parts[2].substr(factor ? 1 : 0));
  if (!from || !to || !step) {
    return bad("its parts must be numbers");
  }
  for (const auto& other : {*to, *step}) {
    if (!other.unit.empty() && other.unit != from->unit) {
      return bad("its units differ");
    }
  }
  if (to->number < from->number ||
      (factor ? step->number <= 1 || from->number <= 0 : step->number <= 0)) {
    return bad(factor ? "it must rise from above 0 by a factor above 1"
                      : "it must rise by a step above 0");
  }
  const double count =
      factor ? std::floor(std::log(to->number / from->number) / std::log(step->number) + 1e-9)
             : std::floor((to->number - from->number) / step->number + 1e-9);
  if (!(count < kMostValues)) {
    return bad("that is more than 10000 values");
  }
  for (int i = 0; i <= static_cast<int>(count); ++i) {
    const double value =
        factor ? from->number * std::pow(step->number, i) : from->number + i * step->number;
    axis.values.push_back(fmt::format("{:.12g}{}", value, from->unit));
  }
  axis.log = axis.log || factor;
  return OkStatus();
}

// A number with its unit off, where every value has the same unit.
void TakeNumbers(SweepAxis& axis) {
  std::set<std::string> units;
  for (const std::string& value : axis.values) {
    const auto quantity = SplitQuantity(value);
    if (!quantity) {
      axis.numbers.clear();
      return;
    }
    units.insert(quantity->unit);
    axis.numbers.push_back(quantity->number);
  }
  if (units.size() > 1) {
    axis.numbers.clear();
    return;
  }
  const auto [low, high] = std::minmax_element(axis.numbers.begin(), axis.numbers.end());
  axis.log = *low > 0 && (axis.log || *high / *low >= 50);
}

std::string AxisLabel(const std::string& name, const SweepAxis* axis = nullptr) {
  for (const InputKey& key : InputKeys()) {
    if (key.name == name) {
      const auto quantity = axis != nullptr && !axis->values.empty()
                                ? SplitQuantity(axis->values.front())
                                : std::nullopt;
      return fmt::format("{}: {}{}", name, key.help,
                         quantity && !quantity->unit.empty() ? " (" + quantity->unit + ")" : "");
    }
  }
  return name;
}

Result<SweepRow> RunRow(const InputSet& base, const std::vector<SweepAxis>& axes,
                        const std::vector<size_t>& index) {
  SweepRow row;
  InputSet set = base;
  InputSet over;
  for (size_t i = 0; i < axes.size(); ++i) {
    row.at.push_back(axes[i].values[index[i]]);
    row.numbers.push_back(axes[i].numbers.empty() ? 0 : axes[i].numbers[index[i]]);
    EPLOG_TRY(over.Set(axes[i].name, row.at.back(), "--sweep"));
  }
  set.Overlay(over);
  auto inputs = ResolveInputs(set);
  if (!inputs.ok()) {
    return Fail(std::move(inputs).error());
  }
  row.inputs = std::move(*inputs);
  if (!row.inputs.Solvable()) {
    return Refuse(
        "--sweep solves chains; leave out --ages own and staggered and --repair-times "
        "fixed, which are simulated");
  }
  const auto& p = row.inputs.parameters;
  auto eplog = Foresee(System::kEplog, p, row.inputs.years);
  auto conventional = Foresee(System::kConventional, p, row.inputs.years);
  row.eplog_years = eplog.mttdl_years;
  row.conventional_years = conventional.mttdl_years;
  row.eplog_loss = std::move(eplog.loss_probability);
  row.conventional_loss = std::move(conventional.loss_probability);
  return row;
}

// What is the same on a whole line of the picture: all but the first axis.
std::string LineName(const Sweep& sweep, const SweepRow& row) {
  std::string name;
  for (size_t i = 1; i < sweep.axes.size(); ++i) {
    name += fmt::format("{}{} {}", name.empty() ? "" : ", ", sweep.axes[i].name, row.at[i]);
  }
  return name;
}

bool SameLine(const ChartSeries& a, const ChartSeries& b) {
  return std::equal(a.points.begin(), a.points.end(), b.points.begin(), b.points.end(),
                    [](const ChartPoint& l, const ChartPoint& r) {
                      return l.x == r.x && std::abs(l.y - r.y) <= 1e-9 * std::abs(l.y);
                    });
}

// Where line and reference cross, between points, on the scale of the picture.
void MarkCrossings(const ChartSeries& line, const ChartSeries& reference, ChartPanel& panel) {
  for (size_t i = 1; i < line.points.size() && i < reference.points.size(); ++i) {
    const double before = std::log(line.points[i - 1].y / reference.points[i - 1].y);
    const double after = std::log(line.points[i].y / reference.points[i].y);
    if (!(before * after < 0)) {
      continue;
    }
    const double part = before / (before - after);
    const auto between = [&](double a, double b, bool log) {
      return log ? a * std::pow(b / a, part) : a + part * (b - a);
    };
    const double x = between(line.points[i - 1].x, line.points[i].x, panel.x.log);
    panel.marks.push_back({{x, between(reference.points[i - 1].y, reference.points[i].y, true)},
                           HumanNumber(std::stod(fmt::format("{:.2e}", x)))});
  }
}

}  // namespace

Result<std::vector<SweepAxis>> ParseSweep(std::string_view text) {
  std::vector<SweepAxis> axes;
  for (const std::string_view part : Split(text, ',')) {
    const size_t equals = part.find('=');
    std::string_view value = part;
    if (equals != std::string_view::npos) {
      auto name = InputName(part.substr(0, equals));
      if (!name.ok()) {
        return Refuse("--sweep: " + name.error().message);
      }
      if (*name == "years" || *name == "fleet") {
        return Refuse("--sweep: " + *name + " is no input of the model");
      }
      axes.push_back({*name, {}, {}, false});
      value = part.substr(equals + 1);
    }
    if (axes.empty() || value.empty()) {
      return Refuse(
          fmt::format("--sweep '{}': write NAME=VALUE,... such as "
                      "lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7",
                      text));
    }
    if (value.find(':') != std::string_view::npos) {
      EPLOG_TRY(AddRange(value, axes.back()));
    } else {
      axes.back().values.emplace_back(value);
    }
  }
  double rows = 1;
  for (SweepAxis& axis : axes) {
    TakeNumbers(axis);
    rows *= static_cast<double>(axis.values.size());
  }
  if (rows > kMostRows) {
    return Refuse(fmt::format("--sweep: {:.0f} combinations are more than 100000", rows));
  }
  return axes;
}

Result<Sweep> RunSweep(const InputSet& base, std::vector<SweepAxis> axes) {
  Sweep sweep;
  std::vector<size_t> index(axes.size(), 0);
  for (bool more = true; more;) {
    auto row = RunRow(base, axes, index);
    if (!row.ok()) {
      return Fail(std::move(row).error());
    }
    sweep.rows.push_back(std::move(*row));
    more = false;
    for (size_t i = axes.size(); i-- > 0 && !more;) {
      more = ++index[i] < axes[i].values.size();
      index[i] = more ? index[i] : 0;
    }
  }
  sweep.axes = std::move(axes);
  return sweep;
}

std::string SweepCsv(const Sweep& sweep) {
  std::string out;
  for (const SweepAxis& axis : sweep.axes) {
    out += axis.name + ",";
  }
  out += "eplog_mttdl_years,conventional_mttdl_years,ratio";
  for (const double years : sweep.rows.front().inputs.years) {
    out += fmt::format(",eplog_loss_{0:.6g}y,conventional_loss_{0:.6g}y", years);
  }
  out += "\n";
  for (const SweepRow& row : sweep.rows) {
    for (const std::string& value : row.at) {
      out += value + ",";
    }
    out += fmt::format("{:.12g},{:.12g},{:.12g}", row.eplog_years, row.conventional_years,
                       row.eplog_years / row.conventional_years);
    for (size_t i = 0; i < row.eplog_loss.size(); ++i) {
      out += fmt::format(",{:.12g},{:.12g}", row.eplog_loss[i], row.conventional_loss[i]);
    }
    out += "\n";
  }
  return out;
}

Json SweepJson(const Sweep& sweep) {
  Json json;
  json["axes"] = Json::array();
  for (const SweepAxis& axis : sweep.axes) {
    json["axes"].push_back({{"input", axis.name}, {"values", axis.values}});
  }
  json["rows"] = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json at = Json::object();
    for (size_t i = 0; i < row.at.size(); ++i) {
      at[sweep.axes[i].name] =
          sweep.axes[i].numbers.empty() ? Json(row.at[i]) : Json(row.numbers[i]);
    }
    Json line = {{"at", std::move(at)},
                 {"eplog", {{"mttdl_years", JsonNumber(row.eplog_years)}}},
                 {"conventional", {{"mttdl_years", JsonNumber(row.conventional_years)}}},
                 {"ratio", JsonNumber(row.eplog_years / row.conventional_years)}};
    for (size_t i = 0; i < row.eplog_loss.size(); ++i) {
      line["eplog"]["loss"].push_back(
          {{"years", row.inputs.years[i]}, {"probability", row.eplog_loss[i]}});
      line["conventional"]["loss"].push_back(
          {{"years", row.inputs.years[i]}, {"probability", row.conventional_loss[i]}});
    }
    json["rows"].push_back(std::move(line));
  }
  return json;
}

Result<Chart> SweepChart(const Sweep& sweep) {
  const SweepAxis& first = sweep.axes.front();
  if (first.numbers.empty() || first.values.size() < 2) {
    return Refuse(
        fmt::format("a picture needs two or more numbers of one unit to go along; '{}' "
                    "has none: put another input first in --sweep",
                    first.name));
  }
  ChartPanel panel;
  panel.x = {AxisLabel(first.name, &first), first.log};
  panel.y = {"MTTDL in years", true};
  std::vector<std::pair<std::string, std::pair<ChartSeries, ChartSeries>>> lines;
  for (const SweepRow& row : sweep.rows) {
    const std::string name = LineName(sweep, row);
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const auto& entry) { return entry.first == name; });
    if (line == lines.end()) {
      lines.emplace_back(name, std::pair<ChartSeries, ChartSeries>());
      line = lines.end() - 1;
    }
    line->second.first.points.push_back({row.numbers.front(), row.eplog_years});
    line->second.second.points.push_back({row.numbers.front(), row.conventional_years});
  }
  if (lines.size() > kMostLines) {
    return Refuse(
        fmt::format("{} lines in one picture cannot be told apart; sweep less", lines.size()));
  }
  bool one_reference = true;
  for (const auto& [name, pair] : lines) {
    one_reference = one_reference && SameLine(pair.second, lines.front().second.second);
  }
  int colour = 0;
  for (auto& [name, pair] : lines) {
    auto& [eplog, conventional] = pair;
    MarkCrossings(eplog, conventional, panel);
    eplog.label = name.empty() ? "EPLOG" : "EPLOG, " + name;
    eplog.colour = colour;
    conventional.label = one_reference || name.empty() ? "conventional" : "conv., " + name;
    conventional.reference = true;
    conventional.colour = one_reference ? -1 : colour;
    panel.series.push_back(eplog);
    if (!one_reference || colour == 0) {
      panel.series.push_back(conventional);
    }
    ++colour;
  }
  Chart chart;
  const auto& p = sweep.rows.front().inputs.parameters;
  chart.title = "Mean time to data loss: EPLOG against conventional RAID";
  const auto swept = [&](const char* name) {
    return std::any_of(sweep.axes.begin(), sweep.axes.end(),
                       [&](const SweepAxis& axis) { return axis.name == name; });
  };
  const auto fixed = [&](const char* name, const std::string& text) {
    chart.subtitle += swept(name) ? "" : (chart.subtitle.empty() ? "" : ", ") + text;
  };
  fixed("ssds", fmt::format("{} SSDs", p.ssds));
  fixed("parity", LevelName(p.parity));
  fixed("lambda-ssd", fmt::format("λ's {} a year", HumanNumber(p.lambda_ssd)));
  fixed("alpha", fmt::format("α {:.3g}", p.alpha));
  fixed("mu-ssd", fmt::format("μs {} a year", HumanNumber(p.mu_ssd)));
  fixed("lambda-log", fmt::format("λh {} a year", HumanNumber(p.lambda_log)));
  fixed("mu-log", fmt::format("μh {} a year", HumanNumber(p.mu_log)));
  if (!panel.marks.empty()) {
    chart.notes.emplace_back(
        "Circles: where EPLOG and conventional RAID last equally long "
        "(between the points computed).");
  }
  chart.panels.push_back(std::move(panel));
  return chart;
}

}  // namespace eplog::cli
