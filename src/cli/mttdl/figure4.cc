// Figure 4 of the paper's supplement, computed.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "cli/mttdl/report.h"
#include "cli/mttdl/sweep.h"
#include "reliability/solver.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

using reliability::System;

constexpr std::array kAlphas = {0.3, 0.5, 0.7};
constexpr int kLastRatio = 10;

Figure4::Level MakeLevel(const reliability::Parameters& p, const std::vector<double>& ratios) {
  Figure4::Level level;
  level.parity = p.parity;
  level.conventional_years = MttdlYears(System::kConventional, p);
  for (const double alpha : kAlphas) {
    reliability::Parameters at = p;
    at.alpha = alpha;
    Figure4::Line line;
    line.alpha = alpha;
    for (const double ratio : ratios) {
      at.lambda_log = ratio * p.lambda_ssd;
      line.eplog_years.push_back(MttdlYears(System::kEplog, at));
    }
    line.ratio_at_one = line.eplog_years.front() / level.conventional_years;
    line.crossing = CrossingLogRate(at);
    level.lines.push_back(std::move(line));
  }
  return level;
}

std::string CrossingText(const Figure4::Line& line) {
  return line.crossing ? fmt::format("{:.4g}", *line.crossing) : "nowhere";
}

}  // namespace

Result<Figure4> MakeFigure4(const InputSet& base) {
  for (const char* name : {"alpha", "lambda-log", "afr-log", "mttf-log", "parity"}) {
    if (base.Find(name) != nullptr) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--fig4 goes through parity, alpha and lambda-log by itself; leave out "
                      "--{}, or use --sweep",
                      name));
    }
  }
  auto inputs = ResolveInputs(base);
  if (!inputs.ok()) {
    return Fail(std::move(inputs).error());
  }
  if (inputs->parameters.wear || !inputs->Solvable()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--fig4 is of constant rates; leave out --tbw and --dwpd "
                "and fixed repair times, or use --sweep");
  }
  Figure4 figure;
  for (int ratio = 1; ratio <= kLastRatio; ++ratio) {
    figure.ratios.push_back(ratio);
  }
  for (const uint32_t parity : {1U, 2U}) {
    inputs->parameters.parity = parity;
    EPLOG_TRY(reliability::Validate(inputs->parameters));
    figure.levels.push_back(MakeLevel(inputs->parameters, figure.ratios));
  }
  figure.inputs = std::move(*inputs);
  return figure;
}

std::string Figure4Text(const Figure4& figure) {
  const auto& p = figure.inputs.parameters;
  std::string out = fmt::format(
      "MTTDL of EPLOG and of conventional RAID; {} SSDs, one fails each {}, rebuilt in {}\n",
      p.ssds, HumanYears(1 / p.lambda_ssd), HumanYears(1 / p.mu_ssd));
  for (const Figure4::Level& level : figure.levels) {
    std::vector<std::vector<std::string>> rows = {{"λh / λ's"}};
    for (const Figure4::Line& line : level.lines) {
      rows.front().push_back(fmt::format("α = {:.1f}", line.alpha));
    }
    rows.front().emplace_back("conventional");
    for (size_t i = 0; i < figure.ratios.size(); ++i) {
      rows.push_back({fmt::format("{:.0f}", figure.ratios[i])});
      for (const Figure4::Line& line : level.lines) {
        rows.back().push_back(HumanYears(line.eplog_years[i]));
      }
      rows.back().push_back(HumanYears(level.conventional_years));
    }
    rows.push_back({"gain at 1"});
    rows.push_back({"equal at"});
    for (const Figure4::Line& line : level.lines) {
      rows[rows.size() - 2].push_back(fmt::format("{:.4g} times", line.ratio_at_one));
      rows.back().push_back(CrossingText(line));
    }
    out += fmt::format("\n{}\n{}", LevelName(level.parity), TextTable(rows));
  }
  out += "\n\"equal at\": the λh / λ's up to which EPLOG lasts longer than conventional RAID.";
  return out;
}

std::string Figure4Csv(const Figure4& figure) {
  std::string out =
      "parity,alpha,lambda_log_over_lambda_ssd,eplog_mttdl_years,"
      "conventional_mttdl_years,ratio\n";
  for (const Figure4::Level& level : figure.levels) {
    for (const Figure4::Line& line : level.lines) {
      for (size_t i = 0; i < figure.ratios.size(); ++i) {
        out += fmt::format("{},{},{},{:.12g},{:.12g},{:.12g}\n", level.parity, line.alpha,
                           figure.ratios[i], line.eplog_years[i], level.conventional_years,
                           line.eplog_years[i] / level.conventional_years);
      }
    }
  }
  return out;
}

Json Figure4Json(const Figure4& figure) {
  Json json;
  json["lambda_log_over_lambda_ssd"] = figure.ratios;
  for (const Figure4::Level& level : figure.levels) {
    Json entry = {{"parity", level.parity},
                  {"conventional", {{"mttdl_years", level.conventional_years}}}};
    for (const Figure4::Line& line : level.lines) {
      entry["eplog"].push_back(
          {{"alpha", line.alpha},
           {"mttdl_years", line.eplog_years},
           {"ratio_at_one", line.ratio_at_one},
           {"crossing", line.crossing ? Json(*line.crossing) : Json(nullptr)}});
    }
    json["levels"].push_back(std::move(entry));
  }
  for (const InputFact& fact : figure.inputs.facts) {
    if (fact.key != "alpha" && fact.key != "lambda_ssd_eplog_per_year" && fact.key != "parity" &&
        fact.key != "lambda_log_per_year") {
      json["inputs"][fact.key] = fact.value;
    }
  }
  return json;
}

Chart Figure4Chart(const Figure4& figure) {
  const auto& p = figure.inputs.parameters;
  Chart chart;
  chart.title = "Mean time to data loss against the failure rate of the log devices";
  chart.subtitle = fmt::format(
      "{} SSDs, one fails each {} (λ's = {} a year); rebuilds {} (SSD) and {} (log) a year", p.ssds,
      HumanYears(1 / p.lambda_ssd), HumanNumber(p.lambda_ssd), HumanNumber(p.mu_ssd),
      HumanNumber(p.mu_log));
  for (const Figure4::Level& level : figure.levels) {
    ChartPanel panel;
    panel.title = fmt::format("{}, {} log device{}", LevelName(level.parity), level.parity,
                              level.parity == 1 ? "" : "s");
    panel.x = {"λh / λ's: how much more often log devices fail than SSDs", false};
    panel.y = {"MTTDL in years", true};
    std::string equal;
    int colour = 0;
    for (const Figure4::Line& line : level.lines) {
      ChartSeries series{fmt::format("EPLOG, α = {:.1f}", line.alpha), {}, colour++, false};
      for (size_t i = 0; i < figure.ratios.size(); ++i) {
        series.points.push_back({figure.ratios[i], line.eplog_years[i]});
      }
      panel.series.push_back(std::move(series));
      if (line.crossing) {
        panel.marks.push_back(
            {{*line.crossing, level.conventional_years}, fmt::format("{:.3g}", *line.crossing)});
      }
      equal += fmt::format("{}{} (α = {:.1f})", equal.empty() ? "" : ", ", CrossingText(line),
                           line.alpha);
    }
    ChartSeries reference{"conventional", {}, -1, true};
    for (const double ratio : figure.ratios) {
      reference.points.push_back({ratio, level.conventional_years});
    }
    panel.series.push_back(std::move(reference));
    chart.panels.push_back(std::move(panel));
    chart.notes.push_back(fmt::format("{}: EPLOG and conventional RAID are equal at λh / λ's = {}.",
                                      LevelName(level.parity), equal));
  }
  chart.notes.emplace_back("α: EPLOG's writes to the SSDs over those of conventional RAID.");
  return chart;
}

}  // namespace eplog::cli
