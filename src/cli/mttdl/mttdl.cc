// eplog mttdl: how long until data is lost, EPLOG against conventional RAID. docs/reliability.md
// explains the model.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/mttdl/inputs.h"
#include "cli/mttdl/report.h"
#include "cli/mttdl/sources.h"
#include "cli/mttdl/sweep.h"
#include "cli/mttdl/whatif.h"
#include "cli/verb/verbs.h"
#include "host/typed_path.h"
#include "reliability/explain.h"
#include "terminal/console.h"
#include "text/picture_file.h"

namespace eplog::cli {
namespace {

using reliability::System;

constexpr char kVerb[] = "mttdl";

struct MttdlCommand {
  std::vector<std::pair<std::string, std::string>> given;  // inputs, by name
  std::string from;
  std::string from_array;
  std::string sweep;
  std::string what_if;
  std::string picture;
  std::string graph;
  bool figure4 = false;
  bool explain = false;
  bool csv = false;
  bool json = false;
  SimulationWish simulation;
};

// What was measured, with what was given over it.
struct Collected {
  InputSet values;
  std::optional<Measured> array;
  std::vector<std::string> notes;
};

Result<Collected> Collect(const MttdlCommand& command) {
  Collected collected;
  const auto take = [&](Result<Measured> measured) -> Status {
    if (!measured.ok()) {
      return Fail(std::move(measured).error());
    }
    collected.values.Overlay(measured->values);
    collected.notes.insert(collected.notes.end(), measured->notes.begin(), measured->notes.end());
    collected.array = std::move(*measured);
    return OkStatus();
  };
  if (!command.from_array.empty()) {
    EPLOG_TRY(take(FromArray(command.from_array)));
  }
  if (!command.from.empty()) {
    EPLOG_TRY(take(FromReplayFile(command.from)));
  }
  InputSet given;
  for (const auto& [name, text] : command.given) {
    EPLOG_TRY(given.Set(name, text, "given"));
  }
  collected.values.Overlay(given);
  return collected;
}

// What cannot go together is said before anything is done.
Status CheckRequest(const MttdlCommand& command) {
  const auto refuse = [](const std::string& what) {
    return Status(Fail(ErrorCode::kInvalidArgument, what));
  };
  const int modes = (command.sweep.empty() ? 0 : 1) + (command.what_if.empty() ? 0 : 1) +
                    (command.figure4 ? 1 : 0) + (command.explain || !command.graph.empty() ? 1 : 0);
  if (modes > 1) {
    return refuse("--sweep, --fig4, --what-if and --explain answer different questions; ask one");
  }
  const bool many = !command.sweep.empty() || command.figure4;
  if (!command.picture.empty()) {
    if (!many) {
      return refuse(
          "--picture draws --sweep or --fig4; add one of them, or use --graph for the "
          "chain");
    }
    EPLOG_TRY(CheckPictureName(command.picture));
  }
  if (!command.graph.empty()) {
    EPLOG_TRY(CheckGraphName(command.graph));
  }
  if (command.csv && !many) {
    return refuse("--csv is for --sweep and --fig4");
  }
  if (command.csv && command.json) {
    return refuse("--csv and --json cannot both be printed; leave one out");
  }
  if (command.simulation.wanted && modes > 0) {
    return refuse(
        "--simulate goes with one set of inputs, without --sweep, --fig4, --what-if and "
        "--explain");
  }
  if (command.simulation.lives == 1) {
    return refuse("--lives must be 2 or more: one life tells nothing");
  }
  return OkStatus();
}

Status DrawIfWanted(const MttdlCommand& command, const Result<Chart>& chart) {
  if (command.picture.empty()) {
    return OkStatus();
  }
  return chart.ok() ? WritePicture(command.picture, RenderSvg(*chart))
                    : Status(Fail(chart.error()));
}

Status RunSweepMode(const MttdlCommand& command, const InputSet& values) {
  auto axes = ParseSweep(command.sweep);
  if (!axes.ok()) {
    return Fail(std::move(axes).error());
  }
  const auto sweep = RunSweep(values, std::move(*axes));
  EPLOG_TRY(sweep);
  if (!command.picture.empty()) {
    EPLOG_TRY(DrawIfWanted(command, SweepChart(*sweep)));
  }
  if (command.json) {
    PrintJson(SweepJson(*sweep));
  } else {
    std::string csv = SweepCsv(*sweep);
    csv.pop_back();
    Print(csv);
  }
  return OkStatus();
}

Status RunFigure4Mode(const MttdlCommand& command, const InputSet& values) {
  const auto figure = MakeFigure4(values);
  EPLOG_TRY(figure);
  if (!command.picture.empty()) {
    EPLOG_TRY(DrawIfWanted(command, Figure4Chart(*figure)));
  }
  if (command.json) {
    PrintJson(Figure4Json(*figure));
  } else if (command.csv) {
    std::string csv = Figure4Csv(*figure);
    csv.pop_back();
    Print(csv);
  } else {
    Print(Figure4Text(*figure));
  }
  return OkStatus();
}

Status RunWhatIfMode(const MttdlCommand& command, const InputSet& values) {
  const auto scenarios = LoadScenarios(command.what_if);
  EPLOG_TRY(scenarios);
  const auto what_if = RunWhatIf(values, *scenarios);
  EPLOG_TRY(what_if);
  if (command.json) {
    PrintJson(WhatIfJson(*what_if));
  } else {
    Print(WhatIfText(*what_if));
  }
  return OkStatus();
}

Json ChainJson(const reliability::Chain& chain) {
  Json json;
  for (const auto& symbol : chain.symbols) {
    json["symbols"].push_back({{"name", symbol.name},
                               {"meaning", symbol.meaning},
                               {"unit", symbol.unit},
                               {"value", symbol.value}});
  }
  for (size_t i = 0; i < chain.states.size(); ++i) {
    json["states"].push_back({{"name", StateName(chain, i)}, {"meaning", StateWords(chain, i)}});
  }
  for (const auto& transition : chain.transitions) {
    json["transitions"].push_back({{"from", transition.from},
                                   {"to", transition.to},
                                   {"rate", RateText(transition, chain)},
                                   {"rate_per_year", transition.rate}});
  }
  json["generator"] = GeneratorSymbols(chain);
  return json;
}

Status RunExplainMode(const MttdlCommand& command, const InputSet& values) {
  const auto inputs = ResolveInputs(values);
  EPLOG_TRY(inputs);
  if (!inputs->Solvable()) {
    return Fail(ErrorCode::kInvalidArgument,
                "no chain holds SSDs of their own ages or fixed rebuilds: there is nothing to "
                "print; leave out --ages and --repair-times");
  }
  const std::array chains = {BuildChain(System::kEplog, inputs->parameters),
                             BuildChain(System::kConventional, inputs->parameters)};
  if (!command.graph.empty()) {
    EPLOG_TRY(WriteGraph(command.graph, reliability::ExplainDot(chains)));
  }
  if (command.json) {
    PrintJson({{"eplog", ChainJson(chains[0])}, {"conventional", ChainJson(chains[1])}});
    return OkStatus();
  }
  if (!command.explain) {
    return OkStatus();
  }
  for (const auto& chain : chains) {
    Print(ExplainText(chain));
  }
  Print(inputs->parameters.wear
            ? "With wear λ grows with age; these are the rates of new SSDs."
            : "Rates are constant; MTTDL follows by eliminating one state after the other.");
  return OkStatus();
}

Status RunReportMode(const MttdlCommand& command, const Collected& collected) {
  const auto inputs = ResolveInputs(collected.values);
  EPLOG_TRY(inputs);
  const Comparison comparison = Compare(*inputs, command.simulation);
  if (command.json) {
    Json json = ReportJson(*inputs, comparison);
    if (collected.array) {
      json["measured"] = collected.array->facts;
    }
    PrintJson(json);
    return OkStatus();
  }
  Print(ReportText(*inputs, comparison));
  if (!collected.notes.empty()) {
    Print("\n" + Paint(Colour::kBold, "Measured"));
    for (const std::string& note : collected.notes) {
      Print("  " + note);
    }
  }
  return OkStatus();
}

Status CheckFilesAnswer(const MttdlCommand& command) {
  for (const std::string& file : {command.picture, command.graph, command.what_if}) {
    EPLOG_TRY(file.empty() ? OkStatus() : CheckAnswers(file));
  }
  return OkStatus();
}

Result<int> RunMttdl(const MttdlCommand& command) {
  Status done = CheckRequest(command);
  if (done.ok()) {
    done = CheckFilesAnswer(command);
  }
  if (done.ok()) {
    const auto collected = Collect(command);
    done = !collected.ok()                             ? Status(Fail(collected.error()))
           : !command.sweep.empty()                    ? RunSweepMode(command, collected->values)
           : command.figure4                           ? RunFigure4Mode(command, collected->values)
           : !command.what_if.empty()                  ? RunWhatIfMode(command, collected->values)
           : command.explain || !command.graph.empty() ? RunExplainMode(command, collected->values)
                                                       : RunReportMode(command, *collected);
  }
  EPLOG_TRY(done);
  return kDone;
}

}  // namespace

void AddMttdl(Parser app, Run& run) {
  auto command = std::make_shared<MttdlCommand>();
  Parser verb = app.AddVerb(
      kVerb, "mean time to data loss: EPLOG against conventional RAID, by the paper's model");
  for (const InputKey& key : InputKeys()) {
    const std::string name = key.name;
    verb.AddCall(
            "--" + name,
            [command, name](const std::string& text) { command->given.emplace_back(name, text); },
            key.help)
        .TypeName(key.type)
        .Group(key.group);
  }
  verb.Add("--from", command->from, "alpha from the JSON of eplog replay")
      .TypeName("FILE")
      .Group("Measured");
  verb.Add("--from-array", command->from_array,
           "alpha, geometry and rebuild rate from an array's counters")
      .TypeName("ARRAY")
      .Group("Measured");
  verb.Add("--sweep", command->sweep,
           "many sets: lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7; prints CSV")
      .TypeName("SPEC")
      .Group("Instead of one comparison");
  verb.AddFlag("--fig4", command->figure4, "figure 4 of the paper, and where its lines cross")
      .Group("Instead of one comparison");
  verb.Add("--what-if", command->what_if, "named scenarios side by side")
      .TypeName("FILE.toml")
      .Group("Instead of one comparison");
  verb.AddFlag("--explain", command->explain, "states, transitions and generator of the chains")
      .Group("Instead of one comparison");
  verb.Add("--picture", command->picture, "draw --sweep or --fig4: .svg or .png")
      .TypeName("FILE")
      .Group("Output");
  verb.Add("--graph", command->graph, "draw the chains: .dot, .svg or .png")
      .TypeName("FILE")
      .Group("Output");
  verb.AddFlag("--csv", command->csv, "print CSV (--sweep and --fig4)").Group("Output");
  verb.AddFlag("--json", command->json, kJsonHelp).Group("Output");
  verb.AddFlag("--simulate", command->simulation.wanted, "simulate devices as well")
      .Group("Simulation");
  verb.Add("--seed", command->simulation.seed, "same seed, same result (1)")
      .TypeName("N")
      .Group("Simulation");
  verb.Add("--lives", command->simulation.lives, "arrays to follow")
      .TypeName("N")
      .Within(uint64_t{0}, uint64_t{100'000'000})
      .Group("Simulation");
  verb.Footer(
      "Rates are a year. Sizes are powers of 1024, endurance (TB) of 1000. What is not given is "
      "the "
      "example of the paper.\n"
      "Examples:\n"
      "  eplog mttdl --ssds 8 --parity 2 --mttf-ssd 1.5Mh --afr-log 2% --capacity 4T "
      "--rebuild-rate 400M --alpha 0.55\n"
      "  eplog mttdl --from-array ./array --afr-ssd 1.5% --afr-log 3%\n"
      "  eplog mttdl --sweep lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7 --picture sweep.svg\n"
      "  eplog mttdl --fig4 --picture fig4.png");
  verb.OnChosen([command, &run] { run = [command] { return RunMttdl(*command); }; });
}

}  // namespace eplog::cli
