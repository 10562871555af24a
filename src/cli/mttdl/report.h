// EPLOG against conventional RAID for one set of inputs: computing it, and showing it to people and
// programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/mttdl/inputs.h"
#include "reliability/monte_carlo.h"
#include "reliability/solver.h"
#include "report/json.h"

namespace eplog::cli {

struct SimulationWish {
  bool wanted = false;
  uint64_t seed = 1;
  uint64_t lives = 0;  // 0: as many as suit
};

// Of one system. What was not asked for or cannot be had is empty.
struct SystemFigures {
  std::optional<double> mttdl_years;     // by the chain
  std::vector<double> loss_probability;  // by the chain, for Inputs::years
  std::optional<double> closed_form_years;
  std::optional<reliability::Estimate> simulated_mttdl;
  // Within `simulated_years`.
  std::optional<reliability::Simulated> simulated;
  double simulated_years = 0;
};

struct Comparison {
  SystemFigures eplog;
  SystemFigures conventional;
  std::optional<double> ratio;                        // of MTTDL
  std::vector<reliability::Elasticity> elasticities;  // of a chain
  // lambda_h / lambda'_s at which both have the same MTTDL.
  std::optional<double> crossing;
};

// Solves what a chain can hold; simulates what it cannot, or what is wished.
Comparison Compare(const Inputs& inputs, const SimulationWish& wish);

std::string ReportText(const Inputs& inputs, const Comparison& comparison);
Json ReportJson(const Inputs& inputs, const Comparison& comparison);

// A table with columns as wide as they must be; the first row is the head.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);
// A number for JSON; null where it is not finite.
Json JsonNumber(double value);

}  // namespace eplog::cli
