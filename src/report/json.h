// The JSON of the front end: keys keep the order in which they were written, so that documents read
// as documented.
#pragma once

#include <nlohmann/json.hpp>

namespace eplog {

using Json = nlohmann::ordered_json;

}  // namespace eplog
