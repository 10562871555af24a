// The oracle: the paper's chains and closed forms once more, in exact fractions and in 600-bit
// arithmetic. It shares no table, no formula and no method with the code under test: rates are set
// up anew, systems are solved by plain Gaussian elimination, transients by the exponential series.
#pragma once

#include <gmpxx.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "reliability/parameters.h"

namespace eplog::reliability {

using Fraction = mpq_class;
using Rows = std::vector<std::vector<Fraction>>;

inline constexpr unsigned kBits = 600;  // 180 decimal digits
using Wide = mpf_class;
using WideRows = std::vector<std::vector<Wide>>;

// The generator of the base model (nothing beyond the paper but the order of repairs), loss last.
Rows ExactGenerator(System system, const Parameters& p);
// Mean time to the last state from state 0.
Fraction ExactMean(const Rows& generator);
// Probability of the last state after `years`.
Wide ExactLoss(const Rows& generator, double years);

// As they stand in the paper, with their subtractions.
Fraction Equation4(const Parameters& p);
Fraction Equation5(const Parameters& p);
Fraction Equation6(const Parameters& p);

// |value / truth - 1|
double RelativeError(double value, const Fraction& truth);
double RelativeError(double value, const Wide& truth);

// From 10^low to 10^high, even on a log scale.
double LogUniform(Random& random, double low, double high);
// Up to 1,000 SSDs, mu / lambda up to 10^12.
Parameters RandomParameters(Random& random, uint32_t parity);

}  // namespace eplog::reliability
