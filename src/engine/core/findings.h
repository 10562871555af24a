// Findings: what a check or scrub found, as it goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "eplog/report.h"

namespace eplog {

class Findings {
 public:
  static constexpr size_t kMost = 1000;
  static constexpr size_t kNotListed = SIZE_MAX;

  size_t Add(Finding finding) {
    ++report.problems_found;
    if (report.findings.size() == kMost) {
      return kNotListed;
    }
    report.findings.push_back(std::move(finding));
    return report.findings.size() - 1;
  }
  void SetOutcome(size_t at, Finding::Outcome outcome) {
    if (at != kNotListed) {
      report.findings[at].outcome = outcome;
    }
  }

  CheckReport report;
};

}  // namespace eplog
