// `eplog mttdl --sweep` and `--fig4`: many sets of inputs at once, as CSV, JSON and a picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/mttdl/inputs.h"
#include "report/json.h"
#include "text/chart.h"

namespace eplog::cli {

struct SweepAxis {
  std::string name;                 // of an input
  std::vector<std::string> values;  // as they would be typed
  std::vector<double> numbers;      // the same; empty if they are words
  bool log = false;                 // steps are factors, or go far: a picture shows a log axis
};

// "lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7": each NAME=VALUE,... where a value may be
// FROM:TO:STEP or FROM:TO:xFACTOR. Ends are met to a billionth of a step. kInvalidArgument says
// what is wrong.
Result<std::vector<SweepAxis>> ParseSweep(std::string_view text);

struct SweepRow {
  std::vector<std::string> at;  // one value an axis
  std::vector<double> numbers;  // the same where the axis has numbers, else 0
  Inputs inputs;
  double eplog_years = 0;
  double conventional_years = 0;
  std::vector<double> eplog_loss;  // for Inputs::years
  std::vector<double> conventional_loss;
};

struct Sweep {
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;  // the last axis turns fastest
};

// `base` with each combination of the axes' values over it. Only what a chain can hold.
Result<Sweep> RunSweep(const InputSet& base, std::vector<SweepAxis> axes);

std::string SweepCsv(const Sweep& sweep);
Json SweepJson(const Sweep& sweep);
// The first axis along x, a line for each combination of the others. kInvalidArgument if the first
// axis has no numbers or there would be too many lines to tell apart.
Result<Chart> SweepChart(const Sweep& sweep);

// Figure 4 of the paper's supplement: MTTDL against lambda_h / lambda'_s = 1 ... 10 for alpha =
// 0.3, 0.5, 0.7, for one and two parities. `base` may change everything else.
struct Figure4 {
  struct Line {
    double alpha = 0;
    std::vector<double> eplog_years;  // at each ratio
    double ratio_at_one = 0;          // EPLOG over conventional where log devices fail like SSDs
    std::optional<double> crossing;   // lambda_h / lambda'_s
  };
  struct Level {
    uint32_t parity = 0;
    double conventional_years = 0;
    std::vector<Line> lines;
  };
  std::vector<double> ratios;
  std::vector<Level> levels;
  Inputs inputs;  // of the first point
};
Result<Figure4> MakeFigure4(const InputSet& base);
std::string Figure4Text(const Figure4& figure);
std::string Figure4Csv(const Figure4& figure);
Json Figure4Json(const Figure4& figure);
Chart Figure4Chart(const Figure4& figure);

}  // namespace eplog::cli
