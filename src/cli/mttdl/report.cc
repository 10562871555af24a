#include "cli/mttdl/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

using reliability::Estimate;
using reliability::System;

constexpr uint64_t kCycles = 200'000;
constexpr uint64_t kLives = 10'000;
// Keeps a simulation within seconds: an event looks at every device.
constexpr uint64_t kMostLooks = 200'000'000;

void SimulateSystem(System system, const Inputs& inputs, const SimulationWish& wish,
                    SystemFigures& figures) {
  if (inputs.Solvable() && !inputs.parameters.wear) {
    figures.simulated_mttdl = reliability::SimulateRareLoss(system, inputs.parameters, wish.seed,
                                                            wish.lives > 1 ? wish.lives : kCycles);
    return;
  }
  reliability::Simulation simulation;
  simulation.seed = wish.seed;
  simulation.lives = wish.lives > 0 ? wish.lives : kLives;
  simulation.years = *std::max_element(inputs.years.begin(), inputs.years.end());
  simulation.repair_times = inputs.repair_times;
  simulation.most_events = kMostLooks / (inputs.parameters.ssds + inputs.parameters.parity);
  figures.simulated_years = simulation.years;
  figures.simulated = reliability::Simulate(system, inputs.parameters, simulation);
}

SystemFigures Figure(System system, const Inputs& inputs, const SimulationWish& wish) {
  SystemFigures figures;
  if (inputs.Solvable()) {
    reliability::Outlook outlook = Foresee(system, inputs.parameters, inputs.years);
    figures.mttdl_years = outlook.mttdl_years;
    figures.loss_probability = std::move(outlook.loss_probability);
    figures.closed_form_years = ClosedForm(system, inputs.parameters);
  }
  if (wish.wanted || !inputs.Solvable()) {
    SimulateSystem(system, inputs, wish, figures);
  }
  return figures;
}

size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Ratio(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.4g}", ratio) : "for ever";
}

std::string LossCell(double probability) {
  return fmt::format("{} ({:.1f} nines)", HumanProbability(probability),
                     reliability::Nines(probability));
}

std::vector<std::vector<std::string>> SolvedRows(const Inputs& inputs, const Comparison& c) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"MTTDL", HumanYears(*c.eplog.mttdl_years),
                  HumanYears(*c.conventional.mttdl_years), Ratio(c.ratio.value_or(0))});
  for (size_t i = 0; i < inputs.years.size(); ++i) {
    const double eplog = c.eplog.loss_probability[i];
    const double conventional = c.conventional.loss_probability[i];
    rows.push_back({"data lost within " + HumanYears(inputs.years[i]), LossCell(eplog),
                    LossCell(conventional), Ratio(eplog / conventional)});
    if (inputs.fleet > 1) {
      rows.push_back({fmt::format("  of {} arrays", HumanNumber(inputs.fleet)),
                      fmt::format("{:.3g} expected", inputs.fleet * eplog),
                      fmt::format("{:.3g} expected", inputs.fleet * conventional), ""});
    }
  }
  return rows;
}

std::string Interval(const Estimate& e, std::string (*show)(double)) {
  if (!std::isfinite(e.value)) {
    return "no loss seen; more --lives";
  }
  return fmt::format("{} [{} ... {}]", show(e.value), show(e.low), show(e.high));
}

// One row for each figure that was simulated.
std::vector<std::vector<std::string>> SimulatedRows(const Comparison& c) {
  std::vector<std::vector<std::string>> rows;
  if (c.eplog.simulated_mttdl) {
    rows.push_back({"MTTDL, simulated", Interval(*c.eplog.simulated_mttdl, HumanYears),
                    Interval(*c.conventional.simulated_mttdl, HumanYears), ""});
  }
  if (!c.eplog.simulated) {
    return rows;
  }
  const auto row = [&](const std::string& name, auto show) {
    rows.push_back({name, show(*c.eplog.simulated), show(*c.conventional.simulated), ""});
  };
  row("data lost within " + HumanYears(c.eplog.simulated_years) + ", simulated",
      [](const reliability::Simulated& s) {
        return s.lives > 1 ? Interval(s.loss_probability, HumanProbability) : "too long to follow";
      });
  row("arrays followed; lost", [](const reliability::Simulated& s) {
    return fmt::format("{}; {}{}", s.lives, s.losses, s.stopped_early ? " (cut short)" : "");
  });
  return rows;
}

std::string Sentence(const Comparison& c) {
  if (!c.ratio) {
    return "";
  }
  std::string text;
  if (std::abs(*c.ratio - 1) < 0.005) {
    text = "Both last equally long.";
  } else {
    text = *c.ratio > 1
               ? fmt::format("EPLOG lasts {:.3g} times as long as conventional RAID.", *c.ratio)
               : fmt::format("EPLOG lasts only {:.3g} of the time of conventional RAID.", *c.ratio);
  }
  if (c.crossing) {
    text += fmt::format(
        " They are equal where log devices fail {:.4g} times as often as the SSDs of conventional "
        "RAID.",
        *c.crossing);
  }
  if (!c.elasticities.empty()) {
    const auto& first = c.elasticities.front();
    text += fmt::format(
        "\nWhat matters most to EPLOG is {} ({}): 1 % more of it is {:+.2f} % of "
        "MTTDL.",
        first.name, first.meaning, first.eplog);
  }
  return text + "\n";
}

Json EstimateJson(const Estimate& e) {
  return {{"value", JsonNumber(e.value)}, {"low", JsonNumber(e.low)}, {"high", JsonNumber(e.high)}};
}

Json FiguresJson(const Inputs& inputs, const SystemFigures& figures) {
  Json json;
  json["mttdl_years"] = figures.mttdl_years ? JsonNumber(*figures.mttdl_years) : Json(nullptr);
  if (figures.closed_form_years) {
    json["closed_form_years"] = JsonNumber(*figures.closed_form_years);
  }
  for (size_t i = 0; i < figures.loss_probability.size(); ++i) {
    const double p = figures.loss_probability[i];
    json["loss"].push_back({{"years", inputs.years[i]},
                            {"probability", p},
                            {"nines", JsonNumber(reliability::Nines(p))},
                            {"expected_losses", inputs.fleet * p}});
  }
  if (figures.simulated_mttdl) {
    json["simulated"]["mttdl_years"] = EstimateJson(*figures.simulated_mttdl);
  }
  if (figures.simulated) {
    const reliability::Simulated& s = *figures.simulated;
    json["simulated"] = {{"lives", s.lives},
                         {"losses", s.losses},
                         {"events", s.events},
                         {"stopped_early", s.stopped_early},
                         {"years", figures.simulated_years}};
    json["simulated"]["loss_probability"] =
        s.lives > 1 ? EstimateJson(s.loss_probability) : Json(nullptr);
  }
  return json;
}

// What has no line of its own among the facts.
void AddOtherInputs(const Inputs& inputs, Json& json) {
  using reliability::RepairOrder;
  const reliability::Parameters& p = inputs.parameters;
  json["repair"] = p.repair == RepairOrder::kParallel   ? "parallel"
                   : p.repair == RepairOrder::kSsdFirst ? "ssd-first"
                   : p.repair == RepairOrder::kLogFirst ? "log-first"
                                                        : "random";
  json["pending_fraction"] = p.pending_fraction;
  json["correlation"] = p.correlation;
  if (p.latent) {
    json["chunk_bytes"] = p.latent->chunk_bytes;
  }
  if (p.wear) {
    json["wear_shape"] = p.wear->shape;
    json["replace_after_bytes"] = p.wear->replace_after_bytes;
    json["ages"] = p.wear->ages == reliability::SsdAges::kArray ? "array"
                   : p.wear->ages == reliability::SsdAges::kOwn ? "own"
                                                                : "staggered";
  }
  json["fleet"] = inputs.fleet;
}

}  // namespace

Json JsonNumber(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - Width(row[i]), ' ');
      line += i == 0 ? row[i] + space : "   " + space + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

Comparison Compare(const Inputs& inputs, const SimulationWish& wish) {
  Comparison c;
  c.eplog = Figure(System::kEplog, inputs, wish);
  c.conventional = Figure(System::kConventional, inputs, wish);
  if (inputs.Solvable()) {
    c.ratio = *c.eplog.mttdl_years / *c.conventional.mttdl_years;
    c.elasticities = reliability::Elasticities(inputs.parameters);
    // With wear each point costs an integration; the slope says enough.
    if (!inputs.parameters.wear) {
      c.crossing = reliability::CrossingLogRate(inputs.parameters);
    }
  }
  return c;
}

std::string ReportText(const Inputs& inputs, const Comparison& c) {
  std::string out =
      fmt::format("{}, {} SSDs: EPLOG with {} log device{} against conventional RAID\n\n",
                  LevelName(inputs.parameters.parity), inputs.parameters.ssds,
                  inputs.parameters.parity, inputs.parameters.parity == 1 ? "" : "s");
  std::vector<std::vector<std::string>> rows = {{"", "EPLOG", "conventional", "ratio"}};
  if (c.eplog.mttdl_years) {
    const auto solved = SolvedRows(inputs, c);
    rows.insert(rows.end(), solved.begin(), solved.end());
  }
  const auto simulated = SimulatedRows(c);
  rows.insert(rows.end(), simulated.begin(), simulated.end());
  out += TextTable(rows) + "\n" + Sentence(c);
  if (!simulated.empty()) {
    out += "Brackets hold the 99 % confidence interval of a simulation.\n";
  }
  out += "\n" + Paint(Colour::kBold, "Assumed") + "\n";
  rows.clear();
  for (const InputFact& fact : inputs.facts) {
    rows.push_back({"  " + fact.label, fact.shown, fact.origin});
  }
  out += TextTable(rows);
  if (!inputs.beyond.empty()) {
    out += "\n" + Paint(Colour::kBold, "Beyond the paper") + "\n";
    for (const std::string& sentence : inputs.beyond) {
      out += "  " + sentence + "\n";
    }
  }
  return out +
         "\nMTTDL compares designs; it is not how long an array will live (docs/reliability.md).";
}

Json ReportJson(const Inputs& inputs, const Comparison& c) {
  Json json;
  json["eplog"] = FiguresJson(inputs, c.eplog);
  json["conventional"] = FiguresJson(inputs, c.conventional);
  json["ratio"] = c.ratio ? JsonNumber(*c.ratio) : Json(nullptr);
  json["crossing_lambda_log_over_lambda_ssd"] = c.crossing ? Json(*c.crossing) : Json(nullptr);
  json["inputs"] = Json::object();
  json["origins"] = Json::object();
  for (const InputFact& fact : inputs.facts) {
    json["inputs"][fact.key] = fact.value;
    json["origins"][fact.key] = fact.origin;
  }
  AddOtherInputs(inputs, json["inputs"]);
  json["beyond_the_paper"] = inputs.beyond;
  json["elasticities"] = Json::array();
  for (const auto& e : c.elasticities) {
    json["elasticities"].push_back(
        {{"input", e.name}, {"eplog", e.eplog}, {"conventional", e.conventional}});
  }
  return json;
}

}  // namespace eplog::cli
