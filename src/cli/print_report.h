// What a check or scrub found, for a person.
#pragma once

#include <string>

#include "frontend/json.h"

namespace eplog::cli {

// `report` as ReportToJson makes it; `verb` in the past tense ("checked").
void PrintReport(const Json& report, const std::string& verb, const std::string& array_name);

}  // namespace eplog::cli
