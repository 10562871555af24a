#include "text/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "text/words.h"

namespace eplog {
namespace {

struct Decimal {
  uint64_t whole = 0;
  uint64_t fraction = 0;  // of `scale`
  uint64_t scale = 1;
  std::string unit;  // what follows, lower case
};

// Digits, at most nine more after a point, then a unit. Exact: no floating point.
std::optional<Decimal> SplitDecimal(std::string_view text) {
  text = Trim(text);
  Decimal out;
  size_t at = 0;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  if (!digit()) {
    return std::nullopt;
  }
  for (; digit(); ++at) {
    const auto value = static_cast<uint64_t>(text[at] - '0');
    if (out.whole > (UINT64_MAX - value) / 10) {
      return std::nullopt;
    }
    out.whole = out.whole * 10 + value;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    const size_t first = at;
    for (; digit() && at - first < 9; ++at) {
      out.fraction = out.fraction * 10 + static_cast<uint64_t>(text[at] - '0');
      out.scale *= 10;
    }
    if (at == first || digit()) {
      return std::nullopt;
    }
  }
  out.unit = Lower(Trim(text.substr(at)));
  return out;
}

// whole.fraction times `factor`; nothing if it overflows or, with `exact`, is not whole.
std::optional<uint64_t> Times(const Decimal& decimal, uint64_t factor, bool exact) {
  const auto whole = static_cast<unsigned __int128>(decimal.whole) * factor;
  const auto part = static_cast<unsigned __int128>(decimal.fraction) * factor;
  if (exact && part % decimal.scale != 0) {
    return std::nullopt;
  }
  const auto sum = whole + part / decimal.scale;
  if (sum > UINT64_MAX) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(sum);
}

std::optional<uint64_t> SizeFactor(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kmgtp";
  if (unit.empty() || unit == "b") {
    return 1;
  }
  const size_t power = kPrefixes.find(unit.front());
  const std::string_view rest = unit.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return std::nullopt;
  }
  return uint64_t{1} << (10 * (power + 1));
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  const auto decimal = SplitDecimal(text);
  const auto factor = decimal ? SizeFactor(decimal->unit) : std::nullopt;
  if (!factor) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a size; write 4096, 64K, 1.5G or 2T", text));
  }
  const auto bytes = Times(*decimal, *factor, true);
  if (!bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a whole number of bytes that fits 64 bits", text));
  }
  return *bytes;
}

Result<uint64_t> ParseDuration(std::string_view text) {
  struct Unit {
    std::string_view name;
    uint64_t us;
  };
  constexpr std::array<Unit, 6> kUnits = {{{"", 1'000'000},
                                           {"ms", 1'000},
                                           {"s", 1'000'000},
                                           {"m", 60'000'000},
                                           {"h", 3'600'000'000},
                                           {"d", 86'400'000'000}}};
  const auto decimal = SplitDecimal(text);
  for (const Unit& unit : kUnits) {
    if (decimal && decimal->unit == unit.name) {
      if (const auto us = Times(*decimal, unit.us, false)) {
        return *us;
      }
      break;
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not a duration; write 30s, 5m, 2h or 1d", text));
}

Result<uint32_t> ParsePercent(std::string_view text) {
  std::string_view number = Trim(text);
  if (number.ends_with('%')) {
    number.remove_suffix(1);
  }
  const auto decimal = SplitDecimal(number);
  if (!decimal || !decimal->unit.empty() || decimal->fraction != 0 || decimal->whole > 100) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a percentage; write 10% or 10", text));
  }
  return static_cast<uint32_t>(decimal->whole);
}

bool IsPlainText(std::string_view text) {
  return IsUtf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
         });
}

std::string TypedSize(uint64_t bytes) {
  constexpr std::string_view kUnits = "KMGTP";
  std::string unit;
  for (const char next : kUnits) {
    if (bytes == 0 || bytes % 1024 != 0) {
      break;
    }
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{}{}", bytes, unit);
}

std::string LevelName(uint32_t parity) {
  return parity == 1 ? "RAID-5" : parity == 2 ? "RAID-6" : fmt::format("{} parities", parity);
}

std::string HumanSeconds(double seconds) {
  if (seconds < 9.95) {
    return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  }
  const auto whole = static_cast<uint64_t>(std::llround(std::min(seconds, 1e12)));
  if (whole < 60) {
    return fmt::format("{}s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{}m{}s", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return fmt::format("{}h{}m", whole / 3600, whole % 3600 / 60);
  }
  return fmt::format("{}d{}h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace eplog
