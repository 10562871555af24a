// Small things that are done to words everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace eplog {

// Without spaces and tabs at both ends.
std::string_view Trim(std::string_view text);
// ASCII letters only.
std::string Lower(std::string_view text);
// What may stand in one line: control characters become spaces, and none are left at the end.
std::string OneLine(std::string_view text);
// "1234567.8" -> "1,234,567.8"
std::string WithCommas(std::string digits);
// Digits and nothing else; empty if it is not that, or too large.
std::optional<uint64_t> ParseWhole(std::string_view text);

// Rows of cells under each other, each column as wide as its widest cell (in characters), two
// spaces between them, each line indented by two and ended. `is_left(column)` says which are flush
// left.
std::string Columns(const std::vector<std::vector<std::string>>& rows,
                    const std::function<bool(size_t)>& is_left);

}  // namespace eplog
