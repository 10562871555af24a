// `eplog mttdl --what-if FILE.toml`: named scenarios side by side, and which input matters most.
//
//     years = "5y"                  # inputs that all share, named as the options
//     [[scenario]]
//     name = "as it is"
//     alpha = 0.5
//     [[scenario]]
//     name = "mirrored log"
//     lambda-log = 0.01
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/mttdl/inputs.h"
#include "cli/mttdl/report.h"
#include "report/json.h"

namespace eplog::cli {

struct Scenario {
  std::string name;
  InputSet values;    // its own and the shared ones
  std::string where;  // "file.toml:12"
};

// Values may be numbers or what one would type. Errors say file and line. kInvalidArgument.
Result<std::vector<Scenario>> ParseScenarios(std::string_view text, const std::string& file);
Result<std::vector<Scenario>> LoadScenarios(const std::filesystem::path& file);

struct WhatIf {
  struct Row {
    std::string name;
    Inputs inputs;
    Comparison comparison;
  };
  std::vector<Row> rows;
};
// Each scenario over `base`.
Result<WhatIf> RunWhatIf(const InputSet& base, const std::vector<Scenario>& scenarios);

std::string WhatIfText(const WhatIf& what_if);
Json WhatIfJson(const WhatIf& what_if);

}  // namespace eplog::cli
