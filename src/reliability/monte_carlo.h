// A seeded discrete-event simulation of single devices: the same assumptions as the chains,
// followed event by event, and the only engine for what no chain can hold (SSDs with ages of their
// own, rebuilds of a fixed length). It shares the parameters and the probability of latent errors
// with the chains, but neither states nor transitions.
//
// Every device carries how much hazard it will still survive, drawn from the exponential
// distribution: random failures use it up at the constant rate, wear as bytes are written. A failed
// device carries how much work its rebuild still is, in units of the mean. Where two kinds share
// the paper's one repairman (RepairOrder::kRandomKind) each proceeds at half speed, which gives the
// rates of the chain.
#pragma once

#include <cstdint>
#include <limits>

#include "reliability/parameters.h"

namespace eplog::reliability {

enum class RepairTimes {
  kExponential,  // as in the chains
  kFixed,        // every rebuild takes the mean
};

struct Simulation {
  uint64_t seed = 1;
  uint64_t lives = 1000;
  // A life ends at the loss of data, or here.
  double years = std::numeric_limits<double>::infinity();
  RepairTimes repair_times = RepairTimes::kExponential;
  // At most this many events in all; lives that have not ended by then are left out.
  uint64_t most_events = 100'000'000;
};

inline constexpr double kSigmas99 = 2.5758293035489004;  // of a 99 % interval, two-sided

// With the 99 % confidence interval.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

struct Simulated {
  uint64_t lives = 0;   // that were followed to their end
  uint64_t losses = 0;  // of them
  uint64_t events = 0;
  bool stopped_early = false;  // most_events ran out
  // Mean years to loss. Only if every life ended in a loss: value 0 otherwise.
  Estimate mttdl_years;
  // Within Simulation::years (Wilson's interval).
  Estimate loss_probability;
};

// Same parameters and seed, same result. Precondition: Validate().
[[nodiscard]] Simulated Simulate(System system, const Parameters& parameters,
                                 const Simulation& simulation);

// Losses that are rare beside failures, by regenerative simulation with failure biasing: cycles
// from the state in which all devices are well and back are made to fail more often than they
// would, and weighed by how much more. Needs constant rates and exponential rebuilds; the estimate
// is of MTTDL. Precondition: Validate(), no wear.
[[nodiscard]] Estimate SimulateRareLoss(System system, const Parameters& parameters, uint64_t seed,
                                        uint64_t cycles);

}  // namespace eplog::reliability
