// How long the figures of the reliability calculator take, the largest arrays that it is for: the
// best of some runs, since other work on the machine only ever makes them slower. Prints a table.
//
//   reliability_time [RUNS]      5 unless said otherwise
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "base/check.h"
#include "reliability/solver.h"
#include "reliability/wear.h"

namespace eplog::reliability {
namespace {

void Measure(const std::string& what, int runs, const std::function<double()>& years) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EPLOG_CHECK(years() > 0, "an array lives for a while");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  fmt::print("{:<44} {:8.1f} ms\n", what, best * 1e3);
}

Parameters Large() {
  Parameters p;
  p.ssds = 1000;
  p.parity = 4;
  p.lambda_ssd = 1e-3;
  p.mu_ssd = p.mu_log = 1e9;
  return p;
}

int Main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  for (const double w : {1.0, 0.5}) {
    Measure(fmt::format("MTTDL and three points, {} pending", w), runs, [w] {
      Parameters p = Large();
      p.lambda_log = p.lambda_ssd;
      p.pending_fraction = w;
      return Foresee(System::kEplog, p, std::array{1.0, 10.0, 1e6}).mttdl_years;
    });
  }
  for (const double replace_at : {0.8, 0.0}) {
    const std::string when = replace_at > 0
                                 ? fmt::format("replaced at {} of the endurance", replace_at)
                                 : "never replaced";
    Measure("SSDs that wear, " + when, runs, [replace_at] {
      Parameters p = Large();
      p.lambda_log = 0.1;
      p.wear = Wear{8e14, 3, 2e14, replace_at * 8e14, SsdAges::kArray};
      return MttdlYears(System::kEplog, p);
    });
  }
  return 0;
}

}  // namespace
}  // namespace eplog::reliability

int main(int argc, char** argv) {
  return eplog::reliability::Main(argc, argv);
}
