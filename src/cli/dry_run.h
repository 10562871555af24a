// --dry-run of verbs that change an array: the plan of a change, from the process that serves it
// or, unmounted, from a read-only opening.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/verb/parser.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "report/json.h"

namespace eplog::cli {

// Declares --dry-run, and --json with it.
void AddDryRun(Parser verb, bool& dry_run, bool& json);

// `request` as plan_json.h says. The error is that with which the verb would be refused.
Result<Json> PlanChange(std::string_view verb, const ArrayFile& file, Json request);

// The plan for a person. Under the headline ("would fail ssd3 of 'a'") what changes, and then
// `notes`, each a label and its text.
struct PlanNote {
  std::string label;
  std::string text;
};
std::string ChangePlanText(const std::string& headline, const Json& plan,
                           const std::vector<PlanNote>& notes);

}  // namespace eplog::cli
