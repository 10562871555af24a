#include "reliability/solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "reliability/propagator.h"
#include "reliability/wear.h"

namespace eplog::reliability {
namespace {

constexpr double kElasticityStep = 1e-3;

// Positive products of what (4) has as differences: with a = lambda_h + mu_h,
//   numerator    (2n-1) ls + mu + a (2 - 1/n) + a (lh + mu) / (n ls)
//   denominator  n (n-1) ls^2 + n ls lh + (n-1) ls a + lh a + lh mu
double Equation4(double n, double ls, double mu, double lh, double mu_h) {
  const double a = lh + mu_h;
  const double top = (2 * n - 1) * ls + mu + a * (2 * n - 1) / n + a * (lh + mu) / (n * ls);
  const double bottom = n * (n - 1) * ls * ls + n * ls * lh + (n - 1) * ls * a + lh * a + lh * mu;
  return top / bottom;
}

double LogMttdl(System system, const Parameters& parameters) {
  return std::log(MttdlYears(system, parameters));
}

}  // namespace

double MeanYearsToLoss(const Chain& chain) {
  const Matrix rates = RateMatrix(chain);
  return RewardUntilLoss(rates, Vector::Ones(rates.rows() - 1));
}

std::vector<double> YearsInStates(const Chain& chain) {
  const Matrix rates = RateMatrix(chain);
  std::vector<double> years;
  for (Eigen::Index i = 0; i < rates.rows() - 1; ++i) {
    years.push_back(RewardUntilLoss(rates, Vector::Unit(rates.rows() - 1, i)));
  }
  return years;
}

double LossProbability(const Chain& chain, double years) {
  const auto loss = static_cast<Eigen::Index>(chain.loss());
  return Propagate(RateMatrix(chain), years).probability(0, loss);
}

Outlook Foresee(System system, const Parameters& parameters, std::span<const double> years) {
  EPLOG_CHECK(ChainCanHold(parameters), "a chain can hold these parameters");
  if (parameters.wear) {
    return ForeseeWear(system, parameters, years);
  }
  const Chain chain = BuildChain(system, parameters);
  Outlook outlook{MeanYearsToLoss(chain), {}};
  for (const double t : years) {
    outlook.loss_probability.push_back(LossProbability(chain, t));
  }
  return outlook;
}

double MttdlYears(System system, const Parameters& parameters) {
  return Foresee(system, parameters, {}).mttdl_years;
}

double MttdlRatio(const Parameters& parameters) {
  return MttdlYears(System::kEplog, parameters) / MttdlYears(System::kConventional, parameters);
}

double Nines(double loss_probability) {
  // Added to 0, minus 0 becomes 0.
  return loss_probability > 0 ? 0.0 - std::log10(loss_probability)
                              : std::numeric_limits<double>::infinity();
}

std::optional<double> CrossingLogRate(Parameters parameters) {
  const double conventional = MttdlYears(System::kConventional, parameters);
  const double unit = parameters.lambda_ssd;
  const auto ahead = [&](double ratio) {
    parameters.lambda_log = ratio * unit;
    return MttdlYears(System::kEplog, parameters) > conventional;
  };
  // On a log scale; MTTDL falls as logs fail more often.
  double low = std::max(1e-9, kLeastRate / unit);
  double high = std::min(1e9, kGreatestRate / unit);
  if (!ahead(low) || ahead(high)) {
    return std::nullopt;
  }
  while (high / low > 1 + 1e-13) {
    const double middle = std::sqrt(low) * std::sqrt(high);
    if (middle <= low || middle >= high) {
      break;
    }
    (ahead(middle) ? low : high) = middle;
  }
  return std::sqrt(low) * std::sqrt(high);
}

std::vector<Elasticity> Elasticities(const Parameters& parameters) {
  std::vector<Elasticity> all;
  for (const Knob& knob : Knobs()) {
    Parameters up = parameters;
    Parameters down = parameters;
    if (knob.find(up) == nullptr) {
      continue;
    }
    *knob.find(up) *= 1 + kElasticityStep;
    *knob.find(down) /= 1 + kElasticityStep;
    const double width = 2 * std::log1p(kElasticityStep);
    if (!Validate(up).ok() || !Validate(down).ok()) {
      continue;  // at the edge of what makes sense: there is no slope to tell
    }
    all.push_back(
        {knob.name, knob.meaning,
         (LogMttdl(System::kEplog, up) - LogMttdl(System::kEplog, down)) / width,
         (LogMttdl(System::kConventional, up) - LogMttdl(System::kConventional, down)) / width});
  }
  std::stable_sort(all.begin(), all.end(), [](const Elasticity& a, const Elasticity& b) {
    return std::abs(a.eplog) > std::abs(b.eplog);
  });
  return all;
}

double ClosedFormEplogRaid5(const Parameters& p) {
  return Equation4(p.ssds, p.alpha * p.lambda_ssd, p.mu_ssd, p.lambda_log, p.mu_log);
}

double ClosedFormRaid5(const Parameters& p) {
  const double n = p.ssds;
  const double l = p.lambda_ssd;
  return (p.mu_ssd + (2 * n - 1) * l) / (n * (n - 1) * l * l);
}

double ClosedFormRaid6(const Parameters& p) {
  const double n = p.ssds;
  const double l = p.lambda_ssd;
  const double mu = p.mu_ssd;
  return (mu * mu + 2 * (n - 1) * l * mu + (3 * n * n - 6 * n + 2) * l * l) /
         (n * (n - 1) * (n - 2) * l * l * l);
}

std::optional<double> ClosedForm(System system, const Parameters& p) {
  const bool one_at_a_time = p.parity == 1 || p.repair != RepairOrder::kParallel;
  if (p.wear || p.latent || p.correlation != 1 || !one_at_a_time) {
    return std::nullopt;
  }
  if (system == System::kEplog) {
    return p.parity == 1 && p.pending_fraction == 1 ? std::optional(ClosedFormEplogRaid5(p))
                                                    : std::nullopt;
  }
  return p.parity == 1   ? std::optional(ClosedFormRaid5(p))
         : p.parity == 2 ? std::optional(ClosedFormRaid6(p))
                         : std::nullopt;
}

}  // namespace eplog::reliability
