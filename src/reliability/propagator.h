// The evolution of a chain over a span of time, and the elimination that its means come from. For
// this room only: it shows Eigen.
//
// METHOD. Rates of a chain may differ by 10^12 and loss may be as rare as 10^-60. Both functions
// therefore only add, multiply and divide non-negative numbers, so that every entry, however small,
// keeps its leading digits.
//
//   Means: elimination of states one after the other with each diagonal entry formed as the sum of
//   the off-diagonal ones (Grassmann, Taksar, Heyman 1985, there for stationary distributions).
//
//   Transients: uniformisation over a span so short that less than 1/16 of a step is expected, then
//   doubling. Each doubling squares a matrix of probabilities; rows are brought back to a sum of 1,
//   without which an error in the row sum would double each time. The loss is a state like any
//   other: its probability is summed up, never taken as what is missing from 1.
#pragma once

#include <Eigen/Dense>

#include "reliability/chain.h"

namespace eplog::reliability {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

// Rates a year between states: off-diagonal, square with the loss last, zero diagonal.
[[nodiscard]] Matrix RateMatrix(const Chain& chain);

// The same as fixed + (failure rate of one SSD) * per_ssd_rate.
struct SplitRateMatrix {
  Matrix fixed;
  Matrix per_ssd_rate;
};
[[nodiscard]] SplitRateMatrix SplitRates(const Chain& chain);

// With `rates` as above (or probabilities of one step; the diagonal is not looked at) and `reward`
// for every year (step) in each state but the loss: the reward expected from state 0 until the
// loss. Infinite if the loss may never be reached.
[[nodiscard]] double RewardUntilLoss(const Matrix& rates, const Vector& reward);

struct Propagator {
  Matrix
      probability;    // (i, j): in j at the end of the span if in i at its beginning; rows sum to 1
  Vector years_kept;  // [i]: years without loss expected within the span if in i at its beginning
};

// No time at all.
[[nodiscard]] Propagator Standstill(Eigen::Index states);
[[nodiscard]] Propagator Propagate(const Matrix& rates, double years);
// `first`, then `second`.
[[nodiscard]] Propagator Then(const Propagator& first, const Propagator& second);
// `span`, `times` times over.
[[nodiscard]] Propagator Repeat(const Propagator& span, uint64_t times);

}  // namespace eplog::reliability
