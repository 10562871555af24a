// Chains whose failure rates grow with the bytes written (Wear, SsdAges::kArray): every SSD is as
// old as the array.
//
// After t years an SSD has written b = g t bytes, g = bytes a year. The share of SSDs that has not
// worn out by then is exp(-(b / endurance)^shape), so between t1 and t2 the mean hazard of wear is
//
//     ((g t2 / endurance)^shape - (g t1 / endurance)^shape) / (t2 - t1)
//
// which is added to the constant rate of each SSD. Over short spans the chain is taken with this
// mean hazard; the error of that falls with the square of the span and is extrapolated away.
#pragma once

#include <span>

#include "reliability/solver.h"

namespace eplog::reliability {

// As Foresee(). Precondition: wear is on, ages are kArray.
[[nodiscard]] Outlook ForeseeWear(System system, const Parameters& parameters,
                                  std::span<const double> years);

// The mean hazard above, a year; 0 without wear.
[[nodiscard]] double WearRate(System system, const Parameters& parameters, double from_years,
                              double to_years);
// When SSDs are replaced as planned; infinite if they are not.
[[nodiscard]] double ReplacementYears(System system, const Parameters& parameters);

}  // namespace eplog::reliability
