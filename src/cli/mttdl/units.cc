#include "cli/mttdl/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "reliability/parameters.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog::cli {
namespace {

tl::unexpected<Error> NoSuch(std::string_view text, const char* what, const char* examples) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not {}; write {}", text, what, examples));
}

// In years; empty if it is no unit of time.
std::optional<double> UnitYears(const std::string& typed) {
  using reliability::kHoursPerYear;
  using reliability::kSecondsPerYear;
  struct Unit {
    std::string_view name;
    double years;
  };
  constexpr std::array<Unit, 17> kUnits = {{{"ms", 1e-3 / kSecondsPerYear},
                                            {"s", 1 / kSecondsPerYear},
                                            {"m", 60 / kSecondsPerYear},
                                            {"min", 60 / kSecondsPerYear},
                                            {"h", 1 / kHoursPerYear},
                                            {"hour", 1 / kHoursPerYear},
                                            {"hours", 1 / kHoursPerYear},
                                            {"kh", 1e3 / kHoursPerYear},
                                            {"mh", 1e6 / kHoursPerYear},
                                            {"d", 24 / kHoursPerYear},
                                            {"day", 24 / kHoursPerYear},
                                            {"days", 24 / kHoursPerYear},
                                            {"w", 168 / kHoursPerYear},
                                            {"weeks", 168 / kHoursPerYear},
                                            {"y", 1},
                                            {"year", 1},
                                            {"years", 1}}};
  const std::string unit = Lower(typed);
  for (const Unit& known : kUnits) {
    if (known.name == unit) {
      return known.years;
    }
  }
  return std::nullopt;
}

// Four digits that count, and no point where there is nothing behind it.
std::string FourDigits(double value) {
  const int whole = value < 1 ? 1 : static_cast<int>(std::floor(std::log10(value))) + 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, 4 - whole));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    text.erase(text.find_last_not_of('.') + 1);
  }
  return WithCommas(text);
}

}  // namespace

std::optional<Quantity> SplitQuantity(std::string_view text) {
  text = Trim(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  Quantity out;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.number);
  if (error != std::errc() || !std::isfinite(out.number)) {
    return std::nullopt;
  }
  out.unit = std::string(Trim(text.substr(static_cast<size_t>(end - text.data()))));
  return out;
}

Result<double> ParseNumber(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  if (!quantity || !quantity->unit.empty()) {
    return NoSuch(text, "a number", "0.5, 3 or 1e-4");
  }
  return quantity->number;
}

Result<uint32_t> ParseCount(std::string_view text) {
  const auto count = ParseWhole(Trim(text));
  if (!count || *count > UINT32_MAX) {
    return NoSuch(Trim(text), "a whole number", "4 or 10");
  }
  return static_cast<uint32_t>(*count);
}

Result<double> ParseRate(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  if (quantity && quantity->unit.empty()) {
    return quantity->number;
  }
  if (quantity && quantity->unit.starts_with('/')) {
    if (const auto years = UnitYears(std::string(Trim(quantity->unit.substr(1))))) {
      return quantity->number / *years;
    }
  }
  return NoSuch(text, "a rate", "0.25 (a year), 0.25/y or 2e-6/h");
}

Result<double> ParseAfr(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  if (!quantity || !(quantity->unit.empty() || quantity->unit == "%") || quantity->number >= 100) {
    return NoSuch(text, "a yearly failure rate below 100 %", "2.2% or 2.2");
  }
  return -std::log1p(-quantity->number / 100);
}

Result<double> ParseMttf(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  const auto years =
      quantity ? UnitYears(quantity->unit.empty() ? "h" : quantity->unit) : std::nullopt;
  if (!years || !(quantity->number > 0)) {
    return NoSuch(text, "a mean time to failure", "1200000h, 1.2Mh or 4y");
  }
  return 1 / (quantity->number * *years);
}

Result<double> ParseYears(std::string_view text, std::string_view bare_unit) {
  const auto quantity = SplitQuantity(text);
  const auto years =
      quantity ? UnitYears(quantity->unit.empty() ? std::string(bare_unit) : quantity->unit)
               : std::nullopt;
  if (!years) {
    return NoSuch(text, "a time", "50m, 2h, 7d, 2w or 5y");
  }
  return quantity->number * *years;
}

Result<double> ParseShare(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  if (quantity && (quantity->unit.empty() || quantity->unit == "%")) {
    return quantity->unit == "%" ? quantity->number / 100 : quantity->number;
  }
  return NoSuch(text, "a share", "0.1 or 10%");
}

Result<double> ParseEndurance(std::string_view text) {
  const auto quantity = SplitQuantity(text);
  if (quantity) {
    const std::string unit = Lower(quantity->unit);
    if (unit.empty() || unit == "t" || unit == "tb" || unit == "tbw") {
      return quantity->number * 1e12;
    }
    if (unit == "p" || unit == "pb" || unit == "pbw") {
      return quantity->number * 1e15;
    }
    if (unit == "g" || unit == "gb") {
      return quantity->number * 1e9;
    }
  }
  return NoSuch(text, "an endurance", "600 or 600TB (10^12 bytes), or 1.2PB");
}

Result<double> ParseSpeed(std::string_view text) {
  std::string_view size = Trim(text);
  if (size.ends_with("/s")) {
    size.remove_suffix(2);
  }
  const auto bytes = ParseSize(size);
  if (!bytes.ok()) {
    return NoSuch(text, "a speed", "100M or 100M/s");
  }
  return static_cast<double>(*bytes);
}

std::string HumanYears(double years) {
  if (!std::isfinite(years)) {
    return "for ever";
  }
  const double seconds = years * reliability::kSecondsPerYear;
  if (seconds < 600) {
    return FourDigits(seconds) + " seconds";
  }
  if (seconds < 2 * 86400) {
    return seconds < 7200 ? FourDigits(seconds / 60) + " minutes"
                          : FourDigits(seconds / 3600) + " hours";
  }
  if (std::abs(years - 1) < 5e-4) {
    return "1 year";
  }
  if (years < 2) {
    return years < 0.999 ? FourDigits(seconds / 86400) + " days" : FourDigits(years) + " years";
  }
  constexpr std::array<std::pair<double, const char*>, 3> kWords = {
      {{1e12, "trillion "}, {1e9, "billion "}, {1e6, "million "}}};
  if (years >= 1e15) {
    return fmt::format("{:.3e} years", years);
  }
  for (const auto& [size, word] : kWords) {
    if (years >= size) {
      return FourDigits(years / size) + " " + word + "years";
    }
  }
  return FourDigits(years) + " years";
}

std::string HumanProbability(double probability) {
  if (probability == 0) {
    return "0";
  }
  return probability < 1e-6 ? fmt::format("{:.3g}", probability)
                            : fmt::format("{:.3g} %", 100 * probability);
}

std::string HumanNumber(double number) {
  const double size = std::abs(number);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) {
    return fmt::format("{:.4g}", number);
  }
  return size >= 1000 ? WithCommas(fmt::format("{:.0f}", number)) : fmt::format("{:.4g}", number);
}

}  // namespace eplog::cli
