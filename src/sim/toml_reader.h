// TomlReader: values of a TOML table with their bounds, and complaints that name file and line.
// Only for drive.cc, so that nobody else compiles toml++.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "eplog/result.h"

namespace eplog::sim {

class TomlReader {
 public:
  explicit TomlReader(std::string file) : file_(std::move(file)) {}

  tl::unexpected<Error> Complain(const toml::source_region& where, const std::string& what) const {
    return Fail(ErrorCode::kInvalidArgument,
                where.begin.line == 0 ? fmt::format("{}: {}", file_, what)
                                      : fmt::format("{}:{}: {}", file_, where.begin.line, what));
  }
  tl::unexpected<Error> Complain(const toml::node& where, const std::string& what) const {
    return Complain(where.source(), what);
  }

  Status Keys(const toml::table& table, std::span<const std::string_view> known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        return Complain(key.source(), fmt::format("unknown key '{}'; known here: {}",
                                                  Printable(key.str()), fmt::join(known, ", ")));
      }
    }
    return OkStatus();
  }

  Result<const toml::table*> Table(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr || node->as_table() == nullptr) {
      return node == nullptr ? Complain(table, fmt::format("the table [{}] is missing", key))
                             : Complain(*node, fmt::format("'{0}' must be a table: [{0}]", key));
    }
    return node->as_table();
  }

  // A number within bounds, whole or with decimals, times `scale`, rounded. It must be there.
  template <typename T>
  Status Number(const toml::table& table, std::string_view key, double low, double high,
                double scale, T& value) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) {
      return Complain(table,
                      fmt::format("'{}' is missing: a number from {} to {}", key, low, high));
    }
    const auto number = node->is_number() ? node->value<double>() : std::nullopt;
    if (!number || !(*number >= low && *number <= high)) {
      return Complain(*node, fmt::format("'{}' must be a number from {} to {}", key, low, high));
    }
    value = static_cast<T>(std::llround(*number * scale));
    return OkStatus();
  }

  // The same for what is counted.
  template <typename T>
  Status Count(const toml::table& table, std::string_view key, int64_t low, int64_t high,
               T& value) const {
    const toml::node* node = table.get(key);
    const std::string must = fmt::format("a whole number from {} to {}", low, high);
    if (node == nullptr) {
      return Complain(table, fmt::format("'{}' is missing: {}", key, must));
    }
    const auto* number = node->as_integer();
    if (number == nullptr || number->get() < low || number->get() > high) {
      return Complain(*node, fmt::format("'{}' must be {}", key, must));
    }
    value = static_cast<T>(number->get());
    return OkStatus();
  }

  Status Text(const toml::table& table, std::string_view key, std::string& value) const {
    const toml::node* node = table.get(key);
    if (node == nullptr || node->as_string() == nullptr) {
      return node == nullptr ? Complain(table, fmt::format("'{}' is missing: a string", key))
                             : Complain(*node, fmt::format("'{}' must be a string in quotes", key));
    }
    value = node->as_string()->get();
    return OkStatus();
  }

  Status Flag(const toml::table& table, std::string_view key, bool& value) const {
    const toml::node* node = table.get(key);
    if (node == nullptr || node->as_boolean() == nullptr) {
      return node == nullptr ? Complain(table, fmt::format("'{}' is missing: true or false", key))
                             : Complain(*node, fmt::format("'{}' must be true or false", key));
    }
    value = node->as_boolean()->get();
    return OkStatus();
  }

  static std::string Printable(std::string_view text, size_t limit = 60) {
    std::string shown(text.substr(0, limit));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c == '\x7f'; }, '?');
    return shown;
  }

 private:
  std::string file_;
};

}  // namespace eplog::sim
