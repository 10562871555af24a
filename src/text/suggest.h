// Forgiving names: what a person may have meant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace eplog {

// The one name that `typed` is, or is an unambiguous beginning of (two letters or more).
std::optional<std::string> MatchName(std::string_view typed, std::span<const std::string> names);

// The nearest name if it is near enough to be meant, else empty.
std::string NearestName(std::string_view typed, std::span<const std::string> names);

// "a, b, c"
std::string JoinNames(std::span<const std::string> names);

}  // namespace eplog
