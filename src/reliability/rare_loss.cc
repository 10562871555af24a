// Regenerative simulation with failure biasing. By the theory of regeneration
//
//     MTTDL = E[length of a cycle, cut at the loss] / P(loss within a cycle)
//
// where a cycle begins when all devices are well. Lengths are drawn from cycles as they are;
// losses from cycles in which, while something is down, a failure comes next with probability 1/2
// instead of its own (balanced over the kinds), and what ends in a loss by chance (latent errors,
// the window of pending chunks) does so at least with probability 1/4; each is weighed by the ratio
// of true to biased probability of its path.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "reliability/chain.h"
#include "reliability/monte_carlo.h"

namespace eplog::reliability {
namespace {

constexpr double kBias = 0.5;
constexpr double kLeastChance = 0.25;

// Only the numbers of devices that are down: all rates are constant, so nothing else matters.
class Cycle {
 public:
  Cycle(System system, const Parameters& p, Random& random)
      : p_(p),
        random_(random),
        ssd_rate_(SsdRate(system, p)),
        logs_(system == System::kEplog ? p.parity : 0) {}

  struct Outcome {
    bool lost = false;
    double weight = 1;  // true over biased probability
    double years = 0;   // unbiased cycles only
  };

  Outcome Run(bool biased) {
    Outcome outcome;
    ssds_ = logs_down_ = 0;
    do {
      const double ssd_failure = (p_.ssds - ssds_) * ssd_rate_ * (ssds_ > 0 ? p_.correlation : 1);
      const double log_failure = (logs_ - logs_down_) * p_.lambda_log;
      const double ssd_repair = ssds_ == 0 ? 0 : p_.mu_ssd * Effort(true);
      const double log_repair = logs_down_ == 0 ? 0 : p_.mu_log * Effort(false);
      const double failures = ssd_failure + log_failure;
      const double repairs = ssd_repair + log_repair;
      outcome.years += -std::log1p(-random_.Unit()) / (failures + repairs);
      bool fails = random_.Chance(failures / (failures + repairs));
      // From the state in which all is well only failures lead away: there is nothing to bias but
      // the kind, which is left as it is.
      if (biased && repairs > 0) {
        fails = random_.Chance(kBias);
        outcome.weight *=
            (fails ? failures : repairs) / (failures + repairs) / (fails ? kBias : 1 - kBias);
      }
      outcome.lost = fails ? !Failure(log_failure / failures, biased, outcome.weight)
                           : !Repair(ssd_repair / repairs, biased, outcome.weight);
    } while (!outcome.lost && ssds_ + logs_down_ > 0);
    return outcome;
  }

 private:
  // How many devices' worth of repair one kind gets.
  [[nodiscard]] double Effort(bool ssd) const {
    if (p_.repair == RepairOrder::kParallel) {
      return ssd ? ssds_ : logs_down_;
    }
    if (ssds_ == 0 || logs_down_ == 0) {
      return 1;
    }
    return p_.repair == RepairOrder::kRandomKind          ? 0.5
           : (p_.repair == RepairOrder::kSsdFirst) == ssd ? 1.0
                                                          : 0.0;
  }

  // True with `probability`; biased, more often, which `weight` makes up for.
  bool Chance(double probability, bool biased, double& weight) {
    if (!biased || probability == 0 || probability >= kLeastChance) {
      return random_.Chance(probability);
    }
    const bool happens = random_.Chance(kLeastChance);
    weight *= happens ? probability / kLeastChance : (1 - probability) / (1 - kLeastChance);
    return happens;
  }

  bool Failure(double share, bool biased, double& weight) {
    const bool choose = biased && share > 0 && share < 1;
    const bool log = random_.Chance(choose ? kBias : share);
    if (choose) {
      weight *= (log ? share : 1 - share) / (log ? kBias : 1 - kBias);
    }
    const bool covered = ssds_ + logs_down_ <= p_.parity;
    ++(log ? logs_down_ : ssds_);
    if (ssds_ > p_.parity) {
      return false;
    }
    const bool runs_out = covered && ssds_ + logs_down_ > p_.parity;
    return !runs_out || !Chance(p_.pending_fraction, biased, weight);
  }

  bool Repair(double ssd_share, bool biased, double& weight) {
    if (!random_.Chance(ssd_share)) {
      --logs_down_;
      return true;
    }
    const double loss =
        RebuildMeetsLatentErrors(p_, ssds_, RedundancyLeft(p_, ssds_, logs_down_)).loss;
    --ssds_;
    return !Chance(loss, biased, weight);
  }

  const Parameters& p_;
  Random& random_;
  double ssd_rate_;
  uint32_t logs_;
  uint32_t ssds_ = 0;
  uint32_t logs_down_ = 0;
};

struct Moments {
  double sum = 0;
  double squares = 0;
  void Add(double x) {
    sum += x;
    squares += x * x;
  }
  [[nodiscard]] double Mean(double n) const { return sum / n; }
  // Relative variance of the mean.
  [[nodiscard]] double Spread(double n) const {
    const double mean = Mean(n);
    return std::max(0.0, squares / n - mean * mean) / (n - 1) / (mean * mean);
  }
};

}  // namespace

Estimate SimulateRareLoss(System system, const Parameters& parameters, uint64_t seed,
                          uint64_t cycles) {
  EPLOG_CHECK(Validate(parameters).ok() && !parameters.wear && cycles > 1,
              "constant rates, and cycles to look at");
  Random random(seed);
  Cycle cycle(system, parameters, random);
  Moments years;
  Moments losses;
  for (uint64_t i = 0; i < cycles; ++i) {
    years.Add(cycle.Run(false).years);
    const Cycle::Outcome outcome = cycle.Run(true);
    losses.Add(outcome.lost ? outcome.weight : 0);
  }
  const auto n = static_cast<double>(cycles);
  if (losses.sum == 0) {
    const double none = std::numeric_limits<double>::infinity();
    return {none, none, none};
  }
  const double value = years.Mean(n) / losses.Mean(n);
  // Of a quotient of independent means; on a log scale, which keeps it positive.
  const double factor = std::exp(kSigmas99 * std::sqrt(years.Spread(n) + losses.Spread(n)));
  return {value, value / factor, value * factor};
}

}  // namespace eplog::reliability
