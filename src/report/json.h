// The JSON of the front end: keys keep the order in which they were written, so that documents read
// as documented.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace eplog {

using Json = nlohmann::ordered_json;

[[nodiscard]] inline Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace eplog
