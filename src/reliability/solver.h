// What a chain and its parameters say about the loss of data: its mean time, its distribution, and
// what it depends on. Pure functions; thread safe.
//
// MTTDL is the mean time to data loss from the state in which all devices are well. For EPLOG with
// one parity it is equation (4) of the paper's supplement, for conventional RAID (5) and (6).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reliability/chain.h"

namespace eplog::reliability {

// In years; infinite if data cannot be lost. Of constant rates: no subtraction is made on the way,
// so the result is good to about 14 digits whatever the rates are.
[[nodiscard]] double MeanYearsToLoss(const Chain& chain);
// Years expected in each state but the loss, before it.
[[nodiscard]] std::vector<double> YearsInStates(const Chain& chain);
// Probability that data is lost within `years`.
[[nodiscard]] double LossProbability(const Chain& chain, double years);

// The same for parameters, whether rates are constant or change with wear. Preconditions:
// Validate() and ChainCanHold(). Wear is integrated to about 10^-6.
struct Outlook {
  double mttdl_years = 0;
  std::vector<double> loss_probability;  // within each of the `years` asked for
};
[[nodiscard]] Outlook Foresee(System system, const Parameters& parameters,
                              std::span<const double> years);
// Foresee().mttdl_years
[[nodiscard]] double MttdlYears(System system, const Parameters& parameters);
// EPLOG's MTTDL over conventional RAID's.
[[nodiscard]] double MttdlRatio(const Parameters& parameters);

// -log10: 0.001 is three nines. Infinite for 0.
[[nodiscard]] double Nines(double loss_probability);

// The log devices' failure rate at which EPLOG and conventional RAID have the same MTTDL, in units
// of lambda'_s. Empty: there is none between 1e-9 and 1e9.
[[nodiscard]] std::optional<double> CrossingLogRate(Parameters parameters);

// d ln(MTTDL) / d ln(knob): by how many percent MTTDL grows when the knob grows by one percent.
struct Elasticity {
  std::string_view name;
  std::string_view meaning;
  double eplog = 0;
  double conventional = 0;
};
// Of every knob in use, the strongest on EPLOG first.
[[nodiscard]] std::vector<Elasticity> Elasticities(const Parameters& parameters);

// The paper's closed forms, in an arrangement without subtractions. Equation (4):
[[nodiscard]] double ClosedFormEplogRaid5(const Parameters& parameters);
// Equations (5) and (6): conventional RAID with one and two parities.
[[nodiscard]] double ClosedFormRaid5(const Parameters& parameters);
[[nodiscard]] double ClosedFormRaid6(const Parameters& parameters);
// The one that fits, if there is one: nothing beyond the paper may be switched on.
[[nodiscard]] std::optional<double> ClosedForm(System system, const Parameters& parameters);

}  // namespace eplog::reliability
