// What a check or scrub found, for a person.
#pragma once

#include <string>

#include "report/json.h"

namespace eplog::cli {

// `report` as ReportToJson makes it; `verb` in the past tense ("checked").
// A degraded array is not called well: what is missing was not read.
void PrintReport(const Json& report, const std::string& verb, const std::string& array_name);

// Those that are not whole by now, and what to do: "ssd1 has failed (...): eplog replace ...".
// `argument`: the array, as a shell word.
void PrintNotWhole(const Json& report, const std::string& argument);

// The exit status of who ran it.
int ReportStatus(const Json& report);

}  // namespace eplog::cli
