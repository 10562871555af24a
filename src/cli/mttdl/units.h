// Rates, times and probabilities as people give them to `eplog mttdl`, and as they are shown. Pure
// text. What is parsed is in the room's units: events a year, years, bytes. A year has 365.25 days.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "eplog/result.h"

namespace eplog::cli {

// "0.25", "1e-4", "+3": a finite number and what follows it. Empty if it begins with none.
struct Quantity {
  double number = 0;
  std::string unit;  // as typed, without spaces around
};
std::optional<Quantity> SplitQuantity(std::string_view text);

// All of these: kInvalidArgument with a line that shows the right form. Signs and ranges are for
// the model to judge.
Result<double> ParseNumber(std::string_view text);
// "4", "10": a whole number.
Result<uint32_t> ParseCount(std::string_view text);
// "0.25", "0.25/y", "2e-6/h": a year unless it says otherwise.
Result<double> ParseRate(std::string_view text);
// "2.2%" or "2.2": the share of devices that fails in a year, as a rate: -ln(1 - AFR).
Result<double> ParseAfr(std::string_view text);
// "4y", "1.2Mh", "1200000h", "300d"; a bare number is hours, as data sheets have it. As a rate.
Result<double> ParseMttf(std::string_view text);
// "50m", "2h", "7d", "2w", "0.5y"; in years. A bare number is in `bare_unit`.
Result<double> ParseYears(std::string_view text, std::string_view bare_unit);
// "10%" or "0.1".
Result<double> ParseShare(std::string_view text);
// "600", "600TB", "1.2PB": decimal, as data sheets have it; a bare number is TB. In bytes.
Result<double> ParseEndurance(std::string_view text);
// "100M", "100M/s": a size a second. In bytes.
Result<double> ParseSpeed(std::string_view text);

// 1778.6 -> "1,779 years", 8.893e6 -> "8.893 million years", 0.01 -> "3.7 days".
std::string HumanYears(double years);
// 0.00056 -> "0.056 %"; small ones as "1.23e-07".
std::string HumanProbability(double probability);
// 10000 -> "10,000", 0.25 -> "0.25", 1.2e9 -> "1.2e+09".
std::string HumanNumber(double number);

}  // namespace eplog::cli
