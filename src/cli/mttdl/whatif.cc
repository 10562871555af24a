#include "cli/mttdl/whatif.h"
#include "text/units.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

namespace eplog::cli {
namespace {

constexpr uintmax_t kMaxWhatIfBytes = uintmax_t{1} << 20;

std::string Where(const std::string& file, const toml::source_region& source) {
  return source.begin.line == 0 ? file : fmt::format("{}:{}", file, source.begin.line);
}

tl::unexpected<Error> Refuse(const std::string& where, const std::string& what) {
  return Fail(ErrorCode::kInvalidArgument, where + ": " + what);
}

// A value as it would be typed.
std::optional<std::string> AsText(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* whole = node.as_integer()) {
    return std::to_string(whole->get());
  }
  if (const auto* number = node.as_floating_point()) {
    return fmt::format("{:.17g}", number->get());
  }
  return std::nullopt;
}

Status SetFrom(const toml::key& key, const toml::node& node, const std::string& origin,
               const std::string& file, InputSet& set) {
  const auto text = AsText(node);
  if (node.is_table()) {
    return Refuse(
        Where(file, key.source()),
        fmt::format("a scenario begins with [[scenario]], and name = \"{}\" below it", key.str()));
  }
  if (!text) {
    return Refuse(Where(file, key.source()),
                  fmt::format("'{}' must be a number, or text in quotes", key.str()));
  }
  const Status done = set.Set(key.str(), *text, origin);
  return done.ok() ? OkStatus() : Status(Refuse(Where(file, key.source()), done.error().message));
}

Result<Scenario> ReadScenario(const toml::node& node, const InputSet& shared,
                              const std::string& file) {
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return Refuse(Where(file, node.source()), "a scenario is a table: [[scenario]]");
  }
  Scenario scenario;
  scenario.where = Where(file, table->source());
  const auto* name = table->get_as<std::string>("name");
  if (name == nullptr || name->get().empty()) {
    return Refuse(scenario.where, "this scenario has no name; add name = \"...\"");
  }
  scenario.name = name->get();
  InputSet own;
  for (const auto& [key, value] : *table) {
    if (key.str() != "name") {
      EPLOG_TRY(SetFrom(key, value, scenario.name, file, own));
    }
  }
  scenario.values = shared;
  scenario.values.Overlay(own);
  return scenario;
}

Result<std::vector<Scenario>> ReadScenarios(const toml::table& root, const std::string& file) {
  InputSet shared;
  for (const auto& [key, value] : root) {
    if (key.str() != "scenario") {
      EPLOG_TRY(SetFrom(key, value, file, file, shared));
    }
  }
  const toml::array* list = root.get_as<toml::array>("scenario");
  if (list == nullptr || list->empty()) {
    return Refuse(file, "no scenarios in it; each begins with [[scenario]] and has a name");
  }
  std::vector<Scenario> scenarios;
  for (const toml::node& node : *list) {
    auto scenario = ReadScenario(node, shared, file);
    if (!scenario.ok()) {
      return Fail(std::move(scenario).error());
    }
    for (const Scenario& other : scenarios) {
      if (other.name == scenario->name) {
        return Refuse(scenario->where,
                      fmt::format("there are two scenarios '{}'; name one otherwise", other.name));
      }
    }
    scenarios.push_back(std::move(*scenario));
  }
  return scenarios;
}

std::string Effect(const reliability::Elasticity& e) {
  return fmt::format("{} ({}): 1 % more of it is {:+.2f} % of EPLOG's MTTDL", e.name, e.meaning,
                     e.eplog);
}

// The input whose change moves the result most, over all scenarios; and the best scenario.
std::string Sentences(const WhatIf& what_if) {
  std::string out;
  const WhatIf::Row* best = nullptr;
  for (const WhatIf::Row& row : what_if.rows) {
    if (!row.comparison.elasticities.empty()) {
      out += fmt::format("In '{}' what matters most is {}.\n", row.name,
                         Effect(row.comparison.elasticities.front()));
    }
    const auto& years = row.comparison.eplog.mttdl_years;
    if (years && (best == nullptr || *years > *best->comparison.eplog.mttdl_years)) {
      best = &row;
    }
  }
  if (best != nullptr && what_if.rows.size() > 1) {
    out += fmt::format("EPLOG lasts longest in '{}': {}.\n", best->name,
                       HumanYears(*best->comparison.eplog.mttdl_years));
  }
  return out;
}

}  // namespace

Result<std::vector<Scenario>> ParseScenarios(std::string_view text, const std::string& file) {
  // toml++ reports syntax errors by exception; none leaves this function.
  try {
    return ReadScenarios(toml::parse(text, file), file);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Refuse(Where(file, error.source()), what);
  }
}

Result<std::vector<Scenario>> LoadScenarios(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("cannot read {}: {}", file.string(), error.message()));
  }
  if (size > kMaxWhatIfBytes) {
    return Refuse(file.string(), "too large for a file of scenarios");
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return Fail(ErrorCode::kIo, fmt::format("cannot read {}", file.string()));
  }
  return ParseScenarios(text.str(), file.string());
}

Result<WhatIf> RunWhatIf(const InputSet& base, const std::vector<Scenario>& scenarios) {
  WhatIf what_if;
  for (const Scenario& scenario : scenarios) {
    InputSet set = base;
    set.Overlay(scenario.values);
    auto inputs = ResolveInputs(set);
    if (!inputs.ok()) {
      return Refuse(scenario.where, inputs.error().message);
    }
    Comparison comparison = Compare(*inputs, {});
    what_if.rows.push_back({scenario.name, std::move(*inputs), std::move(comparison)});
  }
  return what_if;
}

std::string WhatIfText(const WhatIf& what_if) {
  std::vector<std::vector<std::string>> rows = {{"scenario", "array", "EPLOG MTTDL", "conventional",
                                                 "ratio", "EPLOG loses data", "conventional does"}};
  for (const WhatIf::Row& row : what_if.rows) {
    const Comparison& c = row.comparison;
    const auto mttdl = [](const SystemFigures& f) {
      return f.mttdl_years ? HumanYears(*f.mttdl_years) : std::string("(simulated)");
    };
    const auto lost = [&](const SystemFigures& f) {
      const bool solved = !f.loss_probability.empty();
      if (!solved && f.simulated->lives < 2) {
        return std::string("too long to follow");
      }
      if (!solved && f.simulated->losses == 0) {
        return fmt::format("not seen in {}", HumanYears(f.simulated_years));
      }
      return fmt::format("{} in {}",
                         HumanProbability(solved ? f.loss_probability.front()
                                                 : f.simulated->loss_probability.value),
                         HumanYears(solved ? row.inputs.years.front() : f.simulated_years));
    };
    rows.push_back({row.name,
                    fmt::format("{} SSDs, {}", row.inputs.parameters.ssds,
                                LevelName(row.inputs.parameters.parity)),
                    mttdl(c.eplog), mttdl(c.conventional),
                    c.ratio ? fmt::format("{:.4g}", *c.ratio) : "-", lost(c.eplog),
                    lost(c.conventional)});
  }
  std::string out = TextTable(rows) + "\n";
  out += Sentences(what_if);
  out.pop_back();
  return out;
}

Json WhatIfJson(const WhatIf& what_if) {
  Json json;
  json["scenarios"] = Json::array();
  for (const WhatIf::Row& row : what_if.rows) {
    Json entry;
    entry["name"] = row.name;
    entry.update(ReportJson(row.inputs, row.comparison));
    json["scenarios"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace eplog::cli
