#include "reliability/wear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reliability/propagator.h"

namespace eplog::reliability {
namespace {

constexpr double kTolerance = 1e-7;
constexpr double kAgreement = 1e-6;  // of the two extrapolations
constexpr size_t kFirstSteps = 8;
constexpr size_t kMostSteps = 1024;
constexpr double kNothingLeft = 1e-18;  // of probability, when everything is lost

double Infinity() {
  return std::numeric_limits<double>::infinity();
}

// The years in which the endurance is written.
double WearYears(System system, const Parameters& p) {
  return p.wear->endurance_bytes / SsdBytesPerYear(system, p);
}

// Where the hazard is taken anew: even steps within the span or the endurance, whichever is
// shorter; beyond the endurance even on a log scale, since the hazard is a power of age.
class Grid {
 public:
  Grid(double wear_years, size_t steps)
      : wear_years_(wear_years), steps_(static_cast<double>(steps)) {}
  [[nodiscard]] double Next(double at, double span_years) const {
    // The endurance is met to a rounding error.
    const bool beyond = at >= wear_years_ * (1 - 1e-9) && span_years > wear_years_;
    return beyond ? at * std::exp(1 / steps_) : at + std::min(span_years, wear_years_) / steps_;
  }

 private:
  double wear_years_;
  double steps_;
};

class Life {
 public:
  Life(System system, const Parameters& p, size_t steps)
      : system_(system),
        p_(p),
        grid_(WearYears(system, p), steps),
        rates_(SplitRates(BuildChain(system, p))),
        states_(rates_.fixed.rows()) {}

  // The first `years`, without replacement.
  [[nodiscard]] Propagator Span(double years) const {
    Propagator span = Standstill(states_);
    for (double at = 0; at < years;) {
      // The last step is not left with a rounding error of a span.
      const double next = grid_.Next(at, years);
      const double end = next > years * (1 - 1e-9) ? years : next;
      span = Then(span, Step(at, end));
      at = end;
    }
    return span;
  }

  // Probability of loss within `years` of life with replacements at every `period`.
  [[nodiscard]] double LossWithin(double years, double period) const {
    if (years <= period) {
      return Last(Span(years));
    }
    const double periods = std::floor(years / period);
    const Propagator whole = Repeat(Span(period), static_cast<uint64_t>(periods));
    return Last(Then(whole, Span(years - periods * period)));
  }

  // Mean years to loss when SSDs are only replaced as they fail.
  [[nodiscard]] double MeanToTheEnd() const {
    const Eigen::Index loss = states_ - 1;
    Eigen::RowVectorXd now = Eigen::RowVectorXd::Unit(loss + 1, 0);
    double mean = 0;
    for (double at = 0; now.head(loss).sum() > kNothingLeft;) {
      const double next = grid_.Next(at, Infinity());
      const Propagator step = Step(at, next);
      mean += now.head(loss).dot(step.years_kept.head(loss));
      now = now * step.probability;
      at = next;
    }
    return mean;
  }

  // Mean years to loss when all SSDs are replaced each `period`: what a period keeps, and what the
  // next ones do from where it ends.
  [[nodiscard]] double MeanWithReplacement(double period) const {
    const Propagator one = Span(period);
    const Eigen::Index loss = one.probability.rows() - 1;
    return RewardUntilLoss(one.probability, one.years_kept.head(loss));
  }

 private:
  [[nodiscard]] Propagator Step(double from, double to) const {
    const double rate = SsdRate(system_, p_) + WearRate(system_, p_, from, to);
    return Propagate(rates_.fixed + rate * rates_.per_ssd_rate, to - from);
  }
  static double Last(const Propagator& span) {
    return span.probability(0, span.probability.cols() - 1);
  }

  System system_;
  const Parameters& p_;
  Grid grid_;
  SplitRateMatrix rates_;
  Eigen::Index states_;
};

// Figures for numbers of steps that double, their errors extrapolated away: each doubling leaves a
// first_factor-th of the first error, a first_factor^2-th of the second and so on (4: errors go
// with even powers of the step; 2: with all powers).
class Extrapolation {
 public:
  explicit Extrapolation(double first_factor) : first_factor_(first_factor) {}

  // True once the extrapolated figure holds still.
  bool Add(double figure) {
    std::vector<double> now = {figure};
    double factor = first_factor_;
    for (size_t i = 0; i < last_.size(); ++i, factor *= first_factor_) {
      now.push_back(now[i] + (now[i] - last_[i]) / (factor - 1));
    }
    const bool still =
        !last_.empty() && std::abs(now.back() - last_.back()) <= kTolerance * now.back();
    last_ = std::move(now);
    return still;
  }
  // While steps are too long to extrapolate from, the plain figure is at least positive.
  [[nodiscard]] double figure() const { return last_.back() > 0 ? last_.back() : last_.front(); }

 private:
  double first_factor_;
  std::vector<double> last_;
};

// Errors go with even powers of the step, but for a part that goes with the step itself: after each
// change of the hazard the chain takes the time of a rebuild to settle. Both extrapolations must
// agree; one alone may hold still by chance.
template <typename Figure>
double Refine(const Figure& figure) {
  Extrapolation even(4);
  Extrapolation all(2);
  for (size_t steps = kFirstSteps; steps <= kMostSteps; steps *= 2) {
    const double plain = figure(steps);
    const bool even_still = even.Add(plain);
    const bool all_still = all.Add(plain);
    if ((even_still || all_still) &&
        std::abs(even.figure() - all.figure()) <= kAgreement * all.figure()) {
      return all_still ? all.figure() : even.figure();
    }
  }
  return all.figure();
}

}  // namespace

double WearRate(System system, const Parameters& parameters, double from_years, double to_years) {
  if (!parameters.wear) {
    return 0;
  }
  const double scale = WearYears(system, parameters);
  const double shape = parameters.wear->shape;
  const double rate = (std::pow(to_years / scale, shape) - std::pow(from_years / scale, shape)) /
                      (to_years - from_years);
  return rate <= kGreatestRate ? rate : kGreatestRate;  // not a number: both powers overflowed
}

double ReplacementYears(System system, const Parameters& parameters) {
  if (!parameters.wear || parameters.wear->replace_after_bytes == 0) {
    return Infinity();
  }
  return parameters.wear->replace_after_bytes / SsdBytesPerYear(system, parameters);
}

Outlook ForeseeWear(System system, const Parameters& parameters, std::span<const double> years) {
  EPLOG_CHECK(parameters.wear && ChainCanHold(parameters), "all SSDs are as old as the array");
  const double period = ReplacementYears(system, parameters);
  Outlook outlook;
  outlook.mttdl_years = Refine([&](size_t steps) {
    const Life life(system, parameters, steps);
    return std::isinf(period) ? life.MeanToTheEnd() : life.MeanWithReplacement(period);
  });
  for (const double t : years) {
    outlook.loss_probability.push_back(
        t <= 0 ? 0.0 : std::min(1.0, Refine([&](size_t steps) {
                                  return Life(system, parameters, steps).LossWithin(t, period);
                                })));
  }
  return outlook;
}

}  // namespace eplog::reliability
