#include "cli/print_report.h"

#include <fmt/format.h>

#include "eplog/status.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr size_t kFindingsShown = 20;

std::string Verdict(const Json& report) {
  const auto found = report.value("problems_found", uint64_t{0});
  if (found == 0 && report.value("degraded", false)) {
    return "no problem in what is there; " +
           Paint(Colour::kYellow, "the array is degraded, see eplog status");
  }
  if (found == 0) {
    return Paint(Colour::kGreen, "all is well");
  }
  std::string text = fmt::format("{} problems", found);
  if (const auto before = report.value("problems_found_before", uint64_t{0}); before != 0) {
    text += fmt::format(" ({} of them found by the scrub that was cut short)", before);
  }
  if (const auto healed = report.value("healed", uint64_t{0}); healed != 0) {
    text += fmt::format(", {} copies written anew", healed);
  }
  if (const auto lost = report.value("lost", uint64_t{0}); lost != 0) {
    text += ", " + Paint(Colour::kRed, fmt::format("{} chunks beyond repair", lost));
  }
  return text;
}

}  // namespace

void PrintReport(const Json& report, const std::string& verb, const std::string& array_name) {
  size_t shown = 0;
  for (const Json& problem : report["problems"]) {
    if (shown++ == kFindingsShown) {
      break;
    }
    Print(Paint(Colour::kRed, "problem: ") + problem.get<std::string>());
  }
  const auto found = report.value("problems_found", uint64_t{0}) -
                     report.value("problems_found_before", uint64_t{0});
  if (found > kFindingsShown) {
    Print(fmt::format("... and {} more; --json lists up to 1000", found - kFindingsShown));
  }
  Print(fmt::format(
      "{} {} rows, {} chunks, {} parities, {} log stripes, {} blocks of metadata of '{}': {}", verb,
      report.value("rows_checked", uint64_t{0}), report.value("chunks_checked", uint64_t{0}),
      report.value("parity_checked", uint64_t{0}), report.value("log_stripes_checked", uint64_t{0}),
      report.value("metadata_blocks_checked", uint64_t{0}), array_name, Verdict(report)));
}

void PrintNotWhole(const Json& report, const std::string& argument) {
  for (const Json& device : report.value("devices_not_ok", Json::array())) {
    const std::string name = device.value("name", "");
    const std::string state = device.value("state", "");
    const Json& because = device["failed_because"];
    const std::string why = because.is_string() ? " (" + because.get<std::string>() + ")" : "";
    const std::string replace =
        fmt::format("eplog replace {} {} NEW puts another in its place", argument, name);
    if (state == DeviceStateName(DeviceState::kRebuilding)) {
      Print(fmt::format("{} is being rebuilt{}", name, why));
    } else if (state == DeviceStateName(DeviceState::kMissing)) {
      Print(fmt::format("{} is missing{}: bring it back, or {}", name, why, replace));
    } else {
      Print(fmt::format("{} has {}{}: {}", name, state, why, replace));
    }
  }
}

int ReportStatus(const Json& report) {
  return report.value("problems_found", uint64_t{0}) != 0 || report.value("degraded", false)
             ? kDoneWithFindings
             : kDone;
}

}  // namespace eplog::cli
